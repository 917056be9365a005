"""Power usage effectiveness: what a data center draws over what its computers draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ...errors import ConfigError
from .grid import table


@dataclass(frozen=True, kw_only=True, slots=True)
class Pue:
    """A PUE, at least 1, and who says so."""

    value: float
    year: int | None
    source: str

    def __post_init__(self) -> None:
        if not 1.0 <= self.value <= 5.0:
            raise ConfigError(
                f"A PUE of {self.value:g} cannot be. The rule: what a data center draws over what its "
                "computers draw, 1 to 5. To fix: give a number like 1.2."
            )


def given_pue(value: float) -> Pue:
    """The PUE that the caller states.

    Raises:
        ConfigError: If it is below 1.
    """
    return Pue(value=value, year=None, source="given")


def pue_of(cloud: str | None = None, region: str | None = None) -> Pue:
    """The published PUE of a cloud's region, else of the cloud, else the average of data centers asked.

    The source says which it is: show it.
    """
    rows = _rows()
    for key in ((cloud or "", region or ""), (cloud or "", "")):
        if key in rows:
            return rows[key]
    return rows["", ""]


@cache
def _rows() -> Mapping[tuple[str, str], Pue]:
    return {
        (row["cloud"], row["region"]): Pue(
            value=float(row["pue"]), year=int(row["year"]), source=row["source"]
        )
        for row in table("pue.csv")
    }
