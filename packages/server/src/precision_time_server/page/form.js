// The form: a job, in the order in which one thinks of it.
import { html, signal, useEffect } from "./html.js";
import { get, token, tokenWanted, useToken } from "./api.js";
import { Combobox } from "./combobox.js";
import { Field, labelOf, Problem, problemOf } from "./field.js";
import { precisionsOf } from "./job.js";
import { ModelSource } from "./model.js";
import { onDrag, onDrop, Recipe, taken } from "./recipe.js";
import { askAgain, fields, setField, setFields } from "./state.js";

const PLACE = ["device", "gpus", "nodes", "network"];
const BATCH = ["batch_size", "global_batch_size", "seq_len", "image_size"];
const LENGTHS = ["epochs", "steps", "tokens"];
const RUN = ["dataset", "samples"];
const UP_FRONT = new Set([...PLACE, ...BATCH, ...LENGTHS, ...RUN, "sizes"]);
const USUAL = ["fp32", "tf32", "fp16-mixed", "bf16-mixed", "fp8-mixed"];

const clusters = signal([]);

const named = (name) => fields.find((field) => field.name === name);

export function Form({ side, letter }) {
  side.fieldNames = ["model", "config", "precision", "cluster", "deadline", "budget", ...fields.map((field) => field.name)];
  const row = (names) => names.map((name) => named(name) && html`<${Field} key=${name} side=${side} letter=${letter} field=${named(name)} brief />`);
  return html`<form class="job" aria-label=${`Job ${letter}`} onSubmit=${(event) => event.preventDefault()} key=${letter}
    onDragOver=${onDrag} onDrop=${onDrop(side, letter)}>
    <${Token} />
    <${Recipe} side=${side} letter=${letter} />
    <fieldset><legend>Model</legend><${ModelSource} key=${taken.value} side=${side} letter=${letter} /></fieldset>
    <fieldset><legend>Cluster</legend><${StoredClusters} side=${side} letter=${letter} /><div class="grid place">${row(PLACE)}</div></fieldset>
    <${Precisions} side=${side} letter=${letter} />
    <fieldset><legend>Batch and sizes</legend><div class="grid">${row(BATCH)}</div></fieldset>
    <fieldset><legend>Length of the run</legend><div class="grid"><${Length} side=${side} letter=${letter} />${row(RUN)}</div></fieldset>
    ${foldedSections().map(([title, found]) => html`<${Folded} key=${title} side=${side} letter=${letter} title=${title} found=${found} />`)}
  </form>`;
}

/** All other fields by the sections of the command line's help, layout first. */
function foldedSections() {
  const sections = new Map();
  for (const field of fields) {
    if (UP_FRONT.has(field.name)) continue;
    const title = field.section.startsWith("Input") ? "Input and assumptions" : field.section.startsWith("Precision") || field.section.startsWith("Devices") ? "Links and batches" : field.section;
    sections.set(title, [...(sections.get(title) ?? []), field]);
  }
  return [...sections].sort(([one], [other]) => (other === "Layout") - (one === "Layout"));
}

function Folded({ side, letter, title, found }) {
  const given = found.filter((field) => side.state.value[field.name]);
  const wrong = found.some((field) => problemOf(side, field.name));
  return html`<details class="folded" open=${wrong || undefined}>
    <summary>${title}${given.length ? html` <span class="given">${given.map((field) => `${labelOf(field.name)} ${side.state.value[field.name]}`).join(", ")}</span>` : null}</summary>
    <div class="grid wide">${found.map((field) => html`<${Field} key=${field.name} side=${side} letter=${letter} field=${field} />`)}</div>
  </details>`;
}

function Token() {
  if (!tokenWanted.value && !token.value) return null;
  return html`<fieldset class="token"><legend>Access</legend>
    <div class=${`field ${tokenWanted.value ? "wrong" : ""}`}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" value=${token.value} aria-describedby="token-help"
        onChange=${(event) => { useToken(event.target.value); askAgain(); }} />
      <p class=${tokenWanted.value ? "problem" : "help"} id="token-help">${tokenWanted.value ? "This service answers only with a valid token. " : ""}Kept in this tab only.</p>
    </div></fieldset>`;
}

