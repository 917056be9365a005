"""From fitted estimators to forms: what is kept of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...learn.trees import TreeEnsemble, trees_of
from .estimators import OverlapRegressor, ResidualRegressor, TimeRegressor
from .features import Feature
from .forms import Form, Kernel, Linear, Network, Part, Trees


def parts_of(estimator: Any, features: Sequence[Feature]) -> tuple[Part, ...]:
    """The factors of a fitted TimeRegressor or ResidualRegressor.

    Args:
        estimator: Fitted.
        features: Of the table it was fitted on, in order.
    """
    if isinstance(estimator, ResidualRegressor):
        return (*parts_of(estimator.base_, features), *parts_of(estimator.residual_, features))
    assert isinstance(estimator, TimeRegressor)
    return (
        Part(
            features=tuple(features[index] for index in estimator.columns_),
            center=estimator.center_,
            scale=estimator.scale_,
            form=_form(estimator.regressor_),
            log=estimator.target == "log",
            unit=estimator.unit_,
            least=estimator.least_,
        ),
    )


def _form(regressor: Any) -> Form:
    if isinstance(regressor, OverlapRegressor):
        return regressor.form_
    return _EXPORTS[type(regressor).__name__](regressor)


def _linear(regressor: Any) -> Linear:
    return Linear(
        coefficients=np.asarray(regressor.coef_, dtype=np.float64).ravel(),
        intercept=np.asarray(regressor.intercept_, dtype=np.float64).reshape(()),
    )


def _kernel(regressor: Any) -> Kernel:
    return Kernel(
        vectors=np.asarray(regressor.support_vectors_, dtype=np.float64),
        weights=np.asarray(regressor.dual_coef_, dtype=np.float64).ravel(),
        gamma=np.asarray(regressor._gamma, dtype=np.float64),  # noqa: SLF001 - "scale" as it came out
        intercept=np.asarray(regressor.intercept_, dtype=np.float64).reshape(()),
    )


def _network(regressor: Any) -> Network:
    return Network(
        weights=[np.asarray(item, dtype=np.float64) for item in regressor.coefs_],
        biases=[np.asarray(item, dtype=np.float64) for item in regressor.intercepts_],
    )


def _tree(regressor: Any) -> Trees:
    return _trees([regressor])


def _forest(regressor: Any) -> Trees:
    return _trees(regressor.estimators_)


def _trees(estimators: Sequence[Any]) -> Trees:
    """The mean of scikit-learn's trees as a sum; its leaves, marked by -1, point at themselves here."""
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots, start, depth = [], 0, 0
    for estimator in estimators:
        tree = estimator.tree_
        own = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        columns["feature"].append(np.where(leaf, 0, tree.feature))
        columns["threshold"].append(np.where(leaf, 0.0, tree.threshold))
        columns["left"].append(start + np.where(leaf, own, tree.children_left))
        columns["right"].append(start + np.where(leaf, own, tree.children_right))
        columns["value"].append(tree.value[:, 0, 0] / len(estimators))
        roots.append(start)
        start += tree.node_count
        depth = max(depth, tree.max_depth)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Trees(
        ensemble=TreeEnsemble(
            feature=joined["feature"].astype(np.int16),
            threshold=joined["threshold"],
            left=joined["left"].astype(np.int32),
            right=joined["right"].astype(np.int32),
            value=joined["value"],
            roots=np.array(roots, dtype=np.int32),
            depth=depth,
        ),
        offset=np.zeros(()),
        single=np.ones(()),
    )


def _boosted(regressor: Any) -> Trees:
    ensemble = trees_of(regressor.booster_.model_to_string())
    return Trees(ensemble=ensemble, offset=np.zeros(()), single=np.zeros(()))


_EXPORTS: Mapping[str, Callable[[Any], Form]] = {
    "Ridge": _linear,
    "Lasso": _linear,
    "LinearRegression": _linear,
    "StepwiseRegressor": _linear,
    "SVR": _kernel,
    "DecisionTreeRegressor": _tree,
    "RandomForestRegressor": _forest,
    "ExtraTreesRegressor": _forest,
    "LGBMRegressor": _boosted,
    "MLPRegressor": _network,
}
