"""The techniques: an estimator, its grid, its ranges for a Bayesian search, and which features it is given.

Linear techniques get every feature, products and terms included. Local ones (kernel, trees, network) get
those of single columns: products add nothing to a tree, and hide distances in repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from ...errors import UnknownNameError
from .features import Feature


@dataclass(frozen=True, slots=True)
class Range:
    """Where a Bayesian search may look: numbers from `low` to `high`."""

    low: float
    high: float
    log: bool = True
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FeaturePool:
    """All features of a study, and which techniques read which of them."""

    features: tuple[Feature, ...]
    """Those that only a grey box reads come last."""
    overlap: tuple[int, ...] = ()
    """Indices that `overlap` reads, in its order; empty where no roles were given."""
    own: tuple[int, ...] = ()
    """Those that only `overlap` reads."""
    num_grey: int = 0
    """Features that only a grey box reads: what our own predictor answers for the row."""

    @property
    def num_black(self) -> int:
        """Features of black boxes."""
        return len(self.features) - self.num_grey

    def columns(self, inputs: str) -> tuple[int, ...]:
        """Indices of the features of a technique with these `inputs`."""
        if inputs == "overlap":
            return self.overlap
        every = tuple(index for index in range(self.num_black) if index not in self.own)
        if inputs == "every":
            return every
        single = tuple(index for index in every if len(self.features[index]) == 1)
        return single if inputs == "single" else (*single, *range(self.num_black, len(self.features)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    """One way to learn a time."""

    name: str
    title: str
    estimator: str
    """Module and class of the regressor."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments where nothing is searched."""
    seeded: bool = False
    """Takes `random_state`."""
    inputs: Literal["every", "single", "grey", "overlap"] = "single"
    """Features that it reads; "grey" learns the ratio of measured to predicted time instead of the time."""
    target: str = "log"
    base: str = ""
    """Technique whose residual is learned; empty for the time itself."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of the Bayesian search; what is in the grid but not here stays a choice among the grid's values."""

    @property
    def grey(self) -> bool:
        """Whether it needs our own predictor."""
        return self.inputs == "grey"

    @property
    def linear(self) -> bool:
        """Whether it takes every feature, so that choosing among them pays."""
        return self.inputs == "every"

    def why_unavailable(self, pool: FeaturePool) -> str:
        """Why the technique cannot be used; empty if it can."""
        if self.grey and not pool.num_grey:
            return "needs grey_box: what our own predictor answers for each point"
        if "overlap" in (self.inputs, self.base) and not pool.overlap:
            return "needs the roles batch and workers"
        return ""

    def build(
        self, pool: FeaturePool, seed: int, columns: tuple[int, ...] | None = None, **parameters: Any
    ) -> Any:
        """The unfitted estimator.

        Args:
            pool: Features of the table that it will be fitted on.
            seed: Of what is random in it.
            columns: Indices of features to use; None for all that it reads.
            **parameters: `target` and arguments of the regressor, over `settings`.
        """
        from .estimators import ResidualRegressor, TimeRegressor

        arguments = {**self.settings, **parameters}
        target = arguments.pop("target", self.target)
        module, _, name = self.estimator.rpartition(".")
        regressor = getattr(import_module(module, __package__), name)(
            **arguments, **({"random_state": seed} if self.seeded else {})
        )
        timed = TimeRegressor(
            regressor,
            target=target,
            columns=pool.columns(self.inputs) if columns is None else columns,
            standardize=self.inputs != "overlap",
        )
        return ResidualRegressor(TECHNIQUES[self.base].build(pool, seed), timed) if self.base else timed


