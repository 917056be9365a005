"""Boosted trees are fitted by LightGBM: the settings that ship, and the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from ..arrays import Floats
from ..errors import required_module
from ..records import dataclass
from .trees import TreeEnsemble, trees_of

_LEAST_ERROR = 0.01
"""Added to errors before their logarithm: below repeat noise there is nothing to learn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoosterSettings:
    """LightGBM settings of one ensemble."""

    num_trees: int
    learning_rate: float = 0.08
    num_leaves: int = 48
    max_depth: int = 9
    min_data_in_leaf: int = 10
    feature_fraction: float = 0.5
    """Share of the features that a tree may use."""
    split_feature_fraction: float = 1.0
    """Share of those that a split may use."""
    bagging_fraction: float = 0.8
    lambda_l2: float = 2.0
    extra_trees: bool = False
    """One random threshold per feature instead of the best."""
    objective: str = "regression_l1"
    huber_width: float = 0.1
    """Residual up to which the `huber` objective is quadratic."""


DEFAULT_SETTINGS: Mapping[str, BoosterSettings] = {
    "step": BoosterSettings(
        num_trees=250,
        learning_rate=0.15,
        num_leaves=255,
        max_depth=14,
        min_data_in_leaf=3,
        feature_fraction=1.0,
        split_feature_fraction=0.8,
        bagging_fraction=1.0,
        lambda_l2=0.5,
        extra_trees=True,
        objective="huber",
    ),
    "scale": BoosterSettings(num_trees=80, num_leaves=24, min_data_in_leaf=40, objective="regression"),
}
"""Of the step time, and of the expected error that intervals are scaled by."""


def fewer_trees(share: float) -> Mapping[str, BoosterSettings]:
    """DEFAULT_SETTINGS with a share of the trees, at least 10 each: to check that everything works."""
    return {
        name: replace(item, num_trees=max(int(item.num_trees * share), 10))
        for name, item in DEFAULT_SETTINGS.items()
    }


def fit_scale(
    x: Floats, errors: Floats, weights: Floats, settings: BoosterSettings, seed: int
) -> TreeEnsemble:
    """Trees for the logarithm of the expected error.

    Args:
        x: Features, shape (n, n_features).
        errors: Out-of-fold |log(measured / predicted)|, shape (n,).
        weights: Evidence per row.
        settings: LightGBM settings.
        seed: Of the booster.
    """
    return boost(x, np.log(errors + _LEAST_ERROR), weights, settings, seed)


def boost(x: Floats, y: Floats, weights: Floats, settings: BoosterSettings, seed: int) -> TreeEnsemble:
    """Fit one ensemble.

    Args:
        x: Features, shape (n, n_features).
        y: Targets, shape (n,).
        weights: Evidence per row, shape (n,).
        settings: LightGBM settings.
        seed: Of the booster.
    """
    lightgbm = required_module("lightgbm", package="LightGBM", extra="train", purpose="fit a predictor")
    stated = asdict(settings)
    num_trees = stated.pop("num_trees")
    parameters = {
        "feature_fraction_bynode": stated.pop("split_feature_fraction"),
        "alpha": stated.pop("huber_width"),
        **stated,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        # Folds are fitted at the same time in processes; threads that wait for each other inside a fit
        # make it many times slower on a busy machine. The trees do not depend on it.
        "num_threads": 1,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(x, y, weight=weights, free_raw_data=True)
    booster = lightgbm.train(parameters, data, num_boost_round=num_trees)
    return trees_of(booster.model_to_string())
