"""docs/reference/benchmark.md from the results of the benchmark: tables by question and precision."""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools")]

from pages import write_page  # noqa: E402
from precision_time.render.table import columns_of, markdown_lines  # noqa: E402
from predictors import fetch  # noqa: E402
from predictors.contract import AT_BEST_WITHIN, as_if_fitted  # noqa: E402
from predictors.facts import EDITION, OUTSIDE, PER_SOURCE, QUESTIONS, Row  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "reference" / "benchmark.md"
OURS = "ours"
_NEAR = 0.2
_LEAST = 5
"""Rows that a peer must answer for a victory, of either, to be said."""
_SHARE = 100.0
HEAD = """
The open benchmark of predictors of training time: {rows} public runs of {sources} sources, edition {edition},
asked of every predictor alike. `make benchmark` fills this page from a fresh clone; `make peers` before it
brings the peers from their own repositories, without which what they answered to the same rows is read.

* **Rows**: `benchmarks/predictors/rows-{edition}.csv`, runs of the corpus whose source states the precision
  and about which nothing is doubtful, {per_source} of a source and question at most, drawn by a seed. Each
  predictor gets all columns but the measured time, and nothing else: the same links, layout and software.
* **Errors** are of the step time, (predicted - measured) / measured. They are averaged within a source, then
  over sources. *Ours there* is our error on exactly the rows that the predictor of the line answers: compare
  these two. Median, bias (median of the signed errors) and shares are over rows.
* **Ours** is fitted in {folds} folds that leave out two or three publishers each: neither the trees nor the
  constants of the formulas have seen a run of the row's source, nor of another one of its publisher.
  "Constants that ship" shows trees fitted that way on constants that saw all rows. Exempt are the choice of
  the terms, the constants of collectives (timings of collectives, no steps), the usual choices for what a row
  leaves open, and the width of the interval, which was chosen with all sources at hand. Nearest neighbor,
  LightGBM and the MFU of the other sources learn from the same runs of the same folds.
* **Outside** are {outside}.
* **Files**: `results-{edition}.csv`, a line for each row and predictor, to be cited with the edition and the
  commit of this repository; `results-{edition}.json`, every setting.
"""
ADD = """
## A predictor of your own

One file in `benchmarks/predictors/entries/` of some 40 lines: `NAME`, `VERSION`, `VARIANTS` with every
setting, `CANNOT`, and `predict(rows, settings)`, an `Answer` for each row, in seconds or with the reason why
there are none (`contract.py` has the rest; `six_nd.py` is the shortest). `run.py --only FILE` asks it alone.
Each runs in a process of its own with a time limit: one that hangs, crashes or answers nonsense loses the
rows that it was asked then, nothing else. Refused are a source that is learned from and asked, a setting that
contradicts the row, an answer without links and layout read, and one recorded of other facts or with other
settings.
"""


def read_results(path: Path) -> list[Row]:
    """The results, numbers as numbers."""
    numbers = ("predicted_s", "low_s", "high_s", "measured_s", "seconds_per_answer")
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {**line, **{name: float(line[name]) if line[name] else None for name in numbers}}
            for line in csv.DictReader(file)
        ]


def error(line: Row) -> float:
    """Signed, of a line with an answer."""
    return float(line["predicted_s"] / line["measured_s"] - 1.0)


def over_sources(lines: Sequence[Row]) -> float:
    """Mean over sources of the mean absolute error [%]."""
    by_source: defaultdict[str, list[float]] = defaultdict(list)
    for line in lines:
        by_source[line["source"]].append(abs(error(line)))
    return _SHARE * statistics.mean(statistics.mean(errors) for errors in by_source.values())


def scored(lines: Sequence[Row]) -> list[Row]:
    """Lines with an answer that count: none of a row whose source set the predictor's constants."""
    return [line for line in lines if line["predicted_s"] is not None and line["in_sample"] == "0"]


class Results:
    """The lines by predictor, and ours by row."""

    def __init__(self, lines: Sequence[Row]) -> None:
        self.by_name: dict[str, list[Row]] = {}
        for line in lines:
            self.by_name.setdefault(line["predictor"], []).append(line)
        self.ours = {line["row"]: line for line in scored(self.by_name[OURS])}

    def beside(self, lines: Sequence[Row]) -> list[Row]:
        """Our lines of the same rows."""
        return [self.ours[line["row"]] for line in lines if line["row"] in self.ours]

    def of(self, column: str, value: str) -> Iterator[tuple[str, list[Row], int]]:
        """Of each predictor its scored lines of a question or precision, and how many rows there are."""
        for name, lines in self.by_name.items():
            asked = [line for line in lines if line[column] == value]
            yield name, scored(asked), len(asked)


