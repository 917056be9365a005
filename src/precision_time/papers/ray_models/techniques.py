"""The techniques: an estimator, its grid, its ranges for a Bayesian search, and which features it is given.

Linear techniques get every feature, products and terms included. Local ones (kernel, trees, network) get
those of single columns: products add nothing to a tree, and drown distances in repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import UnknownNameError
from .features import Feature, is_single

if TYPE_CHECKING:
    from .estimators import TimeRegressor


@dataclass(frozen=True, slots=True)
class Range:
    """Where a Bayesian search may look: numbers from `low` to `high`."""

    low: float
    high: float
    log: bool = True
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """The features there are, and which of them play which part."""

    features: tuple[Feature, ...]
    overlap: tuple[int, ...] = ()
    """Columns of the form `overlap`, in its order; empty where no roles were given."""
    own: tuple[int, ...] = ()
    """Columns that only the form `overlap` reads."""
    grey: tuple[int, ...] = ()
    """Columns that only a grey box may see: what our own predictor says of the row."""

    @property
    def every(self) -> tuple[int, ...]:
        """All columns of a black box."""
        hidden = {*self.grey, *self.own}
        return tuple(index for index in range(len(self.features)) if index not in hidden)

    @property
    def single(self) -> tuple[int, ...]:
        """Those of one column."""
        return tuple(index for index in self.every if is_single(self.features[index]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    """One way to learn a time."""

    name: str
    title: str
    build: Callable[[Pool, int], Any]
    """Estimator of a pool and a seed."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of the Bayesian search; what is in the grid but not here stays a choice among the grid's values."""
    grey: bool = False
    """Learns the ratio of measured to predicted time instead of the time."""
    linear: bool = False
    """Takes every feature, so that choosing among them pays."""
    needs_overlap: bool = False

    def available(self, pool: Pool) -> str:
        """Why the technique cannot be used; empty if it can."""
        if self.grey and not pool.grey:
            return "needs grey_box: what our own predictor says of each point"
        if self.needs_overlap and not pool.overlap:
            return "needs the roles batch and workers"
        return ""


def _timed(regressor: Any, columns: Sequence[int], target: str = "log") -> TimeRegressor:
    from .estimators import TimeRegressor

    return TimeRegressor(regressor, target=target, columns=tuple(columns))


def _ridge(pool: Pool, seed: int) -> Any:
    from sklearn.linear_model import Ridge

    return _timed(Ridge(alpha=0.1), pool.every)


def _lasso(pool: Pool, seed: int) -> Any:
    from sklearn.linear_model import Lasso

    return _timed(Lasso(alpha=0.001, max_iter=3000), pool.every)


def _nnls(pool: Pool, seed: int) -> Any:
    from sklearn.linear_model import LinearRegression

    return _timed(LinearRegression(positive=True), pool.every, "seconds")


def _stepwise(pool: Pool, seed: int) -> Any:
    from .estimators import StepwiseRegressor

    return _timed(StepwiseRegressor(), pool.every)


def _svr(pool: Pool, seed: int) -> Any:
    from sklearn.svm import SVR

    return _timed(SVR(C=10.0, epsilon=0.01, gamma=0.1, max_iter=20_000), pool.single)


