"""Measured steps as callers send them: read by the reader of measured files, checked, scored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from typing import Any

import numpy as np

from precision_time.corpus.own import BESIDES, STEP_FIELDS, Beside, OwnStep, row_of_fields, steps_of_rows
from precision_time.corpus.schema import COLUMNS, REQUIRED, Row, column_of, rows_of_lines
from precision_time.errors import ConfigError, CorpusError, PrecisionTimeError, shown
from precision_time.hardware.catalog import get_device
from precision_time.learn.artifact import chosen_predictor
from precision_time.learn.evaluation import evaluate_steps
from precision_time.learn.intervals import WIDTH_COVERAGE
from precision_time.learn.priced import predict_step_times
from precision_time.precision.catalog import is_policy_file
from precision_time.predict.anchors import too_fast
from precision_time.request.request import Request
from precision_time.request.schema import ANCHOR_TIMES
from precision_time.workload.graph import OpGraph

from .defaults import joined
from .jobs import checked

MOST_EVALUATED = 10_000
"""Rows of a table that is scored."""
_ORIGIN, _TABLE = "measurements", "The table"
_SLOWEST = math.log(1e6)
"""Of measured over predicted: more is an error of the row, which no calibration takes."""
_LONGEST_REASON = 500
_NOT_OF_A_JOB = (BESIDES - STEP_FIELDS) | {*ANCHOR_TIMES}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What the rows of a cluster mean."""

    hardware: Mapping[str, Any] | None = None
    graphs: Mapping[str, OpGraph] = field(default_factory=dict)
    """Operators of uploaded models, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRow:
    """One measured step as it was sent, and the defaults that its cluster had then."""

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {"given": dict(self.given), "defaults": dict(self.defaults)}

    @classmethod
    def stored(cls, row: Mapping[str, Any]) -> MeasuredRow:
        """What `to_dict` wrote."""
        return cls(given=row["given"], defaults=row["defaults"])


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenRow:
    """A row that is no measured step."""

    index: int
    """From 0, in the order sent."""
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedRows:
    """Which rows are measured steps, and which of them a calibration can be made of."""

    broken: tuple[BrokenRow, ...]
    priced: int
    unpriced: Mapping[str, int]
    """Rows by the reason why their job cannot be priced now."""


def check_rows(rows: Sequence[MeasuredRow], setting: Setting) -> CheckedRows:
    """Read every row, and price those that can be."""
    broken: list[BrokenRow] = []
    unpriced: Counter[str] = Counter()
    priced: list[tuple[int, OwnStep]] = []
    for index, row in enumerate(rows):
        try:
            step = step_of(row, index, setting)
        except PrecisionTimeError as error:
            broken.append(BrokenRow(index=index, detail=reason_of(error)))
            continue
        if step.job is None:
            unpriced[bounded(step.detail or step.reason)] += 1
        else:
            priced.append((index, step))
    wrong = _impossible([step for _, step in priced])
    broken += [
        BrokenRow(index=index, detail=reason)
        for (index, _), reason in zip(priced, wrong, strict=True)
        if reason
    ]
    return CheckedRows(
        broken=tuple(sorted(broken, key=lambda row: row.index)),
        priced=sum(not reason for reason in wrong),
        unpriced=dict(unpriced.most_common()),
    )


def step_of(row: MeasuredRow, index: int, setting: Setting) -> OwnStep:
    """A row as the reader of measured files sees it.

    Raises:
        PrecisionTimeError: If it is no measured step.
    """
    table = _row(row, index)
    beside = Beside(hardware=setting.hardware, graphs=setting.graphs)
    [found] = steps_of_rows([table], _ORIGIN, beside=beside)
    return found.resolved()


def _row(row: MeasuredRow, index: int) -> Row:
    """The cells that a table of measured steps would have.

    Raises:
        ConfigError: If the row states what no measured step has, or names a file or code.
    """
    given = {str(name): value for name, value in row.given.items() if value not in (None, "")}
    if _is_of_corpus(given):
        checked({name: given[name] for name in ("model", "precision")})
        return row_of_fields(given, index, _ORIGIN)
    own = checked({name: value for name, value in given.items() if name not in _NOT_OF_A_JOB})
    for name in sorted(own.keys() - STEP_FIELDS):
        Request.of({"model": "resnet50", name: own[name]})  # knows what was meant instead
        raise ConfigError(f"{name}={shown(own[name])} says nothing of a measured step. To fix: leave it out.")
    defaults = {name: value for name, value in row.defaults.items() if name in STEP_FIELDS}
    if "model" not in own or not given.keys() & {*ANCHOR_TIMES}:
        lacks = " or ".join(ANCHOR_TIMES) if "model" in own else "model"
        raise ConfigError(f"{lacks} is missing. The rule: a row is a job and its time. To fix: add it.")
    beside = {name: value for name, value in given.items() if name in _NOT_OF_A_JOB}
    return row_of_fields({**joined(defaults, own), **beside}, index, _ORIGIN)


def _is_of_corpus(given: Mapping[str, Any]) -> bool:
    """Whether a row has columns of the corpus that are no fields of a job, as `measure` writes them."""
    columns = {column_of(name) for name in given}
    return (
        not given.keys() <= STEP_FIELDS | _NOT_OF_A_JOB
        and columns <= {*COLUMNS}
        and columns.issuperset(REQUIRED)
    )


def reason_of(error: PrecisionTimeError) -> str:
    """What an error says of a row, without its place."""
    text = str(error)
    marker = f"{_ORIGIN}, line "
    if text.startswith(marker):
        text = text[len(marker) :].partition(": ")[2]
    return bounded(text)


def bounded(text: str) -> str:
    """A reason, not longer than an answer may be."""
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} ..."


def _impossible(steps: Sequence[OwnStep]) -> list[str]:
    """Why each step cannot have taken what is said; empty where it can."""
    if not steps:
        return []
    jobs = [step.job for step in steps if step.job is not None]
    measured_s = np.array([step.measured_s for step in steps], dtype=np.float64)
    times = predict_step_times(jobs, chosen_predictor(None), coverage=WIDTH_COVERAGE)
    far = np.abs(np.log(measured_s / times.step_time_s)) > _SLOWEST
    return [
        too_fast(job, seconds)
        or (
            f"{seconds:.3g} s are a million times what such a step takes, {predicted:.3g} s. To fix: check "
            "the time; it is in seconds."
            if off
            else ""
        )
        for job, seconds, predicted, off in zip(
            jobs, measured_s.tolist(), times.step_time_s.tolist(), far.tolist(), strict=True
        )
    ]


def evaluate_table(
    text: str, device: str | None, group_by: Sequence[str], hardware: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What `precision-time evaluate --json` says of a CSV.

    Args:
        text: Of the CSV, its header first.
        device: What the rows ran on, where they spell it otherwise.
        group_by: Columns to score by, too.
        hardware: Tables of devices and links that the rows name, beside the catalogs.

    Raises:
        CorpusError: If it is not a table of measured steps.
        ConfigError: If a row names a file, or a column of `group_by` is not there.
    """
    rows = table_rows(text, most=MOST_EVALUATED)
    for row in rows:
        for column, cell in row.cells.items():
            if column_of(column) == "precision" and is_policy_file(cell):
                raise row.error(column, "is a file", "name a precision that the catalogs know")
    steps = steps_of_rows(
        rows,
        _TABLE,
        device=None if device is None else get_device(device).name,
        beside=Beside(hardware=hardware),
    )
    return evaluate_steps(steps, _TABLE, group_by=group_by, predictor=chosen_predictor(None)).to_dict()


def table_rows(text: str, *, most: int) -> list[Row]:
    """The rows of a CSV that is sent.

    Raises:
        CorpusError: If it is no CSV, or has more rows than `most`.
    """
    found = list(islice(rows_of_lines(StringIO(text, newline=""), _TABLE), most + 1))
    if len(found) > most:
        raise CorpusError(f"The table has more than {most:,} rows. To fix: send it in parts.")
    return found
