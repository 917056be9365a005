"""The answers to several requests, in the order asked, as a sequence, a table, JSON or a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ..plain import from_plain
from ..records import dataclass
from ..render.blocks import TEXT_WIDTH, Block
from ..render.result import Tabular
from .prediction import Prediction, Skipped


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Predictions(Tabular):
    """The answers to several requests."""

    answers: tuple[Prediction | Skipped, ...]
    """One for each request, in the order asked."""

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Those that could be given."""
        return tuple(each for each in self.answers if isinstance(each, Prediction))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The requests that have none."""
        return tuple(each for each in self.answers if isinstance(each, Skipped))

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)

    def __getitem__(self, index: int) -> Prediction:
        return self.predictions[index]

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
                for number, each in enumerate(self.answers, start=1)
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
        return cls(answers=tuple(answers))

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
