"""Rows of a campaign's seeds as one row of measured risk each: the gap to fp32, seed by seed."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from precision_time.errors import ConfigError
from precision_time.io import open_input_text, table_cell

from .plan import ALL
from .recipe import REFERENCE

METRIC = "validation_loss"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRisk:
    """What a precision in a group of layers did to the loss of a model."""

    kind: str
    model: str
    layer_group: str
    precision: str
    recipe: str
    metric: str
    baseline_loss: float
    """fp32, mean over the same seeds."""
    loss: float
    """Mean over the seeds that did not diverge; NaN where all did."""
    loss_gap: float
    """Mean of (loss - baseline) / baseline, seed by seed, over those that did not diverge."""
    gap_spread: float
    """Standard deviation of the seeds' gaps; NaN for one seed."""
    fp32_spread: float
    """Standard deviation of fp32's loss over all its seeds, relative to its mean."""
    seeds: int
    steps: int
    diverged: float
    """Share of the seeds whose loss is not finite or no better than before training."""
    underflow_share: float
    """Of nonzero gradients, those that rounding turned to zero."""
    params: int
    data: str
    source: str
    optimizer: str
    overflow_share: float
    """Of the steps, those with a gradient that is not finite."""
    seed_gaps: str
    """The gap of each seed, lowest seed first, separated by spaces; nan where it diverged."""
    progress_lost: float
    """Mean of (loss - baseline) / (loss before training - baseline). It compares between models, which gaps
    do not where the loss comes near zero."""

    @property
    def counts(self) -> bool:
        """Whether the gap is larger than what another seed does to fp32, or seeds diverged."""
        return self.diverged > 0.0 or abs(self.loss_gap) > self.fp32_spread

    @property
    def consistent(self) -> bool:
        """Whether the gap is more than twice its standard error over at least two seeds."""
        return self.seeds > 1 and abs(self.loss_gap) > 2.0 * self.gap_spread / math.sqrt(self.seeds)


COLUMNS = tuple(item.name for item in fields(MeasuredRisk))
_NUMBERS = {
    item.name: {"float": float, "int": int}[str(item.type)]
    for item in fields(MeasuredRisk)
    if str(item.type) in {"float", "int"}
}


def summarize(rows: Iterable[Mapping[str, str]], source: str) -> tuple[MeasuredRisk, ...]:
    """One row for each model, recipe and group, in file order.

    Args:
        rows: Of a campaign's file.
        source: What to write as their origin.
    """
    seeds: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = defaultdict(dict)
    for row in rows:
        place = row["execution"], row["device"], row["fingerprint"], row["model"]
        seeds[*place, row["recipe"], row["layer_group"]][row["seed"]] = row
    found = []
    for key, own in seeds.items():
        recipe, reference = key[4], seeds.get((*key[:4], REFERENCE, ALL), {})
        both = [(own[seed], reference[seed]) for seed in sorted(own, key=int) if seed in reference]
        if both and recipe != REFERENCE:
            found.append(_summary(both, [float(row["loss"]) for row in reference.values()], source))
    return tuple(found)


