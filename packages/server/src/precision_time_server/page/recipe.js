// A recipe of another project in the form: dropped or chosen, read by the service, its report beside the fields.
import { html, signal } from "./html.js";
import { post } from "./api.js";
import { latest } from "./latest.js";
import { jobTexts, recipeOf, stillMissing } from "./recipe-job.js";
import { fields, setFields } from "./state.js";

const MOST_BYTES = 900_000;
const reports = { A: latest(), B: latest() };
/** How many recipes the form has taken: where the model comes from is drawn anew with each. */
export const taken = signal(0);

/** Read files as one recipe with those that it names, and put its job into the form. */
export async function takeRecipe(side, letter, files) {
  const report = reports[letter];
  const given = [...files];
  if (!given.length) return;
  if (given.reduce((sum, file) => sum + file.size, 0) > MOST_BYTES)
    return report.fail(new Error(`${given[0].name} is larger than a recipe, ${MOST_BYTES / 1000} kB. To fix: choose the file of one run.`));
  const answer = await report.start(async (signal) => {
    const sent = recipeOf(await Promise.all(given.map(async (file) => ({ name: file.name, text: await file.text() }))));
    try {
      return await post("v1/recipes", sent, signal);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      throw new Error("This service reads no recipes. To fix: install precision-time-integrations beside it.");
    }
  });
  if (!answer) return;
  setFields(side, jobTexts(answer.job, fields, side.state.value));
  taken.value += 1;
}

/** Files that are dragged over the form may be dropped on it. */
export const onDrag = (event) => {
  if ([...(event.dataTransfer?.types ?? [])].includes("Files")) event.preventDefault();
};

export const onDrop = (side, letter) => (event) => {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  takeRecipe(side, letter, event.dataTransfer.files);
};

export function Recipe({ side, letter }) {
  const id = `${letter}-recipe`;
  const { status, value, problem } = reports[letter].shown.value;
  const missing = value ? stillMissing(value.missing, side.state.value) : [];
  return html`<details class="folded" open=${status !== "idle" || undefined}>
    <summary>From a recipe</summary>
    <div class=${`field ${problem ? "wrong" : ""}`}>
      <label for=${id}>Recipe or script</label>
      <input id=${id} type="file" multiple aria-describedby=${`${id}-help ${id}-problem`} aria-invalid=${problem ? "true" : undefined}
        onChange=${(event) => takeRecipe(side, letter, event.target.files)} />
      <p class="help" id=${`${id}-help`} role="status">${
        status === "waiting" ? "Reading the recipe …"
        : value ? `Read as ${value.project}.${missing.length ? ` Nothing says: ${missing.join(", ")}.` : ""}`
        : "Of axolotl, LLaMA-Factory, TRL, torchtune, torchtitan, Megatron and others, with the files that it names; or drop them on the form. Nothing in them is run."}</p>
      ${problem ? html`<p class="problem" id=${`${id}-problem`}>${problem.message}</p>` : null}
      ${value && status === "done" ? html`<ul class="remarks">${value.report.map((line) => html`<li>${line}</li>`)}</ul>` : null}
    </div>
  </details>`;
}
