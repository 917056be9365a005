// One step over time: what a device does and waits for, every stage of the pipeline, and the memory held.
import { html, useMemo } from "../html.js";
import { bytes, duration, share } from "../format.js";
import { Block, BottomAxis, Figure, LeftAxis, Marks, Swatch } from "./figure.js";
import { byteTick, byteTicks, known, linear, textWidth, ticks, timeUnit } from "./scale.js";
import { kindOf, memoryOf } from "./terms.js";

const STREAMS = ["compute", "exposed communication", "overlapped communication"];
const LANE = { height: 26, gap: 6, title: 16 };
const MEMORY = 110;
const MOST_STAGES = 64;

/** The lanes to draw: streams of the device, then stages; each with its segments. */
function lanesOf(timeline) {
  const device = STREAMS.map((stream) => ({ name: stream, segments: (timeline.segments ?? []).filter((each) => each.stream === stream) })).filter(({ segments }) => segments.length);
  const stages = (timeline.stages ?? []).length > 1 ? timeline.stages.slice(0, MOST_STAGES).map(({ stage, segments }) => ({ name: `stage ${stage}`, segments })) : [];
  return { device, stages };
}

/** Where each lane starts, and what stands below them. */
function frameOf({ device, stages }, memory) {
  const tall = LANE.height + LANE.gap;
  const stagesTop = LANE.title + device.length * tall + (stages.length ? LANE.title + 8 : 0);
  const axis = stagesTop + (stages.length ? stages.length * tall : 0);
  const memoryTop = axis + 44;
  return { deviceTop: LANE.title, stagesTop, axis, memoryTop, height: memory ? memoryTop + MEMORY + 8 : axis + 24 };
}

export function Timeline({ timeline }) {
  const lanes = useMemo(() => lanesOf(timeline), [timeline]);
  const memory = timeline.memory?.times_s?.length > 1 ? timeline.memory : null;
  const frame = frameOf(lanes, memory);
  const draw = useMemo(() => (width, show, id) => plot({ timeline, lanes, frame, memory, width, show, id }), [timeline]);
  if (!lanes.device.length) return html`<p class="chart-note">Nothing to draw: the step has no part that takes time.</p>`;
  const kinds = Object.entries(timeline.seconds_by_kind ?? {}).sort(([, a], [, b]) => b - a);
  const stages = timeline.pipeline_stages > 1 ? ` over ${timeline.pipeline_stages} stages, ${timeline.micro_batches} micro batches, schedule ${timeline.schedule}` : "";
  const said = kinds.map(([kind, seconds]) => `${kindOf(kind).title} ${duration(seconds)}`).join(", ");
  const overlapped = lanes.device.find(({ name }) => name === STREAMS[2]);
  const shownKinds = [...kinds.map(([kind]) => kind), ...(overlapped ? ["overlapped"] : [])];
  return html`<${Figure} name="timeline" title=${`A step of ${duration(timeline.step_time_s)}${stages}`} height=${frame.height}
    description=${`In order of time on a device of the first stage. In sum: ${said}.`}
    legend=${html`<ul class="chart-keys">${shownKinds.map((kind) => html`<li key=${kind}><${Swatch} ...${swatch(kind)} />${kindOf(kind).title}</li>`)}</ul>
      ${memory && html`<ul class="chart-keys" aria-label="Memory">${Object.keys(memory.held_bytes).filter((name) => memory.held_bytes[name].some((held) => held > 0)).map((name) => html`<li key=${name}><${Swatch} ...${part(name)} />${memoryOf(name).title}</li>`)}</ul>`}`}
    note=${html`${timeline.meaning ?? ""}${(timeline.stages ?? []).length > MOST_STAGES && ` The first ${MOST_STAGES} of ${timeline.stages.length} stages are drawn.`}`}
    table=${{ head: ["What", "Seconds", "Time", "Share"], rows: kinds.map(([kind, seconds]) => [kindOf(kind).title, String(seconds), duration(seconds), share(seconds / timeline.step_time_s)]) }}>
    ${draw}
  <//>`;
}

const swatch = (kind) => ({ color: kindOf(kind).color, pattern: kindOf(kind).pattern });
const part = (name) => ({ color: memoryOf(name).color, pattern: memoryOf(name).pattern });

