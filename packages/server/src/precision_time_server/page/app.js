// The page: a form on one side, the answer on the other.
import { effect, html, render, signal } from "./html.js";
import { token, tokenWanted } from "./api.js";
import { Answer, runOf, spoken } from "./answer.js";
import { Comparison } from "./comparison.js";
import { Form } from "./form.js";
import { compareWithCopy, comparing, edited, sides, start, stopComparing, unknownNames } from "./state.js";
import { ThemeSwitch } from "./theme-switch.js";

const LETTERS = ["A", "B"];

const QUIET_MS = 900;
/** What a screen reader says once an answer has stood for a moment: nothing while one types. */
const said = signal("");
let quiet = 0;
effect(() => {
  const text = sides.value.map((side, index) => spoken(side, comparing.value ? `Job ${LETTERS[index]}: ` : "")).filter(Boolean).join(" ");
  clearTimeout(quiet);
  quiet = setTimeout(() => { said.value = text; }, QUIET_MS);
});

function Page() {
  const at = edited.value;
  return html`
    <a class="skip" href="#answer" onClick=${skip}>Skip to the answer</a>
    <header class="top">
      <h1>precision-time</h1>
      <p>How long a training takes, before a GPU is rented</p>
      <${ThemeSwitch} />
    </header>
    <main class=${comparing.value ? "two" : "one"}>
      <div class="ask">
        <div class="jobs">
          ${comparing.value
            ? html`<div class="segments" role="radiogroup" aria-label="Job to edit">${LETTERS.map((letter, index) => html`<label>
                <input type="radio" name="edited" checked=${at === index} onChange=${() => { edited.value = index; }} /><span>Job ${letter}</span></label>`)}</div>
              <button type="button" class="quiet" onClick=${() => stopComparing(1 - at)}>Remove job ${LETTERS[at]}</button>`
            : html`<h2>Job</h2><button type="button" class="quiet" onClick=${compareWithCopy}>Compare with another</button>`}
        </div>
        ${unknownNames.value.length ? html`<p class="remark" role="status">The address names what is no field here and was left out: ${unknownNames.value.slice(0, 5).join(", ")}.</p>` : null}
        <${Form} key=${LETTERS[at]} side=${sides.value[at]} letter=${LETTERS[at]} />
        <${Peek} side=${sides.value[at]} />
      </div>
      <div class="answers" id="answer" tabindex="-1">
        ${comparing.value ? html`<${Comparison} />` : null}
        <div class="columns">${sides.value.map((side, index) => html`<${Answer} key=${LETTERS[index]} side=${side} letter=${LETTERS[index]} titled=${comparing.value} />`)}</div>
      </div>
    </main>
    <p class="hidden" role="status" aria-live="polite">${said}</p>
    <footer><p>Predicted, not measured: each answer has its interval and the measured runs nearest to it.${token.value || tokenWanted.value ? null : html` <a href="openapi.json">HTTP interface</a>`}</p></footer>`;
}

/** Where the form fills the screen: the answer in short, and the way to it. */
function Peek({ side }) {
  const prediction = side.prediction.value;
  if (!prediction) return null;
  const stale = side.main.shown.value.status === "waiting";
  const [name, time] = runOf(prediction);
  return html`<a class="peek" href="#answer" onClick=${skip}><span>${stale ? "Predicting …" : `${name}: ${time}${prediction.fits ? "" : ", does not fit"}`}</span><span>Answer</span></a>`;
}

/** The address behind the # holds the job, so that the link moves the focus and not the address. */
function skip(event) {
  event.preventDefault();
  const answer = document.getElementById("answer");
  answer.focus({ preventScroll: true });
  answer.scrollIntoView();
}

start();
const place = document.getElementById("page");
place.replaceChildren();
render(html`<${Page} />`, place);
