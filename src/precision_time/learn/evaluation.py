"""Score the shipped predictor on any measurement file: nothing is fitted on it, no row is dropped."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from ..corpus.own import OwnStep, UnresolvedStep, check_some_read, reasons_of, unresolved_steps
from ..corpus.schema import Row, column_of
from ..errors import ConfigError
from ..executor import in_chunks, process_map
from ..io import table_cell, write_atomically
from ..records import dataclass
from ..request.schema import ANCHOR_TIMES
from .artifact import TrainedPredictor, shipped_predictor
from .metrics import ErrorSummary
from .priced import predict_step_times

ADDED_COLUMNS = (
    "measured_step_time_s",
    "predicted_step_time_s",
    "interval_low_s",
    "interval_high_s",
    "supported",
    "reason",
)
"""Columns that `--rows` adds to every input row."""
_COVERAGE = 0.9
"""Of the intervals, where nothing says another."""
_ALONE = 2000
"""Rows up to which no further process is worth its start."""
_CHUNK = 200
"""Rows that are read, priced and bounded together: of so few models that what is worked out for one stays
remembered from its first row to its last bound."""
_ALIKE = ("model", "precision", "device")
"""Columns of rows that share most of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRow:
    """One input row with its measured step time, prediction and interval [s], or why it has none."""

    row: Row
    measured_s: float | None
    predicted_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    reason: str = ""
    remedy: str = ""
    unread: bool = False

    @property
    def supported(self) -> bool:
        """Whether the row was scored."""
        return self.predicted_s is not None and self.measured_s is not None

    def added(self) -> tuple[str, ...]:
        """Values of ADDED_COLUMNS."""
        numbers = (self.measured_s, self.predicted_s, self.low_s, self.high_s)
        texts = ("" if number is None else repr(float(number)) for number in numbers)
        return (*texts, str(self.supported).lower(), self.reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationReport:
    """Errors over all scored rows, and per group."""

    overall: ErrorSummary | None
    n_unsupported: int
    unsupported_reasons: dict[str, int]
    coverage: float
    groups: dict[str, dict[str, ErrorSummary]]
    remedies: tuple[str, ...] = ()
    """What to do about rows that are not supported."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; the scores are null where no row could be scored."""
        empty = {name: None for name in ErrorSummary.__dataclass_fields__} | {"n": 0}
        overall = empty if self.overall is None else self.overall.to_dict()
        return {
            **overall,
            "nominal_coverage": self.coverage,
            "n_unsupported": self.n_unsupported,
            "unsupported_reasons": self.unsupported_reasons,
            "groups": asdict(self)["groups"],
            "remedies": list(self.remedies),
        }


def evaluate_csv(
    path: Path,
    *,
    device: str | None = None,
    group_by: Sequence[str] = (),
    rows_out: Path | None = None,
    predictor: TrainedPredictor | None = None,
    coverage: float = _COVERAGE,
    workers: int | None = 1,
) -> EvaluationReport:
    """Score a predictor on a measurement file.

    Args:
        path: Measured steps, as for `read_own_steps`.
        device: What the steps ran on, where the file spells it otherwise.
        group_by: Columns of the file to score by, too.
        rows_out: Where to write every input row with ADDED_COLUMNS, atomically.
        predictor: The predictor; the shipped one when None.
        coverage: Nominal coverage of the intervals.
        workers: Processes for files of more than some thousand rows; None: as `process_map` has them. The
            numbers are the same.

    Raises:
        CorpusError: If the file is not a valid measurement file.
        ConfigError: If a column of `group_by` is not in the file.
    """
    steps = unresolved_steps(path, device=device)
    scored, named = _scored_by(steps, str(path), predictor, coverage, workers, group_by)
    if rows_out is not None:
        _write_rows(rows_out, list(steps[0].row.cells) if steps else [], scored)
    return _report(scored, named, coverage)


def evaluate_steps(
    steps: Sequence[UnresolvedStep],
    origin: str,
    *,
    group_by: Sequence[str] = (),
    predictor: TrainedPredictor | None = None,
) -> EvaluationReport:
    """Score a predictor on measured steps, in this process.

    Args:
        steps: Rows of one table.
        origin: What the table is called in errors.
        group_by: As `evaluate_csv` has it, and what follows; errors too.
        predictor: The predictor; the shipped one when None.
    """
    scored, named = _scored_by(steps, origin, predictor, _COVERAGE, 1, group_by)
    return _report(scored, named, _COVERAGE)


def _scored_by(
    steps: Sequence[UnresolvedStep],
    origin: str,
    predictor: TrainedPredictor | None,
    coverage: float,
    workers: int | None,
    group_by: Sequence[str],
) -> tuple[list[ScoredRow], dict[str, str]]:
    """The rows with their scores, and the columns to group by as the table spells them."""
    header = list(steps[0].row.cells) if steps else []
    spelled = {column_of(name): name for name in header}
    for column in group_by:
        if column_of(column) not in spelled:
            raise ConfigError(
                f"--group-by {column}: {origin} has no such column. It has: {', '.join(header)}. "
                "To fix: name one of them."
            )
    scored = _scored(steps, predictor or shipped_predictor(), coverage, workers)
    check_some_read(scored, origin)
    return scored, {column: spelled[column_of(column)] for column in group_by}


def _scored(
    steps: Sequence[UnresolvedStep], predictor: TrainedPredictor, coverage: float, workers: int | None
) -> list[ScoredRow]:
    """All rows in order, scored in chunks of like ones, whatever the number of processes."""

    def likeness(index: int) -> tuple[str, ...]:
        cells = steps[index].row.cells
        others = (text for name, text in cells.items() if name not in ANCHOR_TIMES)
        return (*(cells.get(name, "") for name in _ALIKE), *others)

    order = sorted(range(len(steps)), key=likeness)
    # The processes are forked from this one, which has read the shipped predictor.
    score = partial(
        _scored_chunk, predictor=None if predictor is shipped_predictor() else predictor, coverage=coverage
    )
    with process_map(1 if len(steps) <= _ALONE else workers) as over:
        parts = [*over(score, in_chunks([steps[index] for index in order], _CHUNK))]
    found = dict(zip(order, (row for part in parts for row in part), strict=True))
    return [found[index] for index in range(len(steps))]


def _scored_chunk(
    steps: Sequence[UnresolvedStep], predictor: TrainedPredictor | None, coverage: float
) -> list[ScoredRow]:
    read = [step.read() for step in steps]
    return score_steps(read, predictor or shipped_predictor(), coverage=coverage)


def score_steps(steps: Sequence[OwnStep], predictor: TrainedPredictor, *, coverage: float) -> list[ScoredRow]:
    """Every row with its prediction or the reason why it has none, in order."""
    scored = [
        ScoredRow(
            row=step.row,
            measured_s=step.measured_s,
            reason=step.reason,
            remedy=step.remedy,
            unread=step.unread,
        )
        for step in steps
    ]
    jobs = [step.job for step in steps if step.job is not None]
    if not jobs:
        return scored
    distinct = {id(job): job for job in jobs}  # repeats of a configuration share theirs
    times = predict_step_times([*distinct.values()], predictor, coverage=coverage)
    numbers = np.stack([times.step_time_s, times.low_s, times.high_s], axis=1).tolist()
    by_job = dict(zip(distinct, numbers, strict=True))
    predicted = iter([by_job[id(job)] for job in jobs])
    names = ("predicted_s", "low_s", "high_s")
    return [
        item if step.job is None else replace(item, **dict(zip(names, next(predicted), strict=True)))
        for step, item in zip(steps, scored, strict=True)
    ]


def _report(scored: Sequence[ScoredRow], group_by: Mapping[str, str], coverage: float) -> EvaluationReport:
    """Errors over all rows and by columns, each with its name in the file."""
    supported = [item for item in scored if item.supported]
    groups: dict[str, dict[str, ErrorSummary]] = {}
    for column, name in group_by.items():
        members: dict[str, list[ScoredRow]] = defaultdict(list)
        for item in supported:
            members[item.row.text(name)].append(item)
        groups[column] = {value: _summary(items) for value, items in sorted(members.items())}
    return EvaluationReport(
        overall=_summary(supported) if supported else None,
        n_unsupported=len(scored) - len(supported),
        unsupported_reasons=dict(reasons_of(i for i in scored if not i.supported).most_common()),
        coverage=coverage,
        groups=groups,
        remedies=tuple(dict.fromkeys(item.remedy for item in scored if item.remedy)),
    )


def _summary(scored: Sequence[ScoredRow]) -> ErrorSummary:
    columns = np.array(
        [(item.measured_s, item.predicted_s, item.low_s, item.high_s) for item in scored], dtype=np.float64
    )
    return ErrorSummary.of(*columns.T)


def _write_rows(path: Path, header: Sequence[str], scored: Sequence[ScoredRow]) -> None:
    """All rows, written atomically."""
    kept = [name for name in header if name not in ADDED_COLUMNS]
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow([*kept, *ADDED_COLUMNS])
    for item in scored:
        cells = [*(item.row.cells.get(column, "") for column in kept), *item.added()]
        writer.writerow(map(table_cell, cells))
    with suppress(OSError):  # the next line says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())
