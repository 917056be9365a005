"""What a paper claims beside what was found here: one row each of "At a glance"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from precision_time.render.document import Section
from precision_time.render.table import Table

HOLDS, FAILS, NO_FIGURE = "holds", "does not hold", "no figure to compare"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One claim of a paper."""

    claim: str
    paper: str
    """Its figure; "-" where the paper has none that we know."""
    ours: str
    rows: int
    """Runs, jobs or cells that ours is computed from."""
    verdict: str
    scope: str = "-"
    """Of which jobs, and what of them the predictor knew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperSection(Section):
    """A section with the claims that its tables answer."""

    claims: tuple[Claim, ...] = ()


def at_most(found: float, claimed: float) -> str:
    """Whether a figure is as low as was claimed.

    >>> at_most(6.7, 9.8), at_most(9.6, 8.1)
    ('holds', 'does not hold')
    """
    return HOLDS if found <= claimed else FAILS


def at_least(found: float, claimed: float) -> str:
    """Whether a figure is as high as was claimed.

    >>> at_least(5.0, 2.4), at_least(3.9, 9.8)
    ('holds', 'does not hold')
    """
    return HOLDS if found >= claimed else FAILS


def percent(mean: float, median: float) -> str:
    """Two errors as a cell.

    >>> percent(6.71, 3.0)
    '6.7 % (median 3.0)'
    """
    return f"{mean:.1f} % (median {median:.1f})"


def glance(sections: Sequence[Section]) -> str:
    """The claims that sections answer as a table in Markdown."""
    claims = [claim for section in sections if isinstance(section, PaperSection) for claim in section.claims]
    return Table(
        columns=("claim", "its figure", "ours", ">rows", "scope", "verdict"),
        rows=tuple(
            (each.claim, each.paper, each.ours, each.rows, each.scope, each.verdict) for each in claims
        ),
    ).markdown()
