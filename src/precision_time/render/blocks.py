"""What pages are made of, whatever they are about: paragraphs, tables, bars, drawings.

A result (`result.Result`) says its blocks; a terminal (`terminal`), a notebook or a file (`html`) and
matplotlib (`picture`) show them. None of these knows what the blocks are about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from ..records import dataclass
from .table import Table

TEXT_WIDTH = 120
"""Columns of a page that is no terminal's [characters]."""
OTHER_COLOR = "#bab0ac"
"""Of what has no color of its own."""


class Tone(StrEnum):
    """How loud a paragraph is."""

    LEAD = "bold"  # the answer
    PLAIN = ""
    SOFT = "dim"  # about the answer
    WARNING = "yellow"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; an empty one is the distance between two parts of a page."""

    text: str
    tone: Tone = Tone.PLAIN


GAP = Text("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Sums of named seconds side by side, on one scale."""

    title: str
    labels: tuple[str, ...]
    """One for each bar."""
    parts: Mapping[str, tuple[float, ...]]
    """Name to the seconds of each bar, the largest first."""
    colors: Mapping[str, str] = field(default_factory=dict)
    """By name."""
    ranges: tuple[tuple[float, float], ...] = ()
    """Low and high end of what each sum may be."""
    range_title: str = ""
    about: str = ""
    """What all bars share, in a line above a picture of them."""
    figures: Table | None = None
    """What a page with room for it shows to the left of the bars, a row for each."""

    @property
    def sums(self) -> list[float]:
        """Of each bar."""
        return [math.fsum(values) for values in zip(*self.parts.values(), strict=True)]

    def color(self, name: str) -> str:
        """Of one of the parts."""
        return self.colors.get(name, OTHER_COLOR)


Band = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Middle, low and high at each point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BandedLine:
    """A line of points in panels side by side, each with its band."""

    label: str
    x: Sequence[float]
    panels: Sequence[Band]
    hollow: Sequence[bool]
    """Points that are drawn empty."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An `<svg>` element, which a terminal leaves out."""

    svg: str


Block = Text | Table | Bars | Drawing


def warnings(texts: Iterable[str]) -> Iterator[Text]:
    """What to act on."""
    return (Text(f"Warning: {text}", Tone.WARNING) for text in texts)
