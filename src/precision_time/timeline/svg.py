"""Time along, drawn as SVG by hand: lanes of bars, and areas stacked on each other. No library, no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np

from ..arrays import Floats
from ..records import dataclass
from ..render.blocks import OTHER_COLOR
from ..units import GIBI, format_bytes, format_duration

_WIDTH, _LEFT, _RIGHT = 1200, 180, 20
_GAP, _TITLE, _LANE = 6, 34, 22
"""Heights between lanes, of a heading, and of a lane [pixels]."""
_TICKS = 8
_NARROW = 0.8
"""Mean width of a bar below which a lane is drawn by what fills each pixel [pixels]."""
_STEPS = 4
"""Steps to which the shares of a pixel are rounded."""
_HEIGHT, _LINES, _OVER = 320, 5, "#c8102e"
"""Of areas: height [pixels], lines across at round sizes, color of the line that must not be crossed."""
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#222222}"
    ".heading{font-size:14px;font-weight:600}.label{text-anchor:end}.tick{text-anchor:middle;fill:#666666}"
)
_Shares = tuple[tuple[str, int], ...]
"""Kinds of bars, and how many of _STEPS steps of a pixel each fills."""


class LaneBar(Protocol):
    """A bar of a lane."""

    @property
    def name(self) -> str:
        """Told where the mouse points."""

    @property
    def kind(self) -> str:
        """Of which it has its color."""

    @property
    def start_s(self) -> float:
        """From the left end of the lane."""

    @property
    def end_s(self) -> float:
        """Likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Colors:
    """Of kinds, in the order in which they are explained, and what each is called."""

    of: Mapping[str, str]
    named: Callable[[str], str] = lambda kind: kind.replace("_", " ")

    def __getitem__(self, kind: str) -> str:
        return self.of.get(kind, OTHER_COLOR)

    def ordered(self, used: Iterable[str]) -> list[str]:
        """The kinds that are used: those with a color first."""
        there = set(used)
        return [kind for kind in (*self.of, *sorted(there - self.of.keys())) if kind in there]


def lanes(
    charts: Sequence[tuple[str, Mapping[str, Sequence[LaneBar]]]], colors: Colors, *, end_s: float, title: str
) -> str:
    """Lanes of bars over time.

    Args:
        charts: Heading, and lanes by label, each from 0 to `end_s`; empty ones are left out.
        colors: Of the kinds of bars.
        end_s: Of every lane.
        title: Of the picture.
    """
    parts: list[str] = []
    top = 0
    for heading, rows in charts:
        parts.append(_text(_LEFT, top + 22, heading, "heading"))
        top += _TITLE
        for label, spans in rows.items():
            if spans:
                parts += _lane(label, spans, top, end_s, colors)
                top += _LANE + _GAP
        parts += _time_axis(top, end_s)
        top += _TITLE
    used = colors.ordered(span.kind for _, rows in charts for spans in rows.values() for span in spans)
    keys, height = _legend(used, top, colors)
    return _document([*parts, *keys], height, title)


def areas(
    times_s: Floats,
    sizes: Mapping[str, Floats],
    colors: Colors,
    *,
    limit: float,
    limit_text: str,
    heading: str,
    title: str,
) -> str:
    """Bytes over time, an area for each kind, on top of those before it; of a pixel the fullest interval.

    Args:
        times_s: Ends of the intervals, ascending; shape (n + 1,).
        sizes: Bytes in each interval by kind; shape (n,) each.
        colors: Of the kinds, from the bottom to the top.
        limit: Bytes that must not be crossed.
        limit_text: What they are.
        heading: Above the areas.
        title: Of the picture; the peak is added to it.
    """
    total = np.sum(list(sizes.values()), axis=0)
    peak = int(np.argmax(total >= total.max() * (1.0 - 1e-12)))
    most, end_s = float(total.max()), float(times_s[-1])
    high = 1.05 * max(most, limit)
    bottom, scale = _TITLE + _HEIGHT, _HEIGHT / high
    said = f"peak {format_bytes(most)} from {format_duration(float(times_s[peak]))}"
    parts = [_text(_LEFT, 22, heading, "heading"), *_grid(high, bottom, scale)]
    columns = _fullest_of_pixels(times_s, total)
    width = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    floor: Floats = np.zeros(len(columns))
    kinds = colors.ordered(sizes)
    for kind in kinds:
        ceiling = floor + sizes[kind][columns]
        upper, lower = _outline(ceiling, bottom, scale, width), _outline(floor, bottom, scale, width)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*upper, *reversed(lower)))
        at_most = f"{colors.named(kind)}, at most {format_bytes(float(sizes[kind].max()))}"
        parts.append(f'<polygon points="{points}" fill="{colors[kind]}">{_tip(at_most)}</polygon>')
        floor = ceiling
    x = _LEFT + float(times_s[peak]) / end_s * (_WIDTH - _LEFT - _RIGHT)
    dot = f'<circle cx="{x:.1f}" cy="{bottom - most * scale:.1f}" r="4" fill="#222222">{_tip(said)}</circle>'
    line = bottom - limit * scale
    dashes = _line(_LEFT, line, _WIDTH - _RIGHT, line, f'"{_OVER}" stroke-dasharray="6 4"')
    parts += [dot, dashes, _text(_LEFT + 6, line - 5, limit_text, "key"), *_time_axis(bottom + _GAP, end_s)]
    keys, height = _legend(kinds, bottom + _GAP + _TITLE, colors)
    return _document([*parts, *keys], height, f"{title}, {said}")


