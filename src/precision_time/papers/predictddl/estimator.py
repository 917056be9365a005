r"""PredictDDL: a regressor per dataset type over the embedding of the architecture and the cluster.

Formula: $t = f_d([h ; c ; b])$ with h the embedding of a Graph HyperNetwork, c the cluster (nodes, devices
per node, memory, peak, bandwidths), b the batch, and f one of linear, polynomial-2, SVR and MLP, chosen per
dataset type d by cross-validation over architectures inside the training part.
Source: Assogba et al., PredictDDL (IEEE CLUSTER 2023). `predictddl-precision` is ours: the embedding comes in
blocks by lowered types, precision features join, and the logarithm of the ratio to the analytical step time
is learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...learn.table import JobTable, MeasuredTable
from ..contract import DATASET, Floats, column
from .columns import CLUSTER, EMBEDDING, PRECISION, VARIANTS, inputs_of, picked
from .fitting import (
    LEAST_GROUPS,
    LEAST_ROWS,
    QUICK,
    Candidate,
    Examples,
    FitSettings,
    Prepared,
    choose,
)
from .regressors import Regressor, check_kind
from .trainer import USUAL_TARGET, examples_of

_POOLED = {"C": 10.0, "width": 0.3}
_TITLES = dict(zip(VARIANTS, ("PredictDDL", "PredictDDL with precision"), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPredictDDL:
    """A regressor per dataset type, and one of all types for the others."""

    names: tuple[str, ...]
    """Columns that the regressors read."""
    by_type: Mapping[float, Regressor]
    """By number of the dataset type (`job.dataset`)."""
    pooled: Regressor

    def predict(self, jobs: JobTable) -> Floats:
        """Step times [s], shape (n,)."""
        x = picked(jobs.names, jobs.features, self.names)
        types = column(jobs, DATASET)
        seconds = np.empty(len(x))
        for number in np.unique(types):
            rows = types == number
            regressor = self.by_type.get(float(number), self.pooled)
            seconds[rows] = regressor.predict(x[rows], jobs.analytical_s[rows])
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictDDLRegression:
    """See the module. The table needs the columns `ghn.*`, `ghnp.*`, `cluster.*` and `job.dataset`."""

    variant: str = PRECISION
    regressor: str | None = None
    """One of KINDS alone; None lets cross-validation choose."""
    settings: FitSettings = field(default_factory=lambda: QUICK)

    @property
    def title(self) -> str:
        """Heading of its column."""
        return _TITLES[self.variant] + (f" ({self.regressor})" if self.regressor else "")

    def fit(self, table: MeasuredTable, rows: NDArray[np.intp]) -> FittedPredictDDL:
        """One regressor per dataset type with enough rows and architectures, one for all others.

        Raises:
            ConfigError: If the table lacks a column, or no row is given.
            MissingExtraError: If scikit-learn is not installed.
        """
        names = table.jobs.names
        for lead in (EMBEDDING, CLUSTER, DATASET):
            if not any(name.startswith(lead) for name in names):
                raise ConfigError(
                    f"The table has no column {lead}*, which PredictDDL reads. To fix: add the columns of "
                    "predictddl.trainer.input_columns and job.dataset."
                )
        if not len(rows):
            raise ConfigError("PredictDDL was given no row to learn from. To fix: give measured runs.")
        settings = replace(self._settings(), targets=(USUAL_TARGET[self.variant],))
        examples = examples_of(self.variant, table, names, table.jobs.features, rows)
        types = table.jobs.features[rows, names.index(DATASET)]
        by_type = {}
        for number in np.unique(types):
            own = examples.take(np.flatnonzero(types == number))
            if len(own.x) >= LEAST_ROWS and len(np.unique(own.groups)) >= LEAST_GROUPS:
                chosen = choose(own, settings)
                by_type[float(number)] = chosen.regressors[chosen.best]
        return FittedPredictDDL(
            names=inputs_of(self.variant, names), by_type=by_type, pooled=self._pooled(examples, settings)
        )

    def _settings(self) -> FitSettings:
        return (
            self.settings
            if self.regressor is None
            else replace(self.settings, kinds=(check_kind(self.regressor),))
        )

    def _pooled(self, examples: Examples, settings: FitSettings) -> Regressor:
        candidate = Candidate(
            kind="svr", target=settings.targets[0], rank=max(settings.ranks), settings=_POOLED
        )
        return Prepared.of(examples).fit(candidate, settings)
