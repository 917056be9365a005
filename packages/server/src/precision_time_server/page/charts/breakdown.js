// The step as one bar of its terms.
import { html, useMemo } from "../html.js";
import { duration, range, share } from "../format.js";
import { Block, BottomAxis, Figure, Marks, Swatch, Whisker } from "./figure.js";
import { fitted, known, linear, textWidth, ticks, timeUnit } from "./scale.js";
import { GROUPS, termOf } from "./terms.js";

const BAR = { top: 8, height: 46 };
const WHISKER_Y = BAR.top + BAR.height + 12;
const AXIS_Y = WHISKER_Y + 14;
const BOLD = 7.4; // pixels of a character
const LIGHT_INK_BELOW = 0.22; // relative luminance

/** Whether white words are the ones to read on a color. */
export function dark(color) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < LIGHT_INK_BELOW;
}

/** The terms that take time, in the order of the groups, and how many are zero. */
function termsOf(prediction) {
  const all = Object.entries(prediction.terms ?? {}).map(([name, seconds]) => ({ ...termOf(name), seconds }));
  const shown = all.filter(({ seconds }) => known(seconds) && seconds > 0);
  const order = Object.keys(GROUPS);
  shown.sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group));
  return { shown, zero: all.length - shown.length };
}

export function Breakdown({ prediction }) {
  const { shown, zero } = useMemo(() => termsOf(prediction), [prediction]);
  const step_s = prediction.step_time_s;
  const interval = prediction.interval;
  const sum_s = shown.reduce((sum, term) => sum + term.seconds, 0);
  const most_s = Math.max(sum_s, step_s || 0, known(interval?.high_s) ? interval.high_s : 0) || 1;
  const draw = useMemo(() => (width, show, id) => {
    const place = linear(0, most_s * 1.02, 0.5, width - 0.5);
    const [unit, size] = timeUnit(most_s);
    let at = 0;
    const items = shown.map((term) => {
      const [from, to] = [place(at), place((at += term.seconds))];
      const said = `${duration(term.seconds)}, ${share(term.seconds / sum_s)}`;
      return {
        ...term, from, to, label: `${term.title}: ${said}`, box: [from, BAR.top, to - from, BAR.height],
        tip: [term.title, ["time", duration(term.seconds)], ["of the step", share(term.seconds / sum_s)], GROUPS[term.group][0]],
        x: (from + to) / 2, y: BAR.top,
      };
    });
    return html`
      <${BottomAxis} place=${(value) => place(value * size)} values=${ticks(0, most_s / size, width < 420 ? 4 : 8)} top=${BAR.top} y=${AXIS_Y} width=${width} say=${(value) => `${value} ${value || width > 420 ? unit : ""}`} />
      <${Marks} items=${items} show=${show} draw=${(item) => html`
        <${Block} id=${id} x=${item.from} y=${BAR.top} width=${item.to - item.from} height=${BAR.height} color=${item.color} pattern=${item.pattern} className=${item.to - item.from < 4 ? "chart-thin" : ""} />
        ${inside(item)}`} />
      ${known(interval?.low_s) && known(interval?.high_s) && html`<${Whisker} low=${place(interval.low_s)} high=${place(interval.high_s)} y=${WHISKER_Y} />
        <circle cx=${place(step_s)} cy=${WHISKER_Y} r="4" fill="var(--chart-ink)" stroke="var(--chart-back)" aria-hidden="true" />`}`;
  }, [shown, prediction]);
  const span = known(interval?.low_s) && known(interval?.high_s) ? `${share(interval.coverage)} interval ${range(interval.low_s, interval.high_s)}` : "";
  const described = `A step takes ${duration(step_s)}${span && `, ${span}`}. ${shown.map((term) => `${term.title} ${share(term.seconds / sum_s)}`).join(", ")}.`;
  return html`<${Figure} name="breakdown" title=${`What a step of ${duration(step_s)} is made of`} description=${described} height=${AXIS_Y + 20}
    legend=${html`<${Legend} shown=${shown} sum_s=${sum_s} />`}
    note=${html`${span && `Line with ends: ${span}. `}${zero > 0 && `${zero} ${zero === 1 ? "term is" : "terms are"} zero.`}`}
    table=${{ head: ["Term", "Group", "Seconds", "Time", "Share"], rows: shown.map((term) => [term.title, GROUPS[term.group][0], String(term.seconds), duration(term.seconds), share(term.seconds / sum_s)]) }}>
    ${draw}
  <//>`;
}

/** Name and share in a part, as far as they fit. */
function inside({ title, from, to, color, seconds, pattern }) {
  const width = to - from - 10;
  const words = textWidth(title, BOLD) <= width ? title : width > 70 ? fitted(title, width, BOLD) : "";
  if (!words || pattern) return null;
  const ink = dark(color) ? "chart-in-light" : "chart-in-dark";
  const middle = BAR.top + BAR.height / 2;
  return html`<g aria-hidden="true">
    <text class=${`chart-in ${ink} chart-strong`} x=${from + 6} y=${middle - 3}>${words}</text>
    <text class=${`chart-in ${ink}`} x=${from + 6} y=${middle + 13}>${duration(seconds)}</text>
  </g>`;
}

function Legend({ shown, sum_s }) {
  return html`<ul class="chart-legend">
    ${shown.map((term) => html`<li key=${term.name}>
      <${Swatch} color=${term.color} pattern=${term.pattern} /><span>${term.title}</span>
      <span>${duration(term.seconds)}</span><span>${share(term.seconds / sum_s)}</span>
    </li>`)}
  </ul>`;
}
