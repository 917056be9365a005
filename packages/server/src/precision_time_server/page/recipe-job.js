// What a recipe that was read puts into the form. Pure.

/** Of what the form says beside the job: it stays. */
const KEPT = ["deadline", "budget"];
/** Where the job runs: it stays where the recipe does not say. */
const PLACE = ["device", "cluster"];

/** What is posted of files: the recipe is the first that is no JSON, or the first; the others are those that it names. */
export function recipeOf(files) {
  const recipe = files.find(({ name }) => !/\.json$/i.test(name)) ?? files[0];
  const beside = files.filter((file) => file !== recipe).map(({ name, text }) => [name, text]);
  return { name: recipe.name, text: recipe.text, ...(beside.length ? { files: Object.fromEntries(beside) } : {}) };
}

/** The texts of the whole form for a job: empty where it says nothing. */
export function jobTexts(job, fields, before) {
  const names = ["model", "precision", "config", "chosen", "cluster", ...fields.map(({ name }) => name)];
  const texts = Object.fromEntries(names.filter((name) => !KEPT.includes(name)).map((name) => [name, textOf(job[name])]));
  for (const name of PLACE) texts[name] ||= before[name] ?? "";
  return texts;
}

/** What the recipe leaves open and the form does not say: "steps|epochs|tokens" is any one of them. */
export const stillMissing = (missing, state) => missing.filter((names) => !names.split("|").some((name) => state[name]));

/** A value of JSON as the text of a field. */
function textOf(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(textOf).join(",");
  if (typeof value === "object") return Object.entries(value).map(([name, each]) => `${name}=${each}`).join(", ");
  return String(value);
}
