// The page's own logic, without a browser: node --test runs this, and packages/server/tests/test_page.py runs node.
import assert from "node:assert/strict";
import { test } from "node:test";

const PAGE = new URL("../src/precision_time_server/page/", import.meta.url);
const load = (name) => import(new URL(name, PAGE).href);
const { decode, encode } = await load("share.js");
const { askOf, configOf, countsAround, layoutOf, planOf, scalingOf, sizesOf, valueOf } = await load("job.js");
const { amount, bytes, digits, duration, money, range } = await load("format.js");
const { asksDiffer, differences } = await load("differences.js");
const { jobTexts, recipeOf, stillMissing } = await load("recipe-job.js");
const { commandOf, jobFileOf, pythonOf, quoted } = await load("copy.js");

const NAMES = ["device", "gpus", "batch_size", "sizes", "stage_layers"];
const FIELDS = [
  { name: "device", kind: "text" }, { name: "gpus", kind: "integer" }, { name: "nodes", kind: "integer" },
  { name: "batch_size", kind: "number" }, { name: "sizes", kind: "sizes" }, { name: "packing", kind: "boolean" },
  { name: "epochs", kind: "number" }, { name: "tokens", kind: "integer" },
];

test("an address restores every text exactly", () => {
  const texts = ["a&b=c#d", "100%", "%zz", "+ +", "ünï😀", '{"a": [1,\n 2]}', "b.model", "=", ",/:", "\\u0000", "<script>", "true"];
  for (const first of texts) {
    for (const second of texts) {
      const jobs = [{ model: first, device: second }, { model: second, config: first, chosen: "fp32" }];
      const { jobs: found, unknown } = decode(`#${encode(jobs)}`, NAMES);
      assert.deepEqual(found, jobs);
      assert.deepEqual(unknown, []);
    }
  }
  assert.deepEqual(decode(encode([{ model: "m" }, {}]), NAMES).jobs, [{ model: "m" }, {}], "an empty second job stays");
  assert.deepEqual(decode(encode([{}]), NAMES).jobs, [{}]);
});

test("no address breaks the page, and none reaches an object's own nature", () => {
  const hostile = ["#__proto__=x&constructor=y&b.__proto__=z", "#%", "#%E0%A4%A", "#&&&===", "#b.", "#model", `#model=${"x".repeat(200_000)}`, `#${"a=b&".repeat(200_000)}`, "#toString=1&hasOwnProperty=2"];
  for (const text of hostile) {
    const { jobs, unknown } = decode(text, NAMES);
    assert.ok(jobs.length >= 1 && unknown.length < 250_000);
    assert.equal(Object.getPrototypeOf(jobs[0]), Object.prototype);
    assert.equal(jobs[0].constructor, Object);
    assert.equal({}.x, undefined);
  }
  assert.deepEqual(decode("#gpus=1&gpus=8&foo=1", NAMES), { jobs: [{ gpus: "8" }], unknown: ["foo"] });
});

test("texts become the values that JSON has", () => {
  assert.equal(valueOf(" 8 ", "integer"), 8);
  assert.equal(valueOf("8k", "integer"), "8k");
  assert.equal(valueOf("1e999", "number"), "1e999", "no infinity, which JSON has not");
  assert.equal(valueOf("NaN", "number"), "NaN");
  assert.equal(valueOf("no", "boolean"), false);
  assert.deepEqual(sizesOf("hidden=2048, layers = 16; act=gelu, tied=true"), { hidden: 2048, layers: 16, act: "gelu", tied: true });
  assert.throws(() => sizesOf("hidden"), { field: "sizes" });
  assert.throws(() => sizesOf("__proto__=1"), { field: "sizes" });
  for (const text of ["", "{", "[]", "3", "null"]) assert.throws(() => configOf(text), { field: "config" });
});

