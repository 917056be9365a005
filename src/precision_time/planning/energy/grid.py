"""Grid intensity: grams of CO2 equivalent per kWh of electricity, by place, cloud region and hour.

Yearly means (`data/grids.csv`, `data/cloud_regions.csv`: each with year and source). Where a cloud states a
figure for its region, that is taken; else that of the grid in which the region lies.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...arrays import Floats, Number
from ...cache import data
from ...errors import ConfigError, UnknownNameError, shown
from ...io import packaged, packaged_toml, read_input
from ...records import dataclass

HINT = "All names: precision-time list grids."
_HOURS = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Intensity:
    """What a kWh emits at a place."""

    g_per_kwh: float
    """CO2 equivalent."""
    place: str
    country: str
    """ISO 3166-1 alpha-3 code."""
    grid: str
    """Code of the grid in `data/grids.csv`."""
    year: int | None
    """Year of the mean; None where the source does not say."""
    source: str
    cloud: str = ""
    region: str = ""

    @property
    def country_name(self) -> str:
        """The name of the country."""
        return _grids()[self.country].place

    @property
    def name(self) -> str:
        """What `intensity` finds it by."""
        return f"{self.cloud}:{self.region}" if self.cloud else self.grid


def intensity(place: str, *, cloud: str | None = None) -> Intensity:
    """The intensity at a place.

    Args:
        place: A country ("Germany", "DEU"), a grid ("US-TX", "Texas", "US-MIDA-PJM"), a region of a cloud
            ("us-east-1"), or both in one ("aws:us-east-1").
        cloud: Of a region's name.

    Raises:
        UnknownNameError: No such place; carries the nearest names.
        ConfigError: If the name stands for several places.
    """
    if cloud is None and ":" in place:
        cloud, place = place.split(":", 1)
    if cloud is not None:
        known_clouds(cloud)
        region = grid_of_region(cloud, place)
        if region is None:
            names = [each.name for each in _regions().values()]
            raise UnknownNameError(kind="cloud region", name=f"{cloud}:{place}", known=names, hint=HINT)
        return region
    code = _grids().get(place.strip().upper())
    exact = tuple(each for each in _regions().values() if each.region.lower() == place.strip().lower())
    found = (code,) if code else exact or _spellings().get(_folded(place), ())
    if not found:
        grids = [name for each in _grids().values() for name in (each.grid, each.place)]
        known = (*grids, *(each.name for each in _regions().values()))
        raise UnknownNameError(kind="place", name=place, known=known, hint=HINT)
    if len({(each.grid, each.g_per_kwh) for each in found}) > 1:
        names = [each.name for each in found]
        raise ConfigError(
            f"{shown(place)} is the name of several places: {', '.join(names)}. To fix: give one of these."
        )
    return found[0]


def grid_of_region(cloud: str, region: str) -> Intensity | None:
    """The intensity of a cloud's region; None where it is not known."""
    return _regions().get((_folded(cloud), _folded(region)))


def known_intensities() -> tuple[Intensity, ...]:
    """Every grid, then every region of a cloud."""
    return (*_grids().values(), *_regions().values())


def known_clouds(name: str | None = None) -> tuple[str, ...]:
    """Clouds whose regions are known; given a name, that one alone.

    Raises:
        UnknownNameError: If none is called so.
    """
    clouds = tuple(dict.fromkeys(each.cloud for each in _regions().values()))
    if name is None:
        return clouds
    if name.strip().lower() not in clouds:
        raise UnknownNameError(kind="cloud", name=name, known=clouds, hint=f"Known: {', '.join(clouds)}.")
    return (name.strip().lower(),)


@dataclass(frozen=True, kw_only=True, slots=True)
class HourlyIntensity:
    """Intensity by the hour of the day, or by every hour of a longer time, which then repeats."""

    g_per_kwh: tuple[float, ...]
    source: str

    def mean_g_per_kwh(self, *, start_hour: Number, duration_s: Number) -> Floats:
        """Mean over a run that begins `start_hour` hours after the first entry; of the shape of the two."""
        cumulated = np.concatenate(([0.0], np.cumsum(self.g_per_kwh)))
        period, total = len(self.g_per_kwh), float(cumulated[-1])
        hours = np.maximum(np.asarray(duration_s, dtype=float) / 3600.0, 1e-9)

        def until(hour: Floats) -> Floats:
            whole, within = np.divmod(hour, period)
            return whole * total + np.interp(within, np.arange(period + 1), cumulated)

        start = np.asarray(start_hour, dtype=float)
        return (until(start + hours) - until(start)) / hours


def read_hourly(path: Path) -> HourlyIntensity:
    """A CSV with a column g_per_kwh and one row for each hour, the first one being hour 0.

    Raises:
        ConfigError: If the file is not one of hours and intensities of 0 or more.
    """
    try:
        rows = list(csv.DictReader(read_input(path, encoding="utf-8-sig").splitlines()))
        values = tuple(float(row["g_per_kwh"]) for row in rows)
        hours = [float(row["hour"]) for row in rows if row.get("hour")]
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: {type(error).__name__} {error}. The rule: a CSV with the columns hour and g_per_kwh. "
            "To fix: give one row for each hour."
        ) from error
    in_order = not hours or hours == list(range(len(values)))
    if len(values) < _HOURS or not in_order or not all(0.0 <= value < math.inf for value in values):
        raise ConfigError(
            f"{path}: {len(values)} hours. The rule: hours 0, 1, 2 ... in order, at least {_HOURS} of them, "
            "and intensities of 0 g/kWh or more. To fix: complete the file."
        )
    return HourlyIntensity(g_per_kwh=values, source=path.name)


def _folded(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def table(name: str) -> list[dict[str, str]]:
    """The rows of `data/<name>`."""
    text = packaged(__package__, f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _sources() -> Mapping[str, str]:
    return packaged_toml(__package__, "data/sources.toml")


@data
def _grids() -> Mapping[str, Intensity]:
    return {
        row["grid"]: Intensity(
            g_per_kwh=float(row["g_per_kwh"]),
            place=row["name"],
            country=row["country"],
            grid=row["grid"],
            year=int(row["year"]),
            source=_sources()[row["source"]],
        )
        for row in table("grids.csv")
    }


@data
def _regions() -> Mapping[tuple[str, str], Intensity]:
    found = {}
    for row in table("cloud_regions.csv"):
        grid = _grids()[row["grid"]]
        stated = row["g_per_kwh"]
        found[_folded(row["cloud"]), _folded(row["region"])] = Intensity(
            g_per_kwh=float(stated) if stated else grid.g_per_kwh,
            place=row["place"],
            country=grid.country,
            grid=grid.grid,
            year=None if stated else grid.year,
            source=_sources()[row["source"]] if stated else grid.source,
            cloud=row["cloud"],
            region=row["region"],
        )
    return found


@data
def _spellings() -> Mapping[str, tuple[Intensity, ...]]:
    """Folded name -> the places that it stands for: codes first, then names, then regions."""
    found: dict[str, tuple[Intensity, ...]] = {}
    named = [(name, each) for each in _grids().values() for name in {_folded(each.grid), _folded(each.place)}]
    named += [(_folded(each.region), each) for each in _regions().values()]
    for name, each in named:
        found[name] = (*found.get(name, ()), each)
    return found
