"""T5: unseen configurations, models, precisions, scales, devices, sources; speed-ups; intervals."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import Cell, Figure, Section, Table
from .coverage import LEVELS, inside_intervals
from .evidence import evidence_tables
from .limits import limits_table
from .protocols import PROTOCOLS, size_class
from .runs import Runs
from .scores import errors_percent, mape, over_seeds, repeat_deviations, worst_groups
from .speed_ups import speed_ups
from .spread import LEFT_OUT

Floats = NDArray[np.float64]

_LEAST_ROWS = 20
_ASKED = tuple(name for name in PROTOCOLS if name != "family")
_SPEED_UP_PROTOCOLS = ("family", "model")
_NOMINAL = 0.9
_SAME_SOURCE = "T5.precision.same-source.mape_percent"
_NOT_SAID = (None, None, None, None)


@lru_cache(maxsize=1)
def targets() -> dict[str, dict[str, float]]:
    """Targets by protocol, from `data/targets.toml`."""
    text = resources.files(__package__).joinpath("data/targets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def generalisation_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T5 with its targets, its misses and its worst groups."""
    predicted = {name: [runs.ours(name, seed).step_time_s for seed in seeds] for name in _ASKED}
    predicted = {name: found for name, found in predicted.items() if not np.isnan(found[0]).all()}
    noise = repeat_deviations(runs.table)
    figures = _figures(runs, predicted)
    speed_table, speed_figures = _speed_ups(runs, seeds)
    coverage_table, coverage_figures, curve = _coverage(runs, seeds, predicted)
    figures |= speed_figures | coverage_figures
    repeated = float(np.nanmean(noise)) if not np.isnan(noise).all() else None
    summary, misses = _summary(runs, predicted, figures, repeated)
    measured_s = runs.table.measured_s
    return Section(
        key="T5",
        title="Generalisation to what was not seen",
        headline=_headline(summary, misses, repeated),
        tables=(
            summary,
            _by_precision(runs, predicted, noise),
            _by_scale(runs, predicted),
            speed_table,
            coverage_table,
            *evidence_tables(runs, seeds[0]),
            limits_table(runs.table, {name: found[0] for name, found in predicted.items()}, noise),
            *(_worst(runs, name, found[0], noise) for name, found in predicted.items()),
        ),
        figures=figures,
        plot={
            "measured_s": measured_s,
            "predicted_s": predicted["configuration"][0],
            "curve": curve,
        },
    )


def _figures(runs: Runs, predicted: dict[str, list[Floats]]) -> dict[str, Figure]:
    measured_s = runs.table.measured_s
    figures = {
        f"T5.{name}.mape_percent": over_seeds([mape(measured_s, seconds) or 0.0 for seconds in found])
        for name, found in predicted.items()
    }
    known = _pair_known(runs, len(predicted.get("precision", ())))
    if known:
        each = [mape(measured_s[k], s[k]) for k, s in zip(known, predicted["precision"], strict=True)]
        figures[_SAME_SOURCE] = over_seeds([error for error in each if error is not None])
    precisions = np.array([item.precision for item in runs.table.measurements])
    for name in np.unique(precisions):
        mask = precisions == name
        if mask.sum() >= _LEAST_ROWS:
            each = [mape(measured_s[mask], seconds[mask]) for seconds in predicted["configuration"]]
            figures[f"T5.configuration.{name}.mape_percent"] = over_seeds([e for e in each if e is not None])
    return figures


def _pair_known(runs: Runs, seeds: int) -> list[NDArray[np.bool_]]:
    """Per seed, runs at an unseen precision whose model and device their own source ran at a known one.

    Elsewhere the pair is known from other software only, and the precision is not all that is unseen.
    """
    items = runs.table.measurements
    pairs = np.unique([f"{i.source}|{i.model}|{i.device}" for i in items], return_inverse=True)[1].reshape(-1)
    masks = []
    for seed in range(seeds):
        mask = np.zeros(len(items), dtype=bool)
        for fold in PROTOCOLS["precision"].split(items, seed, runs.folds):
            mask[fold.outside] = np.isin(pairs[fold.outside], pairs[fold.inside])
        masks.append(mask)
    return masks if all(mask.any() for mask in masks) else []