test("one precision is a prediction, several are a comparison", () => {
  const state = { model: "m", gpus: "8", packing: "true" };
  assert.deepEqual(askOf(state, FIELDS), { path: "v1/predictions", body: { model: "m", gpus: 8, packing: true } });
  assert.deepEqual(askOf({ ...state, precision: "fp32" }, FIELDS).body.precision, "fp32");
  assert.deepEqual(askOf({ ...state, precision: "fp32, tf32,fp32" }, FIELDS), { path: "v1/comparisons", body: { model: "m", gpus: 8, packing: true, precisions: ["fp32", "tf32"] } });
  assert.equal(askOf({ ...state, precision: "all" }, FIELDS).body.precisions, "all");
  assert.throws(() => askOf({}, FIELDS), { field: "model", message: "" });
});

test("more or fewer devices train the same at the same batch per device", () => {
  const prediction = { gpus: 12, device: "D", precision: "p:full", batch_size: 4, global_batch_size: 48, request: { precision: "p" } };
  const sweep = scalingOf({ model: "m", device: "12xD", nodes: "2", epochs: "3" }, FIELDS, prediction);
  assert.deepEqual(sweep, { model: "m", device: "D", precision: "p", batch_size: 4, gpus: [1, 2, 4, 8, 12, 16, 32, 64] });
  for (const gpus of [1, 7, 8, 1000, 16384]) {
    const counts = countsAround(gpus);
    assert.ok(counts.includes(gpus) && counts.length <= 11 && counts.every((count) => Number.isInteger(count) && count >= 1));
  }
  const plan = planOf({ model: "m", device: "12xD", batch_size: "4", deadline: "3d", precision: "p,q" }, FIELDS, prediction);
  assert.deepEqual(plan, { model: "m", epochs: 1, global_batch_size: 48, precision: ["p", "q"], deadline: "3d" });
});

test("a layout in words becomes texts of the form", () => {
  const layout = [{ name: "zero_stage", kind: "integer", flag: "--zero-stage" }, { name: "num_microbatches", kind: "integer", flag: "--num-microbatches" }, { name: "uneven", kind: "boolean", flag: "--uneven" }];
  assert.deepEqual(layoutOf("--zero-stage 1 --num-microbatches 4 --no-uneven --other 3", layout), { zero_stage: "1", num_microbatches: "4", uneven: "false" });
  assert.deepEqual(layoutOf("", layout), {});
});

test("numbers as people say them", () => {
  const said = [[0, "0 s"], [2.5e-9, "2.50 ns"], [0.098, "98.0 ms"], [0.09999, "100 ms"], [1.28, "1.28 s"], [99.94, "99.9 s"], [119.6, "120 s"], [760, "12 min 40 s"], [3600, "60 min"], [12000, "3 h 20 min"], [86400, "24 h"], [446400, "5 d 4 h"], [1e9, "11,574 d 1 h"]];
  for (const [seconds, text] of said) assert.equal(duration(seconds), text);
  assert.equal(range(0.0825, 0.123), "82.5 – 123 ms");
  assert.equal(range(3000, 12000), "50 min – 3 h 20 min");
  assert.equal(bytes(2 ** 30 * 6.48), "6.48 GiB");
  assert.equal(amount(25557032), "25.6 M");
  assert.deepEqual([57.473, 1280.4, 0.001].map(money), ["$57.47", "$1,280", "under $0.01"]);
  assert.deepEqual([1280, 999.6, 0.00123, 12.34].map((value) => digits(value)), ["1,280", "1,000", "0.00123", "12.3"]);
  for (const none of [null, undefined, Number.NaN, Infinity]) assert.equal(duration(none), "–");
});