def _tree(pool: Pool, seed: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return _timed(DecisionTreeRegressor(random_state=seed), pool.single)


def _forest(pool: Pool, seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return _timed(RandomForestRegressor(n_estimators=60, random_state=seed), pool.single)


def _boosting(pool: Pool, seed: int) -> Any:
    return _timed(_lightgbm(seed), pool.single)


def _network(pool: Pool, seed: int) -> Any:
    from sklearn.neural_network import MLPRegressor

    network = MLPRegressor(hidden_layer_sizes=(16,), solver="lbfgs", max_iter=300, random_state=seed)
    return _timed(network, pool.single)


def _overlap(pool: Pool, seed: int) -> Any:
    from .estimators import OverlapRegressor, TimeRegressor

    return TimeRegressor(OverlapRegressor(), target="seconds", columns=pool.overlap, standardise=False)


def _overlap_trees(pool: Pool, seed: int) -> Any:
    from .estimators import ResidualRegressor

    return ResidualRegressor(_overlap(pool, seed), _timed(_randomized(seed), pool.single))


def _nnls_trees(pool: Pool, seed: int) -> Any:
    from .estimators import ResidualRegressor

    return ResidualRegressor(_nnls(pool, seed), _timed(_randomized(seed), pool.single))


def _grey_ridge(pool: Pool, seed: int) -> Any:
    from sklearn.linear_model import Ridge

    return _timed(Ridge(alpha=10.0), (*pool.single, *pool.grey))


def _grey_trees(pool: Pool, seed: int) -> Any:
    return _timed(_randomized(seed), (*pool.single, *pool.grey))


def _grey_boosting(pool: Pool, seed: int) -> Any:
    return _timed(_lightgbm(seed), (*pool.single, *pool.grey))


def _randomized(seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(n_estimators=60, min_samples_leaf=2, random_state=seed)


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        n_estimators=200,
        learning_rate=0.06,
        num_leaves=15,
        min_child_samples=5,
        random_state=seed,
        deterministic=True,
        force_row_wise=True,
        n_jobs=1,
        verbosity=-1,
    )


_TARGETS = ("seconds", "log")
_LEAVES = {"regressor__min_samples_leaf": (1, 3)}
_RESIDUAL = {"residual__regressor__min_samples_leaf": (2, 5)}
_BOOSTED = {"regressor__num_leaves": (7, 15), "regressor__n_estimators": (100, 300)}
_BOOSTED_RANGES = {
    "regressor__num_leaves": Range(4, 31, whole=True),
    "regressor__n_estimators": Range(50, 500, whole=True),
    "regressor__learning_rate": Range(0.02, 0.2),
}

TECHNIQUES: Mapping[str, Technique] = {
    item.name: item
    for item in (
        Technique(
            name="ridge",
            title="ridge regression",
            build=_ridge,
            grid={"regressor__alpha": (0.001, 0.1, 10.0), "target": _TARGETS},
            ranges={"regressor__alpha": Range(1e-4, 100.0)},
            linear=True,
        ),
        Technique(
            name="lasso",
            title="lasso",
            build=_lasso,
            grid={"regressor__alpha": (0.0003, 0.003, 0.03), "target": _TARGETS},
            ranges={"regressor__alpha": Range(1e-5, 0.1)},
            linear=True,
        ),
        Technique(name="nnls", title="non-negative least squares", build=_nnls, linear=True),
        Technique(
            name="stepwise",
            title="stepwise regression (Draper-Smith)",
            build=_stepwise,
            grid={"regressor__p_add": (0.01, 0.05), "target": _TARGETS},
            ranges={"regressor__p_add": Range(0.001, 0.1)},
            linear=True,
        ),
        Technique(
            name="svr",
            title="support vectors",
            build=_svr,
            grid={"regressor__C": (1.0, 30.0), "regressor__gamma": (0.03, 0.2)},
            ranges={"regressor__C": Range(0.1, 300.0), "regressor__gamma": Range(0.005, 1.0)},
        ),
        Technique(
            name="tree",
            title="decision tree",
            build=_tree,
            grid={"regressor__max_depth": (4, 8, None), **_LEAVES},
            ranges={"regressor__min_samples_leaf": Range(1, 10, whole=True)},
        ),
        Technique(
            name="forest",
            title="random forest",
            build=_forest,
            grid={**_LEAVES, "regressor__max_features": (0.5, 1.0)},
            ranges={
                "regressor__min_samples_leaf": Range(1, 10, whole=True),
                "regressor__max_features": Range(0.3, 1.0, log=False),
            },
        ),
        Technique(
            name="boosting",
            title="boosted trees (LightGBM)",
            build=_boosting,
            grid=_BOOSTED,
            ranges=_BOOSTED_RANGES,
        ),
        Technique(
            name="network",
            title="small neural network",
            build=_network,
            grid={"regressor__alpha": (0.01, 1.0)},
            ranges={"regressor__alpha": Range(1e-4, 10.0)},
        ),
        Technique(
            name="overlap",
            title="overlapping parts (Pollux's form)",
            build=_overlap,
            needs_overlap=True,
        ),
        Technique(
            name="overlap-trees",
            title="overlapping parts, trees on the rest",
            build=_overlap_trees,
            grid=_RESIDUAL,
            ranges={"residual__regressor__min_samples_leaf": Range(1, 10, whole=True)},
            needs_overlap=True,
        ),
        Technique(
            name="nnls-trees",
            title="non-negative least squares, trees on the rest",
            build=_nnls_trees,
            grid=_RESIDUAL,
            ranges={"residual__regressor__min_samples_leaf": Range(1, 10, whole=True)},
        ),
        Technique(
            name="grey-ridge",
            title="grey box: ridge on measured / predicted",
            build=_grey_ridge,
            grid={"regressor__alpha": (1.0, 30.0)},
            ranges={"regressor__alpha": Range(0.1, 1000.0)},
            grey=True,
        ),
        Technique(
            name="grey-trees",
            title="grey box: randomized trees on measured / predicted",
            build=_grey_trees,
            grid={"regressor__min_samples_leaf": (2, 5)},
            ranges={"regressor__min_samples_leaf": Range(1, 10, whole=True)},
            grey=True,
        ),
        Technique(
            name="grey-boosting",
            title="grey box: boosted trees on measured / predicted",
            build=_grey_boosting,
            grid=_BOOSTED,
            ranges=_BOOSTED_RANGES,
            grey=True,
        ),
    )
}


def technique_named(name: str) -> Technique:
    """The technique of a name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in TECHNIQUES:
        raise UnknownNameError(
            kind="technique",
            name=name,
            known=TECHNIQUES,
            hint=f"Known: {', '.join(TECHNIQUES)}.",
        )
    return TECHNIQUES[name]
