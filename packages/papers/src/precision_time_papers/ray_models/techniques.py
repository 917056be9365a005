"""The techniques of `data/techniques.toml`: estimators, their grids and ranges, and the features they read.

Linear techniques get every feature, products and terms included. Local ones (kernel, trees, network) get
those of single columns: products add nothing to a tree, and hide distances in repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from precision_time.errors import UnknownNameError
from precision_time.io import packaged_toml

from .features import Feature

NAMED_INPUTS: Mapping[str, str] = {
    "overlap": "batch and workers",
    "samples": "size, or batch",
    "work": "size, or batch",
    "ernest": "workers, and size or batch",
}
"""Inputs that are not chosen among a study's features, and the roles that they need."""


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
    named: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Inputs to the indices that they read, in their order; empty where roles are missing."""
    own: tuple[int, ...] = ()
    """Those that only `named` inputs read."""
    num_grey: int = 0
    """Features that only a grey box reads: what our own predictor answers for the row."""

    @property
    def num_black(self) -> int:
        """Features of black boxes."""
        return len(self.features) - self.num_grey

    def columns(self, inputs: str) -> tuple[int, ...]:
        """Indices of the features of a technique with these `inputs`."""
        if inputs in NAMED_INPUTS:
            return self.named.get(inputs, ())
        grey = tuple(range(self.num_black, len(self.features)))
        if inputs == "process":
            return grey
        every = tuple(index for index in range(self.num_black) if index not in self.own)
        if inputs == "every":
            return every
        single = tuple(index for index in every if len(self.features[index]) == 1)
        return single if inputs == "single" else (*single, *grey)


@dataclass(frozen=True, kw_only=True, slots=True)
class Technique:
    """One way to learn a time."""

    name: str
    title: str
    estimator: str
    """Module and class of the regressor."""
    complexity: int = 2
    """0: rules of proportion and Amdahl's; 1: coefficients of a formula; 2: everything else."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments where nothing is searched."""
    seeded: bool = False
    """Takes `random_state`."""
    inputs: Literal[
        "every", "single", "grey", "process", "overlap", "samples", "work", "ernest"
    ] = "single"  # fmt: skip
    """Features that it reads. "grey" and "process" (those of our own predictor alone) learn the ratio of
    measured to predicted time instead of the time; the last four have their own, see `named_features`."""
    target: str = "log"
    base: str = ""
    """Technique whose residual is learned; empty for the time itself."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of the Bayesian search; what is in the grid but not here stays a choice among the grid's values."""

    @property
    def grey(self) -> bool:
        """Whether it needs our own predictor."""
        return self.inputs in ("grey", "process")

    @property
    def linear(self) -> bool:
        """Whether it takes every feature, so that choosing among them pays."""
        return self.inputs == "every"

    def why_unavailable(self, pool: FeaturePool) -> str:
        """Why the technique cannot be used; empty if it can."""
        if self.grey and not pool.num_grey:
            return "needs grey_box: what our own predictor answers for each point"
        inputs = TECHNIQUES[self.base].inputs if self.base else self.inputs
        if inputs in NAMED_INPUTS and not pool.named.get(inputs):
            return f"needs the roles {NAMED_INPUTS[inputs]}"
        return ""

    def labels(self, pool: FeaturePool) -> frozenset[str]:
        """Columns whose values are labels to it: between or beyond them it answers as for the nearest."""
        groups = pool.columns(self.inputs)[self.settings.get("num_terms", 0) :]
        if "num_terms" not in self.settings:
            return frozenset()
        return frozenset(column for index in groups for _, column in pool.features[index])

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
            standardize=self.inputs not in (*NAMED_INPUTS, "process"),
        )
        return ResidualRegressor(TECHNIQUES[self.base].build(pool, seed), timed) if self.base else timed


def _read(name: str, entry: Mapping[str, Any]) -> Technique:
    shared = _FILE["shared"].get(entry.get("like"), {})
    fields = {**shared, **{key: value for key, value in entry.items() if key != "like"}}
    fields["grid"] = {
        key: tuple(None if value == "none" else value for value in values)
        for key, values in fields.get("grid", {}).items()
    }
    fields["ranges"] = {key: Range(**value) for key, value in fields.get("ranges", {}).items()}
    return Technique(name=name, **fields)


_FILE = packaged_toml(__package__, "data/techniques.toml")
TECHNIQUES: Mapping[str, Technique] = {name: _read(name, entry) for name, entry in _FILE["technique"].items()}


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
