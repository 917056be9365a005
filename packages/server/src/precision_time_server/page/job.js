// A job as the API takes it, made of the texts of the form. Pure.
import { asked } from "./asked.js";

const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?$/i;

/** What cannot even be asked; `field` is where it was written. */
export class FieldProblem extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** The precisions of the form: `["bf16-mixed", "fp8-mixed"]`, `"all"`, or none. */
export function precisionsOf(state) {
  const named = (state.precision ?? "").split(",").map((word) => word.trim()).filter(Boolean);
  return named.length === 1 && named[0] === "all" ? "all" : [...new Set(named)];
}

/** A text as the value that JSON has for it: numbers and switches; `8k` and `4M` stay, the service reads them. */
export function valueOf(text, kind) {
  const plain = text.trim();
  if (kind === "integer" || kind === "number") {
    return NUMBER.test(plain) && Number.isFinite(Number(plain)) ? Number(plain) : plain;
  }
  if (kind === "boolean") return plain === "true" || plain === "yes" ? true : plain === "false" || plain === "no" ? false : plain;
  return plain;
}

const SWITCHES = new Map([["true", true], ["false", false]]);

/** `hidden=2048, layers=16, gated=false` as an object; what is no number and no switch is a word. */
export function sizesOf(text) {
  const sizes = {};
  for (const pair of text.split(/[,;\n]+/).map((part) => part.trim()).filter(Boolean)) {
    const [, name, value] = /^([^=]+?)\s*=\s*(.+)$/s.exec(pair) ?? [];
    if (!name || name === "__proto__") {
      throw new FieldProblem("sizes", `${JSON.stringify(pair)} is not NAME=VALUE. To fix: write hidden=2048, layers=16.`);
    }
    sizes[name] = NUMBER.test(value) ? Number(value) : (SWITCHES.get(value) ?? value);
  }
  return sizes;
}

/** A pasted Hugging Face configuration. */
export function configOf(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new FieldProblem("config", `This is no JSON: ${error.message}. To fix: paste the whole config.json.`);
  }
  if (config === null || typeof config !== "object" || Array.isArray(config)) {
    throw new FieldProblem("config", "This is no JSON object. To fix: paste the whole config.json, from { to }.");
  }
  return config;
}

/** The job of a form's texts, without its precisions; `fields` are those of fields.js. */
export function jobOf(state, fields) {
  const model = state.config ? configOf(state.config) : (state.model ?? "").trim();
  if (model === "") throw new FieldProblem("model", "");
  const job = { model };
  if (state.cluster) job.cluster = state.cluster;
  for (const { name, kind } of fields) {
    const text = state[name];
    if (text === undefined || text.trim() === "") continue;
    job[name] = kind === "sizes" ? sizesOf(text) : valueOf(text, kind);
  }
  return job;
}

/** What is posted for the main answer: path and body. */
export function askOf(state, fields) {
  const job = jobOf(state, fields);
  const precisions = precisionsOf(state);
  if (precisions === "all" || precisions.length > 1) return { path: "v1/comparisons", body: { ...job, precisions } };
  return { path: "v1/predictions", body: precisions.length ? { ...job, precision: precisions[0] } : job };
}

/** The job at one precision: what cost, timeline and the reasons are asked of. */
export function jobAt(state, fields, precision) {
  return precision ? { ...jobOf(state, fields), precision } : jobOf(state, fields);
}

const LENGTHS = ["epochs", "steps", "tokens", "samples", "dataset"];
const PLACE = ["device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "cluster"];
const COUNTS = ["gpus", "nodes"];

/** The same training on other numbers of devices: one sweep around the number that was asked. */
export function scalingOf(state, fields, prediction) {
  const job = { ...jobAt(state, fields, asked(prediction)), device: prediction.device };
  for (const name of [...COUNTS, ...LENGTHS]) delete job[name];
  if (job.global_batch_size === undefined && job.global_batch_tokens === undefined) job.batch_size = prediction.batch_size;
  return { ...job, gpus: countsAround(prediction.gpus) };
}

/** Powers of two around a number, and that number: at most ten. */
export function countsAround(gpus) {
  const most = Math.min(Math.max(8, gpus * 8), 16384);
  const counts = new Set([gpus]);
  for (let count = most >= 1024 ? most / 512 : 1; count <= most; count *= 2) counts.add(Math.round(count));
  return [...counts].sort((a, b) => a - b).filter((count) => count >= 1);
}

/** What a plan is asked: the same training, wherever it may run. */
export function planOf(state, fields, prediction) {
  const job = jobOf(state, fields);
  for (const name of [...PLACE, "batch_size", "global_batch_tokens", "coverage", "scope"]) delete job[name];
  if (!LENGTHS.slice(0, 3).some((name) => name in job)) job.epochs = 1;
  const precisions = precisionsOf(state);
  return {
    ...job,
    global_batch_size: prediction.global_batch_size,
    ...(precisions !== "all" && precisions.length ? { precision: precisions } : {}),
    ...(state.deadline ? { deadline: state.deadline } : {}),
    ...(state.budget ? { budget: state.budget } : {}),
  };
}

/** `--zero-stage 1 --num-microbatches 4 --no-uneven` as texts of the form's fields; words of no field are left out. */
export function layoutOf(words, fields) {
  const found = {};
  const parts = words.split(/\s+/).filter(Boolean);
  parts.forEach((word, at) => {
    const field = fields.find(({ flag }) => flag === word || flag === word.replace(/^--no-/, "--"));
    if (!field) return;
    found[field.name] = field.kind === "boolean" ? String(field.flag === word) : (parts[at + 1] ?? "");
  });
  return found;
}
