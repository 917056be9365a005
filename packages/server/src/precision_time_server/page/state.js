// What is asked and what was answered, of one job or of two that are compared.
import { batch, computed, effect, signal, untracked } from "./html.js";
import { post } from "./api.js";
import fields from "./fields.js"; // made by the service of the fields of a request
import { asked } from "./asked.js";
import { askOf, FieldProblem, jobAt, planOf, scalingOf } from "./job.js";
import { latest } from "./latest.js";
import { decode, encode } from "./share.js";

const TYPING_MS = 220;
const EXAMPLE = { model: "resnet50", device: "A100-SXM4-80GB", gpus: "8", precision: "bf16-mixed,fp16-mixed,tf32,fp32", batch_size: "256", epochs: "90" };
/** Fields that change what the page shows, and not the answer. */
const SHOWN_ONLY = ["chosen", "deadline", "budget"];

/** What a model is trained with: another model does not take it over, unless somebody typed it. */
const OF_MODEL = ["sizes", "batch_size", "global_batch_size", "global_batch_tokens", "seq_len", "image_size", "epochs", "steps", "tokens", "dataset", "samples"];

export { fields };
export const sides = signal([newSide()]);
/** Which job the form edits: 0 or 1. */
export const edited = signal(0);
/** What the address said that is no field. */
export const unknownNames = signal([]);
export const comparing = computed(() => sides.value.length > 1);

function newSide(state = {}) {
  const side = {
    state: signal(state),
    main: latest(),
    scaling: latest(),
    run: latest(),
    why: latest(),
    timeline: latest(),
    plan: latest(),
    whyOpen: signal(false),
    typed: new Set(),
  };
  side.predictions = computed(() => predictionsOf(side.main.shown.value.value));
  side.prediction = computed(() => chosenOf(side.predictions.value, side.state.value.chosen));
  return side;
}

function predictionsOf(answer) {
  if (!answer) return [];
  return Array.isArray(answer.predictions) ? answer.predictions : [answer];
}

/** The one that was chosen, else the fastest that fits. */
function chosenOf(predictions, chosen) {
  const fitting = predictions.filter((each) => each.fits);
  const fastest = (fitting.length ? fitting : predictions).reduce(
    (best, each) => (best === null || each.step_time_s < best.step_time_s ? each : best),
    null,
  );
  return predictions.find((each) => asked(each) === chosen) ?? fastest;
}

export function setField(side, name, text) {
  const state = { ...side.state.value };
  if (name !== "model") side.typed.add(name);
  else if (text !== state.model) OF_MODEL.filter((each) => !side.typed.has(each)).forEach((each) => delete state[each]);
  if (text === "") delete state[name];
  else state[name] = text;
  side.state.value = state;
}

export function setFields(side, changes) {
  batch(() => Object.entries(changes).forEach(([name, text]) => setField(side, name, text)));
}

export function compareWithCopy() {
  const copy = newSide({ ...sides.value[0].state.value });
  copy.typed = new Set(sides.value[0].typed);
  sides.value = [sides.value[0], watched(copy)];
  edited.value = 1;
}

export function stopComparing(kept = 0) {
  const gone = sides.value[1 - kept];
  gone.stop();
  batch(() => {
    sides.value = [sides.value[kept]];
    edited.value = 0;
  });
}

/** The part of the state that the answer depends on. */
const key = (state) => JSON.stringify(Object.entries(state).filter(([name]) => !SHOWN_ONLY.includes(name)).sort());

function watched(side) {
  let before = null;
  let timer = null;
  const stop = effect(() => {
    const state = side.state.value;
    const now = key(state);
    if (now === before) return;
    clearTimeout(timer);
    const first = before === null;
    before = now;
    untracked(() => {
      side.main.outdate();
      if (first) answer(side); // asked before anything is drawn
      else timer = setTimeout(() => answer(side), TYPING_MS);
    });
  });
  const stopShowing = effect(() => {
    const shown = side.prediction.value;
    const open = side.whyOpen.value;
    if (shown) untracked(() => detail(side, shown, open));
  });
  side.stop = () => {
    clearTimeout(timer);
    stop();
    stopShowing();
    ["main", ...BESIDE].forEach((name) => side[name].reset());
  };
  return side;
}

const BESIDE = ["scaling", "run", "why", "timeline", "plan"];

/** Ask for the main answer; what depends on it follows. */
export async function answer(side) {
  ["scaling", "run"].forEach((name) => side[name].outdate());
  ["why", "timeline", "plan"].forEach((name) => side[name].reset());
  let question;
  try {
    question = askOf(side.state.value, fields);
  } catch (problem) {
    if (!(problem instanceof FieldProblem)) throw problem;
    side.main.fail(problem);
  }
  if (question) await side.main.start((signal) => post(question.path, question.body, signal));
  if (side.main.shown.peek().status === "failed") BESIDE.forEach((name) => side[name].reset());
}

/** What is shown beside the main answer, of the precision that is chosen. */
function detail(side, prediction, whyOpen) {
  const state = side.state.peek();
  const job = () => jobAt(state, fields, asked(prediction));
  if (side.detailed !== prediction) {
    Object.assign(side, { detailed: prediction, reasoned: null });
    ["why", "timeline", "plan"].forEach((name) => side[name].reset());
    side.scaling.start((signal) => post("v1/sweeps", scalingOf(state, fields, prediction), signal));
    if (prediction.total_time_s === null) side.run.reset();
    else side.run.start((signal) => post("v1/runs", job(), signal));
  }
  if (whyOpen && side.reasoned !== prediction) {
    side.reasoned = prediction;
    side.why.start((signal) => post("v1/predictions?why=true", job(), signal));
  }
}

export const askTimeline = (side) =>
  side.timeline.start((signal) => post("v1/timelines", jobAt(side.state.value, fields, asked(side.prediction.value)), signal));

export const askPlan = (side) =>
  side.plan.start((signal) => post("v1/plans", planOf(side.state.value, fields, side.prediction.value), signal));

export const askAgain = () => sides.value.forEach(answer);

const stateText = () => encode(sides.value.map((side) => side.state.value));

/** The address that restores what is asked now. */
export const link = () => new URL(`#${stateText()}`, location.href).href;

function restore() {
  const { jobs, unknown } = decode(location.hash, fields.map((field) => field.name));
  const empty = jobs.length === 1 && !Object.keys(jobs[0]).length;
  batch(() => {
    sides.value.forEach((side) => side.stop?.());
    sides.value = (empty ? [EXAMPLE] : jobs).map((job) => watched(newSide(job)));
    edited.value = Math.min(edited.value, sides.value.length - 1);
    unknownNames.value = unknown;
  });
}

/** Restore what the address says, and keep the address in step from then on. */
export function start() {
  restore();
  let timer = null;
  effect(() => {
    const text = `#${stateText()}`;
    clearTimeout(timer);
    // Browsers refuse to be told more often than a few times a second.
    timer = setTimeout(() => { if (text !== location.hash) history.replaceState(null, "", text); }, 400);
  });
  addEventListener("hashchange", restore);
}
