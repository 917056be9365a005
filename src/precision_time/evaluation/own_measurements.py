"""Score the shipped predictor on any measurement file: nothing is fitted on it, no row is dropped."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..corpus.importer import measurement_of
from ..corpus.jobs import UnsupportedRow, job_of
from ..corpus.measurement import Rejected
from ..corpus.schema import Row, read_rows
from ..cost.job import Job
from ..errors import ConfigError, PrecisionTimeError
from ..io import write_atomically
from ..learn.artifact import TrainedPredictor, shipped_predictor
from ..learn.metrics import ErrorSummary, summarize
from ..learn.serving import predict_step_times

Floats = NDArray[np.float64]

ADDED_COLUMNS = (
    "measured_step_time_s",
    "predicted_step_time_s",
    "interval_low_s",
    "interval_high_s",
    "supported",
    "reason",
)
"""Columns that `--rows` adds to every input row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRow:
    """One input row with its prediction, or why it has none."""

    row: Row
    measured_s: float | None
    predicted_s: float | None
    low_s: float | None
    high_s: float | None
    reason: str

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

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; the scores are null where no row could be scored."""
        empty = {name: None for name in ErrorSummary.__dataclass_fields__} | {"n": 0}
        overall = empty if self.overall is None else self.overall.to_dict()
        return {
            **overall,
            "nominal_coverage": self.coverage,
            "n_unsupported": self.n_unsupported,
            "unsupported_reasons": self.unsupported_reasons,
            "groups": {
                column: {value: summary.to_dict() for value, summary in groups.items()}
                for column, groups in self.groups.items()
            },
        }


def evaluate_csv(
    path: Path,
    *,
    group_by: Sequence[str] = (),
    rows_out: Path | None = None,
    predictor: TrainedPredictor | None = None,
    coverage: float = 0.9,
) -> EvaluationReport:
    """Score a predictor on a measurement file.

    Args:
        path: CSV in the schema of docs/reference/corpus.md.
        group_by: Columns of the file to score by, too.
        rows_out: Where to write every input row with ADDED_COLUMNS, whole or not at all.
        predictor: The predictor; the shipped one when None.
        coverage: Nominal coverage of the intervals.

    Raises:
        CorpusError: If the file is not what it claims to be.
        ConfigError: If a column of `group_by` is not in the file.
    """
    rows = list(read_rows(path))
    header = list(rows[0].cells) if rows else []
    for column in group_by:
        if column not in header:
            raise ConfigError(
                f"--group-by {column}: {path} has no such column. It has: {', '.join(header)}. "
                "To fix: name one of them."
            )
    scored = score_rows(rows, predictor or shipped_predictor(), coverage=coverage)
    if rows_out is not None:
        _write_rows(rows_out, header, scored)
    return _report(scored, group_by, coverage)


def score_rows(rows: Sequence[Row], predictor: TrainedPredictor, *, coverage: float) -> list[ScoredRow]:
    """Every row with its prediction or the reason why it has none, in order."""
    parsed = [_parse(row) for row in rows]
    jobs = [job for job, _, _ in parsed if job is not None]
    times = predict_step_times(jobs, predictor, coverage=coverage) if jobs else None
    scored: list[ScoredRow] = []
    position = 0
    for row, (job, measured, reason) in zip(rows, parsed, strict=True):
        if job is None or times is None:
            scored.append(
                ScoredRow(
                    row=row, measured_s=measured, predicted_s=None, low_s=None, high_s=None, reason=reason
                )
            )
            continue
        scored.append(
            ScoredRow(
                row=row,
                measured_s=measured,
                predicted_s=float(times.step_time_s[position]),
                low_s=float(times.low_s[position]),
                high_s=float(times.high_s[position]),
                reason=reason,
            )
        )
        position += 1
    return scored


def _parse(row: Row) -> tuple[Job | None, float | None, str]:
    """Job, measured step time and reason of one row; without a job the reason says why."""
    measurement = measurement_of(row)
    if isinstance(measurement, Rejected):
        return None, None, measurement.reason
    measured = measurement.measured_step_time_s
    if not measurement.usable:
        return None, measured, measurement.quality_reason or "no step time"
    try:
        return job_of(measurement), measured, ""
    except UnsupportedRow as error:
        return None, measured, error.reason
    except PrecisionTimeError as error:
        return None, measured, str(error)


def _report(scored: Sequence[ScoredRow], group_by: Sequence[str], coverage: float) -> EvaluationReport:
    supported = [item for item in scored if item.supported]
    reasons = Counter(item.reason for item in scored if not item.supported)
    groups = {}
    for column in group_by:
        values = [item.row.text(column) for item in supported]
        groups[column] = _grouped(supported, values)
    return EvaluationReport(
        overall=_summary(supported),
        n_unsupported=len(scored) - len(supported),
        unsupported_reasons=dict(reasons.most_common()),
        coverage=coverage,
        groups=groups,
    )


def _grouped(scored: Sequence[ScoredRow], values: Sequence[str]) -> dict[str, ErrorSummary]:
    """Errors per value; `values` holds each row's."""
    members: dict[str, list[ScoredRow]] = {}
    for item, value in zip(scored, values, strict=True):
        members.setdefault(value, []).append(item)
    summaries = {value: _summary(items) for value, items in sorted(members.items())}
    return {value: summary for value, summary in summaries.items() if summary is not None}


def _summary(scored: Sequence[ScoredRow]) -> ErrorSummary | None:
    columns = np.array(
        [[item.measured_s, item.predicted_s, item.low_s, item.high_s] for item in scored], dtype=np.float64
    ).reshape(-1, 4)
    return summarize(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])


def _write_rows(path: Path, header: Sequence[str], scored: Sequence[ScoredRow]) -> None:
    """All rows, or no file."""
    kept = [name for name in header if name not in ADDED_COLUMNS]
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow([*kept, *ADDED_COLUMNS])
    for item in scored:
        writer.writerow([*(item.row.cells.get(column, "") for column in kept), *item.added()])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())
