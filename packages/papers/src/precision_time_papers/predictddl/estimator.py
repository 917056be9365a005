r"""PredictDDL: a regressor per dataset type over the embedding of the architecture and the cluster.

Formula: $t = f_d([h ; c ; b])$ with h the embedding of a Graph HyperNetwork, c the cluster (nodes, devices
per node, memory, peak, bandwidths), b the batch, and f one of linear, polynomial-2, SVR and MLP, chosen per
dataset type d by cross-validation over architectures inside the training part.
Source: Assogba et al., PredictDDL (IEEE CLUSTER 2023). `predictddl-precision` is ours: the embedding comes in
blocks by lowered types, precision features join, and the logarithm of the ratio to the analytical step time
is learned. The three sums are the baseline that an embedding has to beat: the same regressors on FLOPs,
parameters and bytes in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from precision_time.errors import ConfigError

from ..contract import FeatureTable, Floats, Ints, JobViews, require_rows
from .columns import (
    BLIND,
    CLUSTER_COLUMNS,
    EMBEDDING_AND_SUMS,
    PRECISION,
    SIZE,
    SUMS,
    inputs_of,
    picked,
    sum_columns,
)
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
from .trainer import USUAL_TARGET, examples_of, settings_of

_POOLED = {"C": 10.0, "width": 0.3}
TITLES = {
    BLIND: "PredictDDL",
    SIZE: "PredictDDL with the size of the network",
    PRECISION: "PredictDDL with precision",
    SUMS: "three sums, PredictDDL's regressors",
    EMBEDDING_AND_SUMS: "PredictDDL, embedding and three sums",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPredictDDL:
    """A regressor per dataset type, and one of all types for the others."""

    names: tuple[str, ...]
    """Columns that the regressors read."""
    by_type: Mapping[int, Regressor]
    """By number of the dataset type."""
    pooled: Regressor

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        x = picked(*regression_inputs(jobs), self.names)
        seconds = np.empty(len(x))
        for number in np.unique(jobs.dataset).tolist():
            rows = jobs.dataset == number
            regressor = self.by_type.get(number, self.pooled)
            seconds[rows] = regressor.predict(x[rows], jobs.native.analytical_s[rows])
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictDDLRegression:
    """See the module. Jobs need embeddings, cluster columns and dataset types."""

    citation: ClassVar[str] = "Assogba et al., IEEE CLUSTER 2023"
    variant: str = PRECISION
    regressor: str | None = None
    """One of KINDS alone; None lets cross-validation choose."""
    settings: FitSettings = field(default_factory=lambda: QUICK)

    @property
    def title(self) -> str:
        """Its name in tables."""
        return TITLES[self.variant] + (f" ({self.regressor})" if self.regressor else "")

    def fit(self, table: FeatureTable, rows: Ints) -> FittedPredictDDL:
        """One regressor per dataset type with enough rows and architectures, one for all others.

        Raises:
            ConfigError: If the table lacks a column, or no row is given.
            MissingExtraError: If scikit-learn is not installed.
        """
        names, values = regression_inputs(table.jobs)
        if not table.jobs.embedding.names or table.jobs.cluster.names != CLUSTER_COLUMNS:
            raise ConfigError(
                "The table has no embeddings or no cluster columns, which PredictDDL reads. "
                "To fix: build it with the columns of predictddl.trainer.input_columns."
            )
        require_rows(rows, self.title)
        settings = settings_of(self.variant, self._settings(), (USUAL_TARGET[self.variant],))
        examples = examples_of(self.variant, table.measured, names, values, rows)
        types = table.jobs.dataset[rows]
        by_type = {}
        for number in np.unique(types).tolist():
            own = examples.take(np.flatnonzero(types == number))
            if len(own.x) >= LEAST_ROWS and len(np.unique(own.groups)) >= LEAST_GROUPS:
                chosen = choose(own, settings)
                by_type[number] = chosen.regressors[chosen.best]
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


def regression_inputs(jobs: JobViews) -> tuple[tuple[str, ...], Floats]:
    """All columns that a variant may read, shape (n, columns)."""
    sum_names, sums = sum_columns(jobs.fp32)
    parts = (jobs.native, jobs.embedding, jobs.cluster)
    names = (*(name for part in parts for name in part.names), *sum_names)
    values = (jobs.native.features, jobs.embedding.values, jobs.cluster.values, sums)
    return names, np.concatenate(values, axis=1)