test("two answers differ in words", () => {
  const a = { model: "m", device: "A100", gpus: 8, nodes: 1, precision: "fp32", batch_size: 4, global_batch_size: 32, stack: "s", throughput: 100, throughput_unit: "images/s", step_time_s: 0.32, total_time_s: 1000, memory_bytes_per_device: 2 ** 30, mfu: 0.4, fits: true, interval: { low_s: 0.3, high_s: 0.35 } };
  const b = { ...a, device: "H100", throughput: 200, step_time_s: 0.16, total_time_s: 500, fits: false, interval: { low_s: 0.15, high_s: 0.2 } };
  const found = differences(a, b, [{ cost_usd: 10 }, { cost_usd: 8 }]).join(" ");
  for (const words of ["B does 2 times as many images per second as A", "320 ms in A and 160 ms in B", "50% less", "$10.00 in A and $8.00 in B, 20% less", "B does not fit in memory"]) assert.ok(found.includes(words), `${words}: ${found}`);
  assert.ok(!found.includes("overlap"));
  assert.ok(differences(a, { ...b, interval: { low_s: 0.15, high_s: 0.31 } }).join(" ").includes("not certain"));
  assert.ok(differences(b, a).join(" ").includes("A does 2 times as many"));
  assert.ok(differences(a, a)[0].includes("as fast"));
  assert.deepEqual(asksDiffer(a, b), [["Device", "A100", "H100"]]);
});

test("a shell reads a word as it was meant", () => {
  assert.equal(quoted("a-b_c.d/e:f,g=h+i@j%k"), "a-b_c.d/e:f,g=h+i@j%k");
  assert.equal(quoted("it's $(x) `y`"), `'it'\\''s $(x) \`y\`'`);
  assert.equal(quoted(""), "''");
});

test("what only the service has is asked there", () => {
  const state = { model: `uploads/${"a".repeat(32)}`, cluster: "lab", gpus: "8" };
  const base = "http://host:8400/below/";
  const model = state.model;
  assert.equal(commandOf(state, FIELDS.map((field) => ({ ...field, flag: `--${field.name}` })), base), `precision-time --server http://host:8400/below --cluster lab predict ${model} --gpus 8`);
  assert.equal(jobFileOf(state, FIELDS, base), `# precision-time --server http://host:8400/below --cluster lab predict job.yaml\nversion: 1\nmodel: ${model}\ngpus: 8\n`);
  assert.ok(pythonOf(state, FIELDS, base).includes(`with Client("http://host:8400/below") as service:\n    print(service.predict(\n        model="${model}",\n        cluster="lab",\n        gpus=8,\n    ))`));
});

test("a recipe is sent with the files that it names", () => {
  const [yaml, json, other] = [{ name: "a.yml", text: "1" }, { name: "ds.json", text: "2" }, { name: "b.json", text: "3" }];
  assert.deepEqual(recipeOf([yaml]), { name: "a.yml", text: "1" });
  assert.deepEqual(recipeOf([json, yaml]), { name: "a.yml", text: "1", files: { "ds.json": "2" } });
  assert.deepEqual(recipeOf([json, other]), { name: "ds.json", text: "2", files: { "b.json": "3" } });
});

test("a recipe fills the whole form, and its texts are asked as its job", () => {
  const job = { model: "gpt2", gpus: 8, packing: true, sizes: { hidden: 1024, gated: false }, tokens: 3e11, precision: "bf16-mixed" };
  const before = { model: "resnet50", config: "{}", device: "H100", nodes: "2", batch_size: "4", chosen: "fp32", budget: "5" };
  const texts = jobTexts(job, FIELDS, before);
  assert.deepEqual(
    Object.fromEntries(Object.entries(texts).filter(([, text]) => text)),
    { model: "gpt2", gpus: "8", packing: "true", sizes: "hidden=1024, gated=false", tokens: "300000000000", precision: "bf16-mixed", device: "H100" },
  );
  for (const name of ["config", "nodes", "batch_size", "chosen"]) assert.equal(texts[name], "", name);
  assert.ok(!("budget" in texts));
  assert.deepEqual(askOf(texts, FIELDS).body, { ...job, device: "H100" });
  assert.equal(jobTexts({ device: "A100" }, FIELDS, before).device, "A100", "what the recipe says holds");
  assert.deepEqual(stillMissing(["device", "steps|epochs|tokens"], { device: "A100" }), ["steps|epochs|tokens"]);
  assert.deepEqual(stillMissing(["steps|epochs|tokens"], { epochs: "1" }), []);
});
