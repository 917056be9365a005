// Placeholders until the charts are drawn: plain lists of the same figures.
import { html } from "../html.js";
import { asked } from "../asked.js";
import { bytes, duration } from "../format.js";

const list = (rows) => html`<dl class="plain">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export const Breakdown = ({ prediction }) =>
  list(Object.entries(prediction.terms).map(([name, value]) => [name.replace(/_s$/, "").replaceAll("_", " "), duration(value)]));
export const Precisions = ({ predictions, chosen, onChoose }) => html`<div>${predictions.map((each) => html`<p><button type="button"
  aria-pressed=${asked(each) === chosen} onClick=${() => onChoose(asked(each))}>${asked(each)}</button> ${duration(each.step_time_s)}</p>`)}</div>`;
export const Memory = ({ prediction }) => list(Object.entries(prediction.memory_terms).filter(([, value]) => value).map(([name, value]) => [name.replaceAll("_", " "), bytes(value)]));
export const Scaling = ({ predictions }) => list(predictions.map((each) => [each.gpus, duration(each.step_time_s)]));
export const Pareto = ({ plan }) => list(plan.front.map((each) => [`${each.gpus} x ${each.device}`, duration(each.time_s)]));
export const Timeline = ({ timeline }) => html`<pre>${JSON.stringify(timeline, null, 1).slice(0, 2000)}</pre>`;
