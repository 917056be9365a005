"""The four regressors fitted by scikit-learn; what comes out are the arrays that `regressors.py` names.

Each takes standardised inputs z of shape (n, n_features), standardised targets u and weights of shape (n,),
its settings and a seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import MissingExtraError
from .regressors import Floats


def sklearn(module: str) -> Any:
    """A module of scikit-learn.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtraError(
            package="scikit-learn", extra="learners", purpose="train PredictDDL's regressors"
        ) from error


def _fit_linear(
    z: Floats, u: Floats, weights: Floats, chosen: Mapping[str, Any], seed: int
) -> dict[str, Floats]:
    del seed
    model = sklearn("linear_model").Ridge(alpha=chosen["alpha"]).fit(z, u, sample_weight=weights)
    return {"w": model.coef_, "b": np.array([model.intercept_])}


def _fit_polynomial(
    z: Floats, u: Floats, weights: Floats, chosen: Mapping[str, Any], seed: int
) -> dict[str, Floats]:
    del seed
    expand = sklearn("preprocessing").PolynomialFeatures(degree=2, include_bias=False)
    model = sklearn("linear_model").Ridge(alpha=chosen["alpha"])
    model.fit(expand.fit_transform(z), u, sample_weight=weights)
    width = z.shape[1]
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = model.coef_[width:]
    return {"w": model.coef_[:width], "A": matrix, "b": np.array([model.intercept_])}


def _fit_svr(
    z: Floats, u: Floats, weights: Floats, chosen: Mapping[str, Any], seed: int
) -> dict[str, Floats]:
    del seed
    gamma = chosen["width"] / z.shape[1]
    model = sklearn("svm").SVR(C=chosen["C"], gamma=gamma, epsilon=0.05).fit(z, u, sample_weight=weights)
    return {
        # Transposed, so that equal embeddings lie side by side and compress.
        "v": np.ascontiguousarray(model.support_vectors_.T),
        "a": model.dual_coef_[0],
        "b": model.intercept_,
        "gamma": np.array([gamma]),
    }


def _fit_mlp(
    z: Floats, u: Floats, weights: Floats, chosen: Mapping[str, Any], seed: int
) -> dict[str, Floats]:
    del weights  # scikit-learn weighs samples of an MLP only from 1.7 on
    model = sklearn("neural_network").MLPRegressor(
        hidden_layer_sizes=chosen["layers"],
        alpha=1e-3,
        learning_rate_init=3e-3,
        max_iter=120,
        early_stopping=len(z) >= 100,
        n_iter_no_change=15,
        random_state=seed,
    )
    model.fit(z, u)
    weights_of = {f"W{layer}": values for layer, values in enumerate(model.coefs_)}
    return weights_of | {f"b{layer}": values for layer, values in enumerate(model.intercepts_)}


FITS: Mapping[str, Callable[..., dict[str, Floats]]] = {
    "linear": _fit_linear,
    "polynomial-2": _fit_polynomial,
    "svr": _fit_svr,
    "mlp": _fit_mlp,
}
