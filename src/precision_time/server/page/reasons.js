// What an answer rests on: measured runs, assumptions, and what would change it.
import { html } from "./html.js";
import { count, duration, share } from "./format.js";

/** `letter` tells the regions of two answers apart. */
export function Evidence({ prediction, letter }) {
  const runs = prediction.nearest_measurements;
  if (!runs.length) return html`<p class="help">None.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Measured runs, job ${letter}`}><table>
    <thead><tr><th scope="col">Run</th><th scope="col">Measured</th><th scope="col">Predicted</th><th scope="col">Similarity</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr>
      <th scope="row">${run.model}, ${count(run.gpus)} × ${run.device}<small>${run.precision}, batch ${count(run.global_batch_size)} per step, ${run.stack}</small><small class="source">${run.source}: ${run.source_ref}</small></th>
      <td>${duration(run.measured_step_time_s)}</td>
      <td>${duration(run.predicted_step_time_s)}<small>${signed(run.predicted_step_time_s / run.measured_step_time_s - 1)}</small></td>
      <td><span class="similarity"><meter min="0" max="1" value=${run.similarity} aria-label=${`Similarity ${run.similarity.toFixed(2)}`}></meter> ${run.similarity.toFixed(2)}</span></td></tr>`)}</tbody>
  </table></div><p class="help">Similarity is 1 for the same configuration, and goes toward 0 with the distance. Predicted is what the predictor says of that run.</p>`;
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
