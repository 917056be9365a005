"""The page of a plan: choices with reasons, the Pareto front as table and plot, what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...rendering import TEXT_WIDTH, new_table, plain_text
from .candidate import Candidate, carbon, duration, money
from .result import Plan
from .what_ifs import chance

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_MOST_ROWS = 8
_PLOT_ROWS, _PLOT_COLUMNS = 12, 64
_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
_MOVES_SHOWN = 4


def to_text(plan: Plan, *, width: int = TEXT_WIDTH, why: bool = False) -> str:
    """`render` as plain text without colors.

    Args:
        plan: What was found.
        width: Columns of the page [characters].
        why: Say all that is known.
    """
    return plain_text(render(plan, width=width, why=why), width=width)


def render(plan: Plan, *, width: int = TEXT_WIDTH, why: bool = False) -> Group:
    """One page about a plan.

    Args:
        plan: What was found.
        width: Columns of the page.
        why: Also the plot, break-even points, what moves the answer, and all that was assumed.

    Returns:
        A rich renderable.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(line, style=style) for line, style in _head(plan)]
    shown = shown_front(plan)
    if shown:
        what = "Pareto front" if plan.choices else "Pareto front of what breaks a limit"
        left = len(plan.front) - len(shown)
        parts += ["", Text(f"{what}{f', {left} more between these' if left else ''}:", style="bold")]
        parts += [front_table(plan, shown)]
    if len(shown) > 1 and why:
        parts += ["", *(Text(line) for line in plot_lines(shown, width))]
    if plan.what_ifs:
        questions = ((each.question, each.answer) for each in plan.what_ifs)
        parts += ["", Text(f"What if, instead of the {plan.choices[0].aim}", style="bold"), _pairs(questions)]
    if why:
        parts += [part for each in plan.break_evens for part in ("", Text(each.words))]
        if plan.moves:
            parts += ["", Text("What moves the answer", style="bold")]
            parts += [Text(str(move)) for move in plan.moves]
            parts += [Text(line) for line in _sensitivity(plan)]
    parts += ["", *(Text(line, style="dim") for line in _foot(plan, why))]
    if why:
        parts += [Text(f"Assumed: {line}") for line in plan.assumptions]
    return Group(*parts, *(Text(f"Warning: {line}", style="yellow") for line in plan.warnings))


def _head(plan: Plan) -> Iterator[tuple[str, str]]:
    limits = ", ".join(plan.limits.words) or "no limits"
    yield f"{plan.model}, {plan.length}; {limits}", "dim"
    for choice in plan.choices:
        best = choice.candidate
        yield f"{choice.aim.capitalize()}: {in_one_line(best)}", "bold"
        yield f"  {choice.reason}", ""
    if plan.miss is not None:
        best = plan.miss.candidate
        yield f"Nothing keeps the limits. The nearest miss: {in_one_line(best)}", "bold"
        yield f"  {plan.miss.by[0].upper()}{plan.miss.by[1:]}.", ""
        for remedy in plan.miss.remedies:
            yield f"  {remedy[0].upper()}{remedy[1:]}", ""


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


def shown_front(plan: Plan) -> tuple[Candidate, ...]:
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


def front_headers(plan: Plan) -> list[str]:
    """Of the front's table; a ">" aligns to the right."""
    chance_of = [">in time"] if plan.limits.deadline_s is not None else []
    return ["", "devices", "precision", "batch", "rented at", ">time", *chance_of, ">money", ">CO2", "best"]


def front_cells(plan: Plan, shown: Sequence[Candidate]) -> Iterator[list[str]]:
    """The rows of the front's table."""
    for place, each in enumerate(shown):
        aims = [choice.aim for choice in plan.choices if _same(choice.candidate, each)]
        in_time = [] if each.probability is None else [chance(each.probability)]
        yield [
            _MARKS[place],
            f"{each.gpus} x {each.device}",
            each.precision,
            f"{each.batch_size:g}",
            each.where,
            duration(each.time_s),
            *in_time,
            money(each.usd),
            carbon(each.carbon_g),
            ", ".join(aims),
        ]


def front_table(plan: Plan, shown: Sequence[Candidate]) -> Table:
    """The front as a table."""
    table = new_table(*front_headers(plan))
    table.padding = (0, 1, 0, 0)
    for cells in front_cells(plan, shown):
        table.add_row(*cells)
    return table


def plot_lines(shown: Sequence[Candidate], width: int) -> list[str]:
    """Money over time of the front by the marks of its table, both logarithmic; empty for one point."""
    points = [
        (mark, math.log(each.time_s), math.log(each.usd))
        for mark, each in zip(_MARKS, shown, strict=False)
        if each.usd and math.isfinite(each.time_s)
    ]
    if len(points) < 2:  # noqa: PLR2004
        return []
    columns = min(_PLOT_COLUMNS, width - 14)
    times, amounts = [point[1] for point in points], [point[2] for point in points]
    low = [min(times), min(amounts)]
    span = [max(times) - low[0], max(amounts) - low[1]]
    grid = [[" "] * columns for _ in range(_PLOT_ROWS)]
    for mark, time, usd in reversed(points):
        column = round((time - low[0]) / (span[0] or 1.0) * (columns - 1))
        row = round((usd - low[1]) / (span[1] or 1.0) * (_PLOT_ROWS - 1))
        grid[_PLOT_ROWS - 1 - row][column] = mark
    top, bottom = money(math.exp(low[1] + span[1])), money(math.exp(low[1]))
    labels = {0: top, _PLOT_ROWS - 1: bottom}
    lines = [f"{labels.get(place, ''):>11} |{''.join(row).rstrip()}" for place, row in enumerate(grid)]
    left, right = duration(math.exp(low[0])), duration(math.exp(low[0] + span[0]))
    lines.append(f"{'':>11} +{'-' * columns}")
    lines.append(f"{'':>13}{left}{right:>{max(columns - len(left), 1)}}")
    return ["Money over time, both logarithmic:", *lines]


def _pairs(rows: Any) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    for cells in rows:
        table.add_row(*cells)
    return table


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
