"""Hyper-parameters and features of a technique, chosen by the error on splits of the training part alone.

One figure ranks everything, in every kind of search: the mean absolute percentage error of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtraError
from .splits import Split
from .techniques import Pool, Range, Technique

Floats = NDArray[np.float64]
Error = Callable[..., float]
"""Of parameters (and, for features, columns), percent."""
Found = tuple[dict[str, Any], float, int]
"""Parameters, their error [%] and the number of candidates."""

EXTRA = "learners"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """How hard to search."""

    method: str = "grid"
    """grid: all of the technique's; bayesian: Optuna's TPE in its ranges; none: as built."""
    trials: int = 20
    """Of a Bayesian search."""
    forward: bool = False
    """Choose features forward, for techniques that take all of them."""
    least_features: int = 1
    most_features: int = 8
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The best candidate of a technique on the inner splits."""

    technique: Technique
    parameters: Mapping[str, Any]
    columns: tuple[int, ...] | None
    """Of the pool, if they were chosen."""
    selection_mape: float
    """Percent, mean over the inner splits."""
    candidates: int
    """That were compared."""


def mape_percent(measured: Floats, predicted: Floats) -> float:
    """Mean absolute percentage error.

    >>> mape_percent(np.array([1.0, 2.0]), np.array([1.1, 1.8]))
    10.0
    """
    return round(float(np.mean(np.abs(predicted - measured) / measured)) * 100.0, 9)


def estimator_of(chosen: Chosen, pool: Pool, seed: int) -> Any:
    """The unfitted estimator of a choice."""
    return _built(chosen.technique, pool, seed, chosen.parameters, chosen.columns)


def choose(
    technique: Technique, pool: Pool, x: Floats, y: Floats, splits: Sequence[Split], settings: SearchSettings
) -> Chosen:
    """The best parameters and features of a technique.

    Args:
        technique: What to tune.
        pool: Features, as the columns of `x`.
        x: Features of the training part, shape (n, n_features).
        y: Times of the training part (grey boxes: over the predicted ones), shape (n,).
        splits: Of the training part.
        settings: How hard to search.
    """
    require_sklearn()
    given = [
        (split, x[split.inside], y[split.inside], x[split.outside], y[split.outside]) for split in splits
    ]

    def error(parameters: Mapping[str, Any], columns: tuple[int, ...] | None) -> float:
        errors = []
        for _, x_in, y_in, x_out, y_out in given:
            fitted = _built(technique, pool, settings.seed, parameters, columns).fit(x_in, y_in)
            errors.append(mape_percent(y_out, fitted.predict(x_out)))
        return float(np.mean(errors))

    columns, compared = None, 0
    if settings.forward and technique.linear:
        columns, compared = _forward(pool.every, error, settings)
    searches = {"grid": _grid, "bayesian": _bayesian, "none": _as_built}
    parameters, best, tried = searches[settings.method](
        technique, lambda point: error(point, columns), settings
    )
    return Chosen(
        technique=technique,
        parameters=parameters,
        columns=columns,
        selection_mape=best,
        candidates=tried + compared,
    )


def require_sklearn() -> None:
    """Fail with the way out where scikit-learn is not installed.

    Raises:
        MissingExtraError: If it is not.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            package="scikit-learn", extra=EXTRA, purpose="fit performance models"
        ) from error


def _built(
    technique: Technique,
    pool: Pool,
    seed: int,
    parameters: Mapping[str, Any],
    columns: tuple[int, ...] | None,
) -> Any:
    estimator = technique.build(pool, seed)
    if columns is not None:
        name = "columns" if "columns" in estimator.get_params(deep=False) else "base__columns"
        estimator.set_params(**{name: columns})
    return estimator.set_params(**parameters)


def _as_built(technique: Technique, error: Error, settings: SearchSettings) -> Found:
    return {}, error({}), 1


def _grid(technique: Technique, error: Error, settings: SearchSettings) -> Found:
    from sklearn.model_selection import ParameterGrid

    points = list(ParameterGrid({name: list(values) for name, values in technique.grid.items()}))
    errors = [error(point) for point in points]
    best = int(np.argmin(errors))
    return dict(points[best]), errors[best], len(points)


def _bayesian(technique: Technique, error: Error, settings: SearchSettings) -> Found:
    if not technique.ranges and not technique.grid:
        return _as_built(technique, error, settings)
    try:
        import optuna
    except ImportError as missing:
        raise MissingExtraError(package="optuna", extra=EXTRA, purpose="search by Bayes") from missing
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: Any) -> float:
        point = {name: _suggested(trial, name, item) for name, item in technique.ranges.items()}
        point |= {
            name: trial.suggest_categorical(name, list(values))
            for name, values in technique.grid.items()
            if name not in technique.ranges
        }
        return float(error(point))

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=settings.seed))
    study.optimize(objective, n_trials=settings.trials)
    return dict(study.best_params), float(study.best_value), len(study.trials)


def _suggested(trial: Any, name: str, item: Range) -> Any:
    if item.whole:
        return trial.suggest_int(name, int(item.low), int(item.high), log=item.log)
    return trial.suggest_float(name, item.low, item.high, log=item.log)


def _forward(
    every: Sequence[int], error: Error, settings: SearchSettings
) -> tuple[tuple[int, ...] | None, int]:
    """Features added one at a time, the best first, while the error falls.

    scikit-learn's SequentialFeatureSelector has either a number or a tolerance; here both bounds hold.
    """
    chosen: tuple[int, ...] = ()
    best, compared = np.inf, 0
    most = min(settings.most_features, len(every))
    while len(chosen) < most:
        left = [index for index in every if index not in chosen]
        errors = [error({}, (*chosen, index)) for index in left]
        compared += len(left)
        found = int(np.argmin(errors))
        if errors[found] >= best and len(chosen) >= settings.least_features:
            break
        best = min(best, errors[found])
        chosen = (*chosen, left[found])
    return chosen or None, compared
