"""What a cluster learns from what its jobs really took: rows checked, a calibration made, its worth tested.

Everything here works on rows and calibrations alone, so that it can run in a process of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..corpus.own import (
    BESIDES,
    STEP_FIELDS,
    Beside,
    OwnStep,
    PricedStep,
    row_of_fields,
    steps_of_rows,
)
from ..corpus.schema import COLUMNS, REQUIRED, Row, column_of, rows_of_lines
from ..errors import ConfigError, CorpusError, PrecisionTimeError, shown
from ..evaluation.own_measurements import evaluate_steps
from ..hardware.catalog import get_device
from ..learn.artifact import chosen_predictor
from ..learn.calibration.calibration import WIDTH_COVERAGE, Calibration, places_of_times
from ..learn.calibration.fit import Calibrated, calibrate_steps
from ..learn.calibration.process import PROCESSES
from ..learn.metrics import ErrorSummary
from ..learn.serving import predict_step_times
from ..precision.catalog import is_policy_file
from ..predict.anchors import too_fast
from ..request.request import Request
from ..request.schema import ANCHOR_TIMES
from ..workload.graph import OpGraph
from .defaults import joined
from .jobs import checked

Floats = NDArray[np.float64]
Activate = Literal["never", "if-better", "always"]

MOST_CONFIGURATIONS = 500
"""That a calibration is made of, the newest: one answer with so many takes some 10 ms more."""
LEAST_CONFIGURATIONS = 5
"""Fewer tell nothing of how well others are predicted."""
_SURE = 3.0
"""Standard errors by which held-out errors must be smaller to be called better."""
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
            step = _step(row, index, setting)
        except PrecisionTimeError as error:
            broken.append(BrokenRow(index=index, detail=_reason(error)))
            continue
        if step.job is None:
            unpriced[_short(step.detail or step.reason)] += 1
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


def _step(row: MeasuredRow, index: int, setting: Setting) -> OwnStep:
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


def _reason(error: PrecisionTimeError) -> str:
    text = str(error)
    marker = f"{_ORIGIN}, line "
    if text.startswith(marker):
        text = text[len(marker) :].partition(": ")[2]
    return _short(text)


def _short(text: str) -> str:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """Errors on what was measured after the active calibration was made: of answers as callers got them."""

    rows: int
    without: ErrorSummary
    """Errors of the shipped predictor."""
    answered: ErrorSummary
    """Errors with the active calibration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """A calibration on the measurements of a cluster, and what it is worth on those held out."""

    rows: int
    configurations: int
    unpriced: Mapping[str, int]
    older_left_out: int
    """Rows that were not used, as there are newer ones of enough configurations."""
    held_out: str
    """How, in words."""
    before: ErrorSummary | None
    """Errors of the shipped predictor."""
    after: ErrorSummary | None
    """Errors with a calibration on the other configurations."""
    gain: float | None
    """Mean over configurations of how much smaller |log(predicted / measured)| is with it."""
    gain_sd: float | None
    """Standard error of that mean."""
    better: bool
    """Whether the gain is more than chance."""
    why: str
    since: Since | None
    """None where nothing was measured since a calibration is active, or where nobody knows."""
    last_measurement: int
    """Number of the last row."""
    factors: Mapping[str, float]
    """On the parts of the step, median of the configurations."""
    body: Mapping[str, Any]
    """The calibration, as `Calibration.to_dict` has it."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, without the calibration itself."""
        return {
            "rows": self.rows,
            "configurations": self.configurations,
            "unpriced": dict(self.unpriced),
            "older_left_out": self.older_left_out,
            "held_out": self.held_out,
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "gain": self.gain,
            "gain_standard_error": self.gain_sd,
            "better": self.better,
            "why": self.why,
            "since_active": None if self.since is None else asdict(self.since),
            "factors": dict(self.factors),
            "card": dict(self.body["card"]),
        }


