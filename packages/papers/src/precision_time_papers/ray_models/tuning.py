"""Hyper-parameters and features of a technique, chosen by the error on splits of the training part alone.

One figure ranks everything, in every kind of search: the mean absolute percentage error of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from precision_time.errors import required_module

from .splits import Split
from .techniques import FeaturePool, Technique

Floats = NDArray[np.float64]
Parameters = Mapping[str, Any]

EXTRA = "learners"


class Search(BaseModel):
    """How hyper-parameters are searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["grid", "bayesian", "none"] = "grid"
    """grid: all of the technique's; bayesian: Optuna's TPE in its ranges; none: its defaults."""
    trials: Annotated[int, Field(ge=1)] = 20
    """Of a Bayesian search."""


class FeatureSelection(BaseModel):
    """Features added forward while the selection error falls; linear techniques only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["none", "forward"] = "none"
    least: Annotated[int, Field(ge=1)] = 1
    most: Annotated[int, Field(ge=1)] = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTechnique:
    """The best candidate of a technique on the inner splits."""

    technique: Technique
    parameters: Parameters
    columns: tuple[int, ...] | None
    """Indices of features, if they were chosen."""
    selection_mape: float
    """Percent, mean over the inner splits: the least of its candidates, and so too low by their number."""
    candidates: int
    """That were compared."""
    nested_errors: tuple[float, ...] = ()
    """Percent, of each configuration of the inner test rows, in the same order for every technique: by the
    candidate that was tuned without them. Techniques are compared by these."""

    @property
    def nested_mape(self) -> float:
        """Their mean [%]."""
        return float(np.mean(self.nested_errors))

    def build(self, pool: FeaturePool, seed: int) -> Any:
        """The unfitted estimator."""
        return self.technique.build(pool, seed, self.columns, **self.parameters)


def mape_percent(measured: Floats, predicted: Floats) -> float:
    """Mean absolute percentage error.

    >>> mape_percent(np.array([1.0, 2.0]), np.array([1.1, 1.8]))
    10.0
    """
    return round(float(np.mean(np.abs(predicted - measured) / measured)) * 100.0, 9)


def require_sklearn() -> None:
    """Fail with the remedy where scikit-learn or skops is not installed.

    Raises:
        MissingExtraError: If it is not.
    """
    purpose = "fit and read performance models"
    required_module("skops.io", package="scikit-learn or skops", extra=EXTRA, purpose=purpose)


def tune(
    technique: Technique,
    pool: FeaturePool,
    x: Floats,
    y: Floats,
    splits: Sequence[Split],
    *,
    search: Search,
    feature_selection: FeatureSelection,
    seed: int = 0,
) -> TunedTechnique:
    """The best parameters and features of a technique.

    Args:
        technique: What to tune.
        pool: Features, as the columns of `x`.
        x: Features of the training part, shape (n, n_features).
        y: Times of the training part (grey boxes: over the predicted ones), shape (n,).
        splits: Of the training part.
        search: How parameters are searched.
        feature_selection: How features are.
        seed: Of estimators and search.
    """
    require_sklearn()
    from sklearn import config_context
    from sklearn.model_selection import ParameterGrid

    def error(parameters: Parameters, columns: tuple[int, ...] | None) -> float:
        # Thousands of small fits: cross_val_score and checks of parameters would cost several times as much.
        errors = []
        with config_context(skip_parameter_validation=True):
            for train, test in splits:
                fitted = technique.build(pool, seed, columns, **parameters).fit(x[train], y[train])
                errors.append(mape_percent(y[test], fitted.predict(x[test])))
        return float(np.mean(errors))

    columns, compared = None, 0
    if feature_selection.method == "forward" and technique.linear:
        columns, compared = _forward(pool.columns(technique.inputs), error, feature_selection)
    if search.method == "bayesian" and (technique.ranges or technique.grid):
        parameters, best = _bayesian(technique, lambda point: error(point, columns), search.trials, seed)
        tried = search.trials
    else:
        grid = technique.grid if search.method == "grid" else {}
        points = list(ParameterGrid({name: list(values) for name, values in grid.items()}))
        errors = [error(point, columns) for point in points]
        place = int(np.argmin(errors))
        parameters, best, tried = dict(points[place]), errors[place], len(points)
    return TunedTechnique(
        technique=technique,
        parameters=parameters,
        columns=columns,
        selection_mape=best,
        candidates=tried + compared,
    )


def _bayesian(
    technique: Technique, error: Callable[[Parameters], float], trials: int, seed: int
) -> tuple[dict[str, Any], float]:
    optuna = required_module("optuna", package="optuna", extra=EXTRA, purpose="search by Bayes")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: Any) -> float:
        point: dict[str, Any] = {}
        for name, item in technique.ranges.items():
            if item.whole:
                point[name] = trial.suggest_int(name, int(item.low), int(item.high), log=item.log)
            else:
                point[name] = trial.suggest_float(name, item.low, item.high, log=item.log)
        for name, values in technique.grid.items():
            if name not in technique.ranges:
                point[name] = trial.suggest_categorical(name, list(values))
        return error(point)

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    return dict(study.best_params), float(study.best_value)


def _forward(
    every: Sequence[int],
    error: Callable[[Parameters, tuple[int, ...]], float],
    selection: FeatureSelection,
) -> tuple[tuple[int, ...] | None, int]:
    """Features added one at a time, the best first, while the error falls, and how many sets were tried.

    scikit-learn's SequentialFeatureSelector has either a number or a tolerance; here both bounds hold.
    """
    chosen: tuple[int, ...] = ()
    best, compared = np.inf, 0
    while len(chosen) < min(selection.most, len(every)):
        left = [index for index in every if index not in chosen]
        errors = [error({}, (*chosen, index)) for index in left]
        compared += len(left)
        found = int(np.argmin(errors))
        if errors[found] >= best and len(chosen) >= selection.least:
            break
        best = min(best, errors[found])
        chosen = (*chosen, left[found])
    return chosen or None, compared
