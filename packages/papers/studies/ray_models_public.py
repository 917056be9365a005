"""The study on public measured points: cells of the corpus, and what each scenario makes of one.

A cell is one network on one kind of device of one source. Repeats of a configuration count as one point,
their median. The grey box divides by the cost model's time: it knows no row of the corpus, but a few dozen
constants of its kernels were calibrated on all of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.measurement import Measurement
from precision_time.learn.measured import MeasuredTable
from precision_time_papers.ray_models.features import engineered, term_features, without_duplicates
from precision_time_papers.ray_models.grey import GreyBox
from precision_time_papers.ray_models.points import Points
from precision_time_papers.ray_models.splits import SplitRule
from precision_time_papers.ray_models.study import Study, StudyPlan, run_study
from precision_time_papers.ray_models.techniques import TECHNIQUES
from precision_time_papers.ray_models.trust import Trust
from precision_time_papers.ray_models.tuning import mape_percent

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

SOURCES = ("pollux", "sia", "gavel")
BOUND = 0.6
"""Extrapolation learns from values up to this share of the largest one."""
BLEND = 3
_COLUMNS = ("devices", "nodes", "batch", "per_node")
_ROLES = {"workers": "devices", "nodes": "nodes", "batch": "batch", "per_node": "per_node"}
_LEAST_VALUES = 4
"""Distinct values of a column, for some to be held out and the others to show a course."""
_LEAST_TRAIN, _LEAST_TEST = 10, 3

SCENARIOS: Mapping[str, tuple[str, str]] = {
    "interpolation, devices": ("interpolation", "devices"),
    "interpolation, batch": ("interpolation", "batch"),
    "extrapolation, devices": ("extrapolation", "devices"),
    "extrapolation, batch": ("extrapolation", "batch"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The points of one network on one kind of device of one source."""

    source: str
    device: str
    network: str
    points: Points
    noise_percent: float | None
    """Mean distance of repeats from their median; None without repeats."""

    @property
    def name(self) -> str:
        """source/device/network."""
        return f"{self.source}/{self.device}/{self.network}"

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Those of SCENARIOS that have enough values to hold out and to learn from."""
        return tuple(name for name in SCENARIOS if self._has(name))

    def _has(self, scenario: str) -> bool:
        method, column = SCENARIOS[scenario]
        values = self.points.columns[column].astype(np.float64)
        if len(np.unique(values)) < _LEAST_VALUES:
            return False
        test = values > BOUND * values.max()
        if method == "interpolation":
            test = np.isin(values, np.unique(values)[1:-1][1::3])
        return int(test.sum()) >= _LEAST_TEST and int((~test).sum()) >= _LEAST_TRAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one scenario made of one cell; errors are MAPE on the points held out [%]."""

    cell: str
    source: str
    device: str
    network: str
    scenario: str
    learned: int
    predicted: int
    noise_percent: float | None
    by_technique: Mapping[str, float]
    selection: Mapping[str, float]
    """What techniques are chosen by."""
    chosen: str
    chosen_mape: float
    blend_mape: float
    measured_s: Floats
    predicted_s: Floats
    """By the technique chosen."""
    trust: Trust
    """Of the technique chosen, from the points that it learned from."""
    asked: Mapping[str, Floats]
    """Columns of the points held out."""

    @property
    def summary(self) -> dict[str, Any]:
        """What docs/reference/ray-public.json keeps of it; JSON-ready, errors in percent."""
        error = np.abs(self.predicted_s - self.measured_s) / self.measured_s * 100.0
        widths, flags = self.trust.widths(self.asked), self.trust.flags(self.asked)
        stated = ~np.isnan(widths)
        inside = np.abs(np.log(self.measured_s / self.predicted_s))[stated] <= widths[stated]
        kinds = Counter(kind for some in flags for kind in {flag.kind for flag in some})
        return {
            "cell": self.cell,
            "scenario": self.scenario,
            "learned": self.learned,
            "predicted": self.predicted,
            "noise_percent": self.noise_percent,
            "chosen": self.chosen,
            "mean": self.chosen_mape,
            "median": float(np.median(error)),
            "blend": self.blend_mape,
            "black_box": self.black_box,
            "grey_box": self.grey_box,
            "by_technique": dict(self.by_technique),
            "selection": dict(self.selection),
            "with_interval": int(stated.sum()),
            "inside_interval": int(inside.sum()),
            "median_width": float(np.median(widths[stated])) if stated.any() else None,
            "flagged_errors": [float(each) for each, some in zip(error, flags, strict=True) if some],
            "other_errors": [float(each) for each, some in zip(error, flags, strict=True) if not some],
            "flagged_by": dict(kinds),
        }

    @property
    def black_box(self) -> str:
        """The technique chosen where no grey box is available."""
        return self._best(grey=False)

    @property
    def grey_box(self) -> str:
        """The grey box chosen where only those are looked at."""
        return self._best(grey=True)

    def _best(self, *, grey: bool) -> str:
        names = [name for name in self.selection if TECHNIQUES[name].grey is grey]
        return min(names, key=lambda name: self.selection[name])


