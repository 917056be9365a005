// What a plan found: time against money, what nothing beats, and what it chose.
import { html, useMemo } from "../html.js";
import { chance, duration, money } from "../format.js";
import { BottomAxis, Figure, LeftAxis, Marks, Point } from "./figure.js";
import { amountTick, known, logarithmic, logTicks, textWidth, timeTick, timeTicks } from "./scale.js";
import { seriesLook } from "./terms.js";

const HEIGHT = 360;
const FRAME = { top: 20, bottom: 40, right: 16 };
const GROWTH = 1.25;
const LINE = 15;

const carbon = (grams) => (!known(grams) ? "not known" : grams >= 1e6 ? `${(grams / 1e6).toPrecision(3)} t` : grams >= 1e3 ? `${(grams / 1e3).toPrecision(3)} kg` : `${grams.toPrecision(3)} g`);
const hosts = ({ cloud, instances, instance_type: type, region, market }) => (cloud ? `${instances} × ${type}, ${cloud} ${region}${market && market !== "on-demand" ? `, ${market}` : ""}` : "no price");
const keyOf = ({ device, gpus, precision, layout, cloud, instance_type: type, region, market, instances }) => [device, gpus, precision, layout, cloud, type, region, market, instances].join("|");

/** Every candidate that the plan names, once, with what it is: chosen for an aim, on the front, a runner-up. */
function candidatesOf(plan) {
  const found = new Map();
  const add = (candidate, what) => {
    if (!candidate) return;
    const key = keyOf(candidate);
    const entry = found.get(key) ?? { candidate, aims: [], front: false, after: [], miss: false };
    found.set(key, what(entry) ?? entry);
  };
  (plan.choices ?? []).forEach(({ aim, candidate }) => add(candidate, (entry) => void entry.aims.push(aim)));
  (plan.front ?? []).forEach((candidate) => add(candidate, (entry) => void (entry.front = true)));
  (plan.choices ?? []).forEach(({ aim, runner_up: next }) => add(next, (entry) => void entry.after.push(aim)));
  add(plan.miss?.candidate, (entry) => void (entry.miss = true));
  const all = [...found.values()];
  const devices = [...new Set(all.map(({ candidate }) => candidate.device))].sort();
  all.forEach((each) => {
    Object.assign(each, seriesLook(devices.indexOf(each.candidate.device)));
    each.drawn = known(each.candidate.time_s) && each.candidate.time_s > 0 && known(each.candidate.usd) && each.candidate.usd > 0;
  });
  return { all, drawn: all.filter((each) => each.drawn).sort((a, b) => a.candidate.time_s - b.candidate.time_s), devices };
}

const titleOf = ({ gpus, device, precision }) => `${gpus} × ${device}, ${precision}`;

function roleOf(each) {
  const roles = [];
  if (each.aims.length) roles.push(each.aims.join(" and "));
  if (each.miss) roles.push("nearest to the limits");
  if (each.after.length) roles.push(`next after the ${each.after.join(" and the ")}`);
  if (each.front && !each.aims.length) roles.push("on the front");
  return roles.join(", ");
}

