// Which field of the form a problem belongs to. Pure.

/** The field that a problem names, among those of the form; empty where it names none. */
export function fieldOf(problem, names) {
  if (problem.field && names.includes(problem.field)) return problem.field;
  const text = problem.message.split("To fix:")[0];
  // `batch_size=-1 is invalid` and `--batch-size`, the first that is named.
  const named = names
    .map((name) => [name, text.search(new RegExp(`(^|[^\\w-])(--)?${name.replaceAll("_", "[_-]")}\\s?[=:(]`))])
    .filter(([, at]) => at >= 0)
    .sort((one, other) => one[1] - other[1]);
  if (named.length) return named[0][0];
  if (/has no size/.test(text) && names.includes("sizes")) return "sizes";
  const [, kind] = /^\W*(?:unknown|there is no) (\w+)/i.exec(text) ?? [];
  return kind && names.includes(kind) ? kind : "";
}