def _summary(
    runs: Runs, predicted: dict[str, list[Floats]], figures: dict[str, Figure], noise: float | None
) -> tuple[Table, list[str]]:
    rows: list[tuple[Cell, ...]] = []
    misses: list[str] = []
    measured_s = runs.table.measured_s
    for name, found in predicted.items():
        errors = errors_percent(measured_s, found[0])
        asked = errors[~np.isnan(errors)]
        figure = figures[f"T5.{name}.mape_percent"]
        said = (len(asked), float(np.median(asked)), float(np.percentile(asked, 90)), float(asked.max()))
        rows.append(_row(PROTOCOLS[name].title, figure, said, targets().get(name), misses))
        if name == "precision" and _SAME_SOURCE in figures:
            label = f"{PROTOCOLS[name].title}, the pair known from the same source"
            rows.append(_row(label, figures[_SAME_SOURCE], _NOT_SAID, targets()[name], misses))
    hard = {
        key: figure
        for key, figure in figures.items()
        if key.startswith("T5.configuration.") and key != "T5.configuration.mape_percent"
    }
    for key, figure in sorted(hard.items()):
        label = f"Unseen configurations, {key.split('.')[2]}"
        rows.append(_row(label, figure, _NOT_SAID, targets()["each-precision"], misses))
    for protocol, title in (("family", "configurations"), ("model", "models")):
        speed = figures.get(f"T5.speed-up.{protocol}.mape_percent")
        if speed is not None:
            label = f"Speed-up between two precisions, unseen {title}"
            rows.append(_row(label, speed, _NOT_SAID, targets()["speed-up"], misses))
    covered = figures.get("T5.coverage.model.covered_percent")
    if covered is not None:
        low, high = targets()["coverage"]["at_least"], targets()["coverage"]["at_most"]
        met = low <= covered.value <= high
        label = "Coverage of the 90 % interval, unseen models"
        if not met:
            misses.append(f"{label} ({covered.value:.1f} %)")
        verdict = "met" if met else "missed"
        rows.append(
            (label, None, covered.value, _pm(covered), None, None, None, f"{low:.0f}-{high:.0f}", verdict)
        )
    note = (
        ""
        if noise is None
        else f"Repeats of one configuration lie {noise:.1f} % from their median on average."
    )
    table = Table(
        title="Protocols and targets, MAPE [%]",
        columns=(
            "protocol",
            ">rows",
            ">MAPE %",
            ">spread",
            ">median %",
            ">p90 %",
            ">max %",
            "target",
            "verdict",
        ),
        rows=tuple(rows),
        note=note + " Spread is the standard deviation over the seeds.",
    )
    return table, misses


def _row(
    label: str,
    figure: Figure,
    said: tuple[int | None, float | None, float | None, float | None],
    target: dict[str, float] | None,
    misses: list[str],
) -> tuple[Cell, ...]:
    rows, median, p90, largest = said
    wanted, verdict = "-", "-"
    if target is not None:
        wanted = f"at most {target['at_most']:g}, reach for {target['reach_for']:g}"
        met = figure.value <= target["at_most"]
        verdict = ("reached" if figure.value <= target["reach_for"] else "met") if met else "missed"
        if not met:
            misses.append(f"{label} ({figure.value:.1f} %)")
    return (label, rows, figure.value, _pm(figure), median, p90, largest, wanted, verdict)


def _pm(figure: Figure) -> str | None:
    return None if figure.spread is None else f"{figure.spread:.2f}"


def _headline(summary: Table, misses: Sequence[str], noise: float | None) -> str:
    asked = sum(row[-1] != "-" for row in summary.rows)
    verdict = f"{asked - len(misses)} of {asked} targets met."
    if misses:
        verdict += f" Missed: {'; '.join(misses)}."
    return verdict if noise is None else f"{verdict} Repeat noise of the corpus: {noise:.1f} %."


def _by_precision(runs: Runs, predicted: dict[str, list[Floats]], noise: Floats) -> Table:
    labels = np.array([item.precision for item in runs.table.measurements])
    return _matrix(runs, predicted, labels, "precision", noise)


def _by_scale(runs: Runs, predicted: dict[str, list[Floats]]) -> Table:
    labels = np.array([size_class(item.num_devices) for item in runs.table.measurements])
    return _matrix(runs, predicted, labels, "devices", None)


def _matrix(
    runs: Runs, predicted: dict[str, list[Floats]], labels: NDArray[Any], column: str, noise: Floats | None
) -> Table:
    errors = {name: errors_percent(runs.table.measured_s, found[0]) for name, found in predicted.items()}
    rows: list[tuple[Cell, ...]] = []
    for label in dict.fromkeys(sorted(labels.tolist(), key=_natural)):
        mask = labels == label
        if mask.sum() >= _LEAST_ROWS:
            scores = (_mean(values[mask]) for values in errors.values())
            own = () if noise is None else (_mean(noise[mask]),)
            rows.append((label, int(mask.sum()), *own, *scores))
    extra = () if noise is None else (">repeat noise",)
    return Table(
        title=f"MAPE [%] by {column} and protocol",
        columns=(column, ">rows", *extra, *(f">{name}" for name in errors)),
        rows=tuple(rows),
        note=f"Values of fewer than {_LEAST_ROWS} rows are not listed.",
    )