_TARGETS = ("seconds", "log")
_LEAVES = {"min_samples_leaf": Range(1, 10, whole=True)}
_RANDOMIZED: Mapping[str, Any] = {
    "estimator": "sklearn.ensemble.ExtraTreesRegressor",
    "settings": {"n_estimators": 60, "min_samples_leaf": 2},
    "seeded": True,
    "grid": {"min_samples_leaf": (2, 5)},
    "ranges": _LEAVES,
}
_BOOSTED: Mapping[str, Any] = {
    "estimator": "lightgbm.LGBMRegressor",
    "settings": {
        "n_estimators": 200, "learning_rate": 0.06, "num_leaves": 15, "min_child_samples": 5,
        "deterministic": True, "force_row_wise": True, "n_jobs": 1, "verbosity": -1,
    },
    "seeded": True,
    "grid": {"num_leaves": (7, 15), "n_estimators": (100, 300)},
    "ranges": {
        "num_leaves": Range(4, 31, whole=True),
        "n_estimators": Range(50, 500, whole=True),
        "learning_rate": Range(0.02, 0.2),
    },
}  # fmt: skip
_ALL = (
    Technique(
        name="ridge", title="ridge regression", inputs="every",
        estimator="sklearn.linear_model.Ridge", settings={"alpha": 0.1},
        grid={"alpha": (0.001, 0.1, 10.0), "target": _TARGETS}, ranges={"alpha": Range(1e-4, 100.0)},
    ),
    Technique(
        name="lasso", title="lasso", inputs="every",
        estimator="sklearn.linear_model.Lasso", settings={"alpha": 0.001, "max_iter": 3000},
        grid={"alpha": (0.0003, 0.003, 0.03), "target": _TARGETS}, ranges={"alpha": Range(1e-5, 0.1)},
    ),
    Technique(
        name="nnls", title="non-negative least squares", inputs="every", target="seconds",
        estimator="sklearn.linear_model.LinearRegression", settings={"positive": True},
    ),
    Technique(
        name="stepwise", title="stepwise regression (Draper-Smith)", inputs="every",
        estimator=".estimators.StepwiseRegressor",
        grid={"p_add": (0.01, 0.05), "target": _TARGETS}, ranges={"p_add": Range(0.001, 0.1)},
    ),
    Technique(
        name="svr", title="support vectors",
        estimator="sklearn.svm.SVR",
        settings={"C": 10.0, "epsilon": 0.01, "gamma": 0.1, "max_iter": 20_000},
        grid={"C": (1.0, 30.0), "gamma": (0.03, 0.2)},
        ranges={"C": Range(0.1, 300.0), "gamma": Range(0.005, 1.0)},
    ),
    Technique(
        name="tree", title="decision tree", seeded=True,
        estimator="sklearn.tree.DecisionTreeRegressor",
        grid={"max_depth": (4, 8, None), "min_samples_leaf": (1, 3)}, ranges=_LEAVES,
    ),
    Technique(
        name="forest", title="random forest", seeded=True,
        estimator="sklearn.ensemble.RandomForestRegressor", settings={"n_estimators": 60},
        grid={"min_samples_leaf": (1, 3), "max_features": (0.5, 1.0)},
        ranges={**_LEAVES, "max_features": Range(0.3, 1.0, log=False)},
    ),
    Technique(name="boosting", title="boosted trees (LightGBM)", **_BOOSTED),
    Technique(
        name="network", title="small neural network", seeded=True,
        estimator="sklearn.neural_network.MLPRegressor",
        settings={"hidden_layer_sizes": (16,), "solver": "lbfgs", "max_iter": 300},
        grid={"alpha": (0.01, 1.0)}, ranges={"alpha": Range(1e-4, 10.0)},
    ),
    Technique(
        name="overlap", title="overlapping parts (Pollux's form)", inputs="overlap", target="seconds",
        estimator=".estimators.OverlapRegressor",
    ),
    Technique(
        name="overlap-trees", title="overlapping parts, trees on the rest", base="overlap", **_RANDOMIZED
    ),
    Technique(
        name="nnls-trees", title="non-negative least squares, trees on the rest", base="nnls", **_RANDOMIZED
    ),
    Technique(
        name="grey-ridge", title="grey box: ridge on measured / predicted", inputs="grey",
        estimator="sklearn.linear_model.Ridge", settings={"alpha": 10.0},
        grid={"alpha": (1.0, 30.0)}, ranges={"alpha": Range(0.1, 1000.0)},
    ),
    Technique(
        name="grey-trees", title="grey box: randomized trees on measured / predicted", inputs="grey",
        **_RANDOMIZED,
    ),
    Technique(
        name="grey-boosting", title="grey box: boosted trees on measured / predicted", inputs="grey",
        **_BOOSTED,
    ),
)  # fmt: skip
TECHNIQUES: Mapping[str, Technique] = {item.name: item for item in _ALL}


def technique_named(name: str) -> Technique:
    """The technique of a name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in TECHNIQUES:
        raise UnknownNameError(
            kind="technique", name=name, known=TECHNIQUES, hint=f"Known: {', '.join(TECHNIQUES)}."
        )
    return TECHNIQUES[name]
