"""The page of a plan: choices with reasons, the Pareto front as table and plot, what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...predict.page import NO_RUN
from ...render.blocks import GAP, Block, Text, Tone, warnings
from ...render.table import Table
from ...render.terminal import scatter
from .candidate import Candidate, carbon, duration, money
from .what_ifs import chance

if TYPE_CHECKING:
    from .choose import Choice
    from .result import Plan

_MOST_ROWS = 8
_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
_MOVES_SHOWN = 4


def blocks_of(plan: Plan, *, width: int, why: bool) -> Iterator[Block]:
    """One page about a plan.

    Args:
        plan: What was found.
        width: Columns of the page.
        why: Also the plot, break-even points, what moves the answer, and all that was assumed.
    """
    yield from _head(plan)
    shown = _shown_front(plan)
    if shown:
        what = "Pareto front" if plan.choices else "Pareto front of what breaks a limit"
        left = len(plan.front) - len(shown)
        between = f", {left} more between these" if left else ""
        yield from (GAP, Text(f"{what}{between}:", Tone.LEAD), front_table(plan, shown))
    if len(shown) > 1 and why:
        yield from (GAP, *map(Text, _plot_lines(shown, width)))
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


def notebook_of(plan: Plan) -> Iterator[Block]:
    """The choices in sentences, the front as a table."""
    head = "; ".join(
        f"{choice.aim}{doubt(choice.candidate)}: {in_one_line(choice.candidate)}" for choice in plan.choices
    )
    if plan.miss is not None:
        best = plan.miss.candidate
        head = f"Nothing keeps the limits. The nearest miss{doubt(best)}: {in_one_line(best)}"
    yield from (Text(f"{plan.model}: {head}", Tone.LEAD), front_table(plan, _shown_front(plan)))


def _head(plan: Plan) -> Iterator[Text]:
    limits = ", ".join(plan.limits.words) or "no limits"
    yield Text(f"{plan.model}, {plan.length}; {limits}", Tone.SOFT)
    for choice in plan.choices:
        best = choice.candidate
        yield Text(f"{choice.aim.capitalize()}{doubt(best)}: {in_one_line(best)}", Tone.LEAD)
        yield Text(f"  {choice.reason}")
        if choice.unmeasured is not None:
            yield Text(f"  {beside(choice, choice.unmeasured)}")
    if plan.miss is not None:
        best = plan.miss.candidate
        yield Text(f"Nothing keeps the limits. The nearest miss{doubt(best)}: {in_one_line(best)}", Tone.LEAD)
        for line in (f"{plan.miss.by}.", *plan.miss.remedies):
            yield Text(f"  {line[0].upper()}{line[1:]}")


def doubt(best: Candidate) -> str:
    """What goes before a superlative that rests on no measured run on such a device; empty otherwise."""
    return "" if best.on_measured_device else f" by its data sheet alone, {NO_RUN}"


def beside(choice: Choice, other: Candidate) -> str:
    """What a data sheet promises beside a choice that rests on measured runs."""
    figures = {
        "cheapest": (other.usd, choice.candidate.usd),
        "fastest": (other.time_s, choice.candidate.time_s),
        "greenest": (other.carbon_g, choice.candidate.carbon_g),
    }
    new, old = figures[choice.aim]
    less = f" ({new / old - 1.0:+.0%})" if new is not None and old else ""
    return f"{choice.aim.capitalize()}{doubt(other)}: {in_one_line(other)}{less}."


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
            f"{each.gpus} x {each.device}{'' if each.on_measured_device else ' (unmeasured)'}",
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
