"""`Plan`: which devices, how many, at which precision, for how much, and whether in time; what it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...predict.page import doubt
from ...records import dataclass
from ...render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone, warnings
from ...render.result import Tabular
from ...render.table import Table
from ...render.terminal import scatter
from ...request.request import Request
from .candidate import Candidate, carbon, chance, duration, money
from .choose import FIGURE_OF, OF_OFFER, Choice, Judged
from .explain import BreakEven, Miss, Move, WhatIf
from .limits import Limits
from .space import UNPRICED

if TYPE_CHECKING:
    from ...predict.changes import Sensitivity

_MOST_ROWS = 8
_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
_MOVES_SHOWN = 4
_MISS = "Nothing keeps the limits. The nearest miss"
_OF_ROW = (
    *("device", "gpus", "precision", "layout", "batch_size", "global_batch_size", "step_time_s"),
    *("interval_low_s", "interval_high_s", "mfu", "memory_bytes_per_device", "warnings"),
)
_OF_CANDIDATE = (
    *("instances", "time_s", "sure_s", "probability", "usd_per_hour", "usd", "energy_j", "carbon_g"),
)


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
class Plan(Tabular):
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
        from ...predict.changes import sensitivity

        return () if self.best is None else sensitivity(Request.of(self.best.request))

    def columns(self) -> dict[str, list[Any]]:
        """One list for each column, a row for each candidate: feasible first, the cheapest of them first."""
        if (found := self.judged) is None:
            return {}
        order = found.order("cheapest")
        outcomes, table, space = found.outcomes, found.rows.table, found.space
        columns: dict[str, list[Any]] = {name: _plain(table[name][outcomes.row[order]]) for name in _OF_ROW}
        rented = [None if number == UNPRICED else space.offers[number] for number in outcomes.offer[order]]
        for name in OF_OFFER:
            columns[name] = [None if offer is None else getattr(offer, name) for offer in rented]
        columns["market"] = [
            None if offer is None else space.markets[number].value
            for offer, number in zip(rented, outcomes.market[order], strict=True)
        ]
        columns |= {name: _plain(getattr(outcomes, name)[order]) for name in _OF_CANDIDATE}
        columns |= {f"terms_s.{name}": _plain(values[order]) for name, values in outcomes.terms_s.items()}
        return columns | {"feasible": found.feasible[order].tolist(), "on_front": found.front[order].tolist()}

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
        shown = _shown_front(self)
        lines = _plot_lines(shown, width) if why else []
        yield from head(self)
        yield from body(self, shown, why=why, plot=(GAP, *map(Text, lines)) if lines else ())

    def notebook(self) -> Iterator[Block]:
        """The choices in sentences, the front as a table."""
        head = "; ".join(_best(choice.aim, choice.candidate) for choice in self.choices)
        if self.miss is not None:
            head = _best(_MISS, self.miss.candidate)
        yield from (Text(f"{self.model}: {head}", Tone.LEAD), front_table(self, _shown_front(self)))


def head(plan: Plan) -> Iterator[Text]:
    """The choices, or the nearest miss."""
    limits = ", ".join(plan.limits.words) or "no limits"
    yield Text(f"{plan.model}, {plan.length}; {limits}", Tone.SOFT)
    for choice in plan.choices:
        yield Text(_best(choice.aim.capitalize(), choice.candidate), Tone.LEAD)
        yield Text(f"  {choice.reason}")
        if choice.unmeasured is not None:
            yield Text(f"  {_beside(choice, choice.unmeasured)}")
    if plan.miss is not None:
        yield Text(_best(_MISS, plan.miss.candidate), Tone.LEAD)
        for line in (f"{plan.miss.by}.", *plan.miss.remedies):
            yield Text(f"  {line[0].upper()}{line[1:]}")


def body(plan: Plan, shown: Sequence[Candidate], *, why: bool, plot: Iterable[Block] = ()) -> Iterator[Block]:
    """What stands below the choices."""
    if shown:
        what = "Pareto front" if plan.choices else "Pareto front of what breaks a limit"
        left = len(plan.front) - len(shown)
        between = f", {left} more between these" if left else ""
        star = " (* no measured run is like it)" if any(each.doubt == " *" for each in shown) else ""
        yield from (GAP, Text(f"{what}{between}{star}:", Tone.LEAD), front_table(plan, shown))
    yield from plot
    if plan.what_ifs:
        questions = tuple((each.question, each.answer) for each in plan.what_ifs)
        yield from (GAP, Text(f"What if, instead of the {plan.choices[0].aim}", Tone.LEAD))
        yield Table(columns=("", ""), rows=questions, headless=True)
    if why:
        yield from (block for each in plan.break_evens for block in (GAP, Text(each.words)))
        if plan.moves:
            yield from (GAP, Text("What moves the answer", Tone.LEAD))
            yield from map(Text, (*map(str, plan.moves), *_sensitivity(plan)))
    yield from (GAP, *(Text(line, Tone.SOFT) for line in _foot(plan, why)))
    if why:
        yield from (Text(f"Assumed: {line}") for line in plan.assumptions)
    yield from warnings(plan.warnings)


def _beside(choice: Choice, other: Candidate) -> str:
    """What a data sheet promises beside a choice that rests on measured runs."""
    new, old = (getattr(each, FIGURE_OF[choice.aim]) for each in (other, choice.candidate))
    less = f" ({new / old - 1.0:+.0%})" if new is not None and old else ""
    return f"{_best(choice.aim.capitalize(), other)}{less}."


def _best(what: str, best: Candidate) -> str:
    return f"{what}{doubt(best)}: {in_one_line(best)}"


def in_one_line(best: Candidate) -> str:
    """Devices, time, chance, money, carbon and who rents them."""
    parts = [f"{best.label}, {duration(best.time_s)}"]
    if best.probability is not None:
        parts.append(f"in time with {chance(best.probability)}")
    if best.usd is not None:
        parts.append(money(best.usd))
    if best.carbon_g is not None:
        parts.append(f"{carbon(best.carbon_g)} of CO2")
    return f"{', '.join(parts)}; {best.place}"


def _shown_front(plan: Plan) -> tuple[Candidate, ...]:
    """The front, of a long one evenly chosen candidates, the choices among them."""
    front = plan.front
    if len(front) <= _MOST_ROWS:
        return front
    chosen = {
        place
        for place, each in enumerate(front)
        if any(_same(each, choice.candidate) for choice in plan.choices)
    }
    every = (len(front) - 1) / (_MOST_ROWS - len(chosen) - 1)
    chosen |= {round(step * every) for step in range(_MOST_ROWS - len(chosen))}
    return tuple(front[place] for place in sorted(chosen))


def _same(one: Candidate, other: Candidate) -> bool:
    return (one.time_s, one.usd, one.carbon_g) == (other.time_s, other.usd, other.carbon_g)


def front_table(plan: Plan, shown: Sequence[Candidate]) -> Table:
    """Some of the front, with the mark of each in the plot."""
    rows = (
        (
            _MARKS[place % len(_MARKS)],
            f"{each.gpus} x {each.device}{each.doubt}",
            each.precision,
            f"{each.batch_size:g}",
            each.where,
            duration(each.time_s),
            *([] if each.probability is None else [chance(each.probability)]),
            money(each.usd),
            carbon(each.carbon_g),
            ", ".join(choice.aim for choice in plan.choices if _same(choice.candidate, each)),
        )
        for place, each in enumerate(shown)
    )
    in_time = [">in time"] if plan.limits.deadline_s is not None else []
    columns = ("", "devices", "precision", "batch", "rented at", ">time", *in_time, ">money", ">CO2", "best")
    return Table(columns=columns, rows=tuple(rows), narrow=True)


def _plot_lines(shown: Sequence[Candidate], width: int) -> list[str]:
    """Money over time of the front by the marks of its table; empty for one point."""
    points = [
        (mark, each.time_s, each.usd)
        for mark, each in zip(_MARKS, shown, strict=False)
        if each.usd and math.isfinite(each.time_s)
    ]
    lines = scatter(points, width=width, x_text=duration, y_text=money)
    return ["Money over time, both logarithmic:", *lines] if lines else []


def _sensitivity(plan: Plan) -> Iterator[str]:
    """The numbers of the job that move the time of its step most."""
    for row in plan.sensitivity()[:_MOVES_SHOWN]:
        sides = {"half": row.at_half, "twice": row.at_double}
        moved = ", ".join(f"{side} {change:+.0%}" for side, change in sides.items() if change is not None)
        yield f"time per sample by {row.words}: {moved}"


def _foot(plan: Plan, why: bool) -> Iterator[str]:
    counts = plan.counts
    left = {"do not fit": counts.unfit, "refused": counts.refused,
            "would break a limit even at the peak of their devices": counts.out_of_reach}  # fmt: skip
    said = "".join(f", {count:,} {words}" for words, count in left.items() if count)
    yield (
        f"{counts.asked:,} combinations{said}; {counts.candidates:,} candidates with every offer, "
        f"{counts.feasible:,} keep the limits. All were evaluated."
    )
    unpriced = f" No price: {', '.join(plan.unpriced)}." if plan.unpriced else ""
    if plan.prices:
        yield f"List prices: {'; '.join(plan.prices)}.{unpriced}"
    if why:
        for reason, count in counts.reasons.items():
            yield f"{count:,} refused: {reason.partition(' To fix')[0]}"
    else:
        yield f"{len(plan.assumptions)} assumptions, break-even points and what moves the answer: --why."


def _plain(values: Any) -> list[Any]:
    listed = values.tolist()
    if values.dtype.kind != "f":
        return list(listed)
    return [value if known else None for value, known in zip(listed, np.isfinite(values), strict=True)]
