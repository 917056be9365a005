// Two jobs side by side: how they differ, in words and in what was asked.
import { html } from "./html.js";
import { asksDiffer, differences } from "./differences.js";
import { sides } from "./state.js";

export function Comparison() {
  const [a, b] = sides.value.map((side) => side.prediction.value);
  if (!a || !b) return null;
  const waiting = sides.value.some((side) => side.main.shown.value.status !== "done");
  const asks = asksDiffer(a, b);
  return html`<section class=${`comparison ${waiting ? "stale" : ""}`} aria-label="Differences" aria-busy=${waiting}><h2>A and B</h2>
    <ul>${differences(a, b, sides.value.map((side) => side.run.shown.value.value)).map((text) => html`<li>${text}</li>`)}</ul>
    ${asks.length ? html`<table class="asks"><caption class="hidden">What differs between the jobs</caption><thead><tr><th scope="col">Asked</th><th scope="col">A</th><th scope="col">B</th></tr></thead>
      <tbody>${asks.map(([name, of, other]) => html`<tr><th scope="row">${name}</th><td>${of}</td><td>${other}</td></tr>`)}</tbody></table>` : html`<p class="help">Both ask the same.</p>`}
  </section>`;
}
