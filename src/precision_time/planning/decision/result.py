"""`Plan`: the answer to which devices, how many, at which precision, for how much, and whether in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from ...predict.predictions import data_frame
from ...records import dataclass
from ...render.blocks import TEXT_WIDTH, Block
from ...render.result import Result
from ...request.request import Request
from .break_evens import BreakEven
from .candidate import Candidate
from .choose import Choice, Judged
from .limits import Limits
from .misses import Miss
from .moves import Move
from .what_ifs import WhatIf

if TYPE_CHECKING:
    from ...predict.sensitivity import Sensitivity


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanCounts:
    """What became of what was asked."""

    asked: int
    """Combinations of devices, numbers, precisions, layouts and batches."""
    out_of_reach: int
    """Not timed: even at the peak of their devices they would break a limit."""
    refused: int
    unfit: int
    """Answered, but too large for the memory of the devices."""
    timed: int
    candidates: int
    """Those that are timed, with every offer and market."""
    feasible: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why combinations were refused, the most frequent first."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Plan(Result):
    """The choices, the Pareto front, and what would change them."""

    model: str
    length: str
    """Of the run, in words."""
    limits: Limits
    choices: tuple[Choice, ...]
    """Cheapest, fastest, greenest; empty where nothing keeps the limits: `miss` then says what is nearest."""
    front: tuple[Candidate, ...]
    """Of the feasible candidates, else of all: the soonest done first."""
    counts: PlanCounts
    miss: Miss | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    """Of the first choice."""
    break_evens: tuple[BreakEven, ...] = ()
    moves: tuple[Move, ...] = ()
    """What moves the first choice."""
    unpriced: tuple[str, ...] = ()
    """Devices without a price: they compete in time alone."""
    prices: tuple[str, ...] = ()
    """Clouds and dates of the prices used."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    judged: Judged | None = field(default=None, repr=False, compare=False)
    """All candidates."""

    @property
    def best(self) -> Candidate | None:
        """The first choice, else the nearest miss."""
        if self.choices:
            return self.choices[0].candidate
        return None if self.miss is None else self.miss.candidate

    def choice(self, aim: str) -> Choice | None:
        """The choice by an aim: cheapest, fastest or greenest."""
        return next((each for each in self.choices if each.aim == aim), None)

    def sensitivity(self) -> tuple[Sensitivity, ...]:
        """What each number of the best candidate's job does to its time (`explain --what numbers`)."""
        from ...predict.sensitivity import sensitivity

        return () if self.best is None else sensitivity(Request.of(self.best.request))

    def columns(self) -> dict[str, list[Any]]:
        """One list for each column, a row for each candidate: feasible first, the cheapest of them first."""
        from .table import columns_of

        return {} if self.judged is None else columns_of(self.judged)

    def to_frame(self, backend: Literal["pandas", "polars"] | None = None) -> Any:
        """The columns as a data frame.

        Args:
            backend: pandas or polars; None for the one that is installed, pandas first.

        Raises:
            ConfigError: If the backend is another one.
            MissingExtraError: If neither is installed, or the one that is asked for is not.
        """
        return data_frame(self.columns(), backend)

    def plot(self, path: Any) -> None:
        """Draw time against money to a .png or .svg; needs matplotlib."""
        from .picture import write_plot

        write_plot(self, path)

    def in_one_line(self) -> str:
        """The first choice, else the nearest miss."""
        best = self.best
        found = "nothing has an answer" if best is None else f"{best.label}, {best.place}"
        what = self.choices[0].aim if self.choices else "nothing keeps the limits; nearest"
        return f"{self.model}: {what} {found}; {self.counts.candidates:,} candidates"

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time plan` prints."""
        from .page import blocks_of

        return blocks_of(self, width=width, why=why)

    def notebook(self) -> Iterator[Block]:
        """The choices in sentences, the front as a table."""
        from .page import notebook_of

        return notebook_of(self)
