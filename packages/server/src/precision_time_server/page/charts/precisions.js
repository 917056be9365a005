// The same job at several precisions, side by side.
import { asked } from "../asked.js";
import { html, useMemo, useState } from "../html.js";
import { bytes, digits, duration, range } from "../format.js";
import { BottomAxis, Figure, Marks, Whisker } from "./figure.js";
import { fitted, known, linear, textWidth, ticks, timeUnit } from "./scale.js";

const ROW = { wide: 30, narrow: 46 };
const NARROW = 520;
const BAR = 14;
const MOST = 30;
const VALUE = 168;

const nameOf = (prediction) => asked(prediction) || "default";

/** `2.31 × as fast` as the first, or `1.2 × as slow`. */
function relative(prediction, first) {
  if (prediction === first || !(prediction.step_time_s > 0) || !(first.step_time_s > 0)) return "";
  const ratio = first.step_time_s / prediction.step_time_s;
  if (Math.abs(ratio - 1) < 0.005) return "the same time";
  const factor = Math.max(ratio, 1 / ratio);
  return `${factor < 1000 ? digits(factor) : "over 1,000"}× as ${ratio > 1 ? "fast" : "slow"}`;
}

const fit = (prediction) =>
  prediction.fits === false ? `does not fit${known(prediction.memory_bytes_per_device) ? `: ${bytes(prediction.memory_bytes_per_device)}` : ""}` : "";

/** `chosen`: a prediction, or the name of a precision as it was asked. `onChoose(name, prediction)`. */
export function Precisions({ predictions, chosen, onChoose }) {
  const [all, setAll] = useState(false);
  const shown = useMemo(() => (all ? predictions : predictions.slice(0, MOST)), [predictions, all]);
  const first = predictions[0];
  const isChosen = (each) => each === chosen || (typeof chosen === "string" && (nameOf(each) === chosen || each.precision === chosen));
  const draw = useMemo(() => (width, show, id) => rows({ shown, first, width, show, id, isChosen, onChoose }), [shown, first, chosen, onChoose]);
  if (!first) return null;
  const height = (width) => shown.length * (width < NARROW ? ROW.narrow : ROW.wide) + 28;
  const said = predictions.slice(0, MOST).map((each) => `${nameOf(each)} ${duration(each.step_time_s)}${fit(each) && `, ${fit(each)}`}`).join("; ");
  return html`<${Figure} name="precisions" title=${predictions.length === 1 ? "Step time" : `Step time at ${predictions.length} precisions`}
    description=${`${said}. Compared with ${nameOf(first)}.`} height=${height}
    note=${html`Lines with ends: ${Math.round(100 * (first.interval?.coverage ?? 0.9))}% intervals.${predictions.length > 1 && ` Compared with ${nameOf(first)}.`}${shown.some((each) => each.fits === false) && " Hatched: does not fit in the device's memory."}
      ${predictions.length > MOST && html` <button type="button" class="chart-more" aria-expanded=${String(all)} onClick=${() => setAll(!all)}>${all ? `The first ${MOST} only` : `All ${predictions.length}`}</button>`}`}
    table=${{
      head: ["Precision", "Step time", "Interval", `Against ${nameOf(first)}`, "Memory", "Fits"],
      rows: predictions.map((each) => [nameOf(each), duration(each.step_time_s), each.interval ? range(each.interval.low_s, each.interval.high_s) : "–", relative(each, first) || "–", bytes(each.memory_bytes_per_device), each.fits === false ? "no" : each.fits ? "yes" : "not known"]),
    }}>
    ${draw}
  <//>`;
}

function rows({ shown, first, width, show, id, isChosen, onChoose }) {
  const narrow = width < NARROW;
  const tall = narrow ? ROW.narrow : ROW.wide;
  const longest = Math.max(...shown.map((each) => textWidth(nameOf(each), 7.2)));
  const left = narrow ? 6 : Math.min(longest + 26, width * 0.34);
  const right = narrow ? width - 8 : width - VALUE;
  const most_s = Math.max(...shown.map((each) => Math.max(each.step_time_s || 0, each.interval?.high_s || 0))) || 1;
  const [unit, size] = timeUnit(most_s);
  const place = linear(0, most_s, left, right);
  const items = shown.map((each, at) => {
    const y = at * tall;
    const name = nameOf(each);
    const versus = relative(each, first);
    const span = each.interval && known(each.interval.low_s) ? range(each.interval.low_s, each.interval.high_s) : "";
    return {
      each, y, name, versus, pressed: isChosen(each), choose: onChoose && (() => onChoose(name, each)),
      label: [`${name}: ${duration(each.step_time_s)}`, span && `interval ${span}`, versus && `${versus} as ${nameOf(first)}`, fit(each)].filter(Boolean).join(", "),
      tip: [name, ["step", duration(each.step_time_s)], ...(span ? [["interval", span]] : []), ...(versus ? [[`against ${nameOf(first)}`, versus]] : []), ["memory", bytes(each.memory_bytes_per_device)], ...(fit(each) ? [fit(each)] : [])],
      x: Math.min(place(each.step_time_s || 0), right - 40), y0: y, box: [2, y + 2, width - 4, tall - 4],
    };
  });
  const bottom = shown.length * tall + 4;
  return html`
    <${BottomAxis} place=${(value) => place(value * size)} values=${ticks(0, most_s / size, (right - left) / 90)} top=${0} y=${bottom} width=${width} say=${(value) => `${value} ${unit}`} />
    <${Marks} items=${items} show=${show} draw=${(item) => row(item, { narrow, tall, left, right, width, place, id })} />`;
}

function row({ each, y, name, versus, pressed }, { narrow, tall, left, width, place, id }) {
  const middle = narrow ? y + 33 : y + tall / 2;
  const end = place(each.step_time_s || 0);
  const unfit = each.fits === false;
  const words = [duration(each.step_time_s), unfit ? "does not fit" : versus];
  const low = each.interval?.low_s, high = each.interval?.high_s;
  return html`
    <rect class=${pressed ? "chart-chosen" : ""} fill="none" x="0" y=${y + 1} width=${width} height=${tall - 2} rx="4" />
    <rect class="chart-hit" x="0" y=${y} width=${width} height=${tall} />
    ${pressed && html`<rect x="0" y=${y + 1} width="3" height=${tall - 2} fill="var(--chart-accent)" />`}
    <text class=${pressed ? "chart-strong" : ""} x=${narrow ? 8 : left - 8} y=${narrow ? y + 18 : middle + 4} text-anchor=${narrow ? "start" : "end"}>${fitted(name, narrow ? width - VALUE : left - 18, 6.8)}</text>
    <rect class="chart-block" x=${place(0)} y=${middle - BAR / 2} width=${Math.max(1.5, end - place(0))} height=${BAR} fill=${unfit ? "#9aa1aa" : "#5b9bd8"} />
    ${unfit && html`<rect x=${place(0)} y=${middle - BAR / 2} width=${Math.max(1.5, end - place(0))} height=${BAR} fill=${`url(#${id}-diagonal)`} />`}
    ${known(low) && known(high) && html`<${Whisker} low=${place(low)} high=${place(high)} y=${middle} cap=${4} />`}
    <text x=${width - 6} y=${narrow ? y + 18 : middle + 4} text-anchor="end"><tspan class="chart-strong">${words[0]}</tspan>${words[1] && html`<tspan class=${unfit ? "chart-bad" : "chart-faint"} dx="8">${words[1]}</tspan>`}</text>`;
}
