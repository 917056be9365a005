"""Cross-validate questions, not rows: `python questions.py [--rows N]`.

People say model, device, count, precision and batch; a row of the corpus says everything. Here rows are
asked at four levels of saying, by predictors that have not seen them (the folds of the accuracy page), and
with the practice of everybody but the row's publisher (`data/practice.py`). Written:
docs/reference/questions.md, src/precision_time/predict/data/questions.toml, which `--why` quotes, and
question_model.safetensors beside it: what `predict/question_model.py` makes of a mixture. It is learned from
the same questions, those of all protocols together, and scored on folds that it has not seen: the fold of a
protocol is left out of all of them.

Constants of the formulas are those that ship: they have seen all rows. `--refit ROWS` says what that is
worth: constants refitted inside every fold by source (`data/refit_constants.py`) beside those that ship,
both with trees of so many rows of whole families; by night of all rows (`--refit 0`), of 1,000 by day. What
a fold was refitted to is kept in `--cache`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.array_file import packed
from precision_time.arrays import Bools, Floats, Indices, Ints
from precision_time.corpus.jobs import request_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import PROTOCOLS, publisher, source_name
from precision_time.corpus.store import corpus_fingerprint, load_corpus
from precision_time.cost.job import Job
from precision_time.errors import PrecisionTimeError
from precision_time.executor import process_map
from precision_time.io import write_atomically
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.intervals import least_error
from precision_time.learn.measured import fit_predictor, measured_table
from precision_time.learn.novelty import KINDS
from precision_time.learn.table import JobTable, job_table
from precision_time.learn.training import HELD_OUT, row_weights
from precision_time.predict.question_model import said_of
from precision_time.predict.scenarios import (
    Scenario,
    Widening,
    leaves_layout_open,
    mixture,
    on_bearable_links,
    scenarios_of,
)
from precision_time.render.table import columns_of, markdown_lines
from precision_time.request.request import Request
from precision_time.request.schema import LAYOUT_OPTIONS
from precision_time.request.votes import Votes
from precision_time_papers.evaluation.report import sample_families
from question_learning import HeldOut, Questions, cross_fitted
from repository import write_page

# isort: split
import practice as votes  # in data/, as `repository` tells
import refit_constants as refit

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "questions.md"
REFITTED = PAGE.with_suffix(".json")
"""What `--refit` found, for the page."""
MODEL_FILE = ROOT / "src" / "precision_time" / "predict" / "data" / "question_model.safetensors"
MEASURED = ROOT / "src" / "precision_time" / "predict" / "data" / "questions.toml"
ROWS = 12
"""Of every source."""
FOLDS = 5
COVERAGE = 0.9
MODEL = (
    "model",
    "sizes",
    "task",
    "device",
    "gpus",
    "nodes",
    "precision",
    "seq_len",
    "image_size",
    "optimizer",
)
SOFTWARE = ("framework", "software")
LAYOUT = (*LAYOUT_OPTIONS, "batch_size", "intra_node", "inter_node", "node_type")
SOME = "some"
"""A level to learn from: a random choice of PARTS."""
PARTS = (SOFTWARE, ("stack",), LAYOUT_OPTIONS, ("batch_size",), LAYOUT[-3:], ("compiler",))
LEVELS: Mapping[str, str] = {
    "bare": "model, sizes, device, count, nodes, precision, batch, length",
    "software": "and framework with its version or year",
    "layout": "and layout and links",
    "everything": "all that the row states",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A row asked at one level: its scenarios are a slice of the jobs."""

    row: Measurement
    level: str
    weights: Floats
    links: Bools
    """Whether each scenario names a network."""
    first: int
    layout_open: bool
    said: Floats


def question(row: Measurement, level: str) -> Request:
    """What somebody who says so much would ask."""
    given = request_of(row).given()
    if level == "everything":
        return Request.of(given)
    names = [*MODEL, *(SOFTWARE if level != "bare" else ()), *(LAYOUT if level == "layout" else ())]
    if level == SOME:
        draw = np.random.default_rng(row.row_id)
        names = [*MODEL, *(name for part in PARTS if draw.random() < 0.5 for name in part)]
    fields = {name: given[name] for name in names if given.get(name) is not None}
    if "batch_size" not in fields:
        fields["global_batch_size"] = row.global_batch_size
    return Request.of({**fields, "precision": row.precision})


