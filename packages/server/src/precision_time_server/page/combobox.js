// A text field that completes from one of the service's catalogs: any text may stand in it.
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { get } from "./api.js";
import { amount, bytes } from "./format.js";

const SHOWN = 12;
const TYPING_MS = 100;
const found = new Map();

/** The entries of a catalog that hold a text, best first. */
async function search(catalog, text, signal) {
  const path = `v1/catalogs/${catalog}?search=${encodeURIComponent(text)}&limit=${SHOWN}`;
  if (!found.has(path)) {
    const answer = await get(path, signal);
    if (found.size > 400) found.clear();
    found.set(path, (answer.items ?? []).map((item) => (typeof item === "string" ? { name: item } : item)));
  }
  return found.get(path);
}

/** What tells entries of a catalog apart, in a few words. */
function about(item) {
  const facts = [];
  if (item.params) facts.push(`${amount(item.params)} parameters`);
  if (item.memory_bytes) facts.push(bytes(item.memory_bytes));
  if (item.arch) facts.push(item.arch);
  if (!facts.length && item.summary) facts.push(item.summary);
  return facts.join(", ");
}

/** Splits `2x8xA100` into what stays and what is completed. */
const split = (text) => /^((?:\d+x)*)(.*)$/is.exec(text).slice(1);

export function Combobox({ id, value, onValue, catalog, placeholder = "", describedBy, invalid, required, onPick }) {
  const [items, setItems] = useState([]);
  const [open, setOpen] = useState(false);
  const [marked, setMarked] = useState(""); // by name: the list may change below it
  const asking = useRef(null);
  const timer = useRef(0);
  const list = useId();

  const ask = (text) => {
    clearTimeout(timer.current);
    asking.current?.abort();
    const mine = (asking.current = new AbortController());
    timer.current = setTimeout(async () => {
      const items = await search(catalog, split(text)[1].trim(), mine.signal).catch(() => []);
      if (asking.current !== mine) return;
      setItems(items);
      setOpen(items.length > 0);
    }, TYPING_MS);
  };
  /** Until the catalog answers, what was found before and still fits. */
  const narrow = (text) => {
    const words = split(text)[1].trim().toLowerCase();
    const left = items.filter((item) => item.name.toLowerCase().includes(words));
    setItems(left);
    setMarked("");
    if (!left.length) setOpen(false);
  };
  const active = items.findIndex((item) => item.name === marked);
  const close = () => {
    clearTimeout(timer.current);
    asking.current?.abort();
    asking.current = null;
    setOpen(false);
    setMarked("");
  };
  const pick = (item) => {
    const text = split(value)[0] + item.name;
    close();
    onPick ? onPick(item) : onValue(text);
  };
  const keys = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      if (!open) ask(value);
      else setMarked(items.at((active < 0 && move < 0 ? -1 : active + move) % items.length).name);
    } else if (event.key === "Enter" && open && active >= 0) {
      event.preventDefault();
      pick(items[active]);
    } else if (event.key === "Enter" && onPick && value.trim()) {
      event.preventDefault();
      close();
      onPick({ name: value.trim() });
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      close();
    }
  };
  useEffect(() => close, []);
  useEffect(() => {
    if (open && active >= 0) document.getElementById(`${list}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [active, open]);

  return html`<div class="combobox">
    <input id=${id} type="text" role="combobox" autocomplete="off" autocapitalize="none" spellcheck=${false}
      aria-expanded=${open} aria-controls=${list} aria-autocomplete="list" aria-required=${required ? "true" : undefined}
      aria-activedescendant=${open && active >= 0 ? `${list}-${active}` : undefined}
      aria-describedby=${describedBy} aria-invalid=${invalid ? "true" : undefined}
      placeholder=${placeholder} value=${value}
      onInput=${(event) => { onValue(event.target.value); narrow(event.target.value); ask(event.target.value); }}
      onKeyDown=${keys} onBlur=${close} onClick=${() => value === "" && !open && ask("")} />
    <ul id=${list} role="listbox" aria-label="Suggestions" hidden=${!open}>
      ${open && items.map((item, index) => html`<li key=${item.name} id=${`${list}-${index}`} role="option" aria-selected=${index === active}
        onMouseDown=${(event) => { event.preventDefault(); pick(item); }}>
        <span>${item.name}</span><small>${about(item)}</small></li>`)}
    </ul>
  </div>`;
}
