"""Answers to many requests as columns: no object for each, and one resolved request for many batches.

Each row says what `predict` says of its request alone, to the bit (tests/predict/test_answer.py), but for the
nearest runs and what to ask for instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Indices
from ..cost.job import Jobs
from ..cost.terms import METHOD_TERMS, TERMS
from ..errors import ConfigError, PrecisionTimeError
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..records import dataclass
from ..request.batches import jobs_at_batches
from ..request.fields import plain_type
from ..request.grid import Asked
from ..request.layout import option_words, said_options
from ..request.request import Request
from ..request.schema import ALIASES, request_fields
from .answer import Answers
from .api import answered
from .remarks import warnings_of
from .table import FIGURES, SAID

_RANGES = ("interval_low_s", "interval_high_s", "total_low_s", "total_high_s")
_WORDS = frozenset(
    {"model", "device", "precision", "stack", "throughput_unit", "layout", "warnings", "error"}
)
_WHOLE = frozenset({"job", "gpus", "nodes"})

TERM_COLUMNS: Mapping[str, type] = {f"terms.{term.name}": float for term in (*TERMS, *METHOD_TERMS)}
"""Further columns for those who want them: seconds of a step by term."""
Table = dict[str, NDArray[Any]]
"""Columns by name: floats with NaN, or objects with None, where there is nothing."""


def column_types(fields: Sequence[str]) -> dict[str, type]:
    """The columns of a table and what they hold: int, float, bool or str.

    Args:
        fields: Fields that any of the requests state.
    """
    known = dict(request_fields())
    names = dict.fromkeys(ALIASES.get(name, name) for name in fields)
    asked = {name: _kind(known[name].annotation) for name in names if name in known and name not in SAID}
    figures = ("layout", *FIGURES, *_RANGES, "warnings", "error")
    kinds: dict[str, type] = {"job": int}
    kinds |= asked
    for name in (*SAID, *figures):
        kinds[name] = str if name in _WORDS else int if name in _WHOLE else bool if name == "fits" else float
    return kinds


def _kind(annotation: Any) -> type:
    kind = plain_type(annotation)
    return kind if kind in (bool, int, float) else str


def answer_table(
    asked: Sequence[Asked], kinds: Mapping[str, type], *, predictor: TrainedPredictor | None = None
) -> Table:
    """The answers, a row for each request in the order asked.

    Args:
        asked: What is asked, in ascending order of the rows.
        kinds: `column_types` of all tables of the sweep.
        predictor: Of requests that name none; None for that of the environment, else the one that ships.
    """
    filled = _Filled.empty(sum(map(len, asked)), kinds)
    parts: list[_Part] = []
    start = 0
    for each in asked:
        filled.table["job"][start : start + len(each)] = range(each.first, each.first + len(each))
        parts += filled.resolved(each, start)
        start += len(each)
    trained = predictor or chosen_predictor(None)
    for named in (False, True):
        some = [part for part in parts if (part.request.predictor is not None) is named]
        pairs = [(part.request, part.jobs) for part in some]
        for numbers, found in answered(pairs, predictor=None if named else trained):
            if isinstance(found, Answers):
                filled.answer(np.concatenate([some[number].rows for number in numbers]), found)
                continue
            for part in (some[number] for number in numbers):
                for row, place in zip(part.rows.tolist(), part.places.tolist(), strict=True):
                    filled.refuse(row, part.asked, found, place)
    return filled.table


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Rows of a table that are one request, perhaps at several batches."""

    asked: Asked
    request: Request
    jobs: Jobs
    places: Indices
    """Of each row among the batches of `asked`."""
    rows: Indices
    """Of the table."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A table while it is filled."""

    table: Table
    kinds: Mapping[str, type]

    @classmethod
    def empty(cls, count: int, kinds: Mapping[str, type]) -> _Filled:
        """A table without an answer."""
        return cls(
            {
                name: np.full(count, np.nan) if kind is float else np.full(count, None, dtype=object)
                for name, kind in kinds.items()
            },
            kinds,
        )

    def set(self, rows: Any, values: Mapping[str, Any]) -> None:
        """Values at some rows, of the columns that the table has."""
        for name, value in values.items():
            if name in self.table:
                self.table[name][rows] = value

    def refuse(self, rows: Any, each: Asked, error: PrecisionTimeError, place: int = 0) -> None:
        """Say in their rows why some requests have no answer."""
        said = {ALIASES.get(name, name): value for name, value in each.at(place).items()}
        self.set(rows, {name: _as(self.kinds[name], said[name]) for name in self.kinds if name in said})
        self.set(rows, {"error": str(error)})

    def resolved(self, each: Asked, start: int) -> Iterator[_Part]:
        """The jobs of a request at its batches; what is refused says why in its row."""
        rows = np.arange(start, start + len(each))
        try:
            if each.refused:
                raise ConfigError(each.refused)
            request = Request.of(each.at(0))
            if request.predictor is not None:
                chosen_predictor(request.predictor)  # one that cannot be used is refused here
        except PrecisionTimeError as error:
            self.refuse(rows, each, error)
            if each.axis:
                self.set(rows, {each.axis: each.batches})
            return
        said = {name: value for name, value in request.to_dict().items() if name not in SAID}
        self.set(rows, {name: _as(kind, said[name]) for name, kind in self.kinds.items() if name in said})
        # Measured steps are of the request with some fields changed: of another batch they are others.
        alone = not each.axis or bool(request.anchors)
        for place in range(len(each) if alone else 0):
            try:
                one = Request.of(each.at(place))
                jobs = Jobs.of([one.resolve()])
            except PrecisionTimeError as error:
                self.refuse(rows[place : place + 1], each, error, place)
                continue
            here = np.array([place])
            yield _Part(asked=each, request=one, jobs=jobs, places=here, rows=rows[here])
        if alone:
            return
        jobs, places, refused = jobs_at_batches(request, each.axis, each.batches)
        for place, reason in refused.items():
            self.refuse(rows[place : place + 1], each, reason, place)
        if len(jobs):
            yield _Part(asked=each, request=request, jobs=jobs, places=places, rows=rows[places])

    def answer(self, rows: Indices, found: Answers) -> None:
        """The columns of answers at their rows."""
        jobs = found.jobs
        for job, its in zip(jobs.shared, jobs.slices(), strict=True):
            said = said_options(job.layout, job.workload)
            words = {
                "model": job.workload.name,
                "device": job.cluster.device.name,
                "gpus": job.cluster.num_devices,
                "nodes": job.cluster.num_nodes,
                "precision": job.precision.name,
                "stack": job.stack.profile,
                "throughput_unit": job.workload.throughput_unit,
                "layout": option_words({name: each for name, each in said.items() if name != "batch_size"}),
            }
            self.set(rows[its], words)
        self.set(rows, {**found.columns, "fits": found.columns["fits"] > 0.0, "warnings": warnings_of(found)})


def _as(kind: type, value: Any) -> Any:
    """A field as its column holds it; nothing where it is no such value: the error of the row quotes it."""
    if value is None:
        return np.nan if kind is float else None
    if kind is str:
        return str(value)
    try:
        return kind(value)
    except (TypeError, ValueError):
        return np.nan if kind is float else None
