// The page of a plan: candidates as points, one axis for each of time, money, carbon; devices can be left out.
"use strict";
{
const data = JSON.parse(document.getElementById("data").textContent);
const axesOf = {
  time: {name: "hours, expected", at: row => row.time_s / 3600},
  money: {name: "US dollars", at: row => row.usd},
  carbon: {name: "kg of CO2", at: row => row.carbon_g === null ? null : row.carbon_g / 1000},
};
const colors = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7",
  "#8cd17d", "#499894", "#d37295"];
const devices = [...new Set(data.rows.map(row => row.device))].sort();
const colorOf = new Map(devices.map((device, place) => [device, colors[place % colors.length]]));
const hidden = new Set();
let chosen = -1;
const svg = document.getElementById("plot");
const told = document.getElementById("told");
const width = 900, height = 480, left = 84, right = 16, top = 14, bottom = 48;
const byId = id => document.getElementById(id);
const el = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
};
const short = value => value >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
function keeps(row) {
  const hours = parseFloat(byId("hours").value), usd = parseFloat(byId("usd").value);
  if (!(hours > 0) && !(usd > 0)) return row.feasible;
  return (!(hours > 0) || row.sure_s / 3600 <= hours) && (!(usd > 0) || (row.usd !== null && row.usd <= usd));
}
function ticks(low, high) {
  const found = [];
  const coarse = high / low > 100 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const times of coarse) {
      const value = times * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  return found;
}
function draw() {
  const x = axesOf[byId("x").value], y = axesOf[byId("y").value];
  const rows = data.rows.map((row, place) => ({row, place, x: x.at(row), y: y.at(row)}))
    .filter(each => each.x > 0 && each.y > 0 && !hidden.has(each.row.device));
  svg.replaceChildren();
  svg.append(el("title", {}, data.title));
  if (!rows.length) return;
  const span = key => {
    const values = rows.map(each => each[key]);
    const low = Math.min(...values), high = Math.max(...values);
    return [low / 1.15, high * 1.15];
  };
  const [xl, xh] = span("x"), [yl, yh] = span("y");
  const px = value => left + Math.log(value / xl) / Math.log(xh / xl) * (width - left - right);
  const py = value => height - bottom - Math.log(value / yl) / Math.log(yh / yl) * (height - top - bottom);
  for (const value of ticks(xl, xh)) {
    svg.append(el("line", {x1: px(value), x2: px(value), y1: top, y2: height - bottom, class: "grid"}));
    svg.append(el("text", {x: px(value), y: height - bottom + 18, class: "tick"}, short(value)));
  }
  for (const value of ticks(yl, yh)) {
    svg.append(el("line", {x1: left, x2: width - right, y1: py(value), y2: py(value), class: "grid"}));
    svg.append(el("text", {x: left - 8, y: py(value) + 4, class: "tick end"}, short(value)));
  }
  svg.append(el("text", {x: (left + width - right) / 2, y: height - 8, class: "tick"}, x.name));
  svg.append(el("text", {x: -(top + height - bottom) / 2, y: 16, class: "tick", transform: "rotate(-90)"}, y.name));
  const order = rows.sort((a, b) => a.row.on_front - b.row.on_front);
  let kept = 0;
  for (const each of order) {
    const keep = keeps(each.row);
    kept += keep;
    const point = el("circle", {
      cx: px(each.x).toFixed(1), cy: py(each.y).toFixed(1), r: each.row.on_front ? 6 : 4,
      fill: colorOf.get(each.row.device), opacity: keep ? 0.9 : 0.15,
      class: (each.row.on_front ? "front" : "") + (each.place === chosen ? " chosen" : ""), tabindex: -1,
    });
    point.append(el("title", {}, data.labels[each.place]));
    point.addEventListener("click", () => tell(each.place));
    point.addEventListener("mouseenter", () => tell(each.place, true));
    svg.append(point);
  }
  for (const choice of data.choices) {
    const row = data.rows[choice.row], cx = x.at(row), cy = y.at(row);
    if (cx > 0 && cy > 0 && !hidden.has(row.device))
      svg.append(el("text", {x: px(cx) + 9, y: py(cy) - 8, class: "mark"}, choice.aim));
  }
  byId("count").textContent = `${kept.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} shown candidates keep the limits`;
}
function tell(place, passing) {
  if (!passing) { chosen = place; draw(); }
  const row = data.rows[place];
  told.replaceChildren();
  for (const [name, value] of Object.entries(row.said)) {
    const line = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.textContent = name; cell.textContent = value; line.append(head, cell); told.append(line);
  }
}
for (const device of devices) {
  const label = document.createElement("label"), box = document.createElement("input"), dot = document.createElement("i");
  box.type = "checkbox"; box.checked = true;
  dot.style.background = colorOf.get(device);
  box.addEventListener("change", () => { box.checked ? hidden.delete(device) : hidden.add(device); draw(); });
  label.append(box, dot, document.createTextNode(device));
  byId("devices").append(label);
}
for (const id of ["x", "y", "hours", "usd"]) byId(id).addEventListener("input", draw);
const front = [...document.querySelectorAll("table")].find(table => !table.contains(told));
for (const [place, row] of [...(front ? front.rows : [])].slice(1).entries()) {
  row.className = "pick";
  row.addEventListener("click", () => tell(data.front[place]));
}
draw();
if (data.choices.length) tell(data.choices[0].row);
}
