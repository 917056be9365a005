// All of what is asked as the text behind the # of the address, and back. Pure; nothing here can throw.

export const SIDES = ["a", "b"];
// Beside the fields of a request: where the model comes from, and what the page shows of the answer.
const OWN = ["model", "config", "cluster", "precision", "chosen", "deadline", "budget"];
const LONGEST_VALUE = 100_000; // characters; a Hugging Face config has a few thousand
const LONGEST = 400_000;

/** The text behind the #. The second job's fields start with `b.`. */
export function encode(jobs) {
  const pairs = new URLSearchParams();
  jobs.slice(0, SIDES.length).forEach((job, side) => {
    const prefix = side === 0 ? "" : `${SIDES[side]}.`;
    for (const [name, value] of Object.entries(job)) if (value !== "") pairs.append(prefix + name, value);
    // An empty second job is one too.
    if (side > 0 && Object.values(job).every((value) => value === "")) pairs.append(`${prefix}model`, "");
  });
  // Readable where that is safe: these need no escape behind a #.
  return pairs.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
}

/**
 * The jobs that a text behind the # states: one, or two to compare.
 * Names that are no field are left out and returned, so that the page can say so; of a name given twice the
 * last counts; texts too long to be meant are left out.
 */
export function decode(text, fieldNames) {
  const jobs = [{}, {}];
  const unknown = [];
  const known = new Set([...OWN, ...fieldNames]);
  let second = false;
  if (text.length > LONGEST) return { jobs: [{}], unknown: ["everything, as the address is too long"] };
  for (const [key, value] of new URLSearchParams(text.replace(/^#/, ""))) {
    const inSecond = key.startsWith("b.");
    const name = inSecond ? key.slice(2) : key;
    if (!known.has(name) || value.length > LONGEST_VALUE) {
      unknown.push(name.slice(0, 40));
      continue;
    }
    second ||= inSecond;
    if (value !== "") jobs[inSecond ? 1 : 0][name] = value;
  }
  return { jobs: second ? jobs : [jobs[0]], unknown };
}
