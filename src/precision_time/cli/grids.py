"""`precision-time list grids`: what a kWh emits by country, grid and region of a cloud, and the PUE."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .options import JsonOption, declared
from .output import message, write_json, write_rows

if TYPE_CHECKING:
    from ..planning.energy.energy import Pue
    from ..planning.energy.grid import Intensity


@declared("grids")
def grids(
    name: str | None = None,
    *,
    cloud: str | None = None,
    search: str | None = None,
    json_output: JsonOption = False,
) -> None:
    """List the carbon intensity of electricity by place, and the PUE.

    Yearly means, grams of CO2 equivalent per kWh, cleanest first; each has its year and source.
    """
    from ..planning.energy.grid import intensity, known_clouds, known_intensities

    if cloud is not None:
        cloud = known_clouds(cloud)[0]
    places = [intensity(name, cloud=cloud)] if name is not None else list(known_intensities())
    if name is None and cloud is not None:
        places = [each for each in places if each.cloud == cloud]
    if search is not None:
        words = search.lower()
        places = [
            each
            for each in places
            if any(words in text.lower() for text in (each.name, each.place, each.country_name))
        ]
    places.sort(key=lambda each: each.g_per_kwh)
    if json_output:
        write_json({"grids": [_record(each) for each in places]})
        return
    columns = ("name", "place", "country", ">g/kWh", ">year", ">PUE")
    write_rows("", columns, [_cells(each) for each in places])
    sources = sorted({text for each in places for text in (each.source, _pue_source(each)) if text})
    for source in sources if name is not None else ():
        message(f"Source: {source}")
    if name is None:
        message(f"{len(places)} places; sources: --json, or one place by its name.")


def _pue(each: Intensity) -> Pue | None:
    from ..planning.energy.energy import pue_of

    return pue_of(each.cloud, each.region) if each.cloud else None


def _record(each: Intensity) -> dict[str, Any]:
    pue = None if (found := _pue(each)) is None else asdict(found)
    return {"name": each.name, "country_name": each.country_name, **asdict(each), "pue": pue}


def _cells(each: Intensity) -> tuple[str, ...]:
    pue = _pue(each)
    shown = "-" if pue is None or not pue.cloud else f"{pue.value:.2f}"
    year = "-" if each.year is None else str(each.year)
    return (each.name, each.place, each.country_name, f"{each.g_per_kwh:.0f}", year, shown)


def _pue_source(each: Intensity) -> str:
    pue = _pue(each)
    return "" if pue is None or not pue.cloud else f"PUE: {pue.source}"
