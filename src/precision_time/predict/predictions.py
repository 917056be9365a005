"""The answers to n jobs as columns, and to what was asked as a sequence, a page, JSON or a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Bools, Floats, Indices
from ..cost.job import Jobs
from ..diagnostics import Diagnostic
from ..forks import cached_property
from ..plain import from_plain
from ..records import dataclass
from ..render.blocks import TEXT_WIDTH, Block
from ..render.result import Tabular
from .prediction import Prediction, Skipped, row_of

if TYPE_CHECKING:
    from ..learn.artifact import TrainedPredictor
    from ..learn.predictor import Times
    from ..request.request import Request
    from .columns import RunLength
    from .remarks import Remark
    from .scenarios import Scenarios


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AnswerBasis:
    """What jobs were answered with, and what the words of their answers are made from."""

    predictor: TrainedPredictor
    times: Times
    """As the predictor says them, measured points included."""
    groups: Indices
    """Which group of these jobs each row is of."""
    said: tuple[Diagnostic, ...]
    """Remarks before all others."""
    calibrated: Mapping[int, tuple[str, ...]]
    """What measured points say of each row."""
    scenarios: Scenarios | None
    """The ways in which what was left open may be filled in; None where nothing was, or jobs were given."""
    remedies: bool
    """Whether a job that does not fit says what to ask for instead."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Predictions(Tabular):
    """The answers to n jobs, as columns, and to what was asked, in its order.

    A `Prediction` of them is a view of a row: what is more than a number is made when it is read.
    """

    jobs: Jobs
    figures: Mapping[str, Floats]
    """By the names of `Prediction`, in its units, shape (n,) each; NaN where there is nothing. Of mappings
    `terms.NAME`, `memory_terms.NAME` and `link_seconds.NAME`."""
    lengths: tuple[RunLength, ...]
    """Of the run, by group of the jobs."""
    requests: tuple[Request, ...]
    """What was asked, by group; none where jobs were given."""
    bases: tuple[AnswerBasis, ...]
    """By group."""
    places: Indices
    """Of each row among those of its basis, shape (n,)."""
    order: tuple[int | Prediction | Skipped, ...]
    """What answers each request, in the order asked: a row, an answer from elsewhere (JSON, a service) or one
    that more is said of, or why there is none."""

    @classmethod
    def together(cls, tables: Sequence[Predictions]) -> Predictions:
        """Tables one after the other."""
        if len(tables) == 1:
            return tables[0]
        starts = [*accumulate((len(each.jobs) for each in tables), initial=0)]
        names = dict.fromkeys(name for each in tables for name in each.figures)
        return cls(
            jobs=Jobs.together([each.jobs for each in tables]),
            figures={
                name: np.concatenate(
                    [each.figures.get(name, np.full(len(each.jobs), np.nan)) for each in tables]
                )
                for name in names
            },
            lengths=tuple(chain.from_iterable(each.lengths for each in tables)),
            requests=tuple(chain.from_iterable(each.requests for each in tables)),
            bases=tuple(chain.from_iterable(each.bases for each in tables)),
            places=np.concatenate([np.zeros(0, dtype=np.intp), *(each.places for each in tables)]),
            order=tuple(
                place + start if isinstance(place, int) else place
                for each, start in zip(tables, starts, strict=False)
                for place in each.order
            ),
        )

    @classmethod
    def of(cls, answers: Iterable[Prediction | Skipped]) -> Predictions:
        """Answers from elsewhere, of which there are no columns."""
        return replace(cls.together(()), order=tuple(answers))

    @cached_property
    def answers(self) -> tuple[Prediction | Skipped, ...]:
        """One for each request, in the order asked."""
        rows = {each for each in self.order if isinstance(each, int)}
        views = {row: row_of(self, row) for row in rows}
        return tuple(views[each] if isinstance(each, int) else each for each in self.order)

    @cached_property
    def remarked(self) -> Mapping[Remark, Bools]:
        """The rows that each remark is about, shape (n,) each."""
        from .remarks import REMARKS

        return {remark: remark.when(self) for remark in REMARKS}

    def basis(self, row: int) -> tuple[AnswerBasis, int]:
        """What a row was answered with, and its place there."""
        return self.bases[int(self.jobs.group[row])], int(self.places[row])

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Those that could be given."""
        return tuple(each for each in self.answers if isinstance(each, Prediction))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The requests that have none."""
        return tuple(each for each in self.order if isinstance(each, Skipped))

    def __len__(self) -> int:
        return len(self.order) - len(self.skipped)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)

    def __getitem__(self, index: int) -> Prediction:
        return self.predictions[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predictions) and self.answers == other.answers

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the predictor, every word read."""
        return Predictions.of, (self.answers,)

    @property
    def varied(self) -> tuple[str, ...]:
        """The fields in which the requests differ."""
        values: dict[str, set[str]] = {}
        for each in self.answers:
            for name, value in each.request.items():
                values.setdefault(name, set()).add(repr(value))
        answered = [each.request for each in self.predictions]
        return tuple(
            name
            for name, found in values.items()
            if len(found) > 1 or 0 < sum(name in request for request in answered) < len(answered)
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, of one shape however many there are.

        What was skipped has its place among those asked, from 1, as `number`.
        """
        return {
            "predictions": [prediction.to_dict() for prediction in self.predictions],
            "skipped": [
                {"number": number, **asdict(each)}
                for number, each in enumerate(self.order, start=1)
                if isinstance(each, Skipped)
            ],
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Predictions:
        """The way back from `to_dict`.

        Raises:
            ConfigError: If it is no such dictionary.
        """
        read = from_plain(_Parts, given)
        answers: list[Prediction | Skipped] = [*read.predictions]
        for each in read.skipped:
            place = len(answers) if each.number is None else each.number - 1
            answers.insert(place, Skipped(request=each.request, reason=each.reason))
        return cls.of(answers)

    def columns(self, *, baseline: Mapping[str, Any] | None = None) -> dict[str, list[Any]]:
        """One list for each column, a row for each request; see `table.columns_of`."""
        from .table import columns_of, rows_of

        return columns_of(rows_of(self, baseline=baseline))

    def plot(self, axes: Any = None) -> Any:
        """The steps as bars side by side, with intervals; see `Prediction.plot`."""
        from ..render.picture import plot_bars
        from .page import bars_of

        return plot_bars(bars_of(self.predictions), axes=axes)

    def in_one_line(self) -> str:
        """One line for each prediction."""
        lines = [f"  {each.in_one_line()}" for each in self.predictions[:_SHOWN]]
        more = [f"  ... and {len(self) - _SHOWN} more"] if len(self) > _SHOWN else []
        left_out = f", {len(self.skipped)} left out" if self.skipped else ""
        return "\n".join([f"of {len(self)} predictions{left_out}:", *lines, *more])

    @property
    def is_page(self) -> bool:
        """Whether they are one job, perhaps at several precisions: these have a page, others a table."""
        return bool(self.predictions) and {*self.varied} <= {"precision"}

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time predict` prints, or the table."""
        from . import page, table
        from .changes import what_matters

        del width  # blocks fit themselves
        if not self.is_page:
            return table.blocks_of(table.rows_of(self), varied=self.varied)
        matters = what_matters(page.leading(self.predictions))
        return page.blocks_of(self.predictions, matters=matters, why=why)

    def notebook(self) -> Iterator[Block]:
        """Answers with bars, or the table."""
        from . import page, table

        return page.notebook_of(self.predictions) if self.is_page else table.notebook_of(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbered:
    request: Mapping[str, Any]
    reason: str
    number: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What `Predictions.to_dict` holds."""

    predictions: tuple[Prediction, ...]
    skipped: tuple[_Numbered, ...]


_SHOWN = 20
"""Lines of a `repr`."""


def plain_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that broke a rule, ready for JSON, which has no infinite numbers."""
    return {str(name): _ready(value) for name, value in given.items()}


def _ready(value: Any) -> Any:
    if isinstance(value, dict):
        return plain_fields(value)
    if isinstance(value, list):
        return [_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
