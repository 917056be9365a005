"""Fitting the four regressors with scikit-learn, and choosing among them by group-wise cross-validation.

Rows with equal inputs (repeats, other software) become one, with their median time and the square root of
their number as weight. Folds hold out whole architectures, and all choices (regressor, target, settings)
are made inside the training part.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.splits import grouped_folds
from precision_time.errors import ConfigError, required_module
from precision_time.learn.metrics import summarize

from .columns import ANNOTATED, EMBEDDING
from .regressors import KINDS, Floats, Regressor, Standardizer, TrainedVariant, check_kind

Ints = NDArray[np.int64]
Progress = Callable[[str], None]

LEAST_ROWS, LEAST_GROUPS = 60, 4
"""A separate predictor needs this many measured runs, of this many architectures."""
_RANGE = {"log": math.log(10.0), "ratio": math.log(3.0)}
"""How far beyond the targets seen an answer may lie, as a logarithm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One regressor with its settings, before fitting."""

    kind: str
    target: str
    rank: int
    """Principal components of the embedding that are regressed on; all of it where it has no more columns."""
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class FitSettings:
    """What is tried."""

    kinds: tuple[str, ...] = KINDS
    targets: tuple[str, ...] = ("log", "raw", "ratio")
    """`ratio` only where analytical times are known."""
    ranks: tuple[int, ...] = (4, 32)
    embedding_weight: float | None = None
    """Inputs that the whole embedding counts as, its components in their natural proportions. None: every
    component is brought to unit deviation and counts as one input, as in the paper."""
    linear_ridges: tuple[float, ...] = (1e-3, 30.0, 1000.0)
    ridges: tuple[float, ...] = (300.0, 3000.0, 30000.0)
    """Of polynomial-2: its columns may outnumber the rows."""
    svr_costs: tuple[float, ...] = (1.0, 10.0)
    svr_widths: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Gamma times the number of inputs."""
    layers: tuple[tuple[int, ...], ...] = ((64, 32),)
    folds: int = 4
    most_rows: int = 1500
    """Rows that SVR and MLP learn from at most, drawn evenly over the architectures: both cost more than
    linearly, and an SVR is as large as its rows."""
    seed: int = 0


