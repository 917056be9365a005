// What takes seconds, and is asked for with a button: where else to run it, and the step over time.
import { html } from "./html.js";
import { Pareto, Timeline } from "./charts/index.js";
import { chance, duration, money } from "./format.js";
import { layoutOf } from "./job.js";
import { askPlan, askTimeline, fields, setField, setFields } from "./state.js";

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

/** The candidate's own fields, its layout among them, take the place of those of the form. */
function take(side, candidate) {
  const places = fields.filter((field) => ["Layout", "Devices and network", "Precision and batch"].includes(field.section));
  const texts = Object.entries(candidate.request).filter(([name]) => name !== "model").map(([name, value]) => [name, String(value)]);
  setFields(side, {
    ...Object.fromEntries(places.map((field) => [field.name, ""])),
    cluster: "",
    chosen: "",
    ...layoutOf(candidate.layout, places),
    ...Object.fromEntries(texts),
  });
}

function Plan({ side, plan }) {
  return html`
    ${plan.choices.map(({ aim, candidate, reason }) => html`<div class="choice"><h4>${aim[0].toUpperCase() + aim.slice(1)}</h4>
      <${Candidate} side=${side} candidate=${candidate} what=${aim} /><p class="help">${reason}</p></div>`)}
    ${plan.miss && html`<div class="choice"><h4>Nothing keeps the limits. The nearest miss:</h4>
      <${Candidate} side=${side} candidate=${plan.miss.candidate} what="nearest miss" />
      <p class="help">${plan.miss.by}.</p>${plan.miss.remedies.map((text) => html`<p class="help">${text}</p>`)}</div>`}
    ${plan.front.length ? html`<${Pareto} plan=${plan} onChoose=${(candidate) => take(side, candidate)} />` : null}
    ${[...plan.warnings, ...plan.assumptions].length ? html`<details class="inner"><summary>Assumed in the plan</summary><ul class="remarks">${[...plan.warnings, ...plan.assumptions].map((text) => html`<li>${typeof text === "string" ? text : text.text}</li>`)}</ul></details>` : null}`;
}

function Candidate({ side, candidate, what }) {
  const { gpus, device, precision, time_s, usd, probability } = candidate;
  return html`<p>${gpus} × ${device}, ${precision}: <strong>${duration(time_s)}</strong>${usd === null ? "" : html`, <strong>${money(usd)}</strong>`}${probability === null ? "" : `, in time with ${chance(probability)} probability`}.
    <button type="button" class="quiet" onClick=${() => take(side, candidate)}>Use in the form<span class="hidden"> (${what})</span></button></p>`;
}
