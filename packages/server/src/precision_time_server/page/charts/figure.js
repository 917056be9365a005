// What every chart is: a figure with a title, a drawing as wide as its place, marks that the keyboard reaches,
// a tip for the one that is pointed at or focused, and the same numbers as a table.
import { html, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../html.js";

const MARGIN = 6;

/**
 * One chart. `children(width, show, id)` draws into an svg of `height` (a number, or of the width);
 * `show(item)` opens the tip of an item with `x`, `y` and `tip`, and `show(null)` closes it.
 */
export function Figure({ name, title, description, height, controls, legend, table, note, children }) {
  const id = useId();
  const place = useRef(null);
  const tip = useRef(() => {});
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.floor(place.current.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const tall = typeof height === "function" ? height(width || 640) : height;
  const drawn = useMemo(
    () => width > 0 && html`<svg width=${width} height=${tall} role="group" aria-labelledby=${`${id}-t`} aria-describedby=${`${id}-d`}>
      <${Patterns} id=${id} />
      ${children(width, (item) => tip.current(item), id)}
    </svg>`,
    [width, tall, children],
  );
  return html`<figure class=${`chart chart-${name}`}>
    <figcaption>
      <span class="chart-title" id=${`${id}-t`}>${title}</span>
      <span class="chart-hidden" id=${`${id}-d`}>${description} The arrow keys move between the marks.</span>
      ${controls}
    </figcaption>
    <div class="chart-place" ref=${place} style=${{ minHeight: `${tall}px` }}>
      ${drawn}
      <${Tip} open=${tip} width=${width} />
    </div>
    ${legend}
    ${note && html`<p class="chart-note">${note}</p>`}
    ${table && html`<${Twin} title=${title} ...${table} />`}
  </figure>`;
}

/** Patterns that lie over colors: `url(#ID-dots)` and so on. */
function Patterns({ id }) {
  const line = (name, angle) => html`<pattern id=${`${id}-${name}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform=${`rotate(${angle})`}>
    <line x1="0" y1="3" x2="6" y2="3" class="chart-pattern" />
  </pattern>`;
  return html`<defs>
    ${line("rows", 0)} ${line("columns", 90)} ${line("diagonal", -45)}
    <pattern id=${`${id}-dots`} width="6" height="6" patternUnits="userSpaceOnUse"><circle cx="2" cy="2" r="1.1" class="chart-dot" /></pattern>
    <pattern id=${`${id}-cross`} width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <path d="M0 3.5H7M3.5 0V7" class="chart-pattern" />
    </pattern>
  </defs>`;
}

/** A filled box: its color, then its pattern. */
export function Block({ id, x, y, width, height, color, pattern, className = "" }) {
  const box = { x, y, width: Math.max(0, width), height };
  return html`<rect ...${box} fill=${color} class=${`chart-block ${className}`} />
    ${pattern && html`<rect ...${box} fill=${`url(#${id}-${pattern})`} />`}`;
}

/** The same as a sample beside a word. */
export function Swatch({ color, pattern }) {
  const id = useId();
  return html`<svg class="chart-swatch" width="14" height="14" aria-hidden="true">
    ${pattern && html`<${Patterns} id=${id} />`}
    <${Block} id=${id} x=${0.5} y=${0.5} width=${13} height=${13} color=${color} pattern=${pattern} />
  </svg>`;
}

/**
 * Marks, one stop of the Tab key in all: arrows, Home and End go from one to the next, Enter chooses.
 * An item has `label` (said aloud), `tip` (heading, then [name, value] pairs), `x` and `y` of the tip,
 * `box` [x, y, width, height] of its focus ring, and `choose` where it can be chosen.
 */
export function Marks({ items, show, draw }) {
  const group = useRef(null);
  const of = (target) => target.closest?.("[data-mark]");
  const item = (node) => items[Number(node?.dataset.mark)];
  const all = () => [...group.current.querySelectorAll(":scope > [data-mark]")];
  useLayoutEffect(() => {
    const stop = Math.max(0, items.findIndex((each) => each.pressed));
    const focused = of(document.activeElement);
    all().forEach((node, at) => node.setAttribute("tabindex", (group.current.contains(focused) ? node === focused : at === stop) ? "0" : "-1"));
  }, [items]);
  const visit = (node) => {
    if (!node) return;
    all().forEach((each) => each.setAttribute("tabindex", each === node ? "0" : "-1"));
    node.focus();
  };
  const onKeyDown = (event) => {
    const nodes = all();
    const at = nodes.indexOf(of(event.target));
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: nodes.length - 1 }[event.key];
    if (to !== undefined) visit(nodes[Math.min(nodes.length - 1, Math.max(0, to))]);
    else if (event.key === "Escape") show(null);
    else if ((event.key === "Enter" || event.key === " ") && items[at]?.choose) items[at].choose();
    else return;
    event.preventDefault();
  };
  return html`<g ref=${group} onKeyDown=${onKeyDown}
    onFocusIn=${(event) => show(item(of(event.target)))} onFocusOut=${() => show(null)}
    onPointerOver=${(event) => show(item(of(event.target)))}
    onPointerLeave=${() => show(group.current.contains(document.activeElement) ? item(of(document.activeElement)) : null)}
    onClick=${(event) => item(of(event.target))?.choose?.()}>
    ${items.map((each, at) => html`<g key=${at} data-mark=${at} role=${each.choose ? "button" : "img"} aria-label=${each.label}
      aria-pressed=${each.choose ? String(Boolean(each.pressed)) : undefined} class=${each.choose ? "chart-choice" : undefined}>
      ${draw(each, at)}
      ${each.box && html`<rect class="chart-ring" x=${each.box[0] - 2} y=${each.box[1] - 2} width=${each.box[2] + 4} height=${each.box[3] + 4} rx="3" />`}
    </g>`)}
  </g>`;
}

/** Says what is pointed at or focused. Its words are the mark's label too, so it is not read twice. */
function Tip({ open, width }) {
  const [item, setItem] = useState(null);
  const node = useRef(null);
  open.current = (next) => setItem(next ?? null);
  useEffect(() => setItem(null), [width]);
  useLayoutEffect(() => {
    if (!item || !node.current) return;
    const { offsetWidth: wide, offsetHeight: tall } = node.current;
    const left = Math.min(Math.max(0, item.x - wide / 2), Math.max(0, width - wide));
    const above = item.y - tall - MARGIN;
    node.current.style.transform = `translate(${left}px, ${above >= -40 ? above : item.y + 3 * MARGIN}px)`;
  }, [item, width]);
  if (!item) return null;
  const [heading, ...rows] = item.tip;
  return html`<div class="chart-tip" ref=${node} aria-hidden="true">
    <b>${heading}</b>
    ${rows.map((row) => (Array.isArray(row) ? html`<span class="chart-tip-row"><span>${row[0]}</span><span>${row[1]}</span></span>` : html`<span>${row}</span>`))}
  </div>`;
}

/** The numbers of a chart as a table, opened on demand. */
function Twin({ title, head, rows }) {
  const [open, setOpen] = useState(false);
  return html`<details class="chart-table" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>The numbers as a table<span class="chart-hidden">: ${title}</span></summary>
    ${open && html`<div class="chart-scroll" tabindex="0" role="region" aria-label=${`${title}, table`}>
      <table>
        <thead><tr>${head.map((cell) => html`<th scope="col">${cell}</th>`)}</tr></thead>
        <tbody>${rows.map(([first, ...rest]) => html`<tr><th scope="row">${first}</th>${rest.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
      </table>
    </div>`}
  </details>`;
}

/** Ticks below a drawing, with lines up through it; `say` makes the words. */
export function BottomAxis({ place, values, y, top, say, title, width }) {
  return html`<g class="chart-axis" aria-hidden="true">
    ${values.map((value) => html`<line x1=${place(value)} x2=${place(value)} y1=${top} y2=${y} />
      <text x=${place(value)} y=${y + 15} text-anchor=${place(value) > width - 18 ? "end" : place(value) < 12 ? "start" : "middle"}>${say(value)}</text>`)}
    ${title && html`<text class="chart-axis-title" x=${width} y=${y + 31} text-anchor="end">${title}</text>`}
  </g>`;
}

export function LeftAxis({ place, values, left, right, say }) {
  return html`<g class="chart-axis" aria-hidden="true">
    ${values.map((value) => html`<line x1=${left} x2=${right} y1=${place(value)} y2=${place(value)} />
      <text x=${left - 6} y=${place(value) + 4} text-anchor="end">${say(value)}</text>`)}
  </g>`;
}

/** The interval of a time: a line with ends, on a halo that keeps it apart from what it lies on. */
export function Whisker({ low, high, y, cap = 5 }) {
  const path = `M${low} ${y - cap}V${y + cap}M${low} ${y}H${high}M${high} ${y - cap}V${y + cap}`;
  return html`<g aria-hidden="true"><path d=${path} class="chart-halo" /><path d=${path} class="chart-whisker" /></g>`;
}

/** A point of a series. */
export function Point({ mark = "circle", x, y, size = 5, color, hollow = false }) {
  const s = size;
  const paths = {
    circle: `M${-s} 0a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0Z`,
    square: `M${-s} ${-s}H${s}V${s}H${-s}Z`,
    triangle: `M0 ${-1.2 * s}L${1.15 * s} ${0.9 * s}H${-1.15 * s}Z`,
    diamond: `M0 ${-1.35 * s}L${1.35 * s} 0L0 ${1.35 * s}L${-1.35 * s} 0Z`,
    down: `M0 ${1.2 * s}L${1.15 * s} ${-0.9 * s}H${-1.15 * s}Z`,
    plus: `M${-s / 2} ${-1.2 * s}H${s / 2}V${-s / 2}H${1.2 * s}V${s / 2}H${s / 2}V${1.2 * s}H${-s / 2}V${s / 2}H${-1.2 * s}V${-s / 2}H${-s / 2}Z`,
    bar: `M${-s / 1.8} ${-1.3 * s}H${s / 1.8}V${1.3 * s}H${-s / 1.8}Z`,
    star: `M0 ${-1.4 * s}L${0.4 * s} ${-0.4 * s}L${1.4 * s} 0L${0.4 * s} ${0.4 * s}L0 ${1.4 * s}L${-0.4 * s} ${0.4 * s}L${-1.4 * s} 0L${-0.4 * s} ${-0.4 * s}Z`,
  };
  return html`<path transform=${`translate(${x} ${y})`} d=${paths[mark]} fill=${hollow ? "var(--chart-back)" : color} stroke=${hollow ? color : "var(--chart-back)"} stroke-width=${hollow ? 1.8 : 1} />`;
}
