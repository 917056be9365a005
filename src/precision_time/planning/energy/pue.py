"""Power usage effectiveness: what a data center draws over what its computers draw."""

from __future__ import annotations

from collections.abc import Mapping

from ...cache import data
from ...errors import ConfigError
from ...records import dataclass
from .grid import table


@dataclass(frozen=True, kw_only=True, slots=True)
class Pue:
    """A PUE, 1 to 5, and who says so."""

    value: float
    year: int | None
    source: str
    cloud: str = ""
    """The cloud that states it; empty for what the caller gave and for the average of data centers."""

    def __post_init__(self) -> None:
        if not 1.0 <= self.value <= 5.0:
            raise ConfigError(
                f"A PUE of {self.value:g} cannot be. The rule: what a data center draws over what its "
                "computers draw, 1 to 5. To fix: give a number like 1.2."
            )


def given_pue(value: float) -> Pue:
    """The PUE that the caller states.

    Raises:
        ConfigError: If it is not 1 to 5.
    """
    return Pue(value=value, year=None, source="given")


def pue_of(cloud: str | None = None, region: str | None = None) -> Pue:
    """The published PUE of a cloud's region, else of the cloud, else the average of data centers asked.

    `cloud` and `source` say which it is: say it where the average stands in.

    >>> pue_of("aws").value, pue_of().value
    (1.14, 1.56)
    """
    rows = _rows()
    named = (cloud or "").lower()
    return rows.get((named, region or ""), rows.get((named, ""), rows["", ""]))


@data
def _rows() -> Mapping[tuple[str, str], Pue]:
    return {
        (row["cloud"], row["region"]): Pue(
            value=float(row["pue"]), year=int(row["year"]), source=row["source"], cloud=row["cloud"]
        )
        for row in table("pue.csv")
    }
