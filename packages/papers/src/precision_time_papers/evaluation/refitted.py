"""What the cost model's constants owe to the rows they are scored on: the stored result of a refit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table, columns_of

STORED = Path(__file__).resolve().parents[5] / "docs" / "reference" / "constants.json"
"""Written by data/refit_constants.py; beside the sources only."""
_TITLES = {"formulas": "formulas alone", "ours": "the whole predictor"}


def refitted_section(path: Path = STORED) -> tuple[Section, ...]:
    """Errors with shipped constants and with constants that have not seen the rows; none without the file."""
    if not path.exists():
        return ()
    found = json.loads(path.read_text(encoding="utf-8"))
    return (
        Section(
            key="constants",
            title="The constants of the formulas, refitted without the held-out rows",
            headline=_headline(found),
            tables=(_table(found),),
        ),
    )


def _table(found: dict[str, Any]) -> Table:
    rows: list[tuple[CellValue, ...]] = []
    for protocol, result in found["held_out_by"].items():
        for kind, title in _TITLES.items():
            if f"{kind}, shipped" not in result["errors"]:
                continue
            shipped, refitted = (result["errors"][f"{kind}, {which}"] for which in ("shipped", "refitted"))
            pairs = (
                (shipped[key], refitted[key]) for key in ("mean_percent", "median_percent", "sources_percent")
            )
            cells = (f"{before:.1f} -> {after:.1f}" for before, after in pairs)
            rows.append((f"{protocol}s, {len(result['folds'])} folds", title, shipped["n"], *cells))
    control = found["refitted_on_all"]
    cells = (f"{control[key]:.1f}" for key in ("mean_percent", "median_percent", "sources_percent"))
    rows.append(("nothing: refitted on all rows", _TITLES["formulas"], control["n"], *cells))
    fitted = found["fitted_on"]
    return Table(
        title="Errors with constants that saw the rows -> with constants refitted without them",
        columns=columns_of("held out | answer | >n | >mean % | >median % | >mean over sources %"),
        rows=tuple(rows),
        note=f"`{found['command']}`, version {found['version']}, corpus {found['corpus']}; held-out rows of "
        f"a sample of {found['rows']:,}. Refitted on the others: shares of the peaks and bandwidths by kind "
        f"of kernel, chip and stack (from {fitted['kernels']:,} steps in all), the spread of the devices "
        f"({fitted['stragglers']:,} series), host time per kernel ({fitted['host']:,} steps on one device), "
        "and single numbers that were read off named sources. Not refitted: collectives, which are fitted to "
        "timings of collectives; assumed constants; the choice of the terms.",
    )


def _headline(found: dict[str, Any]) -> str:
    said = []
    for protocol, result in found["held_out_by"].items():
        for kind, title in _TITLES.items():
            if f"{kind}, shipped" in result["errors"]:
                before, after = (
                    result["errors"][f"{kind}, {which}"]["mean_percent"] for which in ("shipped", "refitted")
                )
                said.append(f"{protocol}s held out, {title} {before:.1f} -> {after:.1f} %")
    control = found["refitted_on_all"]["mean_percent"]
    return (
        f"The formulas were fitted to measured steps. Refitted once per fold: {'; '.join(said)}; refitted in "
        f"the same way with nothing held out {control:.1f} %."
    )
