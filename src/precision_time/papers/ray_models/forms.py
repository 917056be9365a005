"""Fitted techniques as arrays: what a saved model consists of, and all that a prediction needs.

Five forms hold every technique. They are read from arrays and JSON, run nothing on loading, and need neither
scikit-learn nor its version: `tests/papers/ray_models/test_forms.py` holds each against its estimator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import CorpusError
from ...learn.trees import TreeEnsemble
from .features import Column, Feature, table

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
_LARGEST_LOG = 50.0
"""exp of it is beyond any time: an exploding extrapolation stays a number."""


class Form(Protocol):
    """A function of a feature table."""

    kind: ClassVar[str]

    def predict(self, x: Floats) -> Floats:
        """Values, shape (n,), of a table of shape (n, n_features)."""
        ...

    def to_arrays(self) -> Arrays:
        """Its numbers by name."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """x . coefficients + intercept."""

    kind: ClassVar[str] = "linear"
    coefficients: Floats
    intercept: Floats

    def predict(self, x: Floats) -> Floats:
        """See Form."""
        values: Floats = x @ self.coefficients + self.intercept
        return values

    def to_arrays(self) -> Arrays:
        """See Form."""
        return _own_arrays(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """Support vectors under the kernel exp(-gamma |x - v|^2)."""

    kind: ClassVar[str] = "kernel"
    vectors: Floats
    weights: Floats
    gamma: Floats
    intercept: Floats

    def predict(self, x: Floats) -> Floats:
        """See Form."""
        squared = (
            np.square(x).sum(axis=1)[:, None] - 2.0 * x @ self.vectors.T + np.square(self.vectors).sum(axis=1)
        )
        values: Floats = np.exp(-self.gamma * np.maximum(squared, 0.0)) @ self.weights + self.intercept
        return values

    def to_arrays(self) -> Arrays:
        """See Form."""
        return _own_arrays(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """Dense layers with ReLU between them."""

    kind: ClassVar[str] = "network"
    weights: Sequence[Floats]
    biases: Sequence[Floats]

    def predict(self, x: Floats) -> Floats:
        """See Form."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0.0)
        values: Floats = (x @ self.weights[-1] + self.biases[-1])[:, 0]
        return values

    def to_arrays(self) -> Arrays:
        """See Form."""
        return {f"weight{index}": item for index, item in enumerate(self.weights)} | {
            f"bias{index}": item for index, item in enumerate(self.biases)
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Trees:
    """A sum of regression trees."""

    kind: ClassVar[str] = "trees"
    ensemble: TreeEnsemble
    offset: Floats
    single: Floats
    """1 where the trees were grown on 32-bit inputs, as scikit-learn's are; else 0."""

    def predict(self, x: Floats) -> Floats:
        """See Form."""
        seen = x.astype(np.float32).astype(np.float64) if self.single else x
        values: Floats = self.ensemble.predict(seen) + self.offset
        return values

    def to_arrays(self) -> Arrays:
        """See Form."""
        return self.ensemble.to_arrays("tree") | {"offset": self.offset, "single": self.single}


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Computation and communication that hide each other in part: (c^g + s^g)^(1/g).

    x: batch, workers, nodes, largest number of workers on a node.
    c = a0 + a1 batch; s within a node = a2 + a3 (workers - 2); s between nodes = a4 + a5 (nodes - 2)
    + a6 (per node - 1) + a7 log workers; none for one worker.

    Source: Qiao et al., Pollux, OSDI 2021, eq. 8-11; a6 and a7 are added.
    """

    kind: ClassVar[str] = "overlap"
    coefficients: Floats
    """a0 ... a7, all above 0."""
    gamma: Floats
    """1: nothing hides; large: the longer of the two counts."""

    def predict(self, x: Floats) -> Floats:
        """See Form."""
        batch, workers, nodes, per_node = x.T
        a = self.coefficients
        within, between = (workers > 1) & (nodes <= 1), nodes > 1
        compute = a[0] + a[1] * batch
        inner = a[2] + a[3] * (workers - 2.0)
        outer = a[4] + a[5] * (nodes - 2.0) + a[6] * (per_node - 1.0) + a[7] * np.log(np.maximum(workers, 1))
        waits = np.where(between, outer, np.where(within, inner, 0.0))
        larger = np.maximum(compute, waits)
        # Scaled by the larger one, so that no power overflows.
        shares = (compute / larger) ** self.gamma + (waits / larger) ** self.gamma
        values: Floats = larger * shares ** (1.0 / self.gamma)
        return values

    def to_arrays(self) -> Arrays:
        """See Form."""
        return _own_arrays(self)


def _own_arrays(form: Any) -> Arrays:
    return {item.name: np.asarray(getattr(form, item.name)) for item in fields(form)}


def form_of(kind: str, arrays: Mapping[str, NDArray[Any]]) -> Form:
    """The form whose `to_arrays` gave `arrays`.

    Raises:
        CorpusError: If the kind is unknown or an array is missing or makes no sense.
    """
    try:
        form: Form = _READERS[kind](arrays)
        return form
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorpusError(
            f"The model holds a part of kind {kind!r} that cannot be read: {error!r}. "
            "To fix: fit it again, or upgrade precision-time."
        ) from error


def _read_network(arrays: Mapping[str, NDArray[Any]]) -> Network:
    count = sum(name.startswith("weight") for name in arrays)
    return Network(
        weights=[arrays[f"weight{index}"] for index in range(count)],
        biases=[arrays[f"bias{index}"] for index in range(count)],
    )


def _read_trees(arrays: Mapping[str, NDArray[Any]]) -> Trees:
    ensemble = TreeEnsemble.from_arrays(arrays, "tree")
    nodes = len(ensemble.value)
    for side in (ensemble.left, ensemble.right, ensemble.roots):
        if len(side) and (side.min() < 0 or side.max() >= nodes):
            raise ValueError("a tree points outside itself")
    return Trees(ensemble=ensemble, offset=arrays["offset"], single=arrays["single"])


_READERS: Mapping[str, Any] = {
    Linear.kind: lambda arrays: Linear(**arrays),
    Kernel.kind: lambda arrays: Kernel(**arrays),
    Network.kind: _read_network,
    Trees.kind: _read_trees,
    Overlap.kind: lambda arrays: Overlap(**arrays),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A factor of the predicted time: a form of standardised features, in seconds or as a logarithm."""

    features: tuple[Feature, ...]
    center: Floats
    """Shape (n_features,)."""
    scale: Floats
    """Shape (n_features,)."""
    form: Form
    log: bool
    """Whether the form gives the logarithm."""
    unit: float
    """What the form's 1 (or, of a logarithm, 0) stands for."""
    least: float
    """Smallest value that comes out: a linear form may reach below 0."""
    power: float = 1.0
    """Of the factor: 1/k for each of k models whose geometric mean is taken."""

    def predict(self, columns: Mapping[str, Column]) -> Floats:
        """The factor of each row, shape (n,)."""
        return self.of_table(table(self.features, columns))

    def of_table(self, x: Floats) -> Floats:
        """The factor of each row of its features, shape (n,)."""
        values = self.form.predict((x - self.center) / self.scale)
        if self.log:
            values = np.exp(np.minimum(values, _LARGEST_LOG))
        factors: Floats = np.maximum(self.unit * values, self.least) ** self.power
        return factors