export function Pareto({ plan, onChoose }) {
  const { all, drawn, devices } = useMemo(() => candidatesOf(plan), [plan]);
  const draw = useMemo(() => (width, show) => plot({ drawn, plan, width, show, onChoose }), [drawn, plan, onChoose]);
  if (!drawn.length) return html`<p class="chart-note">Nothing to draw: no candidate has both a time and a price.</p>`;
  const limits = plan.limits ?? {};
  const chosen = all.filter((each) => each.aims.length).map((each) => `${each.aims.join(" and ")}: ${titleOf(each.candidate)}, ${duration(each.candidate.time_s)}, ${money(each.candidate.usd)}`);
  const unpriced = all.length - drawn.length;
  return html`<${Figure} name="pareto" title="Time against money" height=${HEIGHT}
    description=${`${drawn.length} candidates from ${duration(drawn[0].candidate.time_s)} to ${duration(drawn.at(-1).candidate.time_s)}. ${chosen.join("; ")}.`}
    legend=${html`<ul class="chart-keys">
      ${devices.map((device, at) => html`<li><svg width="14" height="14" aria-hidden="true"><${Point} ...${seriesLook(at)} x=${7} y=${7} size=${4.5} /></svg>${device}</li>`)}
      <li><svg width="26" height="14" aria-hidden="true"><path class="chart-front" d="M0 2H13V12H26" /></svg>least money by time</li>
      ${drawn.some((each) => !each.front && !each.aims.length) && html`<li><svg width="14" height="14" aria-hidden="true"><${Point} x=${7} y=${7} size=${4} color="var(--chart-soft)" hollow /></svg>not on the front</li>`}
      ${(limits.deadline_s || limits.budget_usd) && html`<li><svg width="26" height="14" aria-hidden="true"><line class="chart-limit" x1="0" x2="26" y1="7" y2="7" /></svg>limit</li>`}
    </ul>`}
    note=${unpriced > 0 && `${unpriced} without a price are in the table only.`}
    table=${{
      head: ["Candidate", "Rented", "Time", "Money", "CO2", "In time", "What it is"],
      rows: all.map((each) => [titleOf(each.candidate), hosts(each.candidate), duration(each.candidate.time_s), money(each.candidate.usd), carbon(each.candidate.carbon_g), chance(each.candidate.probability), roleOf(each)]),
    }}>
    ${draw}
  <//>`;
}

function plot({ drawn, plan, width, show, onChoose }) {
  const limits = plan.limits ?? {};
  const span = (values, limit) => {
    // A limit far from everything does not squeeze what is to be seen; it then stands in the note of the axis.
    const near = known(limit) && limit > Math.min(...values) / 8 && limit < Math.max(...values) * 8 ? [limit] : [];
    return [Math.min(...values, ...near) / GROWTH, Math.max(...values, ...near) * GROWTH];
  };
  const times = span(drawn.map((each) => each.candidate.time_s), limits.deadline_s);
  const usds = span(drawn.map((each) => each.candidate.usd), limits.budget_usd);
  const dollars = (value) => `$${amountTick(value)}`;
  const say = logTicks(...usds, 7);
  const left = Math.max(24, ...say.map((value) => textWidth(dollars(value)))) + 12;
  const right = width - FRAME.right;
  const bottom = HEIGHT - FRAME.bottom;
  const across = logarithmic(...times, left, right);
  const up = logarithmic(...usds, bottom, FRAME.top);
  const items = drawn.map((each) => itemOf(each, across, up, onChoose));
  return html`
    <${LeftAxis} place=${up} values=${say} left=${left} right=${right} say=${dollars} />
    <${BottomAxis} place=${across} values=${timeTicks(...times, (right - left) / 62)} top=${FRAME.top} y=${bottom} width=${width} say=${timeTick} title="time of the run" />
    <text class="chart-faint" x="0" y="10" aria-hidden="true">money</text>
    <${Limits} limits=${limits} times=${times} usds=${usds} across=${across} up=${up} frame=${{ left, right, top: FRAME.top, bottom }} />
    <path class="chart-front" d=${stairs(drawn, across, up)} aria-hidden="true" />
    <${Marks} items=${items} show=${show} draw=${(item) => html`
      <circle class="chart-hit" cx=${item.x} cy=${item.y} r="11" />
      ${item.each.aims.length > 0 && html`<circle cx=${item.x} cy=${item.y} r="10" fill="none" stroke="var(--chart-ink)" stroke-width="1.6" />`}
      <${Point} mark=${item.each.mark} x=${item.x} y=${item.y} size=${item.each.aims.length ? 5 : 4} color=${item.each.color} hollow=${!item.each.front && !item.each.aims.length} />`} />
    <${Names} items=${items} left=${left} right=${right} bottom=${bottom} />`;
}

