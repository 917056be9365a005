r"""The four regressors of PredictDDL's inference engine, served by numpy from plain arrays.

With z the standardized inputs, the embedding among them on its principal components, and u the standardized
target:

- linear:       $u = b + w \cdot z$
- polynomial-2: $u = b + w \cdot z + z^T A z$, A upper triangular
- svr:          $u = b + \sum_i a_i \exp(-\gamma |z - v_i|^2)$ over the support vectors $v_i$
- mlp:          $h_0 = z$, $h_{k+1} = \max(0, h_k W_k + b_k)$, the last layer without the maximum

The step time is u in seconds (`raw`, as the paper is written), or exp(u) (`log`), or exp(u) times the
analytical step time (`ratio`). Fitting is `fitting.py`; tests hold these sums against scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import NotFittedError, UnknownNameError

Floats = NDArray[np.float64]

_INPUTS = ("mean", "scale", "least", "most")
KINDS = ("linear", "polynomial-2", "svr", "mlp")
TARGETS = ("raw", "log", "ratio")
_CHUNK = 4096
"""Rows predicted at once: bounds the memory of the kernel matrix."""
_CONSTANT = 1e-9
_FARTHEST = 1.0
"""Standardized inputs are held within this much of the range seen in training: beyond, squares explode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standardizer:
    """Inputs to mean 0 and deviation 1; columns that never varied in training become 0."""

    mean: Floats
    """Shape (n_features,)."""
    scale: Floats
    """Infinite where the column never varied."""
    least: Floats
    """Smallest standardized value seen."""
    most: Floats

    @classmethod
    def of(cls, x: Floats) -> Standardizer:
        """The standardizer of training inputs, shape (n, n_features)."""
        mean, deviation = x.mean(axis=0), x.std(axis=0)
        scale = np.where(deviation > _CONSTANT * np.maximum(np.abs(mean), 1.0), deviation, np.inf)
        z = (x - mean) / scale
        return cls(mean=mean, scale=scale, least=z.min(axis=0), most=z.max(axis=0))

    def __call__(self, x: Floats) -> Floats:
        """Standardized inputs, held near the range of training."""
        held: Floats = np.clip((x - self.mean) / self.scale, self.least - _FARTHEST, self.most + _FARTHEST)
        return held

    def outside(self, x: Floats) -> NDArray[np.bool_]:
        """Which inputs lie beyond what training saw, shape (n, n_features)."""
        span = np.maximum(self.most - self.least, 1.0) * 0.01
        z = (x - self.mean) / self.scale
        moved = np.isinf(self.scale) & (
            np.abs(x - self.mean) > _CONSTANT * np.maximum(np.abs(self.mean), 1.0)
        )
        beyond: NDArray[np.bool_] = (z < self.least - span) | (z > self.most + span) | moved
        return beyond