def _summary(
    both: Sequence[tuple[Mapping[str, str], Mapping[str, str]]], reference: Sequence[float], source: str
) -> MeasuredRisk:
    first = both[0][0]
    precision, _, recipe = first["recipe"].partition("/")
    losses = np.array([float(row["loss"]) for row, _ in both])
    baselines = np.array([float(row["loss"]) for _, row in both])
    diverged = np.array([row["diverged"] == "1" for row, _ in both])
    every = np.where(diverged, np.nan, (losses - baselines) / baselines)
    gaps = every[~diverged]
    before = np.array([float(row["first_loss"]) for _, row in both])
    lost = ((losses - baselines) / (before - baselines))[~diverged]
    return MeasuredRisk(
        kind=first["kind"],
        model=first["model"],
        layer_group=first["layer_group"],
        precision=precision,
        recipe=recipe,
        metric=METRIC,
        baseline_loss=float(baselines.mean()),
        loss=float(losses[~diverged].mean()) if len(gaps) else math.nan,
        loss_gap=float(gaps.mean()) if len(gaps) else math.nan,
        gap_spread=_deviation(gaps),
        fp32_spread=_deviation(np.array(reference)) / float(np.mean(reference)),
        seeds=len(both),
        steps=int(first["planned_steps"]),
        diverged=float(diverged.mean()),
        underflow_share=float(np.mean([float(row["underflow_share"]) for row, _ in both])),
        params=int(first["parameters"]),
        data=first["data"],
        source=source,
        optimizer=first["optimizer"],
        seed_gaps=" ".join(f"{gap:.5g}" for gap in every),
        progress_lost=float(np.mean(lost)) if len(gaps) else math.nan,
        overflow_share=float(np.mean([int(row["overflow_steps"]) / int(row["steps"]) for row, _ in both])),
    )


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def over_first_seeds(row: MeasuredRisk, seeds: int) -> MeasuredRisk:
    """A row with the gap of its first seeds alone, to be compared with rows that have no more."""
    gaps = np.array([float(gap) for gap in row.seed_gaps.split()[:seeds]])
    finite = gaps[~np.isnan(gaps)]
    return replace(
        row,
        seeds=len(gaps),
        loss_gap=float(finite.mean()) if len(finite) else math.nan,
        gap_spread=_deviation(finite),
        diverged=float(np.isnan(gaps).mean()),
    )


def table_text(rows: Iterable[MeasuredRisk]) -> str:
    """The rows as CSV; what is not known is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(value) for value in asdict(row).values()])
    return buffer.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return table_cell(str(value))


def read_table(path: Path) -> tuple[MeasuredRisk, ...]:
    """The rows of such a CSV.

    Raises:
        ConfigError: If it is anything else.
    """
    try:
        with open_input_text(path, newline="") as file:
            return tuple(
                MeasuredRisk(
                    **{
                        name: _NUMBERS[name](row[name] or "nan") if name in _NUMBERS else row[name]
                        for name in COLUMNS
                    }  # type: ignore[arg-type]
                )
                for row in csv.DictReader(file)
            )
    except (OSError, UnicodeDecodeError, KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} is no table of measured risk: {error}. To fix: write one with "
            "packages/papers/studies/measure_risk.py."
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Additivity:
    """Whether the gaps of groups that together are all layers add up to the gap of all."""

    model: str
    precision: str
    recipe: str
    sum_of_gaps: float
    """Of each group alone in low precision."""
    sum_of_savings: float
    """Of what each group costs at last: the gap of all less that of all but the group."""
    gap_of_all: float
    fp32_spread: float


def additivity(rows: Iterable[MeasuredRisk], sum_of: Mapping[str, Sequence[str]]) -> tuple[Additivity, ...]:
    """Sums of groups beside the whole over the same seeds, where all was measured and nothing diverged.

    Args:
        rows: Measured risk.
        sum_of: Groups that partition the layers, by model.
    """
    by_place: dict[tuple[str, str, str], dict[str, MeasuredRisk]] = defaultdict(dict)
    for row in rows:
        by_place[row.model, row.precision, row.recipe][row.layer_group] = row
    found = []
    for (model, precision, recipe), groups in by_place.items():
        parts = sum_of.get(model, ())
        needed = [ALL, *parts, *(f"all-but-{part}" for part in parts)]
        if not parts or any(name not in groups or groups[name].diverged for name in needed):
            continue
        seeds = min(groups[name].seeds for name in needed)
        gaps = {name: over_first_seeds(groups[name], seeds).loss_gap for name in needed}
        whole = gaps[ALL]
        found.append(
            Additivity(
                model=model,
                precision=precision,
                recipe=recipe,
                sum_of_gaps=sum(gaps[part] for part in parts),
                sum_of_savings=sum(whole - gaps[f"all-but-{part}"] for part in parts),
                gap_of_all=whole,
                fp32_spread=groups[ALL].fp32_spread,
            )
        )
    return tuple(found)
