-- job_submit.lua of precision-time @VERSION@: a time limit for jobs that state none.
--
-- Written by `precision-time slurm hook`. Put it beside slurm.conf, which says JobSubmitPlugins=lua,
-- and `scontrol reconfigure`. Slurm calls it while it holds its locks: the service is asked for @TIMEOUT@ s at
-- most, and after a failure not again for @PAUSE@ s. Whatever goes wrong, the job stays as it is.

local url = "@URL@/v1/slurm/time-limits"
local timeout_s, pause_s = "@TIMEOUT@", @PAUSE@
local quantile, margin = "@QUANTILE@", "@MARGIN@"
local token_file = "@TOKEN_FILE@"
local most_characters = 1000000
local away_until = 0

local function json_text(text)
  local escaped = string.gsub(text, '[%c"\\\127]', function(character)
    return string.format("\\u%04x", string.byte(character))
  end)
  return '"' .. escaped .. '"'
end

-- Slurm's numbers for "not stated" and "endless" are the largest ones of 8, 16, 32 and 64 bits.
local function stated(number)
  number = tonumber(number)
  if number == nil or number <= 0 or number >= 4294967290 or (number >= 65533 and number <= 65535) then
    return nil
  end
  return number
end

local function options_of(job)
  local found = {}
  local function put(name, value)
    if value ~= nil and value ~= "" then
      table.insert(found, json_text(name) .. ":" .. json_text(tostring(value)))
    end
  end
  local function count(name, value)
    value = stated(value)
    if value ~= nil then put(name, string.format("%.0f", value)) end
  end
  count("nodes", job.min_nodes)
  count("ntasks", job.num_tasks)
  count("ntasks-per-node", job.ntasks_per_node)
  count("cpus-per-task", job.cpus_per_task)
  put("partition", job.partition)
  put("constraint", job.features)
  put("job-name", job.name)
  put("gres", job.tres_per_node)
  put("gpus", job.tres_per_job)
  put("gpus-per-task", job.tres_per_task)
  return "{" .. table.concat(found, ",") .. "}"
end

-- MaxTime of the partition in seconds; nil where it has none.
local function longest_s(job, partitions)
  local longest = nil
  for name, partition in pairs(partitions) do
    local wanted = partition.flag_default == 1
    if job.partition ~= nil and job.partition ~= "" then
      wanted = string.find("," .. job.partition .. ",", "," .. name .. ",", 1, true) ~= nil
    end
    if wanted then
      local minutes = stated(partition.max_time)
      if minutes == nil then return nil end
      if longest == nil or minutes * 60 > longest then longest = minutes * 60 end
    end
  end
  return longest
end

local function body_of(job, partitions)
  local words = {}
  if job.argc ~= nil and job.argv ~= nil then
    for place = 1, job.argc - 1 do table.insert(words, json_text(job.argv[place])) end
  end
  local parts = {
    '"script":' .. json_text(job.script),
    '"options":' .. options_of(job),
    '"arguments":[' .. table.concat(words, ",") .. "]",
    '"quantile":' .. quantile,
    '"margin":' .. margin,
  }
  local longest = longest_s(job, partitions)
  if longest ~= nil then table.insert(parts, '"longest_s":' .. string.format("%.0f", longest)) end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- Answer and HTTP status of the service. No word of a job stands on the command line: the body is a file.
local function ask(body)
  local name = os.tmpname()
  local file = io.open(name, "wb")
  if file == nil then return "", 0 end
  file:write(body)
  file:close()
  local token = token_file ~= "" and " --header '@" .. token_file .. "'" or ""
  local pipe = io.popen("curl --silent --write-out '%{http_code}' --noproxy '*' --max-time " .. timeout_s .. token
    .. " --header 'Content-Type: application/json' --data-binary '@" .. name .. "' '" .. url .. "' 2>/dev/null")
  local answer = pipe ~= nil and pipe:read("*a") or ""
  if pipe ~= nil then pipe:close() end
  os.remove(name)
  return string.sub(answer, 1, -4), tonumber(string.sub(answer, -3)) or 0
end

local function text_of(answer, name)
  local found = string.match(answer, '"' .. name .. '":"(.-[^\\])"') or ""
  return (string.gsub(string.gsub(found, '\\(.)', "%1"), "%c", " "))
end

local function fill(job, partitions)
  if job.script == nil or job.script == "" or #job.script > most_characters then return end
  if job.time_limit ~= slurm.NO_VAL then return end
  if os.time() < away_until then
    slurm.log_user("precision-time: the service is away, the time limit is left as it is.")
    return
  end
  local answer, status = ask(body_of(job, partitions))
  if status < 200 or status >= 500 then
    away_until = os.time() + pause_s
    slurm.log_info("precision-time: no answer from %s (HTTP %d), not asked again for %d s", url, status, pause_s)
    slurm.log_user("precision-time: the service is away, the time limit is left as it is.")
    return
  end
  local seconds = tonumber(string.match(answer, '^{"seconds":(%d+)'))
  if seconds == nil then
    slurm.log_user("%s", "precision-time: no time limit is predicted. " .. text_of(answer, status < 300 and "why" or "detail"))
    return
  end
  job.time_limit = math.ceil(seconds / 60)
  if job.admin_comment == nil or job.admin_comment == "" then
    job.admin_comment = text_of(answer, "comment")
  end
  slurm.log_user("%s", "precision-time: time limit " .. text_of(answer, "text") .. ". " .. text_of(answer, "why"))
  local warning = string.match(answer, '"warnings":%["(.-[^\\])"')
  if warning ~= nil then slurm.log_user("%s", "precision-time: " .. (string.gsub(warning, "%c", " "))) end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local fine, problem = pcall(fill, job_desc, part_list)
  if not fine then slurm.log_info("precision-time: %s", tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
