"""A search for people: the best layouts side by side, why the first is first, what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..predict.render import plain_text
from ..units import format_bytes, format_duration
from .result import LayoutSearch, RankedLayout, SearchCounts, Shortfall, layout_name

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_TEXT_WIDTH = 120
_SMALL_SHARE = 0.01
"""Terms below this share of every step shown are summed up as `other`."""
_REASONS_SAID = 3
_LEGEND = (
    "2x4: 4 micro batches of 2 samples. hsdp8: sharded within groups of 8 ranks. kept: parameters stay "
    "gathered after the forward pass. interleaved5: 5 model chunks per stage."
)


def to_text(search: LayoutSearch, *, width: int = _TEXT_WIDTH) -> str:
    """`render` as plain text without colours.

    Args:
        search: What was found.
        width: Columns of the page [characters].
    """
    return plain_text(render(search, width=width), width=width)


def render(search: LayoutSearch, *, width: int = _TEXT_WIDTH) -> Group:
    """One page about a search.

    Args:
        search: What was found.
        width: Columns of the page: as many layouts show their terms as there is room for.

    Returns:
        A rich renderable.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(_headline(search), style="bold"), ""]
    if search.ranked:
        parts += [_ranking(search), "", Text(_LEGEND, style="dim"), "", _terms(search.ranked, width), ""]
        parts += [Text(search.why), ""] if search.why else []
    if search.shortfall is not None:
        parts += [*map(Text, _shortfall_lines(search.shortfall)), ""]
    parts += [Text(line) for line in _count_lines(search.counts)]
    parts += [Text(f"Assumed: {line}") for line in search.assumptions]
    warnings = search.ranked[0].prediction.warnings if search.ranked else search.warnings
    return Group(*parts, *(Text(f"Warning: {line}", style="yellow") for line in warnings))


def _headline(search: LayoutSearch) -> str:
    nodes = "1 node" if search.num_nodes == 1 else f"{search.num_nodes} nodes"
    return (
        f"{search.model} on {search.num_devices} x {search.device} ({nodes}), {search.precision}, "
        f"{search.stack}, {search.global_batch_size:,} samples per step"
    )


def _ranking(search: LayoutSearch) -> Table:
    coverage = search.ranked[0].prediction.interval.coverage
    table = _table("", "layout", ">step time", f">{coverage:.0%} interval", ">MFU", ">memory", ">throughput")
    for place, each in enumerate(search.ranked, start=1):
        found = each.prediction
        table.add_row(
            str(place),
            layout_name(each.layout),
            format_duration(found.step_time_s),
            f"{format_duration(found.interval.low_s)} - {format_duration(found.interval.high_s)}",
            "-" if found.mfu is None else f"{found.mfu:.1%}",
            format_bytes(found.memory_bytes_per_device),
            f"{found.throughput:,.0f} {found.throughput_unit}",
        )
    return table


def _terms(ranked: Sequence[RankedLayout], width: int) -> Table:
    """Terms and memory as rows, layouts as columns, as many as fit."""
    shown = ranked[: max((width - 22) // 11, 1)]
    table = _table("where the time goes", *(f">{place}" for place in range(1, len(shown) + 1)))
    times = [each.prediction.terms for each in shown]
    steps = [each.step_time_s for each in shown]
    names = dict.fromkeys(name for terms in times for name in terms)
    large = [
        name
        for name in names
        if any(terms.get(name, 0.0) >= _SMALL_SHARE * step for terms, step in zip(times, steps, strict=True))
    ]
    large.sort(key=lambda name: -max(terms.get(name, 0.0) for terms in times))
    for name in large:
        table.add_row(_words(name), *(_duration(terms.get(name, 0.0)) for terms in times))
    rest = [sum(seconds for name, seconds in terms.items() if name not in large) for terms in times]
    if any(rest):
        table.add_row("other", *map(_duration, rest), end_section=True)
    memory = [each.prediction.memory_terms for each in shown]
    for name in dict.fromkeys(name for terms in memory for name in terms):
        if any(terms.get(name, 0.0) for terms in memory):
            cells = (terms.get(name, 0.0) for terms in memory)
            table.add_row(
                f"{_words(name)} [memory]", *(format_bytes(value) if value else "-" for value in cells)
            )
    return table


def _shortfall_lines(found: Shortfall) -> list[str]:
    largest = max(found.memory_terms, key=lambda name: found.memory_terms[name])
    missing = found.needed_bytes - found.capacity_bytes
    return [
        f"Nothing fits. The layout that needs the least, {layout_name(found.layout)}, needs "
        f"{format_bytes(found.needed_bytes)} of {format_bytes(found.capacity_bytes)} per device: "
        f"{format_bytes(missing)} too much. "
        f"Largest: {_words(largest)} ({format_bytes(found.memory_terms[largest])}).",
        *found.advice,
    ]


def _count_lines(counts: SearchCounts) -> list[str]:
    said = (
        f"{counts.enumerated:,} layouts: {counts.priced:,} priced, "
        f"{counts.too_large:,} do not fit, {counts.recomputing:,} recompute more than they need to, "
        f"{counts.outrun:,} slower by their kernels and bubble alone."
    )
    reasons = list(counts.refused.items())[:_REASONS_SAID]
    return [said, *(f"{count:,} refused: {reason.partition(' To fix')[0]}" for reason, count in reasons)]


def _table(*headers: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in headers:
        right = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    return table


def _duration(seconds: float) -> str:
    return format_duration(seconds) if seconds else "-"


def _words(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")
