"""`precision-time train`: from the corpus, and a user's own runs, to a predictor with its held-out errors.

Folds that hold out configurations, precisions, larger clusters, models, devices and sources are fitted
first. Their out-of-fold residuals are the accuracy table, calibrate the intervals, and those by configuration
are shown with the nearest measurements. The last fit learns from everything. Seeded: the same corpus and seed
give the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..corpus.measurement import Measurement
from ..corpus.own import PricedStep, own_measurements
from ..corpus.protocols import PROTOCOLS, source_name
from ..corpus.splits import Fold, configuration_groups
from ..corpus.store import corpus_fingerprint, load_corpus
from ..errors import required_module
from ..executor import Executor
from ..records import dataclass
from .artifact import MeasurementIndex, TrainedPredictor
from .boosting import DEFAULT_SETTINGS, BoosterSettings, fewer_trees, fit_scale
from .calibration.fitting import Block, blocks_of, fit_process
from .calibration.places import Places, places_of
from .calibration.process import Process
from .intervals import CLASSES, IntervalModel, fit_growth, fit_quantiles, novel_share
from .measured import MeasuredTable, fit_predictor, measured_table
from .metrics import summarize
from .novelty import KINDS, run_index
from .predictor import Predictor, Times

Floats = NDArray[np.float64]
Progress = Callable[[str], None]
Fit = Callable[..., Predictor]
"""What learns from some rows of a table, called as `measured.fit_predictor`."""

HELD_OUT = ("configuration", "precision", "scale", "model", "device", "source")
"""Protocols whose residuals calibrate the intervals: the question that each of them asks counts alike."""
_FOLDS = 5
_SOURCE_POWER = 0.3
"""A row of a source with n rows counts as n^-0.3: between all rows alike (0) and all sources alike (1)."""
_UNSEEN_SOURCE = 2.0
"""Weight of the residuals of unseen sources in the intervals: nobody who asks has a source of the corpus."""
_INTERVAL_SOURCE_POWER = 0.2
"""By that much less a row of a large source counts in the intervals than it does in the fit."""
_LEAST_ROWS = 50
"""Residuals that a class needs for quantiles of its own."""
_TAIL = 1.6448536269514722
"""90 % of a normal distribution lie within this many standard deviations."""
_QUICK_SHARE = 0.2
"""Share of the trees that `quick` keeps: for tests of the plumbing, not for shipping."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfFold:
    """Out-of-fold predictions of one protocol, in the order of the table."""

    step_time_s: Floats
    """Medians, shape (n,), NaN for rows that are no test rows."""
    folds: NDArray[np.intp]
    """The fold that each row is tested in, -1 for none."""
    novelty: Floats
    """Distance of each row to the nearest one its fold was fitted on, by kind, shape (n, kinds)."""
    exposed_share: Floats
    """Share of the predicted step that is exposed communication, shape (n,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """The predictor and what it was judged by."""

    predictor: TrainedPredictor
    fitted: Predictor
    """What was learned from all rows, as `Fit` gives it."""
    table: MeasuredTable
    held_out: Mapping[str, OutOfFold]


def require_fitting() -> None:
    """Refuse early, before the corpus is priced, what would end in a fit.

    Raises:
        MissingExtraError: If LightGBM or scipy is not installed.
    """
    for module, package in (("lightgbm", "LightGBM"), ("scipy.optimize", "scipy")):
        required_module(module, package=package, extra="train", purpose="fit predictors")


def train(
    *,
    measurements: Sequence[Measurement] | None = None,
    table: MeasuredTable | None = None,
    own: Mapping[str, Sequence[PricedStep]] | None = None,
    held_out: Mapping[str, OutOfFold] | None = None,
    seed: int = 0,
    quick: bool = False,
    progress: Progress = lambda _: None,
    map_fn: Executor = map,
    fit: Fit = fit_predictor,
) -> TrainingResult:
    """Fit the predictor on the shipped corpus, or on the measurements given.

    Args:
        measurements: Runs to learn from; the shipped corpus when None.
        table: The same, priced already.
        own: Measured steps of the user's own that join them, by the name of their file.
        held_out: Out-of-fold predictions of the table under each of HELD_OUT, if they are known already.
        seed: Of folds and boosters.
        quick: A fifth of the trees and two folds.
        progress: Called with a message about what is being done, for progress bars.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The predictor is the same.
        fit: What learns.

    Raises:
        MissingExtraError: If LightGBM or scipy is not installed.
    """
    require_fitting()
    if table is None:
        progress("pricing the corpus")
        rows = load_corpus() if measurements is None else measurements
        table = measured_table([row for row in rows if row.usable], over=map_fn)
    for name, steps in (own or {}).items():
        first = 1 + sum(item.row_id < 0 for item in table.measurements)
        table = table.with_own([step.job for step in steps], own_measurements(steps, name, first_id=first))
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
                fit=fit,
            )
            for name in HELD_OUT
        }
    progress("fitting on everything")
    everything = np.arange(len(table))
    fitted = fit(table, everything, weights, settings["step"], seed=seed)
    intervals = fit_intervals(table, held_out, weights, settings, seed)
    progress("likeness of errors")
    predictor = TrainedPredictor(
        names=fitted.names,
        trees=fitted.trees,
        training_set=fitted.training_set,
        intervals=intervals,
        measurements=MeasurementIndex(
            runs=run_index(table.jobs, everything),
            measurement_ids=np.array([item.row_id for item in table.measurements], dtype=np.int64),
            predicted_s=answered_s(table, held_out["configuration"], intervals),
            own={item.row_id: item for item in table.measurements if item.row_id < 0},
        ),
        model_card={
            **_model_card(table, fitted, settings, seed),
            "held_out": scores_of(table, held_out, intervals),
            "process": error_process(table, held_out, intervals, seed=seed).to_dict(),
        },
    )
    return TrainingResult(predictor=predictor, fitted=fitted, table=table, held_out=held_out)


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
    fit: Fit = fit_predictor,
) -> OutOfFold:
    """Out-of-fold predictions under one protocol of PROTOCOLS.

    Args:
        table: Measured jobs.
        weights: Evidence per row.
        protocol: What is held out, a name of `corpus.protocols.PROTOCOLS`.
        settings: LightGBM settings per stage.
        seed: Of folds and boosters.
        folds: How many.
        progress: Called with a message about each fold.
        map_fn: What runs the folds.
        fit: What learns.
    """
    parts = PROTOCOLS[protocol].split(table.measurements, seed, folds, table.jobs.twins())
    progress(f"held out by {protocol}")
    answers = out_of_fold(
        table, parts, weights=weights, settings=settings["step"], seed=seed, map_fn=map_fn, fit=fit
    )
    predicted, share = np.full((2, len(table)), np.nan)
    novelty = np.full((len(table), len(KINDS)), np.nan)
    fold_of = np.full(len(table), -1, dtype=np.intp)
    for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        progress(f"held out by {protocol}, fold {index + 1} of {len(parts)}")
        predicted[part.test] = answer.step_time_s
        novelty[part.test] = answer.distance
        share[part.test] = answer.exposed_s / answer.step_time_s
        fold_of[part.test] = index
    return OutOfFold(step_time_s=predicted, folds=fold_of, novelty=novelty, exposed_share=share)


def out_of_fold(
    table: MeasuredTable,
    folds: Sequence[Fold],
    *,
    weights: Floats,
    settings: BoosterSettings,
    seed: int,
    map_fn: Executor = map,
    fit: Fit = fit_predictor,
) -> Iterable[Times]:
    """What is answered for the test rows of each fold, in the order of the folds.

    Args:
        table: Measured jobs.
        folds: Training and test rows.
        weights: Evidence of each row of the table, shape (n,).
        settings: LightGBM settings.
        seed: Of boosters.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The answers are the same.
        fit: What learns.
    """
    bare = replace(table, measurements=())
    return map_fn(partial(_fit_fold, bare, weights=weights, settings=settings, seed=seed, fit=fit), folds)


def _fit_fold(
    table: MeasuredTable, fold: Fold, *, weights: Floats, settings: BoosterSettings, seed: int, fit: Fit
) -> Times:
    fitted = fit(table, fold.train, weights, settings, seed=seed)
    return fitted.times(table.jobs.take(fold.test))


def fit_intervals(
    table: MeasuredTable,
    held_out: Mapping[str, OutOfFold],
    weights: Floats,
    settings: Mapping[str, BoosterSettings],
    seed: int,
) -> IntervalModel:
    """Scale and quantiles of the residuals.

    The trees learn the error of unseen configurations; how it grows with what is new, and the quantiles,
    come from all protocols together.
    """
    known = held_out["configuration"]
    tested = ~np.isnan(known.step_time_s)
    residuals = np.log(table.measured_s / known.step_time_s)
    features = table.jobs.features
    scale = fit_scale(features[tested], np.abs(residuals[tested]), weights[tested], settings["scale"], seed)
    trees = scale.predict(features)
    by_source = weights * _rows_of_source(table) ** -_INTERVAL_SOURCE_POWER
    pooled = [
        _Residuals.of(table, held, trees, by_source, _UNSEEN_SOURCE if name == "source" else 1.0)
        for name, held in held_out.items()
    ]
    rows = _Residuals(*(np.concatenate(columns) for columns in zip(*pooled, strict=True)))
    growth = fit_growth(rows.trees, rows.novelty, np.abs(rows.residual), rows.weight)
    model = IntervalModel(scale=scale, growth=growth, quantiles={})
    scaled = rows.residual / model.scale_of(rows.trees, rows.novelty)
    new = novel_share(rows.novelty) >= 1.0
    quantiles = {}
    for name, chosen in zip(CLASSES, (~new, new), strict=True):
        enough = chosen if chosen.sum() >= _LEAST_ROWS else np.ones(len(new), dtype=bool)
        quantiles[name] = fit_quantiles(scaled[enough], rows.weight[enough])
    return replace(model, quantiles=quantiles)


class _Residuals(NamedTuple):
    """Residuals of the rows that a protocol tests; their weights add up to that of the protocol."""

    trees: Floats
    novelty: Floats
    residual: Floats
    weight: Floats

    @classmethod
    def of(
        cls, table: MeasuredTable, held: OutOfFold, trees: Floats, weights: Floats, share: float
    ) -> _Residuals:
        rows = np.flatnonzero(~np.isnan(held.step_time_s))
        residual = np.log(table.measured_s[rows] / held.step_time_s[rows])
        weight = weights[rows] * share / max(weights[rows].sum(), 1e-12)
        return cls(trees[rows], held.novelty[rows], residual, weight)


def answered_s(table: MeasuredTable, held: OutOfFold, intervals: IntervalModel) -> Floats:
    """What is answered where medians are those of a protocol, NaN for rows that it does not test."""
    scale = intervals.expected_error(table.jobs.features, held.novelty)
    answered: Floats = held.step_time_s * intervals.point(scale, held.novelty)
    return answered


def scores_of(
    table: MeasuredTable, held_out: Mapping[str, OutOfFold], intervals: IntervalModel
) -> dict[str, dict[str, Any]]:
    """Held-out errors by protocol over all rows; over the user's own as "own, PROTOCOL"."""
    own = np.array([item.row_id < 0 for item in table.measurements])
    parts = {"": np.ones(len(table), dtype=bool)} | ({"own, ": own} if own.any() else {})
    answers = {name: answered_s(table, held, intervals) for name, held in held_out.items()}
    scores = {
        f"{part}{name}": summarize(table.measured_s[rows], answered[rows])
        for part, rows in parts.items()
        for name, answered in answers.items()
    }
    return {name: summary.to_dict() for name, summary in scores.items() if summary is not None}