QUICK = FitSettings(
    targets=("log", "ratio"),
    linear_ridges=(30.0,),
    ridges=(300.0, 30000.0),
    svr_costs=(10.0,),
    folds=3,
)
"""Fewer settings: for comparisons that fit many times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """What is learned from: n rows."""

    x: Floats
    """Inputs, shape (n, n_features)."""
    names: tuple[str, ...]
    seconds: Floats
    """Measured step times, shape (n,)."""
    analytical_s: Floats | None
    """Of the cost model; None for a predictor that does not read it."""
    groups: Ints
    """Architecture of each row."""
    weights: Floats

    def take(self, rows: NDArray[Any]) -> Examples:
        """Some of the rows."""
        return Examples(
            x=self.x[rows],
            names=self.names,
            seconds=self.seconds[rows],
            analytical_s=None if self.analytical_s is None else self.analytical_s[rows],
            groups=self.groups[rows],
            weights=self.weights[rows],
        )


def joined(examples: Examples) -> Examples:
    """Rows of equal inputs and architecture as one: their median time, the square root of their number."""
    keys = np.column_stack([examples.x, examples.groups])
    _, first, inverse, counts = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(len(examples.x))
    order = np.lexsort((examples.seconds, inverse))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    low, high = order[starts + (counts - 1) // 2], order[starts + counts // 2]
    found = examples.take(first)
    return Examples(
        x=found.x,
        names=found.names,
        seconds=np.sqrt(examples.seconds[low] * examples.seconds[high]),
        analytical_s=found.analytical_s,
        groups=found.groups,
        weights=np.sqrt(counts.astype(np.float64)) * found.weights,
    )


def choose(examples: Examples, settings: FitSettings, progress: Progress = lambda _: None) -> TrainedVariant:
    """Fit every kind and choose by the mean |log(predicted / measured)| on held-out architectures.

    Raises:
        ConfigError: If there are too few architectures to hold any out.
        MissingExtraError: If scikit-learn is not installed.
    """
    folds = grouped_folds(examples.groups, num_folds=settings.folds, seed=settings.seed)
    if len(np.unique(folds)) < 2:
        raise ConfigError(
            f"{len(examples.x)} rows of {len(np.unique(examples.groups))} architectures cannot be "
            "cross-validated: every fold holds out whole architectures. To fix: add runs of other ones."
        )
    tried = [
        candidate
        for candidate in candidates(settings)
        if candidate.target != "ratio" or examples.analytical_s is not None
    ]
    predicted = _out_of_fold(examples, folds, tried, settings, progress)
    logs = np.abs(np.log(predicted / examples.seconds))
    losses = np.average(logs, axis=1, weights=examples.weights)
    best = {
        kind: min((i for i, c in enumerate(tried) if c.kind == kind), key=lambda i: float(losses[i]))
        for kind in settings.kinds
    }
    progress("fitting on all rows")
    prepared = Prepared.of(examples)
    scores = {kind: summarize(examples.seconds, predicted[place]) for kind, place in best.items()}
    return TrainedVariant(
        names=examples.names,
        best=min(best, key=lambda kind: float(losses[best[kind]])),
        regressors={kind: prepared.fit(tried[place], settings) for kind, place in best.items()},
        scores={kind: score.to_dict() for kind, score in scores.items() if score is not None},
    )


def candidates(settings: FitSettings) -> Iterator[Candidate]:
    """Everything that is tried."""
    grids: Mapping[str, Sequence[Mapping[str, Any]]] = {
        "linear": [{"alpha": alpha} for alpha in settings.linear_ridges],
        "polynomial-2": [{"alpha": alpha} for alpha in settings.ridges],
        "svr": [{"C": cost, "width": width} for cost in settings.svr_costs for width in settings.svr_widths],
        "mlp": [{"layers": layers} for layers in settings.layers],
    }
    for kind in settings.kinds:
        for target, rank in product(settings.targets, settings.ranks):
            for chosen in grids[check_kind(kind)]:
                yield Candidate(kind=kind, target=target, rank=rank, settings=chosen)


@dataclass(kw_only=True, slots=True)
class Prepared:
    """Rows ready for fitting: what many candidates share is computed once."""

    rows: Examples
    inputs: Standardizer
    z: Floats
    projections: dict[int, Floats]
    """By rank."""

    @classmethod
    def of(cls, examples: Examples) -> Prepared:
        """The rows of a training part, joined and standardized."""
        rows = joined(examples)
        inputs = Standardizer.of(rows.x)
        return cls(rows=rows, inputs=inputs, z=inputs(rows.x), projections={})

    def fit(self, candidate: Candidate, settings: FitSettings) -> Regressor:
        """One candidate fitted on all rows.

        Raises:
            MissingExtraError: If scikit-learn is not installed.
        """
        if candidate.rank not in self.projections:
            self.projections[candidate.rank] = embedding_projection(
                self.z, self.rows.names, candidate.rank, settings.embedding_weight
            )
        projection = self.projections[candidate.rank]
        rows: NDArray[np.intp] = np.arange(len(self.z))
        if candidate.kind in ("svr", "mlp"):
            rows = _drawn(self.rows.groups, settings)
        target = _target(self.rows, candidate.target)[rows]
        mean, scale = float(target.mean()), float(target.std()) or 1.0
        with warnings.catch_warnings():
            # An MLP that stops at its last epoch is judged by its errors, like the others.
            warnings.simplefilter("ignore", category=_sklearn("exceptions").ConvergenceWarning)
            arrays = _fitted_arrays(
                candidate,
                self.z[rows] @ projection,
                (target - mean) / scale,
                self.rows.weights[rows],
                settings.seed,
                _counted_inputs(self.rows.names, projection, settings.embedding_weight),
            )
        low, high = _bounds(target, candidate.target)
        return Regressor(
            kind=candidate.kind,
            target=candidate.target,
            inputs=self.inputs,
            projection=projection,
            target_mean=mean,
            target_scale=scale,
            low=low,
            high=high,
            arrays=arrays,
        )


def _sklearn(module: str) -> Any:
    """A module of scikit-learn.

    Raises:
        MissingExtraError: If it is not installed.
    """
    return required_module(
        f"sklearn.{module}",
        package="scikit-learn",
        extra="precision-time-papers",
        purpose="train PredictDDL's regressors",
    )


def _fitted_arrays(
    candidate: Candidate, z: Floats, u: Floats, weights: Floats, seed: int, inputs: float
) -> dict[str, Floats]:
    """A regressor fitted by scikit-learn, as the arrays that `regressors.py` names.

    Args:
        candidate: Kind and settings.
        z: Standardized inputs, shape (n, n_features).
        u: Standardized targets, shape (n,).
        weights: Of the rows, shape (n,); an MLP ignores them (scikit-learn has them from 1.7 on only).
        seed: Of an MLP.
        inputs: How many inputs the columns of `z` count as.
    """
    chosen, width = candidate.settings, z.shape[1]
    if candidate.kind == "linear":
        model = _sklearn("linear_model").Ridge(alpha=chosen["alpha"]).fit(z, u, sample_weight=weights)
        return {"w": model.coef_, "b": np.array([model.intercept_])}
    if candidate.kind == "polynomial-2":
        expanded = _sklearn("preprocessing").PolynomialFeatures(degree=2, include_bias=False).fit_transform(z)
        model = _sklearn("linear_model").Ridge(alpha=chosen["alpha"]).fit(expanded, u, sample_weight=weights)
        matrix = np.zeros((width, width))
        matrix[np.triu_indices(width)] = model.coef_[width:]
        return {"w": model.coef_[:width], "A": matrix, "b": np.array([model.intercept_])}
    if candidate.kind == "svr":
        gamma = chosen["width"] / inputs
        model = _sklearn("svm").SVR(C=chosen["C"], gamma=gamma, epsilon=0.05)
        model.fit(z, u, sample_weight=weights)
        # Vectors transposed, so that equal embeddings are adjacent and compress.
        vectors = np.ascontiguousarray(model.support_vectors_.T)
        return {"v": vectors, "a": model.dual_coef_[0], "b": model.intercept_, "gamma": np.array([gamma])}
    model = _sklearn("neural_network").MLPRegressor(
        hidden_layer_sizes=chosen["layers"],
        alpha=1e-3,
        learning_rate_init=3e-3,
        max_iter=120,
        early_stopping=len(z) >= 100,
        n_iter_no_change=15,
        random_state=seed,
    )
    model.fit(z, u)
    layers = {f"W{layer}": values for layer, values in enumerate(model.coefs_)}
    return layers | {f"b{layer}": values for layer, values in enumerate(model.intercepts_)}


def embedding_projection(z: Floats, names: Sequence[str], rank: int, weight: float | None = None) -> Floats:
    """Principal components for the columns of embeddings, the identity for all others.

    With as few architectures as a type usually has, the last components are noise: brought to unit deviation
    each, they outvote the inputs that a time is made of. With a weight they stay as small as they are.

    Args:
        z: Standardized rows, shape (n, n_features).
        names: Columns.
        rank: Components to keep; with no more columns than that, they are kept as they are.
        weight: Sum of the variances of what is kept; None scales each component to unit deviation, and leaves
            columns that are kept as they are at theirs.

    Returns:
        Shape (n_features, n_regressed).
    """
    is_embedding = _is_embedding(names)
    if not is_embedding.any() or (weight is None and is_embedding.sum() <= rank):
        return np.eye(len(names))
    if is_embedding.sum() <= rank:
        components = np.eye(int(is_embedding.sum()))
    else:
        block = np.unique(z[:, is_embedding], axis=0)
        _, lengths, directions = np.linalg.svd(block - block.mean(axis=0), full_matrices=False)
        kept = int((lengths[:rank] > 1e-6 * max(float(lengths[0]), 1e-12)).sum())
        components = directions[:kept].T
    deviations = np.maximum((z[:, is_embedding] @ components).std(axis=0), 1e-9)
    together = math.sqrt(float(np.square(deviations).sum()))
    components = components / (deviations if weight is None else together / math.sqrt(weight))
    kept = components.shape[1]
    others = np.flatnonzero(~is_embedding)
    projection = np.zeros((len(names), kept + len(others)))
    projection[np.flatnonzero(is_embedding), :kept] = components
    projection[others, kept + np.arange(len(others))] = 1.0
    return projection


def _is_embedding(names: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([name.startswith((EMBEDDING, ANNOTATED)) for name in names], dtype=bool)


def _counted_inputs(names: Sequence[str], projection: Floats, weight: float | None) -> float:
    """How many inputs of unit deviation the regressed columns amount to."""
    others = int((~_is_embedding(names)).sum())
    return projection.shape[1] if weight is None or others == len(names) else others + weight


def _out_of_fold(
    examples: Examples, folds: Ints, tried: Sequence[Candidate], settings: FitSettings, progress: Progress
) -> Floats:
    """Step times of every candidate for the rows it was not fitted on, shape (n_candidates, n)."""
    predicted = np.empty((len(tried), len(examples.x)))
    for number, fold in enumerate(np.unique(folds), start=1):
        outside = folds == fold
        prepared = Prepared.of(examples.take(~outside))
        analytical_s = None if examples.analytical_s is None else examples.analytical_s[outside]
        for place, candidate in enumerate(tried):
            progress(f"fold {number}, {candidate.kind} on {candidate.target}, {place + 1} of {len(tried)}")
            fitted = prepared.fit(candidate, settings)
            predicted[place, outside] = fitted.predict(examples.x[outside], analytical_s)
    return predicted


def _bounds(target: Floats, kind: str) -> tuple[float, float]:
    """Least and largest target of an answer: what was seen and some more."""
    low, high = float(target.min()), float(target.max())
    if kind == "raw":
        return low / 10.0, high * 10.0  # a line through seconds may become negative; seconds do not
    return low - _RANGE[kind], high + _RANGE[kind]


def _target(rows: Examples, target: str) -> Floats:
    if target == "raw":
        return rows.seconds
    if target == "log" or rows.analytical_s is None:
        logs: Floats = np.log(rows.seconds)
        return logs
    ratios: Floats = np.log(rows.seconds / rows.analytical_s)
    return ratios


def _drawn(groups: Ints, settings: FitSettings) -> NDArray[np.intp]:
    """At most `most_rows` rows, taken from the architectures in turn."""
    if len(groups) <= settings.most_rows:
        return np.arange(len(groups))
    shuffled = np.random.default_rng(settings.seed).permutation(len(groups))
    _, inverse = np.unique(groups[shuffled], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    turn = np.empty(len(groups), dtype=np.int64)
    turn[order] = np.arange(len(groups)) - starts[inverse[order]]
    chosen: NDArray[np.intp] = np.sort(shuffled[np.argsort(turn, kind="stable")[: settings.most_rows]])
    return chosen