@dataclass(frozen=True, kw_only=True, slots=True)
class Regressor:
    """One fitted regressor."""

    kind: str
    """One of KINDS."""
    target: str
    """One of TARGETS."""
    inputs: Standardizer
    projection: Floats
    """Standardized inputs to what is regressed on, shape (n_features, n_regressed): the identity but for the
    embedding, which may be taken on its principal components."""
    target_mean: float
    target_scale: float
    low: float
    """Targets are held between `low` and `high`: what training saw and some more."""
    high: float
    arrays: Mapping[str, Floats]
    """Coefficients, as the module's formulas name them."""

    def predict(self, x: Floats, analytical_s: Floats | None = None) -> Floats:
        """Step times [s], shape (n,).

        Args:
            x: Inputs, shape (n, n_features), in the columns of training.
            analytical_s: Step times of the cost model, shape (n,); needed by the `ratio` target.

        Raises:
            NotFittedError: If the target is a ratio and no analytical time is given.
        """
        target = np.clip(self.raw_target(x), self.low, self.high)
        if self.target == "raw":
            return target
        if self.target == "log":
            seconds: Floats = np.exp(target)
            return seconds
        if analytical_s is None:
            raise NotFittedError(
                "This regressor learned the ratio to the analytical step time, which was not given. To fix: "
                "pass analytical_s."
            )
        scaled: Floats = analytical_s * np.exp(target)
        return scaled

    def raw_target(self, x: Floats) -> Floats:
        """The target before it is held to its range, shape (n,)."""
        scores = [_SCORES[self.kind](self.inputs(part) @ self.projection, self.arrays) for part in _parts(x)]
        u: Floats = np.concatenate(scores) * self.target_scale + self.target_mean
        return u

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Everything but the words, under names that begin with `prefix`."""
        own: dict[str, NDArray[Any]] = {
            "mean": self.inputs.mean,
            "scale": self.inputs.scale,
            "least": self.inputs.least,
            "most": self.inputs.most,
            "projection": self.projection,
            "target": np.array([self.target_mean, self.target_scale, self.low, self.high]),
            **{f"a.{name}": values for name, values in self.arrays.items()},
        }
        return {f"{prefix}.{name}": values.astype(np.float32) for name, values in own.items()}

    @classmethod
    def from_arrays(
        cls, kind: str, target: str, arrays: Mapping[str, NDArray[Any]], prefix: str
    ) -> Regressor:
        """The regressor that `to_arrays` wrote.

        Raises:
            KeyError: If an array is missing.
            ValueError: If the arrays do not fit each other, or hold no numbers.
        """
        lead = f"{prefix}."
        own = {
            name.removeprefix(lead): values.astype(np.float64)
            for name, values in arrays.items()
            if name.startswith(lead)
        }
        facts = {name: own.pop(name) for name in (*_INPUTS, "projection", "target")}
        if any(np.isnan(values).any() for values in (*own.values(), *facts.values())):
            raise ValueError(f"{prefix} holds values that are not numbers")
        target_mean, target_scale, low, high = facts["target"].tolist()
        made = cls(
            kind=check_kind(kind),
            target=target,
            inputs=Standardizer(**{name: facts[name] for name in _INPUTS}),
            projection=facts["projection"],
            target_mean=target_mean,
            target_scale=target_scale,
            low=low,
            high=high,
            arrays={name.removeprefix("a."): values for name, values in own.items()},
        )
        made.raw_target(np.zeros((1, len(facts["mean"]))))
        return made


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedVariant:
    """The regressors of every kind that one variant was trained with, and the best of them."""

    names: tuple[str, ...]
    """Input columns, in order."""
    best: str
    """Kind that cross-validation chose."""
    regressors: Mapping[str, Regressor]
    """By kind."""
    scores: Mapping[str, Mapping[str, Any]]
    """Kind to its errors on held-out architectures, as `ErrorSummary.to_dict` has them."""


def check_kind(kind: str) -> str:
    """`kind`, if it is a regressor's name.

    Raises:
        UnknownNameError: If it is not.
    """
    if kind not in KINDS:
        raise UnknownNameError(
            kind="regressor", name=kind, known=KINDS, hint=f"To fix: use {', '.join(KINDS)}."
        )
    return kind


def _parts(x: Floats) -> list[Floats]:
    return [x[start : start + _CHUNK] for start in range(0, max(len(x), 1), _CHUNK)]


def _linear(z: Floats, arrays: Mapping[str, Floats]) -> Floats:
    u: Floats = z @ arrays["w"] + arrays["b"]
    return u


def _polynomial(z: Floats, arrays: Mapping[str, Floats]) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", z @ arrays["A"], z)
    return _linear(z, arrays) + squares


def _svr(z: Floats, arrays: Mapping[str, Floats]) -> Floats:
    vectors = arrays["v"].T
    lengths = np.square(z).sum(axis=1)[:, None] + np.square(vectors).sum(axis=1)[None, :]
    kernel = np.exp(-arrays["gamma"] * np.maximum(lengths - 2.0 * (z @ vectors.T), 0.0))
    u: Floats = kernel @ arrays["a"] + arrays["b"]
    return u


def _mlp(z: Floats, arrays: Mapping[str, Floats]) -> Floats:
    depth = sum(name.startswith("W") for name in arrays)
    hidden = z
    for layer in range(depth):
        hidden = hidden @ arrays[f"W{layer}"] + arrays[f"b{layer}"]
        if layer < depth - 1:
            hidden = np.maximum(hidden, 0.0)
    u: Floats = hidden[:, 0]
    return u


_SCORES = {"linear": _linear, "polynomial-2": _polynomial, "svr": _svr, "mlp": _mlp}