def drawn(rows: Sequence[Measurement], count: int) -> list[Measurement]:
    """So many rows of every source, those of one publisher together."""
    by_source: defaultdict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.layout is not None and row.global_batch_size:
            by_source[source_name(row)].append(row)
    draw = np.random.default_rng(0)
    found = [
        members[index]
        for _, members in sorted(by_source.items())
        for index in draw.permutation(len(members))[:count]
    ]
    return sorted(found, key=publisher)


def asked_of(
    rows: Sequence[Measurement], chosen: Sequence[Measurement]
) -> tuple[list[Asked], list[Job], int]:
    """The questions of rows with their scenarios, the jobs of these, and how many questions were refused."""
    counted = votes.counted(votes.rows_of(rows))
    asked: list[Asked] = []
    jobs: list[Job] = []
    refused, others, last = 0, Votes(stacks=(), settings={}), ""
    for number, row in enumerate(chosen):
        if publisher(row) != last:
            last = publisher(row)
            others = votes.votes_of(votes.tables_of(counted, without=last))
            print(f"{number} of {len(chosen)} rows, {len(jobs):,} jobs", file=sys.stderr, flush=True)
        for level in (*LEVELS, SOME):
            try:
                request = question(row, level)
                found = scenarios_of(request, request.resolve(named_only=True), votes=others)
            except PrecisionTimeError:
                refused += 1
                continue
            as_run = [(each, job) for each in found if (job := _as_run(each, found[0].job)) is not None]
            weights = np.array([each.weight for each, _ in as_run])
            asked.append(
                Asked(
                    row=row, level=level, weights=weights / weights.sum(),
                    links=np.array([each.names_links for each, _ in as_run]), first=len(jobs),
                    layout_open=leaves_layout_open(found), said=said_of([request])[0],
                )
            )  # fmt: skip
            jobs += [job for _, job in as_run]
    return asked, jobs, refused


def _as_run(scenario: Scenario, own: Job) -> Job | None:
    """The job of a scenario with the batch cut as the scenario cuts it; None where it cannot run it."""
    layout = own.layout
    if scenario.job is own:
        return own
    [micro], [count], [can] = scenario.batches(
        layout, np.array([layout.micro_batch_size]), np.array([float(layout.num_microbatches)])
    )
    if not can:
        return None
    cut = replace(scenario.job.layout, micro_batch_size=float(micro), num_microbatches=int(count))
    return replace(scenario.job, layout=cut)


def half_of(source: str) -> int:
    """0 or 1: the widening was chosen on the sources of half 0; those of half 1 say what it is worth."""
    return zlib.crc32(source.encode()) % 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """Questions of one level and protocol, shape (n,) each."""

    sources: Sequence[str]
    measured_s: Floats
    answers: Sequence[tuple[Floats, Floats, Floats]]
    """Median and 90 % interval: of the row's own job, of the mixture, and of the answer."""

    def scores(self) -> tuple[float, ...]:
        """Of each of them error, coverage and half width [%]."""
        return tuple(value for each in self.answers for value in self._scores(*each))

    def _scores(self, median_s: Floats, low_s: Floats, high_s: Floats) -> tuple[float, float, float]:
        errors = np.abs(least_error(median_s, low_s, high_s) / self.measured_s - 1.0)
        inside = (low_s <= self.measured_s) & (self.measured_s <= high_s)
        width = (high_s / low_s - 1.0) / (high_s / low_s + 1.0)
        return 100.0 * self._mean(errors), 100.0 * self._mean(inside), 100.0 * float(np.median(width))

    def _mean(self, values: Any) -> float:
        names = np.array(self.sources)
        return float(np.mean([values[names == name].mean() for name in sorted(set(self.sources))]))


