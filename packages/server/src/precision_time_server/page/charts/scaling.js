// The same job on more and on fewer devices.
import { html, useMemo, useState } from "../html.js";
import { count, digits, duration, range, rate, share } from "../format.js";
import { BottomAxis, Figure, LeftAxis, Marks, Point } from "./figure.js";
import { amountTick, known, logarithmic, logTicks, textWidth, thinned, timeTick, timeTicks } from "./scale.js";
import { seriesLook } from "./terms.js";

const HEIGHT = 300;
const FRAME = { top: 14, bottom: 40, right: 14 };
const GROWTH = 1.15; // margin around the values, as a factor

/** What may stand on the vertical axis: a value with its interval, and what ideal scaling from `first` makes of it. */
const MEASURES = {
  throughput: {
    title: "Throughput", axis: (each) => each.throughput_unit || "samples/s",
    value: (each) => each.throughput,
    ends: ({ throughput, step_time_s: step, interval }) => [throughput * step / interval.high_s, throughput * step / interval.low_s],
    ideal: (each, first) => first.throughput * each.gpus / first.gpus,
    say: (value, each) => rate(value, each.throughput_unit || "samples/s"), tick: amountTick, ticks: logTicks,
  },
  step: {
    title: "Step time", axis: () => "time of a step",
    value: (each) => each.step_time_s, ends: ({ interval }) => [interval.low_s, interval.high_s],
    ideal: (each, first) => first.step_time_s * each.global_batch_size / first.global_batch_size * first.gpus / each.gpus,
    say: (value) => duration(value), tick: timeTick, ticks: timeTicks,
  },
  run: {
    title: "Run", axis: () => "time of the run",
    value: (each) => each.total_time_s, ends: ({ total_interval: total }) => [total?.low_s, total?.high_s],
    ideal: (each, first) => first.total_time_s * first.gpus / each.gpus,
    say: (value) => duration(value), tick: timeTick, ticks: timeTicks,
  },
};

/** Predictions as series of one precision and device each, by the number of devices; what has no time is left out. */
function seriesOf(predictions, measure) {
  const usable = predictions.filter((each) => each.gpus > 0 && known(measure.value(each)) && measure.value(each) > 0);
  const vary = (name) => new Set(usable.map((each) => each[name])).size > 1;
  const names = ["device", "precision", "stack"].filter(vary);
  const found = new Map();
  for (const each of usable) {
    const name = names.map((field) => each[field]).join(" ");
    found.set(name, [...(found.get(name) ?? []), each]);
  }
  return [...found].map(([name, points], at) => ({
    name, points: points.sort((a, b) => a.gpus - b.gpus), ...seriesLook(at),
  }));
}

export function Scaling({ predictions }) {
  const offered = Object.keys(MEASURES).filter((name) => predictions.some((each) => known(MEASURES[name].value(each))));
  const [picked, setPicked] = useState("throughput");
  const name = offered.includes(picked) ? picked : offered[0];
  const measure = MEASURES[name] ?? MEASURES.step;
  const series = useMemo(() => seriesOf(predictions, measure), [predictions, measure]);
  const draw = useMemo(() => (width, show) => plot(series, measure, width, show), [series, measure]);
  const all = series.flatMap(({ points }) => points);
  if (!all.length) return html`<p class="chart-note">Nothing to draw: no number of devices has a ${measure.title.toLowerCase()}.</p>`;
  const [first, last] = [series[0].points[0], series[0].points.at(-1)];
  const described = `${measure.title} from ${count(first.gpus)} to ${count(last.gpus)} devices: ${measure.say(measure.value(first), first)} to ${measure.say(measure.value(last), last)}, ${share(efficiency(last, first, measure))} of ideal.`;
  const missing = predictions.length - all.length;
  return html`<${Figure} name="scaling" title=${`${measure.title} over devices`} description=${described} height=${HEIGHT}
    controls=${offered.length > 1 && html`<span class="chart-switch" role="group" aria-label="Vertical axis">
      ${offered.map((each) => html`<button type="button" aria-pressed=${String(each === name)} onClick=${() => setPicked(each)}>${MEASURES[each].title}</button>`)}
    </span>`}
    legend=${html`<ul class="chart-keys">
      ${series.length > 1 && series.map((each) => html`<li><${Key} ...${each} />${each.name}</li>`)}
      ${last.gpus > first.gpus && html`<li><svg width="26" height="14" aria-hidden="true"><line class="chart-ideal" x1="0" x2="26" y1="7" y2="7" /></svg>ideal</li>`}
      ${all.some((each) => each.interval) && html`<li><svg width="26" height="14" aria-hidden="true"><rect class="chart-band" width="26" height="14" fill=${series[0].color} /></svg>${share(first.interval?.coverage ?? 0.9)} interval</li>`}
      ${all.some((each) => each.fits === false) && html`<li><${Key} color=${series[0].color} mark="circle" hollow /> does not fit in memory</li>`}
    </ul>`}
    note=${missing > 0 && `${missing} without a ${measure.title.toLowerCase()} are left out.`}
    table=${{
      head: ["Devices", ...(series.length > 1 ? ["Series"] : []), "Step time", "Interval", "Throughput", "Of ideal", "Fits"],
      rows: series.flatMap((one) => one.points.map((each) => [
        count(each.gpus), ...(series.length > 1 ? [one.name] : []), duration(each.step_time_s), each.interval ? range(each.interval.low_s, each.interval.high_s) : "–",
        rate(each.throughput, each.throughput_unit ?? ""), share(efficiency(each, one.points[0], measure)), each.fits === false ? "no" : "yes",
      ])),
    }}>
    ${draw}
  <//>`;
}

