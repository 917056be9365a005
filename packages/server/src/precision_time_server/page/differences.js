// What tells two answers apart, in plain words. Pure.
import { asked } from "./asked.js";
import { bytes, duration, money, share } from "./format.js";

const times = (ratio) => (ratio >= 1 ? `${trim(ratio)} times` : `${trim(1 / ratio)} times`);
const trim = (ratio) => Number(ratio.toPrecision(3)).toString();
const EQUAL = 0.005;

/** Sentences about B relative to A, most important first. */
export function differences(a, b, runs = []) {
  const found = [];
  const same = a.throughput_unit === b.throughput_unit;
  const ratio = same ? b.throughput / a.throughput : a.step_time_s / b.step_time_s;
  const [faster, slower] = ratio >= 1 ? ["B", "A"] : ["A", "B"];
  const factor = Math.max(ratio, 1 / ratio);
  if (factor - 1 < EQUAL) found.push("Both are as fast: less than 0.5% apart.");
  else if (same) found.push(`${faster} does ${times(factor)} as many ${a.throughput_unit.replace("/s", "")} per second as ${slower}.`);
  else found.push(`A step of ${faster} is ${times(factor)} as fast as one of ${slower}; they count ${a.throughput_unit} and ${b.throughput_unit}.`);
  found.push(`A step takes ${duration(a.step_time_s)} in A and ${duration(b.step_time_s)} in B${a.global_batch_size === b.global_batch_size ? "" : `, with ${a.global_batch_size} and ${b.global_batch_size} samples`}.`);
  if (same && overlapping(a, b)) found.push("Their intervals overlap: which is faster is not certain.");
  if (a.total_time_s && b.total_time_s) found.push(`The run takes ${duration(a.total_time_s)} in A and ${duration(b.total_time_s)} in B${change(b.total_time_s / a.total_time_s)}.`);
  const [costA, costB] = runs.map((run) => run?.cost_usd);
  if (typeof costA === "number" && typeof costB === "number") found.push(`It costs ${money(costA)} in A and ${money(costB)} in B${change(costB / costA)}.`);
  if (a.fits !== b.fits) found.push(`${a.fits ? "B" : "A"} does not fit in memory, ${a.fits ? "A" : "B"} does.`);
  else found.push(`A device holds ${bytes(a.memory_bytes_per_device)} in A and ${bytes(b.memory_bytes_per_device)} in B.`);
  if (a.mfu !== null && b.mfu !== null) found.push(`MFU is ${share(a.mfu)} in A and ${share(b.mfu)} in B.`);
  return found;
}

/** Whether the intervals of the time per sample overlap. */
function overlapping(a, b) {
  const ends = (each) => [each.interval.low_s, each.interval.high_s].map((seconds) => seconds / (each.throughput * each.step_time_s));
  const [[lowA, highA], [lowB, highB]] = [ends(a), ends(b)];
  return lowA <= highB && lowB <= highA;
}

function change(ratio) {
  if (!Number.isFinite(ratio) || Math.abs(ratio - 1) < EQUAL) return "";
  return ratio > 2 ? `, ${trim(ratio)} times as much` : `, ${share(Math.abs(ratio - 1))} ${ratio < 1 ? "less" : "more"}`;
}

/** Figures in which the two differ: name, of A, of B. */
export function asksDiffer(a, b) {
  const figures = (each) => ({ Model: each.model, Device: each.device, Devices: each.gpus, Nodes: each.nodes, Precision: asked(each), "Batch per device": each.batch_size, "Global batch": each.global_batch_size, Stack: each.stack });
  const [of, other] = [figures(a), figures(b)];
  return Object.keys(of).filter((name) => of[name] !== other[name]).map((name) => [name, String(of[name]), String(other[name])]);
}
