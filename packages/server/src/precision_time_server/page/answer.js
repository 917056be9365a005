// The answer to one job, from the number that was asked for down to what it rests on.
import { html } from "./html.js";
import { asked } from "./asked.js";
import { Breakdown, Memory, Precisions, Scaling } from "./charts/index.js";
import { CopyAs } from "./copy-view.js";
import { fieldOf } from "./problems.js";
import { bytes, count, duration, money, range, rate, share } from "./format.js";
import { Evidence, Remarks, Why } from "./reasons.js";
import { PlanSection, TimelineSection } from "./on-demand.js";
import { answer, setField } from "./state.js";

/** The answer in one sentence, for those who hear it. */
export function spoken(side, prefix) {
  const { status, problem } = side.main.shown.value;
  const prediction = side.prediction.value;
  if (status === "failed" && problem.message) return `${prefix}${problem.message}`;
  if (status !== "done" || !prediction) return "";
  const [name, time] = runOf(prediction);
  const [, money] = costOf(prediction);
  const fit = prediction.fits ? "" : " It does not fit in memory.";
  return `${prefix}${name}: ${time}, ${money}. A step takes ${duration(prediction.step_time_s)} at ${asked(prediction)}.${fit}`;
}

export function Answer({ side, letter, titled }) {
  const { status, problem, slow, value } = side.main.shown.value;
  const prediction = side.prediction.value;
  const stale = status === "waiting";
  return html`<section class=${`answer ${stale ? "stale" : ""}`} aria-label=${titled ? `Answer to job ${letter}` : "Answer"} aria-busy=${stale}>
    ${titled ? html`<h2 class="letter">Job ${letter}</h2>` : html`<h2 class="hidden">Answer</h2>`}
    <${Progress} shown=${stale} slow=${slow} first=${!prediction} />
    ${status === "failed" ? html`<${Failure} side=${side} problem=${problem} />` : null}
    ${prediction ? html`<${Found} side=${side} letter=${letter} prediction=${prediction} skipped=${value?.skipped ?? []} />` : null}
    ${value && !prediction ? html`<${Skipped} skipped=${value.skipped ?? []} />` : null}
  </section>`;
}

function Progress({ shown, slow, first }) {
  return html`<div class=${`progress ${shown ? "on" : ""}`}>${shown && (slow || first)
    ? html`<div role="progressbar" aria-label="Predicting"></div><p>${first ? "Predicting …" : "Predicting … the figures below are of what was asked before."}</p>` : null}</div>`;
}

function Failure({ side, problem }) {
  if (!problem.message) return html`<p class="remark">Name a model to see how long it trains.</p>`;
  const field = problem.field || fieldOf(problem, side.fieldNames ?? []);
  const again = [0, 429, 500, 502, 503, 504].includes(problem.status);
  return html`<div class="failure">
    <p>${field || problem.status === 401 ? "No answer: see the field marked in the form." : problem.message}</p>
    ${again ? html`<button type="button" onClick=${() => answer(side)}>Try again</button>` : null}
  </div>`;
}

function Skipped({ skipped }) {
  if (!skipped.length) return null;
  return html`<ul class="skipped">${skipped.map((each) => html`<li><strong>${each.request?.precision ?? ""}</strong> ${each.reason}</li>`)}</ul>`;
}

function Found({ side, letter, prediction, skipped }) {
  const several = side.predictions.value.length > 1;
  const scaling = side.scaling.shown.value;
  return html`
    <${Headline} prediction=${prediction} several=${several} />
    <${Figures} side=${side} prediction=${prediction} />
    <${Remarks} prediction=${prediction} severity="warning" />
    ${several ? html`<${Section} title="Precisions side by side">
      <${Precisions} predictions=${side.predictions.value} chosen=${asked(prediction)} onChoose=${(name) => setField(side, "chosen", name)} /></${Section}>` : null}
    <${Skipped} skipped=${skipped} />
    <${Section} title="Where the time goes"><${Breakdown} prediction=${prediction} /></${Section}>
    <${Section} title="Memory per device"><${Memory} prediction=${prediction} /></${Section}>
    ${scaling.value?.predictions?.length > 1 || scaling.status === "waiting" ? html`<${Section} title="More or fewer devices" busy=${scaling.status === "waiting"}>
      ${scaling.value ? html`<${Scaling} predictions=${scaling.value.predictions} />` : html`<p class="help">Predicting …</p>`}</${Section}>` : null}
    <${Section} title="Measured runs nearest to it" drawn=${false}><${Evidence} prediction=${prediction} /></${Section}>
    <${Why} side=${side} letter=${letter} />
    <${TimelineSection} side=${side} />
    <${PlanSection} side=${side} letter=${letter} />
    <${CopyAs} side=${side} letter=${letter} />`;
}