def mixed(
    asked: Sequence[Asked], step_s: Floats, low: Floats, high: Floats, widening: Widening | None
) -> tuple[Floats, Floats, Floats]:
    """Medians and intervals of the questions' mixtures, from the times of all jobs and their factors."""
    width = max(len(each.weights) for each in asked)
    weights, links = np.zeros((len(asked), width)), np.zeros((len(asked), width), dtype=bool)
    place = np.array([[each.first] * width for each in asked], dtype=np.intp)
    for number, each in enumerate(asked):
        weights[number, : len(each.weights)] = each.weights
        links[number, : len(each.weights)] = each.links
        place[number, : len(each.weights)] = each.first + np.arange(len(each.weights))
    times = step_s[place]
    weights = on_bearable_links(weights, links, times)
    weights /= weights.sum(axis=1)[:, None]
    return mixture(
        times, times * low[place], times * high[place], weights, np.full(len(asked), COVERAGE),
        layout_open=np.array([each.layout_open for each in asked]), widening=widening,
    )  # fmt: skip


def answered(asked: Sequence[Asked], answers: Sequence[tuple[Floats, Floats, Floats]]) -> dict[str, Answered]:
    """Answers to questions by level, of those that a protocol tests."""
    levels, known = np.array([each.level for each in asked]), ~np.isnan(answers[0][0])
    found = {}
    for level in LEVELS:
        rows = np.flatnonzero((levels == level) & known)
        found[level] = Answered(
            sources=[source_name(asked[row].row) for row in rows.tolist()],
            measured_s=np.array([asked[row].row.step_time_s for row in rows.tolist()]),
            answers=[(time_s[rows], low_s[rows], high_s[rows]) for time_s, low_s, high_s in answers],
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """All jobs under one protocol, by predictors that had not seen their rows; NaN where it tests none."""

    step_s: Floats
    low: Floats
    """Factors of the interval."""
    high: Floats
    distance: Floats
    """To the runs of the predictor by kind, shape (n, kinds)."""
    folds: Ints

    def of_own_jobs(self, asked: Sequence[Asked]) -> tuple[Floats, Floats, Floats]:
        """Time and interval of the questions' own jobs."""
        return _own(asked, self.step_s, self.low, self.high)

    def held_out(self, asked: Sequence[Asked], widening: Widening | None = None) -> HeldOut:
        """The questions' mixtures, as models of questions learn from them."""
        first = [each.first for each in asked]
        mixtures = mixed(asked, self.step_s, self.low, self.high, widening)
        return HeldOut(folds=self.folds[first], distance=self.distance[first], mixed=mixtures)


def predicted(
    rows: Sequence[Measurement], asked: Sequence[Asked], priced: JobTable
) -> Iterator[tuple[str, Predicted]]:
    """What is predicted of all jobs, by protocol."""
    with process_map(None) as over:
        table = measured_table(rows, over=over)
    weights = row_weights(table)
    ids = np.repeat([each.row.row_id for each in asked], [len(each.weights) for each in asked])
    intervals = shipped_predictor().intervals
    assert intervals is not None
    for protocol in HELD_OUT:
        print(f"held out by {protocol}", file=sys.stderr, flush=True)
        found = Predicted(
            **dict(zip(("step_s", "low", "high"), np.full((3, len(ids)), np.nan), strict=True)),
            distance=np.full((len(ids), len(KINDS)), np.nan),
            folds=np.full(len(ids), -1, dtype=np.intp),
        )
        parts = PROTOCOLS[protocol].split(table.measurements, 0, FOLDS, table.jobs.twins())
        for number, fold in enumerate(parts):
            tested = [table.measurements[index].row_id for index in fold.test]
            chosen: Indices = np.flatnonzero(np.isin(ids, tested))
            if not len(chosen):
                continue
            fitted = fit_predictor(table, fold.train, weights, DEFAULT_SETTINGS["step"])
            part = priced.take(chosen)
            times = fitted.times(part)
            found.step_s[chosen], found.distance[chosen] = times.step_time_s, times.distance
            found.low[chosen], found.high[chosen] = intervals.factors(
                times.jobs.features, times.distance, COVERAGE
            )
            found.folds[chosen] = number
        yield protocol, found


def _with_constants(task: tuple[refit.Changes, Sequence[int], Sequence[Job]]) -> tuple[Any, ...]:
    """Times of jobs by trees of the rows of these numbers, with changed constants: in a fresh process."""
    changes, wanted, jobs = task
    refit.change_constants(changes)
    chosen = set(wanted)
    table = measured_table([row for row in load_corpus() if row.row_id in chosen])
    every = np.arange(len(table), dtype=np.intp)
    fitted = fit_predictor(table, every, row_weights(table), DEFAULT_SETTINGS["step"])
    part = job_table(jobs).select(fitted.names)
    times = fitted.times(part)
    intervals = shipped_predictor().intervals
    assert intervals is not None
    low, high = intervals.factors(part.features, times.distance, COVERAGE)
    return times.step_time_s, low, high


def _own(asked: Sequence[Asked], step_s: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    first = [each.first for each in asked]
    return step_s[first], (step_s * low)[first], (step_s * high)[first]


def refitted(
    rows: Sequence[Measurement], asked: Sequence[Asked], jobs: Sequence[Job], trained: int, cache: Path
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Times and factors of all jobs held out by source, with constants that ship and with refitted ones."""
    ids = np.repeat([each.row.row_id for each in asked], [len(each.weights) for each in asked])
    found = {kind: np.full((3, len(jobs)), np.nan) for kind in refit.KINDS}
    evidence: refit.Evidence | None = None
    context = multiprocessing.get_context("spawn")
    for number, fold in enumerate(PROTOCOLS["source"].split(rows, 0, refit.FOLDS)):
        training = [rows[index] for index in fold.train]
        kept = cache / f"{corpus_fingerprint(rows)}-source-{number}.json"
        if kept.exists():
            listed = json.loads(kept.read_text(encoding="utf-8"))
            changes = {(file, tuple(path)): value for file, path, value in listed}
        else:
            evidence = evidence or refit.Evidence.of(rows, refit.OF_A_CELL)
            changes = evidence.refitted(training)
            kept.parent.mkdir(parents=True, exist_ok=True)
            listed = [[file, path, value] for (file, path), value in changes.items()]
            kept.write_text(json.dumps(listed), encoding="utf-8")
        some = training if not trained else sample_families(training, trained)
        places: Indices = np.flatnonzero(np.isin(ids, [rows[index].row_id for index in fold.test]))
        wanted = [row.row_id for row in some]
        for kind, changed in zip(refit.KINDS, ({}, changes), strict=True):
            print(f"fold {number + 1}, constants {kind}", file=sys.stderr, flush=True)
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                task = (changed, wanted, [jobs[place] for place in places])
                answers = pool.submit(_with_constants, task).result()
            for column, values in zip(found[kind], answers, strict=True):
                column[places] = values
    return {kind: (values[0], values[1], values[2]) for kind, values in found.items()}


def main() -> None:
    """Ask, predict, score, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of every source")
    parser.add_argument(
        "--widening",
        type=float,
        nargs=3,
        action="append",
        metavar=("OWN", "OPEN", "SAID"),
        help="print the scores with another one, of each half of the sources; write nothing",
    )
    parser.add_argument("--refit", type=int, metavar="ROWS", help="write what refitted constants change")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "questions")
    options = parser.parse_args()
    rows = [row for row in load_corpus() if row.usable]
    asked, jobs, refused = asked_of(rows, drawn(rows, options.rows))
    if options.refit is not None:
        scores = [
            [kind, level, len(each.measured_s), *(round(value, 1) for value in each.scores())]
            for kind, times in refitted(rows, asked, jobs, options.refit, options.cache).items()
            for level, each in answered(
                asked, [_own(asked, *times), mixed(asked, *times, widening=None)]
            ).items()
        ]
        found_with = {"corpus": corpus_fingerprint(rows), "trained": options.refit, "rows": options.rows}
        write_atomically(REFITTED, json.dumps({**found_with, "scores": scores}, indent=1) + "\n")
        return
    priced = job_table(jobs)
    found = dict(predicted(rows, asked, priced))
    for own, is_open, said in options.widening or ():
        chosen = Widening(own=own, layout_open=is_open, layout_said=said)
        for (protocol, times), half in itertools.product(found.items(), (0, 1)):
            some = [each for each in asked if half_of(source_name(each.row)) == half]
            parts = [times.of_own_jobs(some), times.held_out(some, chosen).mixed]
            for level, each in answered(some, parts).items():
                print(chosen, f"half {half}", protocol, level, *(f"{value:.1f}" for value in each.scores()))
    if options.widening:
        return
    held_out = {protocol: times.held_out(asked) for protocol, times in found.items()}
    questions = Questions(
        own=priced.take(np.array([each.first for each in asked])),
        said=np.array([each.said for each in asked]),
        several=np.array([len(each.weights) > 1 for each in asked]),
        measured_s=np.array([each.row.step_time_s for each in asked]),
        sources=[source_name(each.row) for each in asked],
        levels=[each.level for each in asked],
    )
    print("learning from questions", file=sys.stderr, flush=True)
    answers, model = cross_fitted(questions, held_out)
    write_atomically(MODEL_FILE, packed(model.to_arrays(), {}))
    table = [
        (level, PROTOCOLS[protocol].title, len(each.measured_s), *each.scores())
        for protocol, times in found.items()
        for level, each in answered(
            asked, [times.of_own_jobs(asked), held_out[protocol].mixed, answers[protocol]]
        ).items()
    ]
    table.sort(key=lambda row: [*LEVELS].index(str(row[0])))
    _write(table, refused, options.rows)


def _write(table: Sequence[tuple[Any, ...]], refused: int, rows: int) -> None:
    by_level = {
        level: np.array([row[3:] for row in table if row[0] == level]).mean(axis=0) for level in LEVELS
    }
    lines = [
        "# What questions were answered with, by how much they say: written by",
        "# packages/papers/studies/questions.py.",
        "",
    ]
    for level, (*_, error, coverage, width) in by_level.items():
        lines += [
            f"[{level}]", f'says = "{LEVELS[level]}"', f"error_percent = {error:.1f}",
            f"coverage_percent = {coverage:.1f}", f"half_width_percent = {width:.0f}", "",
        ]  # fmt: skip
    write_atomically(MEASURED, "\n".join(lines))
    columns = columns_of(
        "says | held out | >rows | >one job: error % | >coverage % | >half width % | >scenarios: error % | "
        ">coverage % | >half width % | >answer: error % | >coverage % | >half width %"
    )
    cells = [
        [level, title, str(n), *(f"{value:.1f}" for value in scores)] for level, title, n, *scores in table
    ]
    head = f"""# Questions as people ask them

Rows of the corpus ({rows} of every source at most) asked at four levels of saying and answered by
predictors that have not seen them; practice without the votes of the row's publisher. Errors and coverage of
the 90 % interval are means over sources; the half width, (high - low) / (high + low), is the median.
{refused} questions were refused.

"One job" is the job with the usual choices alone; "scenarios" the median and the interval over the ways in
which people fill in what was left open; "answer" is what `predict` says: those, corrected by what such
questions were off by. The correction is learned from questions, and scored by folds that it has not seen. How
wide the scenarios are was chosen on these questions; `src/precision_time/predict/data/scenarios.toml` has
what half of the sources would have chosen, and what that covers of the other half.

"""
    said = "".join(f"- **{level}**: {text}\n" for level, text in LEVELS.items())
    write_page(PAGE, head + said + "\n" + "\n".join(markdown_lines(columns, cells)) + "\n" + _of_refitted())


def _of_refitted() -> str:
    """The section on refitted constants, of what `--refit` wrote."""
    found = json.loads(REFITTED.read_text(encoding="utf-8"))
    columns = columns_of(
        "constants | says | >rows | >one job: error % | >coverage % | >half width % | >scenarios: error % | "
        ">coverage % | >half width %"
    )
    cells = [
        [kind, level, str(n), *(f"{value:.1f}" for value in rest)]
        for kind, level, n, *rest in found["scores"]
    ]
    head = f"""
## Constants that have not seen the rows either

Above, the constants of the formulas are those that ship, which were fitted to all rows. Here they are
refitted in every fold by source as well, {found["rows"]} rows of every source at most; trees of
{found["trained"]:,} rows of whole families in both, without the correction, so that only the differences
count.

"""
    return head + "\n".join(markdown_lines(columns, cells)) + "\n"


if __name__ == "__main__":
    main()
