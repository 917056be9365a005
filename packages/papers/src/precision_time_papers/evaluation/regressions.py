"""Whether a report is worse than a committed one, beyond noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, ValidationError

from precision_time.errors import ConfigError, validation_problems
from precision_time.io import write_atomically

from .tables import Report

_SPREADS = 2.0
"""Spreads of the seeds that a figure may move by."""
_LEAST_MOVE = 0.1
"""Points that it may always move by: another version of LightGBM rounds otherwise."""
_UNKNOWN_SPREAD = 0.05
"""Spread, as a share of the figure, where a baseline was made with one seed."""
_COMPARABLE = ("quick", "sample", "folds")
_ERROR, _COVERED = ".mape_percent", ".covered_percent"
_NOMINAL_PERCENT = 90.0
_OURS = (
    "T2.ours",
    "T3.configuration.ours.",
    "T3.model.ours.",
    "T4.configuration.full.",
    "T4.precision.full.",
    "T5.",
)


def baseline_of(report: Report) -> dict[str, Any]:
    """What is committed of a report: its card and the figures of our predictor.

    Figures of baselines and ablations are left out: nothing breaks when they get worse.
    """
    guarded = {name: figure.to_dict() for name, figure in report.figures.items() if _guarded(name)}
    return {"card": {name: report.card[name] for name in (*_COMPARABLE, "seeds", "rows")}, "figures": guarded}


def write_baseline(report: Report, path: Path) -> None:
    """Write `baseline_of` a report as JSON."""
    write_atomically(path, json.dumps(baseline_of(report), indent=1, sort_keys=True) + "\n")


class _Figure(BaseModel):
    value: FiniteFloat
    spread: FiniteFloat | None


class _Baseline(BaseModel):
    card: dict[str, Any]
    figures: dict[str, _Figure]


def read_baseline(path: Path) -> dict[str, Any]:
    """What `write_baseline` wrote.

    Raises:
        ConfigError: If it is something else; names what is missing.
    """
    try:
        return _Baseline.model_validate_json(path.read_bytes()).model_dump()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. To fix: check the path.") from error
    except ValidationError as error:
        raise ConfigError(
            f"{path} is no baseline of a report: {validation_problems(error)}. To fix: write one with "
            "`precision-time papers report --write-baseline FILE`."
        ) from error


def regressions(report: Report, baseline: Path | Mapping[str, Any]) -> list[str]:
    """What got worse than in a baseline by more than twice the spread of the seeds, in words.

    Args:
        report: A new report.
        baseline: What `write_baseline` wrote, or `baseline_of` gave.

    Returns:
        One line per figure that is worse or missing; empty when nothing is.

    Raises:
        ConfigError: If the two were made in different ways and cannot be compared.
    """
    before = read_baseline(baseline) if isinstance(baseline, Path) else baseline
    for name in _COMPARABLE:
        if report.card[name] != before["card"].get(name):
            raise ConfigError(
                f"The baseline was made with {name}={before['card'].get(name)}, the report with "
                f"{name}={report.card[name]}. To fix: make both in the same way, or write the baseline again."
            )
    figures = report.figures
    sections = {section.key for section in report.sections}
    worse = []
    for name, old in sorted(before["figures"].items()):
        if name.partition(".")[0] not in sections:
            continue
        if name not in figures:
            worse.append(f"{name}: was {old['value']:.2f}, is not in the report")
            continue
        new = figures[name]
        allowed = _allowed(old["value"], old["spread"], new.spread)
        if _badness(name, new.value) > _badness(name, old["value"]) + allowed:
            worse.append(f"{name}: {new.value:.2f}, was {old['value']:.2f} (noise {allowed:.2f})")
    return worse


def _guarded(name: str) -> bool:
    return name.startswith(_OURS) and name.endswith((_ERROR, _COVERED))


def _badness(name: str, value: float) -> float:
    """Errors are bad as they are, coverage by its distance from what it claims."""
    return abs(value - _NOMINAL_PERCENT) if name.endswith(_COVERED) else value


def _allowed(value: float, *spreads: float | None) -> float:
    known = [spread for spread in spreads if spread is not None]
    spread = max(known) if known else _UNKNOWN_SPREAD * value / _SPREADS
    return max(_SPREADS * spread, _LEAST_MOVE)