def error_process(
    table: MeasuredTable, held_out: Mapping[str, OutOfFold], intervals: IntervalModel, *, seed: int = 0
) -> Process:
    """How errors are alike, from runs whose model, or whose source, the predictor had not seen."""
    groups = configuration_groups(table.measurements)
    sources = [item.source for item in table.measurements]
    blocks: list[Block] = []
    for name in ("model", "source"):
        held = held_out[name]
        places = held_out_places(table, held, intervals)
        ratios = np.log(table.measured_s / held.step_time_s)
        blocks += blocks_of(places, ratios, sources, groups, seed=seed)
    return fit_process(blocks, {"corpus": corpus_fingerprint(table.measurements)})


def held_out_places(table: MeasuredTable, held: OutOfFold, intervals: IntervalModel) -> Places:
    """The rows of a table as the process of their errors sees them, predicted out of fold."""
    low, high = intervals.factors(table.jobs.features, held.novelty, 0.9)
    return places_of(table.jobs, held.exposed_share, np.log(high / low) / (2.0 * _TAIL))


def row_weights(table: MeasuredTable) -> Floats:
    """Evidence of each row: repeats share a vote, suspect rows and rows of large sources count less."""
    groups = configuration_groups(table.measurements)
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights = 1.0 / np.sqrt(counts[inverse])
    rows = _rows_of_source(table)
    weights *= (len(table) / (np.sum(1.0 / rows) * rows)) ** _SOURCE_POWER
    weighted: Floats = weights * np.array([item.weight for item in table.measurements])
    return weighted


def _rows_of_source(table: MeasuredTable) -> Floats:
    """How many rows the source of each row has, shape (n,)."""
    names = [source_name(item) for item in table.measurements]
    _, inverse, counts = np.unique(names, return_inverse=True, return_counts=True)
    rows: Floats = counts[inverse].astype(np.float64)
    return rows


def _model_card(
    table: MeasuredTable, fitted: Predictor, settings: Mapping[str, BoosterSettings], seed: int
) -> dict[str, Any]:
    return {
        "seed": seed,
        "rows": len(table),
        "corpus": corpus_fingerprint(table.measurements),
        "settings": {stage: asdict(item) for stage, item in settings.items()},
        "devices": sorted({item.device for item in table.measurements}),
        "rejected": dict(table.rejected.most_common()),
        "num_features": len(fitted.names),
    }
