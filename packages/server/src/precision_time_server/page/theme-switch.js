// Light, dark, or as the system says.
import { html, signal } from "./html.js";

const THEMES = { system: "System", light: "Light", dark: "Dark" };
const theme = signal(document.documentElement.dataset.theme ?? "system");

function choose(name) {
  theme.value = name;
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    if (name === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", name);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}

export function ThemeSwitch() {
  return html`<div class="segments theme" role="radiogroup" aria-label="Theme">
    ${Object.entries(THEMES).map(([name, text]) => html`<label><input type="radio" name="theme" value=${name}
      checked=${theme.value === name} onChange=${() => choose(name)} /><span>${text}</span></label>`)}
  </div>`;
}
