// The job as text to run elsewhere: command line, Python, job file, curl. Pure; tests run what it writes.
import { askOf } from "./job.js";

const PLAIN_WORD = /^[\w@%+=:,./-]+$/;
const PLAIN_YAML = /^[A-Za-z][\w./:-]*$/;
const YAML_WORDS = new Set(["true", "false", "yes", "no", "on", "off", "null", "y", "n"]);

/** A word of a shell's command line. */
export const quoted = (text) => (PLAIN_WORD.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** Whether the job names what only the service has. */
export const storedOnly = (job) => "cluster" in job || (typeof job.model === "string" && job.model.startsWith("uploads/"));

function parts(state, fields) {
  const { body } = askOf(state, fields);
  const { model, precision, precisions, ...rest } = body;
  return { model, precisions: precisions ?? (precision === undefined ? [] : [precision]), rest };
}

const serviceOf = (base) => new URL(base).href.replace(/\/$/, "");

/** `precision-time predict ...`; a pasted configuration becomes a file first, and what is stored is asked there. */
export function commandOf(state, fields, base) {
  const { model, precisions, rest: { cluster, ...rest } } = parts(state, fields);
  const words = ["precision-time", ...whereOf(model, cluster, base), "predict"];
  let before = "";
  if (typeof model === "string") words.push(model);
  else {
    words.push("config.json");
    before = `cat > config.json <<'END'\n${JSON.stringify(model, null, 2)}\nEND\n`;
  }
  const flags = new Map(fields.map((field) => [field.name, field.flag]));
  for (const [name, value] of Object.entries(rest)) {
    const flag = flags.get(name) ?? `--${name}`;
    if (value === true) words.push(flag);
    else if (value === false) words.push(`--no-${flag.slice(2)}`);
    else if (typeof value === "object") for (const [key, size] of Object.entries(value)) words.push(flag, `${key}=${size}`);
    else if (typeof value === "number" ? value < 0 : value.startsWith("-")) words.push(`${flag}=${value}`);
    else words.push(flag, String(value));
  }
  if (precisions.length) words.push("--precision", precisions === "all" ? "all" : precisions.join(","));
  return before + words.map(quoted).join(" ");
}

/** The options that name the service, where only it can answer. */
function whereOf(model, cluster, base) {
  if (!storedOnly({ model, ...(cluster ? { cluster } : {}) })) return [];
  return ["--server", serviceOf(base), ...(cluster ? ["--cluster", cluster] : [])];
}

/** A value as Python writes it. */
export function pythonic(value, indent = "") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value).replaceAll("\u007f", "\\x7f");
  if (Array.isArray(value)) return `[${value.map((each) => pythonic(each, indent)).join(", ")}]`;
  const inner = `${indent}    `;
  const entries = Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pythonic(each, inner)},`);
  return entries.length ? `{\n${entries.join("\n")}\n${indent}}` : "{}";
}

export function pythonOf(state, fields, base) {
  const { model, precisions, rest } = parts(state, fields);
  const several = precisions === "all" || precisions.length > 1;
  const named = { model, ...rest };
  if (several) named.precisions = precisions;
  else if (precisions.length) named.precision = precisions[0];
  const written = (inner) => Object.entries(named).map(([name, value]) => `${inner}${name}=${pythonic(value, inner)},`).join("\n");
  if (storedOnly(named)) {
    const call = several ? "compare_precisions" : "predict";
    return `from precision_time import Client\n\nwith Client(${JSON.stringify(serviceOf(base))}) as service:\n    print(service.${call}(\n${written("        ")}\n    ))`;
  }
  const call = several ? "compare_precisions" : "predict_time";
  return `from precision_time import ${call}\n\nprint(${call}(\n${written("    ")}\n))`;
}

/** A value as YAML: JSON is YAML, and plain words need no quotes. */
function yaml(value) {
  if (typeof value === "string" && PLAIN_YAML.test(value) && !YAML_WORDS.has(value.toLowerCase()) && !value.endsWith(":")) return value;
  return JSON.stringify(value);
}

/** A job file; several precisions are a list, one answer for each. A stored cluster is named beside the file. */
export function jobFileOf(state, fields, base) {
  const { model, precisions, rest: { cluster, ...rest } } = parts(state, fields);
  const named = { version: 1, model, ...rest };
  if (precisions === "all") named.precision = "all";
  else if (precisions.length) named.precision = precisions.length === 1 ? precisions[0] : precisions;
  const where = whereOf(model, cluster, base);
  const first = where.length ? `# ${["precision-time", ...where, "predict", "job.yaml"].map(quoted).join(" ")}\n` : "";
  return `${first}${Object.entries(named).map(([name, value]) => `${name}: ${yaml(value)}`).join("\n")}\n`;
}

/** The request of the page itself; the token comes from the environment. */
export function curlOf(state, fields, base, withToken) {
  const { path, body } = askOf(state, fields);
  const token = withToken ? ` \\\n  -H "Authorization: Bearer $PRECISION_TIME_TOKEN"` : "";
  return `curl -sS ${quoted(new URL(path, base).href)} \\\n  -H 'Content-Type: application/json'${token} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

export const FORMS = { command: "Command line", python: "Python", file: "Job file", curl: "curl" };

/** The job in one of the forms. */
export function textOf(form, state, fields, base, withToken) {
  if (form === "command") return commandOf(state, fields, base);
  if (form === "python") return pythonOf(state, fields, base);
  if (form === "file") return jobFileOf(state, fields, base);
  return curlOf(state, fields, base, withToken);
}

