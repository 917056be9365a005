// Scales, ticks and the words on axes. Pure.

export const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Values from `low` to `high` as pixels from `from` to `to`. */
export function linear(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

/** The same on a logarithmic axis; values must be above 0. */
export function logarithmic(low, high, from, to) {
  const place = linear(Math.log(low), Math.log(high), from, to);
  return (value) => place(Math.log(value));
}

/** At most about `count` round numbers from `low` to `high`. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999) * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at += 1) found.push(at * step);
  return found;
}

/** At most `most` of them, evenly chosen, the first among them. */
export function thinned(values, most) {
  const every = Math.max(1, Math.ceil(values.length / Math.max(1, most)));
  return values.filter((_, at) => at % every === 0);
}

const DECADE = { 1: [1], 2: [1, 3], 3: [1, 2, 5], 6: [1, 1.5, 2, 3, 5, 7] };
const FEW = 3;

/** Round numbers on a logarithmic axis: as many of a decade as fit; evenly spaced ones on a short axis. */
export function logTicks(low, high, most) {
  for (const perDecade of [6, 3, 2, 1]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const digit of DECADE[perDecade]) {
        const value = digit * 10 ** power;
        if (value >= low * 0.9999 && value <= high * 1.0001) found.push(value);
      }
    }
    if (perDecade === 6 && found.length < FEW) return ticks(low, high, FEW);
    if (found.length <= most || perDecade === 1) return thinned(found, most);
  }
  return [];
}

const ROUND_TIMES_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200, 86400, 172800, 432000];
const FEW_TIMES_S = [1, 10, 60, 600, 3600, 36000, 86400];

/** Round times on a logarithmic axis, from nanoseconds to centuries. */
export function timeTicks(low_s, high_s, most) {
  const within = (values) => values.filter((value) => value >= low_s * 0.9999 && value <= high_s * 1.0001);
  const below = logTicks(Math.min(low_s, 0.999), 0.999, most);
  const days = (digits) => [1, 2, 3, 4, 5].flatMap((power) => digits.map((digit) => digit * 10 ** power * 86400));
  const full = within([...below, ...ROUND_TIMES_S, ...days([1, 2, 5])]);
  if (full.length < FEW) {
    const [, size] = timeUnit(high_s);
    return ticks(low_s / size, high_s / size, Math.min(most, FEW)).map((value) => value * size);
  }
  if (full.length <= most) return full;
  return thinned(within([...below, ...FEW_TIMES_S, ...days([1])]), most);
}

const TIME_UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];

/** The unit that a time axis up to `most_s` is written in: its name and its seconds. */
export function timeUnit(most_s) {
  return TIME_UNITS.find(([, size]) => most_s >= 2 * size) ?? TIME_UNITS.at(-1);
}

const plain = (value) => String(Number(value.toPrecision(6)));

/** 30 s, 5 min, 12 h: a tick on a time axis. */
export function timeTick(seconds) {
  const [unit, size] = TIME_UNITS.find(([, each]) => seconds >= each * 0.9999) ?? TIME_UNITS.at(-1);
  return `${plain(seconds / size)} ${unit}`;
}

/** 200, 5k, 1.5M: a tick of an amount. */
export function amountTick(value) {
  const [letter, size] = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, each]) => value >= each) ?? ["", 1];
  return `${plain(value / size)}${letter}`;
}

/** Steps of GiB that are round in binary: the ticks of a memory axis in bytes. */
export function byteTicks(high, count) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, high)) / Math.log(1024)));
  const most = high / unit;
  const step = 2 ** Math.ceil(Math.log2(most / Math.max(1, count)));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step * unit);
}

/** As many characters of a text as fit, the rest as an ellipsis. */
export function fitted(text, width, perCharacter = 6.6) {
  const most = Math.floor(width / perCharacter);
  if (text.length <= most) return text;
  return most < 2 ? "" : `${text.slice(0, most - 1)}…`;
}

/** 16 GiB: a tick of a memory axis. */
export function byteTick(value) {
  const at = value < 1 ? 0 : Math.floor(Math.log2(value * 1.0001) / 10);
  return `${plain(value / 1024 ** at)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][at]}`;
}

export const textWidth = (text, perCharacter = 6.6) => text.length * perCharacter;
