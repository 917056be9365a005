// The job as text to take away, and the address that restores it.
import { html, useState } from "./html.js";
import { addressOf, token } from "./api.js";
import { FORMS, storedOnly, textOf } from "./copy.js";
import { jobOf } from "./job.js";
import { fields, link } from "./state.js";

export function CopyAs({ side, letter }) {
  const [form, setForm] = useState("command");
  const [said, setSaid] = useState("");
  let text = "";
  let here = false;
  try {
    text = textOf(form, side.state.value, fields, addressOf(""), Boolean(token.value));
    here = storedOnly(jobOf(side.state.value, fields)) && form !== "curl";
  } catch {
    return null; // what cannot be asked is said at its field
  }
  const copy = async (what, name) => {
    try {
      await navigator.clipboard.writeText(what);
      setSaid(`${name} copied.`);
    } catch {
      setSaid("The browser does not let the page copy. To fix: select the text and copy it.");
    }
    setTimeout(() => setSaid(""), 4000);
  };
  return html`<section class="part copy"><h3>Take it away</h3>
    <div class="bar">
      <div class="segments" role="radiogroup" aria-label="Copy as">${Object.entries(FORMS).map(([value, name]) => html`<label>
        <input type="radio" name=${`${letter}-copy`} checked=${form === value} onChange=${() => setForm(value)} /><span>${name}</span></label>`)}</div>
      <button type="button" onClick=${() => copy(text, FORMS[form])}>Copy</button>
      <button type="button" onClick=${() => copy(link(), "Link")}>Copy link</button>
    </div>
    <pre class="scroll" tabindex="0" aria-label=${FORMS[form]}>${text}</pre>
    ${here ? html`<p class="help">The job names what is stored at this service, so that only it can answer.</p>` : null}
    <p class="help" role="status">${said}</p>
  </section>`;
}
