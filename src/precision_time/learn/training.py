"""`precision-time train`: from the corpus to the predictor that ships, with its held-out errors.

Five folds by configuration, five by model and five by source are fitted first. Their out-of-fold residuals
are the accuracy table, calibrate the intervals, and are shown with the nearest measurements. The last
fit learns from everything. Seeded: the same corpus and seed give the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..corpus.measurement import Measurement
from ..corpus.splits import Fold, SplitBy, configuration_groups, folds_of, group_numbers, grouped_folds
from ..corpus.store import corpus_fingerprint, load_corpus
from ..executor import Executor
from .artifact import MeasurementIndex, TrainedPredictor
from .calibration.fitting import Block, blocks_of, fit_process
from .calibration.places import places_of
from .calibration.process import Process
from .distance import similarity_keys
from .intervals import EXTRAPOLATION, IntervalModel, extrapolation, fit_quantiles
from .stages import (
    DEFAULT_SETTINGS,
    BoosterSettings,
    ByStage,
    StagedCorrection,
    fewer_trees,
    fit_scale,
    fit_stages,
)
from .table import MeasuredTable, measured_table

Floats = NDArray[np.float64]
Progress = Callable[[str], None]

PROTOCOLS = ("configuration", "model", "source")
_FOLDS = 5
_LEAST_ROWS = 50
"""Residuals that a class of extrapolation needs for separate quantiles."""
_TAIL = 1.6448536269514722
"""90 % of a normal distribution lie within this many standard deviations."""
_QUICK_SHARE = 0.2
"""Share of the trees that `quick` keeps: for tests of the plumbing, not for shipping."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfFold:
    """Out-of-fold predictions of one protocol, in the order of the table."""

    step_time_s: Floats
    folds: NDArray[np.intp]
    distance: Floats
    """Of each row to the nearest one its fold was fitted on."""
    exposed_share: Floats | None = None
    """Share of the predicted step that is exposed communication; None: that of the cost model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """The predictor and what it was judged by."""

    predictor: TrainedPredictor
    table: MeasuredTable
    held_out: Mapping[str, OutOfFold]


def train(
    *,
    measurements: Sequence[Measurement] | None = None,
    table: MeasuredTable | None = None,
    held_out: Mapping[str, OutOfFold] | None = None,
    seed: int = 0,
    quick: bool = False,
    progress: Progress = lambda _: None,
    map_fn: Executor = map,
) -> TrainingResult:
    """Fit the predictor on the shipped corpus, or on the measurements given.

    Args:
        measurements: Runs to learn from; the shipped corpus when None.
        table: The same, priced already.
        held_out: Out-of-fold predictions of the table under each of PROTOCOLS, if they are known already.
        seed: Of folds and boosters.
        quick: A fifth of the trees and two folds.
        progress: Called with a message about what is being done, for progress bars.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The predictor is the same.
    """
    if table is None:
        progress("pricing the corpus")
        rows = load_corpus() if measurements is None else measurements
        table = measured_table([row for row in rows if row.usable])
    settings = fewer_trees(_QUICK_SHARE) if quick else DEFAULT_SETTINGS
    weights = row_weights(table)
    folds = 2 if quick else _FOLDS
    if held_out is None:
        held_out = {
            name: cross_validate(
                table,
                weights,
                name,
                settings=settings,
                seed=seed,
                folds=folds,
                progress=progress,
                map_fn=map_fn,
            )
            for name in PROTOCOLS
        }
    progress("fitting on everything")
    everything = np.arange(len(table))
    groups = configuration_groups(table.measurements)
    correction = fit_stages(table, everything, weights, groups, settings=settings, seed=seed)
    intervals = fit_intervals(table, held_out, weights, settings, seed)
    progress("likeness of errors")
    predictor = TrainedPredictor(
        correction=correction,
        intervals=intervals,
        measurements=MeasurementIndex(
            keys=similarity_keys(table.jobs),
            measurement_ids=np.array([item.row_id for item in table.measurements], dtype=np.int64),
            predicted_s=held_out["configuration"].step_time_s,
        ),
        model_card=_model_card(table, correction, settings, seed),
        process=error_process(table, held_out, intervals, seed=seed),
    )
    return TrainingResult(predictor=predictor, table=table, held_out=held_out)


def cross_validate(
    table: MeasuredTable,
    weights: Floats,
    protocol: str,
    *,
    settings: Mapping[str, BoosterSettings] = DEFAULT_SETTINGS,
    seed: int = 0,
    folds: int = _FOLDS,
    progress: Progress = lambda _: None,
    map_fn: Executor = map,
) -> OutOfFold:
    """Out-of-fold predictions under one protocol of PROTOCOLS.

    Args:
        table: Measured jobs.
        weights: Evidence per row.
        protocol: What stays together: a configuration, all rows of a model, or of a source.
        settings: LightGBM settings per stage.
        seed: Of folds and boosters.
        folds: How many.
        progress: Called with a message about each fold.
        map_fn: What runs the folds.
    """
    fold_of = grouped_folds(
        group_numbers(table.measurements, by=SplitBy(protocol)), num_folds=folds, seed=seed
    )
    parts = folds_of(fold_of, folds)
    progress(f"held out by {protocol}")
    groups = configuration_groups(table.measurements)
    answers = out_of_fold_by_stage(
        table, parts, weights=weights, groups=groups, settings=settings, seed=seed, map_fn=map_fn
    )
    predicted, distance, share = (np.empty(len(table)) for _ in range(3))
    for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        progress(f"held out by {protocol}, fold {index + 1} of {folds}")
        predicted[part.test] = answer.corrected.step_time_s
        distance[part.test] = answer.corrected.distance
        share[part.test] = answer.corrected.exposed_s / answer.corrected.step_time_s
    return OutOfFold(step_time_s=predicted, folds=fold_of, distance=distance, exposed_share=share)


def out_of_fold_by_stage(
    table: MeasuredTable,
    folds: Sequence[Fold],
    *,
    weights: Floats,
    groups: NDArray[Any],
    settings: Mapping[str, BoosterSettings],
    seed: int,
    map_fn: Executor = map,
) -> Iterable[ByStage]:
    """What the stages predict for the test rows of each fold, in the order of the folds.

    Args:
        table: Measured jobs.
        folds: Training and test rows.
        weights: Evidence of each row of the table, shape (n,).
        groups: Group of each row of the table: rows of one group stay together in the inner folds.
        settings: LightGBM settings per stage.
        seed: Of boosters and inner folds.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The answers are the same.
    """
    bare = replace(table, measurements=())
    options: dict[str, Any] = {"weights": weights, "groups": groups, "settings": settings, "seed": seed}
    return map_fn(partial(_fit_fold, bare, **options), folds)


def _fit_fold(table: MeasuredTable, fold: Fold, **options: Any) -> ByStage:
    return fit_stages(table, fold.train, **options).by_stage(table.jobs.take(fold.test))


def fit_intervals(
    table: MeasuredTable,
    held_out: Mapping[str, OutOfFold],
    weights: Floats,
    settings: Mapping[str, BoosterSettings],
    seed: int,
) -> IntervalModel:
    """Scale and quantiles of the residuals.

    For jobs within the training set they come from the folds by configuration, for others from those by model
    and by source.
    """
    residuals = {name: np.log(table.measured_s / held.step_time_s) for name, held in held_out.items()}
    scale = fit_scale(
        table.jobs.features, np.abs(residuals["configuration"]), weights, settings["scale"], seed
    )
    model = IntervalModel(scale=scale, quantiles={})
    expected = model.expected_error(table.jobs.features)
    quantiles = {EXTRAPOLATION[0]: fit_quantiles(residuals["configuration"] / expected, weights)}
    whole = ("model", "source")
    scaled = np.concatenate([residuals[name] / expected for name in whole])
    distance = np.concatenate([held_out[name].distance for name in whole])
    votes = np.concatenate([weights for _ in whole])
    for index, name in enumerate(EXTRAPOLATION[1:], start=1):
        rows = extrapolation(distance) == index
        chosen = rows if rows.sum() >= _LEAST_ROWS else extrapolation(distance) > 0
        quantiles[name] = fit_quantiles(scaled[chosen], votes[chosen])
    return replace(model, quantiles=quantiles)


def error_process(
    table: MeasuredTable, held_out: Mapping[str, OutOfFold], intervals: IntervalModel, *, seed: int = 0
) -> Process:
    """How errors are alike, from runs whose model, or whose source, the predictor had not seen."""
    groups = configuration_groups(table.measurements)
    sources = [item.source for item in table.measurements]
    blocks: list[Block] = []
    for name in ("model", "source"):
        held = held_out[name]
        low, high = intervals.factors(table.jobs.features, extrapolation(held.distance), 0.9)
        share = table.jobs.exposed_s / table.jobs.analytical_s
        places = places_of(
            table.jobs,
            share if held.exposed_share is None else held.exposed_share,
            np.log(high / low) / (2.0 * _TAIL),
        )
        ratios = np.log(table.measured_s / held.step_time_s)
        blocks += blocks_of(places, ratios, sources, groups, seed=seed)
    return fit_process(blocks, {"corpus": corpus_fingerprint(table.measurements)})


def row_weights(table: MeasuredTable) -> Floats:
    """Evidence of each row: repeats of a configuration share a vote, suspect rows count less."""
    groups = configuration_groups(table.measurements)
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights = 1.0 / np.sqrt(counts[inverse])
    weighted: Floats = weights * np.array([item.weight for item in table.measurements])
    return weighted


def _model_card(
    table: MeasuredTable, correction: StagedCorrection, settings: Mapping[str, BoosterSettings], seed: int
) -> dict[str, Any]:
    return {
        "seed": seed,
        "rows": len(table),
        "corpus": corpus_fingerprint(table.measurements),
        "settings": {stage: asdict(item) for stage, item in settings.items()},
        "devices": sorted({item.device for item in table.measurements}),
        "rejected": dict(table.rejected.most_common()),
        "num_features": len(correction.names),
    }
