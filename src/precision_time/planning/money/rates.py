"""What storing and moving a gigabyte costs, by cloud (`data/rates.csv`): list rates of the first tier.

Larger amounts cost less per gigabyte, so a rate is an upper bound. Whoever pays another one states it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from enum import StrEnum

from ...cache import data
from ...io import packaged
from ...records import dataclass


class Term(StrEnum):
    """What is paid by the gigabyte (1e9 bytes)."""

    STORAGE = "storage"
    """Per month."""
    EGRESS = "egress"
    """To the internet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A list rate."""

    cloud: str
    term: Term
    usd_per_gb: float
    what: str
    """Product and place."""
    date: str
    source: str
    """ "recalled" where it was not read again."""


def list_rate(cloud: str, term: Term) -> Rate | None:
    """The rate of a cloud; None where none is known, which is to be said and not to be taken for zero.

    >>> list_rate("aws", Term.EGRESS).usd_per_gb, list_rate("nebius", Term.EGRESS)
    (0.09, None)
    """
    return _rates().get((cloud.lower(), term))


@data
def _rates() -> Mapping[tuple[str, Term], Rate]:
    lines = packaged(__package__, "data/rates.csv").read_text(encoding="utf-8").splitlines()
    rates = (
        Rate(
            cloud=row["cloud"],
            term=Term(row["term"]),
            usd_per_gb=float(row["usd_per_gb"]),
            what=row["what"],
            date=row["date"],
            source=row["source"],
        )
        for row in csv.DictReader(lines)
    )
    return {(rate.cloud, rate.term): rate for rate in rates}