def cells_of(table: MeasuredTable, most: int | None = None) -> tuple[Cell, ...]:
    """The cells of a priced corpus that have a scenario, in the order of SOURCES, devices and networks.

    Args:
        table: The priced corpus.
        most: Configurations of a cell that are kept, drawn at random; None keeps all.
    """
    rows: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(table.measurements):
        if row.source in SOURCES:
            rows[row.source, row.device, row.model].append(index)
    order = sorted(rows, key=lambda key: (SOURCES.index(key[0]), key[1:]))
    made = [_drawn(_cell(table, key, np.array(rows[key])), most) for key in order]
    return tuple(cell for cell in made if cell.scenarios)


def _drawn(cell: Cell, most: int | None) -> Cell:
    if most is None or len(cell.points) <= most:
        return cell
    kept = np.sort(np.random.default_rng(0).permutation(len(cell.points))[:most])
    return replace(cell, points=cell.points.take(kept))


def _cell(table: MeasuredTable, key: tuple[str, str, str], rows: Ints) -> Cell:
    configurations: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        configurations[table.measurements[row].configuration_key].append(int(row))
    groups = [np.array(group) for group in configurations.values()]
    first = np.array([group[0] for group in groups])
    measured = np.array([np.median(table.measured_s[group]) for group in groups])
    distances = [
        np.abs(table.measured_s[group] / np.median(table.measured_s[group]) - 1.0)
        for group in groups
        if len(group) > 1
    ]
    named = [table.measurements[row] for row in first]
    jobs = table.jobs.take(first)
    columns = {
        "devices": np.array([float(row.num_devices) for row in named]),
        "nodes": np.array([float(row.num_nodes) for row in named]),
        "batch": np.array([float(row.micro_batch_size or 0.0) for row in named]),
        "per_node": np.array([_most_on_a_node(row) for row in named]),
        GreyBox.PREDICTED: jobs.analytical_s,
        GreyBox.SHARE: jobs.exposed_s / jobs.analytical_s,
    }
    source, device, network = key
    return Cell(
        source=source,
        device=device,
        network=network,
        points=Points(
            columns=columns, target="step_time_s", measured=measured, lines=tuple(range(1, len(groups) + 1))
        ),
        noise_percent=100.0 * float(np.mean(np.concatenate(distances))) if distances else None,
    )


def _most_on_a_node(row: Measurement) -> float:
    return float(max(row.placement) if row.placement else -(-row.num_devices // row.num_nodes))


def plan_of(scenario: str) -> StudyPlan:
    """The plan of a scenario: the same for every cell, nothing tuned to one."""
    method, column = SCENARIOS[scenario]
    rule = (
        SplitRule(method="interpolation", column=column, turns=1)
        if method == "interpolation"
        else SplitRule(method="extrapolation", shares={column: (BOUND,)})
    )
    made = engineered(_COLUMNS, {}, inverse=_COLUMNS, log=_COLUMNS, degree=2)
    return StudyPlan(
        features=without_duplicates([*made, *term_features("ddp", _ROLES)]),
        techniques=tuple(TECHNIQUES.values()),
        columns=_COLUMNS,
        roles=_ROLES,
        validation=rule,
        grey=GreyBox(given=True),
        blend=BLEND,
    )


def study_cell(cell: Cell, scenario: str) -> Study:
    """The study of one scenario; its model is that of the training part."""
    plan = plan_of(scenario)
    varying = tuple(name for name in _COLUMNS if len(np.unique(cell.points.columns[name])) > 1)
    return run_study(cell.points, replace(plan, columns=varying), keep=False, judged=True)


def outcome_of(task: tuple[Cell, str]) -> Outcome:
    """The outcome of a cell and a scenario."""
    cell, scenario = task
    study = study_cell(cell, scenario)
    (test,) = study.test
    assert test.trust is not None
    measured = cell.points.measured[test.rows]
    return Outcome(
        cell=cell.name,
        source=cell.source,
        device=cell.device,
        network=cell.network,
        scenario=scenario,
        learned=len(cell.points) - len(test.rows),
        predicted=len(test.rows),
        noise_percent=cell.noise_percent,
        by_technique={score.technique.name: score.validation_mape for score in study.scores},
        selection={score.technique.name: score.selection_mape for score in study.scores},
        chosen=test.best,
        chosen_mape=mape_percent(measured, test.best_s),
        blend_mape=mape_percent(measured, test.blend_s),
        measured_s=measured,
        predicted_s=test.best_s,
        trust=test.trust,
        asked={name: column for name, column in cell.points.take(test.rows).columns.items()},
    )