const Key = ({ color, mark, hollow }) => html`<svg width="14" height="14" aria-hidden="true"><${Point} mark=${mark} x=${7} y=${7} size=${4} color=${color} hollow=${hollow} /></svg>`;

/** What of ideal scaling is reached, 1 where nothing is lost. */
function efficiency(each, first, measure) {
  const ratio = measure.value(each) / measure.ideal(each, first);
  return measure === MEASURES.throughput ? ratio : 1 / ratio;
}

const interval = (each, measure) => {
  const [low, high] = each.interval ? measure.ends(each) : [];
  return known(low) && known(high) && low > 0 ? [low, high] : null;
};

function plot(series, measure, width, show) {
  const all = series.flatMap(({ points }) => points);
  const first = series[0].points[0];
  const values = all.flatMap((each) => [measure.value(each), ...(interval(each, measure) ?? [])]);
  // The ideal line may leave the frame at the top, by no more than makes the drawing half empty.
  const ideal = series[0].points.map((each) => measure.ideal(each, first)).filter((value) => value > 0);
  const low = Math.max(Math.min(...values, ...ideal), Math.min(...values) / 30) / GROWTH;
  const high = Math.min(Math.max(...values, ...ideal), Math.max(...values) * 30) * GROWTH;
  const say = measure.ticks(low, high, 6);
  const left = Math.max(...say.map((value) => textWidth(measure.tick(value)))) + 12;
  const counts = [...new Set(all.map((each) => each.gpus))].sort((a, b) => a - b);
  const lone = counts.length === 1;
  const across = logarithmic(counts[0] / (lone ? 2 : 1.08), counts.at(-1) * (lone ? 2 : 1.08), left, width - FRAME.right);
  const up = logarithmic(low, high, HEIGHT - FRAME.bottom, FRAME.top);
  const items = series.flatMap((one) => one.points.map((each) => itemOf(each, one, measure, across, up)));
  const line = (points) => points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
  const inside = series[0].points.map((each) => [across(each.gpus), up(Math.min(high, Math.max(low, measure.ideal(each, first))))]);
  return html`
    <${LeftAxis} place=${up} values=${say} left=${left} right=${width - FRAME.right} say=${measure.tick} />
    <${BottomAxis} place=${across} values=${thinned(counts, (width - left) / 34)} top=${FRAME.top} y=${HEIGHT - FRAME.bottom} width=${width} say=${count} title="devices" />
    <text class="chart-faint" x="0" y="8" aria-hidden="true">${measure.axis(first)}</text>
    <g aria-hidden="true">
      ${series.map(({ points, color }) => {
        const spans = points.map((each) => [across(each.gpus), interval(each, measure)]).filter(([, span]) => span);
        if (spans.length > 1) return html`<path class="chart-band" fill=${color} d=${`M${line([...spans.map(([x, span]) => [x, up(span[1])]), ...spans.reverse().map(([x, span]) => [x, up(span[0])])])}Z`} />`;
        return spans.map(([x, span]) => html`<path class="chart-whisker" d=${`M${x - 5} ${up(span[0])}h10M${x} ${up(span[0])}V${up(span[1])}M${x - 5} ${up(span[1])}h10`} />`);
      })}
      ${!lone && html`<path class="chart-ideal" d=${`M${line(inside)}`} />`}
      ${series.map(({ points }) => points.length > 1 && html`<text class="chart-over" x=${across(points.at(-1).gpus)} y=${Math.max(FRAME.top - 2, up(measure.value(points.at(-1))) - 12)} text-anchor="end">${share(efficiency(points.at(-1), points[0], measure))} of ideal</text>`)}
      ${series.map(({ points, color }) => html`<path class="chart-curve" stroke=${color} d=${`M${line(points.map((each) => [across(each.gpus), up(measure.value(each))]))}`} />`)}
    </g>
    <${Marks} items=${items} show=${show} draw=${(item) => html`
      <circle class="chart-hit" cx=${item.x} cy=${item.y} r="12" />
      <${Point} mark=${item.mark} x=${item.x} y=${item.y} size=${4.5} color=${item.color} hollow=${item.each.fits === false} />`} />`;
}

function itemOf(each, one, measure, across, up) {
  const [x, y] = [across(each.gpus), up(measure.value(each))];
  const span = interval(each, measure);
  const of = share(efficiency(each, one.points[0], measure));
  const devices = `${count(each.gpus)} ${each.gpus === 1 ? "device" : "devices"}`;
  const rows = [
    ...(one.name ? [one.name] : []), [measure.title.toLowerCase(), measure.say(measure.value(each), each)],
    ...(span ? [["interval", `${digitsOf(span[0], measure, each)} – ${measure.say(span[1], each)}`]] : []),
    ...(measure !== MEASURES.step ? [["step", duration(each.step_time_s)]] : []), ["of ideal", of],
    ...(each.fits === false ? ["does not fit in memory"] : []),
  ];
  return {
    each, x, y, mark: one.mark, color: one.color, box: [x - 8, y - 8, 16, 16], tip: [devices, ...rows],
    label: `${devices}: ${rows.map((row) => (Array.isArray(row) ? row.join(" ") : row)).join(", ")}`,
  };
}

const digitsOf = (value, measure, each) => (measure === MEASURES.throughput ? (value >= 1000 ? count(Math.round(value)) : digits(value)) : measure.say(value, each));