function StoredClusters({ side, letter }) {
  useEffect(() => {
    get("v1/clusters").then((answer) => { clusters.value = (answer.items ?? answer.clusters ?? []).map((each) => (typeof each === "string" ? { name: each } : each)); }, () => {});
  }, [token.value]);
  const value = side.state.value.cluster ?? "";
  const problem = problemOf(side, "cluster");
  if (!clusters.value.length && !value) return null;
  const known = clusters.value.find((each) => each.name === value);
  const choose = (name) => {
    // What the cluster says of itself is not said again by the form.
    const found = clusters.value.find((each) => each.name === name);
    setFields(side, { ...Object.fromEntries(Object.keys(found?.fields ?? {}).map((field) => [field, ""])), cluster: name });
  };
  return html`<div class="field">
    <label for=${`${letter}-cluster`}>Stored cluster</label>
    <select id=${`${letter}-cluster`} value=${value} aria-describedby=${`${letter}-cluster-help ${letter}-cluster-problem`} onChange=${(event) => choose(event.target.value)}>
      <option value="">none</option>
      ${value && !known ? html`<option value=${value}>${value}</option>` : null}
      ${clusters.value.map((each) => html`<option value=${each.name}>${each.name}${each.note ? `: ${each.note}` : ""}</option>`)}
    </select>
    <p class="help" id=${`${letter}-cluster-help`}>${Object.entries(known?.fields ?? {}).map(([name, given]) => `${labelOf(name)}: ${given}`).join(", ")}</p>
    <${Problem} id=${`${letter}-cluster-problem`} text=${problem} />
  </div>`;
}

function Precisions({ side, letter }) {
  const chosen = precisionsOf(side.state.value);
  const all = chosen === "all";
  const list = all ? [] : chosen;
  const problem = problemOf(side, "precision");
  const set = (names) => setField(side, "precision", names.join(","));
  const toggle = (name) => set(list.includes(name) ? list.filter((each) => each !== name) : [...list, name]);
  return html`<fieldset class=${problem ? "wrong" : ""}><legend>Precisions</legend>
    <div class="chips">
      ${[...new Set([...USUAL, ...list])].map((name) => html`<label class="chip" key=${name}>
        <input type="checkbox" checked=${list.includes(name)} disabled=${all} onChange=${() => toggle(name)} /><span>${name}</span></label>`)}
      <label class="chip" key="all"><input type="checkbox" checked=${all} onChange=${() => setField(side, "precision", all ? "" : "all")} /><span>all</span></label>
    </div>
    <${OtherPrecision} letter=${letter} disabled=${all} onAdd=${(name) => list.includes(name) || set([...list, name])} />
    <p class="help">${all || list.length ? "" : "None given: the usual one of the device."}</p>
    <${Problem} id=${`${letter}-precision-problem`} text=${problem} />
  </fieldset>`;
}

const others = { A: signal(""), B: signal("") };

function OtherPrecision({ letter, disabled, onAdd }) {
  if (disabled) return null;
  const text = others[letter];
  return html`<div class="field"><label for=${`${letter}-precision`}>Another precision</label>
    <${Combobox} id=${`${letter}-precision`} value=${text.value} catalog="precisions" placeholder="name, then Enter"
      onValue=${(value) => { text.value = value; }} onPick=${(item) => { text.value = ""; onAdd(item.name); }} /></div>`;
}

function Length({ side, letter }) {
  const state = side.state.value;
  const unit = LENGTHS.find((name) => state[name]) ?? side.lengthUnit ?? LENGTHS[0];
  const problem = LENGTHS.map((name) => problemOf(side, name)).find(Boolean) ?? "";
  const id = `${letter}-length`;
  const set = (text, name) => {
    side.lengthUnit = name;
    setFields(side, Object.fromEntries(LENGTHS.map((each) => [each, each === name ? text : ""])));
  };
  return html`<div class=${`field ${problem ? "wrong" : ""}`}>
    <label for=${id}>Length</label>
    <div class="joined">
      <input id=${id} type="text" inputmode="decimal" autocomplete="off" placeholder="1" value=${state[unit] ?? ""}
        aria-describedby=${problem ? `${id}-problem` : undefined} aria-invalid=${problem ? "true" : undefined}
        onInput=${(event) => set(event.target.value, unit)} />
      <select aria-label="Unit of the length" value=${unit} onChange=${(event) => set(state[unit] ?? "", event.target.value)}>
        ${LENGTHS.map((name) => html`<option value=${name}>${name}</option>`)}
      </select>
    </div>
    <${Problem} id=${`${id}-problem`} text=${problem} />
  </div>`;
}
