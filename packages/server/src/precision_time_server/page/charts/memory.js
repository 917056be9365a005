// What a device holds, against what it has.
import { html, useMemo } from "../html.js";
import { bytes, share } from "../format.js";
import { Block, BottomAxis, Figure, Marks, Swatch } from "./figure.js";
import { byteTick, byteTicks, known, linear } from "./scale.js";
import { memoryOf } from "./terms.js";

const BAR = { top: 22, height: 40 };
const AXIS_Y = BAR.top + BAR.height + 10;

export function Memory({ prediction }) {
  const { memory_bytes_per_device: used, device_memory_bytes: capacity, fits } = prediction;
  const parts = useMemo(
    () => Object.entries(prediction.memory_terms ?? {}).map(([name, held]) => ({ ...memoryOf(name), held })).filter(({ held }) => known(held) && held > 0),
    [prediction],
  );
  const sum = parts.reduce((total, part) => total + part.held, 0);
  const most = Math.max(sum, known(used) ? used : 0, known(capacity) ? capacity : 0) || 1;
  const draw = useMemo(() => (width, show, id) => {
    const place = linear(0, most * 1.01, 0.5, width - 2);
    let at = 0;
    const items = parts.map((part) => {
      const [from, to] = [place(at), place((at += part.held))];
      const ofAll = known(capacity) && capacity > 0 ? `${share(part.held / capacity)} of the device` : share(part.held / sum);
      return {
        ...part, from, to, x: (from + to) / 2, y: BAR.top, box: [from, BAR.top, to - from, BAR.height],
        label: `${part.title}: ${bytes(part.held)}, ${ofAll}`, tip: [part.title, ["held", bytes(part.held)], ["share", ofAll]],
      };
    });
    const end = place(sum);
    const edge = known(capacity) ? place(capacity) : null;
    const near = edge !== null && edge > width - 120;
    return html`
      <${BottomAxis} place=${place} values=${byteTicks(most, width < 420 ? 4 : 8)} top=${BAR.top} y=${AXIS_Y} width=${width} say=${(value) => (value ? byteTick(value) : "0")} />
      ${edge !== null && sum < capacity && html`<rect class="chart-free" x=${end} y=${BAR.top + 0.5} width=${Math.max(0, edge - end)} height=${BAR.height - 1} aria-hidden="true" />`}
      <${Marks} items=${items} show=${show} draw=${(item) => html`<${Block} id=${id} x=${item.from} y=${BAR.top} width=${item.to - item.from} height=${BAR.height} color=${item.color} pattern=${item.pattern} className=${item.to - item.from < 4 ? "chart-thin" : ""} />`} />
      ${edge !== null && html`<g aria-hidden="true">
        ${sum > capacity && html`<rect class="chart-beyond" x=${edge} y=${BAR.top - 6} width=${end - edge} height=${BAR.height + 12} />`}
        <line class="chart-capacity" x1=${edge} x2=${edge} y1=${BAR.top - 6} y2=${BAR.top + BAR.height + 6} />
        <text class="chart-strong" x=${edge} y="12" text-anchor=${near ? "end" : "middle"}>device ${bytes(capacity)}</text>
      </g>`}`;
  }, [parts, prediction]);
  const free = capacity - sum;
  const verdict = !known(capacity)
    ? "The device's memory is not known."
    : fits ? `Fits: ${bytes(sum)} of ${bytes(capacity)}, ${bytes(free)} free.` : `Does not fit: ${bytes(sum)} needed, the device has ${bytes(capacity)}.`;
  return html`<${Figure} name="memory" title=${`Memory of a device: ${bytes(sum)}${known(capacity) ? ` of ${bytes(capacity)}` : ""}`}
    description=${`${verdict} ${parts.map((part) => `${part.title} ${bytes(part.held)}`).join(", ")}.`} height=${AXIS_Y + 20}
    legend=${html`<ul class="chart-legend">${parts.map((part) => html`<li key=${part.name}>
      <${Swatch} color=${part.color} pattern=${part.pattern} /><span>${part.title}</span><span>${bytes(part.held)}</span><span>${share(part.held / sum)}</span>
    </li>`)}</ul>`}
    note=${html`<span class=${fits === false ? "chart-bad chart-strong" : ""}>${fits === false ? "✕ " : ""}${verdict}</span>`}
    table=${{ head: ["Part", "Bytes", "Memory", "Share"], rows: parts.map((part) => [part.title, String(Math.round(part.held)), bytes(part.held), share(part.held / sum)]) }}>
    ${draw}
  <//>`;
}
