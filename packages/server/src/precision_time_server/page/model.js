// Where the model comes from: a name with sizes, a pasted configuration, or a file.
import { html, useState } from "./html.js";
import { upload } from "./api.js";
import { Combobox } from "./combobox.js";
import { Field, Problem, problemOf } from "./field.js";
import { amount } from "./format.js";
import { latest } from "./latest.js";
import { fields, setField, setFields } from "./state.js";

const SOURCES = { name: "Name", config: "Config", file: "File" };
const UPLOADED = /^uploads\//;

export function ModelSource({ side, letter }) {
  const state = side.state.value;
  const [source, setSource] = useState(state.config ? "config" : UPLOADED.test(state.model ?? "") ? "file" : "name");
  const choose = (next) => {
    setSource(next);
    if (next !== "config") setField(side, "config", "");
    if (next !== "file" && UPLOADED.test(state.model ?? "")) setField(side, "model", "");
  };
  return html`
    <div class="segments" role="radiogroup" aria-label="Where the model comes from">
      ${Object.entries(SOURCES).map(([value, text]) => html`<label><input type="radio" name=${`${letter}-source`} value=${value}
        checked=${source === value} onChange=${() => choose(value)} /><span>${text}</span></label>`)}
    </div>
    ${source === "name" ? html`<${ByName} side=${side} letter=${letter} />` : source === "config" ? html`<${ByConfig} side=${side} letter=${letter} />` : html`<${ByFile} side=${side} letter=${letter} />`}`;
}

function ByName({ side, letter }) {
  const id = `${letter}-model`;
  const problem = problemOf(side, "model");
  const sizes = fields.find((field) => field.name === "sizes");
  return html`<div class=${`field ${problem ? "wrong" : ""}`}>
      <label for=${id}>Model</label>
      <${Combobox} id=${id} value=${side.state.value.model ?? ""} onValue=${(text) => setField(side, "model", text)} catalog="models"
        placeholder="resnet50, llama3-8b, gpt-h1024-l24 …" describedBy=${`${id}-problem`} invalid=${Boolean(problem)} required />
      <${Problem} id=${`${id}-problem`} text=${problem} />
    </div>
    ${sizes && html`<${Field} side=${side} letter=${letter} field=${sizes} brief />`}`;
}

function ByConfig({ side, letter }) {
  const id = `${letter}-config`;
  const problem = problemOf(side, "config") || (side.state.value.config ? problemOf(side, "model") : "");
  return html`<div class=${`field ${problem ? "wrong" : ""}`}>
    <label for=${id}>Hugging Face config.json</label>
    <textarea id=${id} rows="9" spellcheck=${false} aria-describedby=${`${id}-help ${id}-problem`} aria-invalid=${problem ? "true" : undefined}
      placeholder=${'{\n  "model_type": "llama",\n  "hidden_size": 4096,\n  …\n}'} value=${side.state.value.config ?? ""}
      onInput=${(event) => setField(side, "config", event.target.value)}></textarea>
    <p class="help" id=${`${id}-help`}>Paste the whole file. It is read as sizes; nothing in it is run.</p>
    <${Problem} id=${`${id}-problem`} text=${problem} />
  </div>`;
}

const uploads = { A: latest(), B: latest() };

function ByFile({ side, letter }) {
  const id = `${letter}-file`;
  const { status, value, problem } = uploads[letter].shown.value;
  const unknown = problemOf(side, "model");
  const send = async (file) => {
    if (!file) return;
    if (!/\.json$/i.test(file.name))
      return uploads[letter].fail(new Error(`${file.name} is no .json file. To fix: choose a config.json, or send other models from Python: Client.upload_model.`));
    const path = `v1/models?kind=hf-config&label=${encodeURIComponent(file.name.slice(0, 80))}`;
    const answer = await uploads[letter].start((signal) => upload(path, file, signal));
    if (answer) setFields(side, { model: answer.name, config: "" });
  };
  return html`<div class=${`field ${problem || unknown ? "wrong" : ""}`}>
    <label for=${id}>Model file</label>
    <input id=${id} type="file" accept=".json" aria-describedby=${`${id}-help ${id}-problem`} aria-invalid=${problem ? "true" : undefined}
      onChange=${(event) => send(event.target.files[0])} />
    <p class="help" id=${`${id}-help`} role="status">${
      status === "waiting" ? "Reading the model …"
      : value ? `${value.label || value.name}: ${value.params ? `${amount(value.params)} parameters, ` : ""}${value.operators} operators.`
      : UPLOADED.test(side.state.value.model ?? "") ? `Uploaded before: ${side.state.value.model}.`
      : "A config.json; nothing in it is run. Other models are captured where they are: Client.upload_model in Python, or precision-time --server."}</p>
    ${(value?.warnings ?? []).map((text) => html`<p class="help">${typeof text === "string" ? text : text.text}</p>`)}
    <${Problem} id=${`${id}-problem`} text=${problem?.message || unknown} />
  </div>`;
}