function itemOf(each, across, up, onChoose) {
  const { candidate } = each;
  const [x, y] = [across(candidate.time_s), up(candidate.usd)];
  const rows = [
    hosts(candidate), ["time", duration(candidate.time_s)], ["money", money(candidate.usd)], ["CO2", carbon(candidate.carbon_g)],
    ...(known(candidate.probability) ? [["in time with", chance(candidate.probability)]] : []), ...(roleOf(each) ? [roleOf(each)] : []),
  ];
  return {
    each, x, y, box: [x - 12, y - 12, 24, 24], tip: [titleOf(candidate), ...rows], choose: onChoose && (() => onChoose(candidate)),
    label: `${titleOf(candidate)}: ${rows.map((row) => (Array.isArray(row) ? row.join(" ") : row)).join(", ")}`,
  };
}

/** The least money for which a run is done by each time. */
function stairs(drawn, across, up) {
  let path = "";
  let least = Infinity;
  for (const { candidate, front, aims } of drawn) {
    if (candidate.usd >= least || !(front || aims.length)) continue;
    least = candidate.usd;
    path += path ? `H${across(candidate.time_s).toFixed(1)}V${up(candidate.usd).toFixed(1)}` : `M${across(candidate.time_s).toFixed(1)} ${up(candidate.usd).toFixed(1)}`;
  }
  return path;
}

/** Lines at the limits, and a tint on what is beyond them. */
function Limits({ limits, times, usds, across, up, frame }) {
  const { left, right, top, bottom } = frame;
  const late = known(limits.deadline_s) && limits.deadline_s < times[1] && limits.deadline_s > times[0];
  const dear = known(limits.budget_usd) && limits.budget_usd < usds[1] && limits.budget_usd > usds[0];
  const x = late ? across(limits.deadline_s) : right;
  const y = dear ? up(limits.budget_usd) : top;
  const toLeft = x > (left + right) / 2;
  return html`<g aria-hidden="true">
    ${late && html`<rect class="chart-beyond" x=${x} y=${top} width=${right - x} height=${bottom - top} />
      <line class="chart-limit" x1=${x} x2=${x} y1=${top} y2=${bottom} />
      <text class="chart-bad" x=${x + (toLeft ? -5 : 5)} y=${(dear && y < (top + bottom) / 2 ? y : top) + 15} text-anchor=${toLeft ? "end" : "start"}>deadline ${duration(limits.deadline_s)}</text>`}
    ${dear && html`<rect class="chart-beyond" x=${left} y=${top} width=${x - left} height=${y - top} />
      <line class="chart-limit" x1=${left} x2=${right} y1=${y} y2=${y} />
      <text class="chart-bad" x=${right - 4} y=${y - 5} text-anchor="end">budget ${money(limits.budget_usd)}</text>`}
  </g>`;
}

/** The aims beside what was chosen for them, moved apart where they would meet. */
function Names({ items, left, right, bottom }) {
  const placed = [];
  for (const item of items.filter(({ each }) => each.aims.length || each.miss)) {
    const text = item.each.aims.join(" & ") || "nearest";
    const wide = textWidth(text, 7);
    const spots = [[16, 4], [16, -12], [16, 20], [-16 - wide, 4], [-16 - wide, -12], [-16 - wide, 20], [-wide / 2, -16], [-wide / 2, 26], [16, 36], [-16 - wide, 36]];
    const boxes = spots.map(([dx, dy]) => [item.x + dx, item.y + dy - 11, wide, LINE]);
    const free = (box) => box[0] >= left && box[0] + wide <= right && box[1] >= 0 && box[1] + LINE <= bottom
      && !placed.some((other) => meet(box, other)) && !items.some(({ x, y }) => meet(box, [x - 5, y - 5, 10, 10]));
    const box = boxes.find(free) ?? boxes.find((each) => each[0] >= left && each[0] + wide <= right && !placed.some((other) => meet(each, other))) ?? boxes[3];
    placed.push(box);
    item.name = { text, x: box[0], y: box[1] + 11 };
  }
  return html`<g aria-hidden="true">${items.filter((item) => item.name).map(({ name }) => html`<text class="chart-strong chart-over" x=${name.x} y=${name.y}>${name.text}</text>`)}</g>`;
}

const meet = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
