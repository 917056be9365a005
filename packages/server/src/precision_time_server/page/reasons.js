// What an answer rests on: measured runs, assumptions, and what would change it.
import { html } from "./html.js";
import { count, duration, share } from "./format.js";

export function Evidence({ prediction }) {
  const runs = prediction.nearest_measurements;
  if (!runs.length) return html`<p class="help">None.</p>`;
  return html`<ol class="runs">${runs.map((run) => html`<li>
      <div><strong>${run.model}, ${count(run.gpus)} × ${run.device}</strong>
        <small>${run.precision}${run.precision_inferred ? " (precision inferred)" : ""}, batch ${count(run.global_batch_size)} per step, ${run.stack}. ${differing(run, prediction)}</small>
        <small>${run.source}: ${run.source_ref}</small></div>
      <dl><div><dt>Measured</dt><dd>${duration(run.measured_step_time_s)}</dd></div>
        <div><dt>Predicted</dt><dd>${duration(run.predicted_step_time_s)} <small>${signed(run.predicted_step_time_s / run.measured_step_time_s - 1)}</small></dd></div>
        <div><dt>Similarity</dt><dd>${run.similarity.toFixed(2)} <meter min="0" max="1" value=${run.similarity} aria-hidden="true"></meter></dd></div></dl></li>`)}</ol>
    <p class="help">Similarity is 1 for the same configuration, and goes toward 0 with the distance. Predicted is what the predictor says of that run.</p>`;
}

/** In what a measured run differs from the job, as far as its columns say. */
function differing(run, prediction) {
  const names = { model: "model", device: "device", gpus: "number of devices", precision: "precision", global_batch_size: "batch", stack: "software" };
  const found = Object.keys(names).filter((name) => run[name] !== prediction[name]).map((name) => names[name]);
  return found.length ? `Differs in ${found.join(", ")}.` : "The same, as far as these say.";
}

const signed = (value) => `${value < 0 ? "−" : "+"}${share(Math.abs(value))}`;

export function Remarks({ prediction, severity }) {
  const found = prediction.diagnostics.filter((each) => each.severity === severity);
  if (!found.length) return null;
  return html`<ul class=${`remarks ${severity}`} aria-label=${severity === "warning" ? "Warnings" : "Assumptions"}>${found.map((each) => html`<li>${each.text}</li>`)}</ul>`;
}

/** Loaded when it is opened: what each assumption changes costs a few more predictions. */
export function Why({ side, letter }) {
  const { status, value, problem } = side.why.shown.value;
  const prediction = side.prediction.value;
  const assumed = prediction.diagnostics.filter((each) => each.severity === "assumption").length;
  return html`<details class="part" open=${side.whyOpen.value} onToggle=${(event) => { side.whyOpen.value = event.target.open; }}>
    <summary><h3>Why, and what was assumed</h3> <span class="given">${assumed} assumptions</span></summary>
    <${Remarks} prediction=${prediction} severity="assumption" />
    ${status === "waiting" ? html`<p class="help">Predicting the alternatives …</p>` : null}
    ${status === "failed" ? html`<p class="problem">${problem.message}</p>` : null}
    ${value?.why ? html`<${Matters} letter=${letter} matters=${value.why.matters ?? []} /><${AsText} text=${value.why.page ?? ""} />` : null}
  </details>`;
}

function Matters({ matters, letter }) {
  if (!matters.length) return html`<p class="help">No single assumption moves the time by two percent or more.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`What matters, job ${letter}`}><table><caption>What would change the answer most</caption>
    <thead><tr><th scope="col">Assumed</th><th scope="col" class="words-head">Otherwise</th><th scope="col">Time</th><th scope="col">Memory</th></tr></thead>
    <tbody>${matters.map((each) => html`<tr><th scope="row">${each.assumed}</th><td class="words">${each.words}<small><code>${each.field}=${String(each.value)}</code></small></td>
      <td>${each.fits ? signed(each.time_change) : "does not fit"}</td><td>${Math.abs(each.memory_change) < 0.1 ? "" : signed(each.memory_change)}</td></tr>`)}</tbody>
  </table></div>`;
}

function AsText({ text }) {
  if (!text) return null;
  return html`<details class="inner"><summary>The same as text</summary><pre class="scroll" tabindex="0">${text}</pre></details>`;
}
