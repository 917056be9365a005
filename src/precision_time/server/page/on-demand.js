// What takes seconds, and is asked for with a button: where else to run it, and the step over time.
import { html } from "./html.js";
import { Pareto, Timeline } from "./charts/index.js";
import { duration, money, share } from "./format.js";
import { askPlan, askTimeline, setField, setFields } from "./state.js";

export function TimelineSection({ side }) {
  const { status, value, problem } = side.timeline.shown.value;
  return html`<section class="part" aria-busy=${status === "waiting"}><h3>The step over time</h3>
    ${status === "idle" ? html`<button type="button" onClick=${() => askTimeline(side)}>Draw the step</button>` : null}
    <${Wait} status=${status} text="Drawing …" stop=${() => side.timeline.reset()} />
    ${status === "failed" ? html`<p class="problem">${problem.message}</p>` : null}
    ${value && status === "done" ? html`<${Timeline} timeline=${value} />` : null}
  </section>`;
}

export function PlanSection({ side, letter }) {
  const { status, value, problem } = side.plan.shown.value;
  const state = side.state.value;
  const field = (name, label, placeholder) => html`<div class="field">
    <label for=${`${letter}-${name}`}>${label}</label>
    <input id=${`${letter}-${name}`} type="text" autocomplete="off" placeholder=${placeholder} value=${state[name] ?? ""} onInput=${(event) => setField(side, name, event.target.value)} /></div>`;
  return html`<section class="part plan" aria-busy=${status === "waiting"}><h3>What to rent for it</h3>
    <p class="help">The same training, as many samples in steps of the same global batch, on what clouds rent.</p>
    <form class="inline" aria-label=${`Plan of job ${letter}`} onSubmit=${(event) => { event.preventDefault(); askPlan(side); }}>
      ${field("deadline", "Deadline", "24h, 3d")}${field("budget", "Budget", "500, 450 EUR")}
      <button type="submit" disabled=${status === "waiting"}>Plan</button>
    </form>
    <${Wait} status=${status} text="Comparing devices, numbers and clouds …" stop=${() => side.plan.reset()} />
    ${status === "failed" ? html`<p class="problem">${problem.message}</p>` : null}
    ${value && status === "done" ? html`<${Plan} side=${side} plan=${value} />` : null}
  </section>`;
}

function Wait({ status, text, stop }) {
  if (status !== "waiting") return null;
  return html`<div class="progress on"><div role="progressbar" aria-label=${text}></div><p>${text} <button type="button" class="quiet" onClick=${stop}>Stop</button></p></div>`;
}

/** The candidate's own fields take the place of those of the form. */
function take(side, candidate) {
  const texts = Object.entries(candidate.request).filter(([name]) => name !== "model").map(([name, value]) => [name, String(value)]);
  setFields(side, { batch_size: "", global_batch_tokens: "", node_type: "", network: "", intra_node: "", inter_node: "", cluster: "", ...Object.fromEntries(texts), chosen: "" });
}

function Plan({ side, plan }) {
  return html`
    ${plan.choices.map(({ aim, candidate, reason }) => html`<div class="choice"><h4>${aim[0].toUpperCase() + aim.slice(1)}</h4>
      <p>${candidate.gpus} × ${candidate.device}, ${candidate.precision}: <strong>${duration(candidate.time_s)}</strong>${candidate.usd === null ? "" : html`, <strong>${money(candidate.usd)}</strong>`}${candidate.probability < 1 ? `, in time with ${share(candidate.probability)}` : ""}.
        <button type="button" class="quiet" onClick=${() => take(side, candidate)}>Use in the form<span class="hidden"> (${aim})</span></button></p>
      <p class="help">${reason}</p></div>`)}
    ${plan.miss ? html`<p class="problem">Nothing keeps the limits.${plan.miss.words ? ` ${plan.miss.words}` : ""}</p>` : null}
    ${plan.front.length ? html`<${Pareto} plan=${plan} onChoose=${(candidate) => take(side, candidate)} />` : null}
    ${[...plan.warnings, ...plan.assumptions].length ? html`<details class="inner"><summary>Assumed in the plan</summary><ul class="remarks">${[...plan.warnings, ...plan.assumptions].map((text) => html`<li>${typeof text === "string" ? text : text.text}</li>`)}</ul></details>` : null}`;
}