def _natural(label: str) -> tuple[int, str]:
    digits = "".join(c for c in label.partition(" ")[0] if c.isdigit())
    number = int(digits) if label[:1].isdigit() and digits else 0
    return (10**9 if label.startswith("above") else number, label)


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _speed_ups(runs: Runs, seeds: Sequence[int]) -> tuple[Table, dict[str, Figure]]:
    rows: list[tuple[Cell, ...]] = []
    figures: dict[str, Figure] = {}
    measured_s = runs.table.measured_s
    for protocol in _SPEED_UP_PROTOCOLS:
        each = [speed_ups(runs.families, measured_s, runs.ours(protocol, seed).step_time_s) for seed in seeds]
        first, errors = each[0], each[0].errors_percent()
        if not len(errors):
            continue
        figures[f"T5.speed-up.{protocol}.mape_percent"] = over_seeds(
            [float(found.errors_percent().mean()) for found in each]
        )
        names = np.array(first.pairs)
        usual = np.array([not set(name.split(" / ")) & set(LEFT_OUT) for name in names])
        masks = {"all": np.ones(len(names), dtype=bool), f"without {', '.join(LEFT_OUT)}": usual}
        masks |= {
            name: names == name for name in sorted(set(first.pairs), key=lambda n: -int((names == n).sum()))
        }
        for pair, mask in masks.items():
            if not mask.any():
                continue
            right = np.mean((first.measured[mask] > 1.0) == (first.predicted[mask] > 1.0))
            rows.append(
                (
                    protocol,
                    pair,
                    int(mask.sum()),
                    float(errors[mask].mean()),
                    float(np.median(errors[mask])),
                    f"{np.median(first.measured[mask]):.2f}",
                    f"{np.median(first.predicted[mask]):.2f}",
                    float(right * 100.0),
                )
            )
    table = Table(
        title="Ratio of step times between two precisions of one configuration",
        columns=(
            "held out by",
            "ratio",
            ">families",
            ">MAPE %",
            ">median %",
            ">measured",
            ">predicted",
            ">right order %",
        ),  # fmt: skip
        rows=tuple(rows),
        note="Both precisions unseen: held out by family, or with the whole model. Medians of the ratios.",
    )
    return table, figures


def _coverage(
    runs: Runs, seeds: Sequence[int], predicted: dict[str, list[Floats]]
) -> tuple[Table, dict[str, Figure], dict[str, Floats]]:
    rows: list[tuple[Cell, ...]] = []
    figures: dict[str, Figure] = {}
    curve: dict[str, Floats] = {}
    for protocol in ("configuration", "model", "source"):
        if protocol not in predicted:
            continue
        shares = np.array([np.nanmean(inside_intervals(runs, protocol, seed), axis=1) for seed in seeds])
        mean = shares.mean(axis=0) * 100.0
        rows.append((PROTOCOLS[protocol].title, *(float(value) for value in mean)))
        at = LEVELS.index(_NOMINAL)
        figures[f"T5.coverage.{protocol}.covered_percent"] = over_seeds(
            [float(s[at] * 100.0) for s in shares]
        )
        curve[protocol] = mean
    table = Table(
        title="Runs inside their interval [%], by nominal coverage",
        columns=("held out", *(f">{level:.0%}" for level in LEVELS)),
        rows=tuple(rows),
        note="Intervals calibrated on the other folds only.",
    )
    return table, figures, curve


def _worst(runs: Runs, protocol: str, predicted_s: Floats, noise: Floats) -> Table:
    found = worst_groups(runs.table, predicted_s, PROTOCOLS[protocol].group, noise=noise)
    return Table(
        title=f"Worst groups: {PROTOCOLS[protocol].title.lower()}",
        columns=("group", ">rows", ">MAPE %", ">bias %", ">repeat noise %", "sources", "likely limit"),
        rows=tuple(
            (g.name, g.n, g.mape_percent, f"{g.bias_percent:+.1f}", g.noise_percent, g.sources, g.limit)
            for g in found
        ),
        note=f"Held out: {PROTOCOLS[protocol].holds_out}. Groups of at least 5 rows. The limit is a rule "
        "of thumb: noise if repeats explain half of the error, missing facts if half of the rows have "
        "quality notes.",
    )