def _round_distance(rough: float) -> float:
    """1, 2 or 5 of a power of ten, at least as large."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)


def _time_axis(top: float, end_s: float) -> Iterator[str]:
    """Ticks at round times."""
    scale = (_WIDTH - _LEFT - _RIGHT) / end_s
    distance = _round_distance(end_s / _TICKS)
    for tick in range(math.floor(end_s / distance) + 1):
        x = _LEFT + tick * distance * scale
        yield _line(x, top - _GAP, x, top, '"#666666"')
        yield _text(x, top + 12, format_duration(tick * distance) if tick else "0", "tick")


def _grid(high: float, bottom: float, scale: float) -> Iterator[str]:
    """Lines at round sizes."""
    distance = _round_distance(high / GIBI / _LINES)
    for number in range(math.floor(high / GIBI / distance) + 1):
        y = bottom - number * distance * GIBI * scale
        yield _line(_LEFT, y, _WIDTH - _RIGHT, y, '"#dddddd"')
        yield _text(_LEFT - 8, y + 4, f"{number * distance:g} GiB", "label")


def _legend(kinds: Iterable[str], top: float, colors: Colors) -> tuple[list[str], int]:
    """Color and name of each kind in rows, and where they end."""
    parts: list[str] = []
    x, y = float(_LEFT), top
    for kind in kinds:
        name = colors.named(kind)
        width = 26.0 + 6.6 * len(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + 20
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{colors[kind]}"/>')
        parts.append(_text(x + 16, y + 10, name, "key"))
        x += width
    return parts, int(y + 30)


def _lane(label: str, spans: Sequence[LaneBar], top: float, end_s: float, colors: Colors) -> Iterator[str]:
    """One row of bars with its label."""
    scale = (_WIDTH - _LEFT - _RIGHT) / end_s
    yield _text(_LEFT - 8, top + _LANE - 7, label, "label")
    if sum(span.end_s - span.start_s for span in spans) * scale < _NARROW * len(spans):
        for start, width, shares in _by_pixel(spans, scale):
            tip = ", ".join(f"{colors.named(kind)} {steps / _STEPS:.0%}" for kind, steps in shares)
            yield _rectangle(_LEFT + start, top, width, _mixed_color(shares, colors), tip)
        return
    for span in spans:
        seconds = span.end_s - span.start_s
        tip = f"{span.name}: {format_duration(seconds)} from {format_duration(span.start_s)}"
        yield _rectangle(_LEFT + span.start_s * scale, top, seconds * scale, colors[span.kind], tip)


def _by_pixel(spans: Sequence[LaneBar], scale: float) -> Iterator[tuple[int, int, _Shares]]:
    """First pixel, number of pixels and shares of the kinds of bars, by stretches of equal shares."""
    pixels: dict[int, dict[str, float]] = {}
    for span in spans:
        for pixel in range(math.floor(span.start_s * scale), math.ceil(span.end_s * scale)):
            inside = min(span.end_s * scale, pixel + 1.0) - max(span.start_s * scale, float(pixel))
            filled = pixels.setdefault(pixel, {})
            filled[span.kind] = filled.get(span.kind, 0.0) + inside
    mixed = [(pixel, _shares(filled)) for pixel, filled in sorted(pixels.items())]
    for (_, shares), run in groupby(enumerate(mixed), key=lambda item: (item[1][0] - item[0], item[1][1])):
        pixel, *others = (pixel for _, (pixel, _) in run)
        yield pixel, len(others) + 1, shares


def _shares(filled: Mapping[str, float]) -> _Shares:
    """Parts of a pixel in coarse steps, so that stretches that look the same are one."""
    steps = {kind: round(_STEPS * part) for kind, part in filled.items()}
    found = tuple(sorted((kind, count) for kind, count in steps.items() if count))
    return found or ((max(filled, key=lambda kind: filled[kind]), 1),)


def _mixed_color(shares: _Shares, colors: Colors) -> str:
    """The colors of the kinds mixed by their shares, with white where nothing is."""
    total = max(sum(steps for _, steps in shares), _STEPS)
    mixed = [255.0, 255.0, 255.0]
    for kind, steps in shares:
        code = colors[kind]
        for channel in range(3):
            mixed[channel] -= (255 - int(code[2 * channel + 1 : 2 * channel + 3], 16)) * steps / total
    return "#" + "".join(f"{round(value):02x}" for value in mixed)


def _fullest_of_pixels(times_s: Floats, total: Floats) -> np.ndarray:
    """For every pixel the interval in it that holds most."""
    count = _WIDTH - _LEFT - _RIGHT
    edges = np.linspace(0.0, float(times_s[-1]), count + 1)
    starts = np.clip(np.searchsorted(times_s, edges[:-1], side="right") - 1, 0, len(total) - 1)
    stops = np.clip(np.searchsorted(times_s, edges[1:], side="left"), starts + 1, len(total))
    return np.array(
        [start + int(np.argmax(total[start:stop])) for start, stop in zip(starts, stops, strict=True)]
    )


def _outline(sizes: Floats, bottom: float, scale: float, width: float) -> list[tuple[float, float]]:
    """Corners of steps from left to right, without those on a level line."""
    changes = np.flatnonzero(np.diff(sizes)) + 1
    corners: list[tuple[float, float]] = []
    for start, stop in pairwise([0, *changes.tolist(), len(sizes)]):
        y = bottom - float(sizes[start]) * scale
        corners += [(_LEFT + start * width, y), (_LEFT + stop * width, y)]
    return corners


def _rectangle(x: float, top: float, width: float, color: str, tip: str) -> str:
    place = f'x="{x:.2f}" y="{top}" width="{width:.2f}" height="{_LANE}"'
    return f'<rect {place} fill="{color}">{_tip(tip)}</rect>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke={stroke}/>'


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>'


def _document(parts: Iterable[str], height: float, title: str) -> str:
    """A picture of the common width."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">\n{_tip(title)}\n<style>{_STYLE}</style>\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
