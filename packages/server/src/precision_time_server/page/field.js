// One labelled field of the form, with its help and with the problem that belongs to it.
import { html } from "./html.js";
import { Combobox } from "./combobox.js";
import { setField } from "./state.js";
import { fieldOf } from "./problems.js";

const CATALOGS = { model: "models", device: "devices", precision: "precisions", stack: "stacks", dataset: "datasets", optimizer: "optimizers", node_type: "node-types" };
const LABELS = {
  gpus: "Devices", nodes: "Nodes", network: "Network", device: "Device", batch_size: "Batch per device",
  global_batch_size: "Global batch", seq_len: "Sequence length", image_size: "Image size", dataset: "Dataset",
  sizes: "Sizes", tp: "Tensor parallel", pp: "Pipeline parallel", cp: "Context parallel", ep: "Expert parallel",
  zero_stage: "ZeRO stage", num_microbatches: "Micro batches", vpp: "Virtual pipeline", cpus: "CPU cores", lora_rank: "LoRA rank",
  lora_targets: "LoRA targets", mean_seq_len: "Mean sequence length",
};

/** What a field is called on the page. */
export function labelOf(name) {
  const text = LABELS[name] ?? name.replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}

/** `--batch-size` in a help text is the field of that name here. */
const plainly = (text) => text.replace(/--([a-z][a-z-]*)/g, (_, name) => labelOf(name.replaceAll("-", "_")).toLowerCase());
const helpOf = (field) => plainly(field.help + (field.default && !field.choices.length ? ` Default: ${field.default}.` : ""));

/** What the problem says about a field: the first that it names shows it, until there is another answer. */
export function problemOf(side, name) {
  const { status, problem } = side.main.shown.value;
  if (status === "done" || !problem?.message) return "";
  return fieldOf(problem, side.fieldNames) === name ? problem.message : "";
}

export function Problem({ id, text }) {
  return text ? html`<p class="problem" id=${id}>${text}</p>` : null;
}

/** A field of fields.js. `brief` leaves its help to the placeholder and to those who cannot see it. */
export function Field({ side, field, letter, brief = false, label = labelOf(field.name) }) {
  const id = `${letter}-${field.name}`;
  const value = side.state.value[field.name] ?? "";
  const problem = problemOf(side, field.name);
  const described = `${id}-help${problem ? ` ${id}-problem` : ""}`;
  const set = (text) => setField(side, field.name, text);
  const shared = { id, "aria-describedby": described, "aria-invalid": problem ? "true" : undefined };
  return html`<div class=${`field ${problem ? "wrong" : ""}`}>
    <label for=${id}>${label}</label>
    ${control(field, value, set, shared)}
    <p class=${brief ? "hidden" : "help"} id=${`${id}-help`}>${helpOf(field)}</p>
    <${Problem} id=${`${id}-problem`} text=${problem} />
  </div>`;
}

function control(field, value, set, shared) {
  const placeholder = plainly(field.default);
  if (field.kind === "choice" || field.kind === "boolean") {
    const choices = field.kind === "boolean" ? [["true", "yes"], ["false", "no"]] : field.choices.map((each) => [each, each]);
    const known = value === "" || choices.some(([each]) => each === value);
    return html`<select ...${shared} value=${value} onChange=${(event) => set(event.target.value)}>
      <option value="">${placeholder ? `${placeholder} (default)` : "not given"}</option>
      ${known ? null : html`<option value=${value}>${value}</option>`}
      ${choices.map(([each, text]) => html`<option value=${each}>${text}</option>`)}
    </select>`;
  }
  const catalog = CATALOGS[field.complete || field.name];
  if (catalog) {
    return html`<${Combobox} id=${shared.id} value=${value} onValue=${set} catalog=${catalog} placeholder=${placeholder}
      describedBy=${shared["aria-describedby"]} invalid=${shared["aria-invalid"]} />`;
  }
  const numeric = field.kind === "integer" || field.kind === "number";
  return html`<input ...${shared} type="text" inputmode=${numeric ? "decimal" : "text"} autocomplete="off" spellcheck=${false}
    placeholder=${field.kind === "sizes" ? "hidden=2048, layers=16" : placeholder} value=${value}
    onInput=${(event) => set(event.target.value)} />`;
}