function plot({ timeline, lanes, frame, memory, width, show, id }) {
  const narrow = width < 560;
  const left = narrow ? 0 : Math.min(168, Math.max(...[...lanes.device, ...lanes.stages].map(({ name }) => textWidth(name))) + 12);
  const end_s = Math.max(timeline.step_time_s || 0, ...[...lanes.device, ...lanes.stages].map(({ segments }) => segments.at(-1)?.end_s ?? 0)) || 1;
  const place = linear(0, end_s, left, width - 1);
  const [unit, size] = timeUnit(end_s);
  const tall = LANE.height + LANE.gap;
  const rows = [
    ...lanes.device.map((lane, at) => ({ ...lane, y: frame.deviceTop + at * tall })),
    ...lanes.stages.map((lane, at) => ({ ...lane, y: frame.stagesTop + at * tall })),
  ];
  const items = rows.flatMap((lane) => lane.segments.map((segment) => itemOf(segment, lane, place, timeline)));
  const values = ticks(0, end_s / size, (width - left) / 80);
  const say = (value) => `${value} ${unit}`;
  return html`
    <${BottomAxis} place=${(value) => place(value * size)} values=${values} top=${LANE.title} y=${frame.axis} width=${width} say=${say} />
    <g aria-hidden="true">
      <text class="chart-faint" x="0" y="10">device of the first stage</text>
      ${lanes.stages.length > 0 && html`<text class="chart-faint" x="0" y=${frame.stagesTop - 6}>stages</text>`}
      ${rows.map(({ name, y }) => html`<rect class="chart-lane" x=${left} y=${y} width=${width - left} height=${LANE.height} />
        ${!narrow && html`<text x=${left - 8} y=${y + LANE.height / 2 + 4} text-anchor="end">${name.replace("communication", "comm.")}</text>`}`)}
    </g>
    <${Marks} items=${items} show=${show} draw=${(item) => html`
      <${Block} id=${id} x=${item.from} y=${item.lane} width=${Math.max(0.4, item.to - item.from)} height=${LANE.height} color=${item.color} pattern=${item.pattern} className=${item.to - item.from < 4 ? "chart-thin" : ""} />
      ${item.word && html`<text class=${`chart-in ${item.light ? "chart-in-light" : "chart-in-dark"}`} x=${(item.from + item.to) / 2} y=${item.lane + LANE.height / 2 + 4} text-anchor="middle" aria-hidden="true">${item.word}</text>`}`} />
    ${memory && html`<${Held} memory=${memory} place=${place} left=${left} width=${width} top=${frame.memoryTop} id=${id} />`}`;
}

const LIGHT = new Set(["backward", "recompute"]);

function itemOf(segment, lane, place, timeline) {
  const look = kindOf(segment.kind);
  const [from, to] = [place(segment.start_s), place(segment.end_s)];
  const numbered = known(segment.micro_batch);
  const name = numbered && timeline.micro_batches > 1 ? `${look.title}, micro batch ${segment.micro_batch}` : look.title;
  const words = numbered && timeline.micro_batches > 1 ? String(segment.micro_batch) : look.pattern ? "" : look.title;
  const seconds = segment.end_s - segment.start_s;
  return {
    ...look, from, to, lane: lane.y, light: LIGHT.has(segment.kind),
    word: textWidth(words) + 8 < to - from ? words : "",
    x: (from + to) / 2, y: lane.y, box: [from, lane.y, to - from, LANE.height],
    label: `${lane.name}: ${name}, ${duration(seconds)} from ${duration(segment.start_s)}`,
    tip: [name, ["lane", lane.name], ["lasts", duration(seconds)], ["from", duration(segment.start_s)], ["to", duration(segment.end_s)], ["of the step", share(seconds / timeline.step_time_s)]],
  };
}

/** What is held over the step, stacked; the time axis is the one above. */
function Held({ memory, place, left, width, top, id }) {
  const names = Object.keys(memory.held_bytes).filter((name) => memory.held_bytes[name].some((held) => held > 0));
  const totals = memory.times_s.slice(0, -1).map((_, at) => names.reduce((sum, name) => sum + (memory.held_bytes[name][at] ?? 0), 0));
  const most = Math.max(...totals, 1);
  const up = linear(0, most * 1.05, top + MEMORY, top + 14);
  const below = totals.map(() => 0);
  return html`<g aria-hidden="true">
    <text class="chart-faint" x="0" y=${top + 4}>memory held, at most ${bytes(most)}</text>
    <${LeftAxis} place=${up} values=${byteTicks(most, 3).slice(1)} left=${left} right=${width} say=${(value) => (left > 60 ? byteTick(value) : "")} />
    ${names.map((name) => {
      const held = memory.held_bytes[name];
      let upper = "", lower = "";
      totals.forEach((_, at) => {
        const [from, to] = [place(memory.times_s[at]).toFixed(1), place(memory.times_s[at + 1]).toFixed(1)];
        lower = `L${to} ${up(below[at]).toFixed(1)}L${from} ${up(below[at]).toFixed(1)}${lower}`;
        below[at] += held[at] ?? 0;
        upper += `${upper ? "L" : "M"}${from} ${up(below[at]).toFixed(1)}L${to} ${up(below[at]).toFixed(1)}`;
      });
      // From left to right along the top, and back along the bottom.
      const { color, pattern } = memoryOf(name);
      return html`<path class="chart-area" d=${`${upper}${lower}Z`} fill=${color} />${pattern && html`<path d=${`${upper}${lower}Z`} fill=${`url(#${id}-${pattern})`} />`}`;
    })}
  </g>`;
}
