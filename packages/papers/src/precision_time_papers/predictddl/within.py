"""PredictDDL where its inputs tell jobs apart: data parallel, within one source, precision and stack.

Its inputs hold neither precision nor software, and its own trainer leaves model-parallel runs out; pooled
over a corpus it is given runs that it cannot tell apart. Here each setting (source, precision, stack, dataset
type) with enough runs has a regressor of its own, and others have no answer. An answer is held within a
factor of three of the nearest runs fitted, by the distance of the inputs: bounded by all times of a type, it
may be a thousand times those of all architectures like its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..contract import FeatureTable, Floats, Ints, JobViews, require_rows
from .columns import BLIND, inputs_of, picked
from .estimator import TITLES, regression_inputs
from .fitting import LEAST_GROUPS, LEAST_ROWS, QUICK, FitSettings, choose
from .regressors import Regressor
from .trainer import examples_of

NEAREST = 8
"""Runs that bound an answer."""
FACTOR = 3.0
"""How far beyond their times it may lie."""
_CHUNK = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundByNeighbors:
    """A regressor whose answers stay near the times of the runs most like the job."""

    regressor: Regressor
    z: Floats
    """Standardized inputs of the runs fitted, as regressed on, shape (n, n_regressed)."""
    seconds: Floats
    """Their step times, shape (n,)."""

    @classmethod
    def of(cls, regressor: Regressor, x: Floats, seconds: Floats) -> BoundByNeighbors:
        """The regressor with the runs it was fitted to, shape (n, n_features)."""
        return cls(regressor=regressor, z=regressor.inputs(x) @ regressor.projection, seconds=seconds)

    def predict(self, x: Floats) -> Floats:
        """Step times [s], shape (k,)."""
        low, high = self.bounds(x)
        held: Floats = np.clip(self.regressor.predict(x), low, high)
        return held

    def bounds(self, x: Floats) -> tuple[Floats, Floats]:
        """Least and largest answer for each job, shape (k,) each."""
        asked = self.regressor.inputs(x) @ self.regressor.projection
        count = min(NEAREST, len(self.z))
        low, high = np.empty((2, len(x)))
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            apart = np.square(asked[part]).sum(axis=1)[:, None] - 2.0 * (asked[part] @ self.z.T)
            apart += np.square(self.z).sum(axis=1)[None, :]
            near = self.seconds[np.argpartition(apart, count - 1, axis=1)[:, :count]]
            low[part], high[part] = near.min(axis=1) / FACTOR, near.max(axis=1) * FACTOR
        return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedWithin:
    """A regressor per setting."""

    names: tuple[str, ...]
    by_setting: Mapping[int, BoundByNeighbors]

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,); NaN for jobs of a setting without a regressor."""
        x = picked(*regression_inputs(jobs), self.names)
        seconds = np.full(len(x), np.nan)
        for number, regressor in self.by_setting.items():
            rows = jobs.setting == number
            if rows.any():
                seconds[rows] = regressor.predict(x[rows])
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictDDLWithin:
    """See the module. Jobs need embeddings, cluster columns and settings."""

    citation: ClassVar[str] = "Assogba et al., IEEE CLUSTER 2023"
    variant: str = BLIND
    settings: FitSettings = field(default_factory=lambda: QUICK)

    @property
    def title(self) -> str:
        """Its name in tables."""
        return f"{TITLES[self.variant]}, within source, precision and stack"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedWithin:
        """A regressor for each setting with enough rows and architectures.

        Raises:
            ConfigError: If no row is given.
            MissingExtraError: If scikit-learn is not installed.
        """
        require_rows(rows, self.title)
        names, values = regression_inputs(table.jobs)
        settings = table.jobs.setting[rows]
        fitted = {}
        for number in np.unique(settings[settings >= 0]).tolist():
            own = examples_of(self.variant, table.measured, names, values, rows[settings == number])
            if len(own.x) >= LEAST_ROWS and len(np.unique(own.groups)) >= LEAST_GROUPS:
                chosen = choose(own, self.settings)
                fitted[number] = BoundByNeighbors.of(chosen.regressors[chosen.best], own.x, own.seconds)
        return FittedWithin(names=inputs_of(self.variant, names), by_setting=fitted)