def learn(
    rows: Sequence[tuple[int, MeasuredRow]],
    setting: Setting,
    cluster: str,
    active: tuple[Mapping[str, Any], int] | None = None,
) -> Learned:
    """The calibration that the rows of a cluster make.

    Args:
        rows: Their numbers, ascending, and what they say.
        setting: What they mean.
        cluster: Its name, for the card.
        active: The calibration that moves its answers now, as `Calibration.to_dict` has it, and the number
            of the last row that it has seen.

    Raises:
        ConfigError: If none of them can be priced.
    """
    if not rows:
        raise ConfigError(
            f"{cluster} has no measurements. To fix: POST /v1/clusters/{cluster}/measurements sends some."
        )
    predictor = chosen_predictor(None)
    steps, unpriced, used = _newest(rows, setting)
    if not steps:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in unpriced.most_common(3))
        raise ConfigError(
            f"None of {len(rows)} measured rows of {cluster} can be priced{reasons and ': ' + reasons}. To "
            "fix: send rows whose model, device and batch the catalogs know (GET /v1/catalogs/models)."
        )
    result = calibrate_steps(steps, predictor, rejected=unpriced, origin=f"cluster {cluster}")
    gain, gain_sd, better, why = _worth(result)
    calibration = replace(
        result.calibration,
        card={
            **result.calibration.card,
            "cluster": cluster,
            "older_left_out": len(rows) - used,
            "better": better,
        },
    )
    return Learned(
        rows=len(steps),
        configurations=len(result.points.places),
        unpriced=dict(unpriced),
        older_left_out=len(rows) - used,
        held_out=result.left_out,
        before=result.before,
        after=result.after,
        gain=gain,
        gain_sd=gain_sd,
        better=better,
        why=why,
        since=None if active is None else _since(rows, setting, *active),
        last_measurement=rows[-1][0],
        factors=_factors(result),
        body=calibration.to_dict(),
    )


def _newest(
    rows: Sequence[tuple[int, MeasuredRow]], setting: Setting
) -> tuple[list[PricedStep], Counter[str], int]:
    """The newest steps of at most MOST_CONFIGURATIONS, oldest first, what cannot be priced, and rows read."""
    steps: list[PricedStep] = []
    unpriced: Counter[str] = Counter()
    keys: set[str] = set()
    used = 0
    for number, row in reversed(rows):
        try:
            step = _step(row, number, setting)
        except PrecisionTimeError as error:  # what was a job once: a catalog or the hardware has changed
            used, unpriced[_reason(error)] = used + 1, unpriced[_reason(error)] + 1
            continue
        if step.job is None or step.measured_s is None:
            reason = _short(step.detail or step.reason)
            used, unpriced[reason] = used + 1, unpriced[reason] + 1
            continue
        if step.key not in keys and len(keys) == MOST_CONFIGURATIONS:
            break
        keys.add(step.key)
        used += 1
        steps.append(PricedStep(row=step.row, job=step.job, measured_s=step.measured_s, key=step.key))
    return steps[::-1], unpriced, used


def _worth(result: Calibrated) -> tuple[float | None, float | None, bool, str]:
    """Mean gain on held-out configurations, its standard error, whether it is more than chance, and why."""
    points = result.points
    count = len(points.places)
    if result.held_out_s is None or result.before is None or result.after is None:
        return None, None, False, f"Not tested: {result.left_out}."
    errors = [np.abs(np.log(times / points.measured_s)) for times in (points.predicted_s, result.held_out_s)]
    gains = errors[0] - errors[1]
    gain, gain_sd = float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(count))
    said = (
        f"Held out, {count} configurations are predicted to {result.before.mape_percent:.3g} % without and "
        f"{result.after.mape_percent:.3g} % with a calibration on the others"
    )
    if count < LEAST_CONFIGURATIONS:
        return gain, gain_sd, False, f"{said}; fewer than {LEAST_CONFIGURATIONS} do not tell."
    if gain <= _SURE * gain_sd or not result.helps:
        return gain, gain_sd, False, f"{said}: no more than chance would give."
    return gain, gain_sd, True, f"{said}: better by more than chance."


def _factors(result: Calibrated) -> dict[str, float]:
    """Factor on each part of the step and on what is left, the median over the points."""
    moved = result.calibration.conditioned.at(result.points.places)
    logs = np.concatenate([moved.parameters, moved.residual[:, None]], axis=1)
    return dict(zip(PROCESSES, np.exp(np.median(logs, axis=0)).tolist(), strict=True))


def _since(
    rows: Sequence[tuple[int, MeasuredRow]], setting: Setting, active: Mapping[str, Any], last: int
) -> Since | None:
    """Errors on the measurements after the last one that the active calibration has seen."""
    steps, _, _ = _newest([(number, row) for number, row in rows if number > last], setting)
    if not steps:
        return None
    times = predict_step_times([step.job for step in steps], chosen_predictor(None), coverage=WIDTH_COVERAGE)
    measured_s = np.array([step.measured_s for step in steps])
    known = Calibration.from_dict(active, "The active calibration").conditioned
    answered_s = times.step_time_s * np.exp(known.at(places_of_times(times)).log_factor)
    return Since(
        rows=len(steps),
        without=ErrorSummary.of(measured_s, times.step_time_s),
        answered=ErrorSummary.of(measured_s, answered_s),
    )


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
