// Numbers as people say them. Pure; mirrors what the command line prints.

const missing = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three digits that count: 1.28, 12.8, 128, 1,280. */
export function digits(value, count = 3) {
  if (!known(value)) return missing;
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(count));
  const places = Math.min(12, Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(rounded)))));
  return rounded.toLocaleString("en-US", { maximumFractionDigits: places, minimumFractionDigits: places < 3 ? places : 0 });
}

const SMALL = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];

function smallUnit(seconds) {
  return SMALL.find(([, size]) => Math.abs(seconds) >= 0.9995 * size) ?? SMALL.at(-1);
}

const LARGE = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];

/** 820 µs, 98.0 ms, 1.28 s, 12 min 40 s, 3 h 20 min, 5 d 4 h: from two of a unit on in that unit, rounded down. */
export function duration(seconds) {
  if (!known(seconds)) return missing;
  if (seconds === 0) return "0 s";
  const large = LARGE.find(([, size]) => seconds >= 2 * size);
  if (!large) {
    const [unit, size] = smallUnit(seconds);
    return `${digits(seconds / size)} ${unit}`;
  }
  const [name, size, restName, restSize] = large;
  const rest = Math.floor((seconds % size) / restSize);
  return `${count(Math.floor(seconds / size))} ${name}${rest ? ` ${rest} ${restName}` : ""}`;
}

/** `82.5 – 123 ms`: both ends in one unit where they share it. */
export function range(low, high, say = duration) {
  const [from, to] = [say(low), say(high)];
  const [fromUnit, toUnit] = [from, to].map((text) => text.split(" ").slice(1).join(" "));
  const one = from.split(" ").length === 2 && fromUnit === toUnit;
  return one ? `${from.split(" ")[0]} – ${to}` : `${from} – ${to}`;
}

/** 6.48 GiB; 512 MiB. */
export function bytes(value) {
  if (!known(value)) return missing;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const at = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log(value * 1.0005) / Math.log(1024)));
  return `${digits(value / 1024 ** at)} ${units[at]}`;
}

/** 25.6 M parameters, 8.03 G. */
export function amount(value) {
  if (!known(value)) return missing;
  const units = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
  const [unit, size] = units.find(([, at]) => Math.abs(value) >= at * 0.9995) ?? ["", 1];
  return unit ? `${digits(value / size)} ${unit}` : digits(value);
}

export const count = (value) => (known(value) ? value.toLocaleString("en-US", { maximumFractionDigits: value % 1 ? 3 : 0 }) : missing);
export const share = (value) => (known(value) ? `${(100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0)}%` : missing);
export const rate = (value) => (value >= 1000 ? count(Math.round(value)) : digits(value));

/** $57.47, $1,280, $2.1 M. */
export function money(usd) {
  if (!known(usd)) return missing;
  if (usd >= 1e6) return `$${amount(usd)}`;
  const places = usd >= 1000 ? 0 : 2;
  return usd > 0 && usd < 0.005 ? "under $0.01" : `$${usd.toLocaleString("en-US", { maximumFractionDigits: places, minimumFractionDigits: places })}`;
}

/** `gpus` -> `gpus`, `num_microbatches` -> `grad accum`; units in a name are left out. */
export const words = (name) => name.replace(/_(s|bytes|j|usd)$/, "").replaceAll("_", " ");

/** A probability: what is not certain is never said to be. */
export const chance = (value) => (!known(value) ? missing : value > 0.995 ? "over 99%" : value < 0.005 ? "under 1%" : share(value));