def table(results: Results, column: str, value: str) -> list[str]:
    """The table of a question or of a precision, best first by the error over sources."""
    found = []
    for name, lines, asked in results.of(column, value):
        if not lines:
            continue
        errors = sorted(abs(error(line)) for line in lines)
        inside = [line["low_s"] <= line["measured_s"] <= line["high_s"] for line in lines if line["low_s"]]
        fitted = as_if_fitted([line["measured_s"] for line in lines], [line["predicted_s"] for line in lines])
        times = [line["seconds_per_answer"] for line in lines if line["seconds_per_answer"]]
        both = results.beside(lines)
        near = _SHARE * statistics.mean(value <= _NEAR for value in errors)
        found.append(
            (
                over_sources(lines),
                (
                    f"**{name}**" if name == OURS else name + " (as if fitted to these rows)" * fitted,
                    f"{len(lines)} of {asked}",
                    len({line["source"] for line in lines}),
                    f"{over_sources(lines):.1f}",
                    f"{over_sources(both):.1f}" if both else "-",
                    f"{_SHARE * statistics.median(errors):.1f}",
                    f"{_SHARE * statistics.median(map(error, lines)):+.1f}",
                    f"{near:.0f}",
                    f"{_SHARE * statistics.mean(inside):.0f}" if inside else "-",
                    f"{1000.0 * statistics.mean(times):.1f}" if times else "-",
                ),
            )
        )
    columns = columns_of(
        "predictor | >rows answered | >sources | >error over sources % | >ours there % | >median % | "
        ">bias % | >within 20 % | >in its 90 % interval % | >ms a row"
    )
    return list(markdown_lines(columns, [line for _, line in sorted(found, key=lambda each: each[0])]))


def victories(results: Results) -> list[str]:
    """Where another predictor is closer than ours on the rows that it answers, in words."""
    found = []
    for question, title in QUESTIONS.items():
        for name, lines, _ in results.of("question", question):
            both = results.beside(lines)
            if len(both) < _LEAST or name.startswith(OURS):
                continue
            theirs, mine = over_sources(lines), over_sources(both)
            if theirs < mine:
                figures = f"{theirs:.1f} % against {mine:.1f} % of ours, {len(lines)} rows"
                found.append(f"{name} on {title[0].lower()}{title[1:]} ({figures})")
    return found


def first_line(results: Results) -> str:
    """Who wins, before anything else."""
    won = victories(results)
    if won:
        return f"**Others are closer than ours here:** {'; '.join(won)}."
    return (
        f"On no question is another predictor closer than ours on the {_LEAST} rows or more that it answers."
    )


def settings_part(said: Mapping[str, Any]) -> Iterator[str]:
    """Every setting, what each cannot express, and whose constants saw which rows."""
    yield "\n## Settings, and what each cannot express\n"
    for name, each in said.items():
        words = "; ".join(f"{key}: {value}" for key, value in each["settings"].items())
        yield f"* **{name}** ({each['file']}, {each['version'][:12]}): {words}. Cannot: {each['cannot']}."
    yield "\n## Whose constants were set by which rows\n"
    peers = fetch.listed()
    for name, peer in peers.items():
        if name != "not_run":
            yield f"* {name} ({peer['repository']} at {peer['commit'][:7]}): {peer['constants']}."
    yield "* ours: its folds, as above. 6ND at 0.3, 0.4, 0.5: none, the values are what people quote."
    yield (
        "* A predictor that one factor could not improve on its rows, within "
        f"{_SHARE * AT_BEST_WITHIN:g} %, is marked \"as if fitted\"."
    )  # fmt: skip
    yield "\nNot asked:\n"
    yield from (f"* {each['name']}: {each['why']}." for each in peers["not_run"])


def page(lines: Sequence[Row], said: Mapping[str, Any], folds: int) -> str:
    """The whole page."""
    results, first = Results(lines), lines[0]["predictor"]
    rows = [line for line in lines if line["predictor"] == first]
    outside = " and ".join(f"{name} ({why})" for name, why in OUTSIDE.items())
    parts = ["# Benchmark of predictors\n", first_line(results)]
    parts.append(
        HEAD.format(
            rows=len(rows), sources=len({line["source"] for line in rows}), edition=EDITION, outside=outside,
            per_source=PER_SOURCE, folds=folds,
        )
    )  # fmt: skip
    for question, title in QUESTIONS.items():
        parts += [f"\n## {title}\n", *table(results, "question", question)]
    parts.append("\n## By precision\n")
    for precision in sorted({line["precision"] for line in rows}):
        if sum(line["precision"] == precision for line in rows) >= _LEAST:
            parts += [f"\n### {precision}\n", *table(results, "precision", precision)]
    parts += [*settings_part(said), ADD]
    return "\n".join(parts)


def write(results: Path, said: Mapping[str, Any], folds: int) -> None:
    """Fill docs/reference/benchmark.md."""
    write_page(PAGE, page(read_results(results), said, folds))