/** A part of the answer; `drawn` is one whose chart says its title itself. */
function Section({ title, busy = false, drawn = true, children }) {
  return html`<section class="part" aria-busy=${busy}><h3 class=${drawn ? "hidden" : ""}>${title}</h3>${children}</section>`;
}

const of = (prediction) => {
  const nodes = prediction.nodes > 1 ? ` (${count(prediction.nodes)} nodes)` : "";
  return `${prediction.model} on ${count(prediction.gpus)} × ${prediction.device}${nodes}, ${prediction.precision}, batch ${count(prediction.batch_size)} per device, ${count(prediction.global_batch_size)} per step, ${prediction.stack}`;
};

/** One order, that of the command line: the run, its money, whether it fits; then the step. */
function Headline({ prediction, several }) {
  const { low_s, high_s, coverage } = prediction.interval;
  const lead = [runOf(prediction), costOf(prediction), fitOf(prediction)];
  return html`<div class="headline">
    <dl class="lead">${lead.map(([name, value, note]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd>${note ? html`<dd class="note">${note}</dd>` : null}</div>`)}</dl>
    ${prediction.fits ? null : html`<p class="problem">Does not fit: ${bytes(prediction.memory_bytes_per_device)} needed, ${bytes(prediction.device_memory_bytes)} per device. The other figures are of a device that held it.</p>`}
    <p class="step"><strong>${duration(prediction.step_time_s)}</strong> per step${several ? html` at <b>${asked(prediction)}</b>` : ""}, ${range(low_s, high_s)} with ${share(coverage)} probability; ${rate(prediction.throughput)} ${prediction.throughput_unit}</p>
    <p class="what">${of(prediction)}</p>
  </div>`;
}

const MILLION = 1e6;
const HOUR_S = 3600;

/** How long: the run; where its length is not known, a million of what is trained on, and what to give. */
export function runOf(prediction) {
  const total = prediction.total_interval;
  if (prediction.total_time_s !== null) return ["The run", duration(prediction.total_time_s), total ? `${range(total.low_s, total.high_s)} with ${share(total.coverage)} probability` : ""];
  const units = prediction.throughput_unit.split("/")[0];
  return [`A million ${units}`, duration(MILLION / prediction.throughput), "For the run, give its length: epochs, steps or tokens."];
}

/** What it costs at the cheapest dated offer, and of how many hours. */
function costOf(prediction) {
  const hours = prediction.device_hours;
  const note = hours === null ? "" : `${count(Number(hours.toPrecision(3)))} device-hours`;
  if (prediction.usd_per_hour === null || prediction.usd_per_hour === undefined) return ["Cost", "–", ["no price is known", note].filter(Boolean).join("; ")];
  const seconds = prediction.total_time_s ?? MILLION / prediction.throughput;
  return ["Cost", money((prediction.usd_per_hour * seconds) / HOUR_S), note];
}

const fitOf = (prediction) => ["Memory", prediction.fits ? "fits" : "does not fit", `${bytes(prediction.memory_bytes_per_device)} of ${bytes(prediction.device_memory_bytes)} per device`];

function Figures({ side, prediction }) {
  const run = side.run.shown.value;
  const figures = [
    ["Epoch", duration(prediction.epoch_time_s), prediction.steps_per_epoch === null ? "" : `${count(prediction.steps_per_epoch)} steps`],
    ["Throughput", rate(prediction.throughput), prediction.throughput_unit],
    ["MFU", share(prediction.mfu), "of the dense peak"],
    ["With start-up", ...wholeRun(run, prediction)],
  ];
  return html`<dl class="figures">${figures.map(([name, value, note]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd>${note ? html`<dd class="note">${note}</dd>` : null}</div>`)}</dl>`;
}

/** Time and money from the start of the job to its end, with checkpoints and failures. */
function wholeRun(run, prediction) {
  if (prediction.total_time_s === null) return ["–", "give the length of the run"];
  if (run.status === "waiting") return ["…", ""];
  if (run.status === "failed") return ["–", run.problem.message.split("To fix:")[0]];
  const found = run.value;
  if (!found) return ["–", ""];
  const spent = found.cost_usd === null || found.cost_usd === undefined ? "" : `, ${money(found.cost_usd)}`;
  return [duration(found.total_s), `checkpoints and failures too${spent}`];
}
