"""PredictDDL behind the contract of the baselines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time_papers.contract import FeatureTable, JobViews, NamedColumns
from precision_time_papers.predictddl.columns import BLIND, CLUSTER_COLUMNS, PRECISION, PRECISION_FEATURES
from precision_time_papers.predictddl.estimator import PredictDDLRegression
from precision_time_papers.predictddl.fitting import LEAST_ROWS

from .conftest import SMALL, own_measurement

PRICED = (*PRECISION_FEATURES, "log_params", "log_num_micro_batches", "log_tp", "log_pp", "log_cp")
NAMES = (*PRICED, "ghn.0", "ghn.1", "ghnp.wide.0", *CLUSTER_COLUMNS)
EMBEDDING, CLUSTER = len(PRICED), len(PRICED) + 3
ROWS = 160


@pytest.fixture(scope="module")
def table() -> FeatureTable:
    """Two dataset types; in the second, of 10 rows, everything takes ten times as long."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, len(NAMES)))
    groups = np.arange(ROWS) % 8
    x[:, NAMES.index("ghn.0")] = draw.normal(size=8)[groups]
    dataset = np.where(np.arange(ROWS) < ROWS - 10, 3, 7)
    slow = np.where(dataset == 7, 10.0, 1.0)
    log_s = 0.5 * x[:, NAMES.index("cluster.log_nodes")] + 0.3 * x[:, NAMES.index("log_peak")]
    seconds = np.exp(log_s) * slow
    native = JobTable(
        features=x[:, :EMBEDDING],
        names=PRICED,
        analytical_s=np.exp(log_s),
        compute_s=np.exp(log_s),
        exposed_s=np.zeros(ROWS),
        least_s=np.zeros(ROWS),
    )
    measured = MeasuredTable(
        jobs=native,
        measurements=tuple(own_measurement(model=f"m{group}") for group in groups),
        measured_s=seconds,
        sync_s=np.full(ROWS, np.nan),
        rejected=Counter(),
    )
    return FeatureTable(
        measured=measured,
        jobs=JobViews.of(
            native,
            native,
            embedding=NamedColumns(names=NAMES[EMBEDDING:CLUSTER], values=x[:, EMBEDDING:CLUSTER]),
            cluster=NamedColumns(names=CLUSTER_COLUMNS, values=x[:, CLUSTER:]),
            ids={"dataset": dataset},
        ),
    )


def test_a_type_with_enough_rows_has_a_regressor_of_its_own(table: FeatureTable) -> None:
    fitted = PredictDDLRegression(variant=BLIND, settings=SMALL).fit(table, np.arange(ROWS))
    assert set(fitted.by_type) == {3}
    assert (table.jobs.dataset == 3).sum() >= LEAST_ROWS
    predicted = fitted.predict(table.jobs)
    assert predicted.shape == (ROWS,)
    assert (predicted > 0).all()


def test_the_precision_variant_reads_what_the_blind_one_cannot(table: FeatureTable) -> None:
    rows = np.arange(ROWS - 10)
    settings = replace(SMALL, kinds=("linear",))
    errors = {}
    for variant in (BLIND, PRECISION):
        fitted = PredictDDLRegression(variant=variant, settings=settings).fit(table, rows[::2])
        predicted = fitted.predict(table.jobs.take(rows[1::2]))
        errors[variant] = np.median(np.abs(predicted / table.measured_s[rows[1::2]] - 1.0))
    assert errors[PRECISION] < 0.01
    assert errors[BLIND] > 0.1


def test_one_regressor_can_be_asked_for(table: FeatureTable) -> None:
    estimator = PredictDDLRegression(variant=BLIND, regressor="mlp", settings=SMALL)
    assert estimator.title == "PredictDDL (mlp)"
    fitted = estimator.fit(table, np.arange(ROWS))
    assert {regressor.kind for regressor in fitted.by_type.values()} == {"mlp"}
    with pytest.raises(UnknownNameError, match="regressor"):
        PredictDDLRegression(regressor="forest").fit(table, np.arange(ROWS))


def test_missing_columns_and_rows_are_named(table: FeatureTable) -> None:
    bare = replace(table, jobs=JobViews.of(table.jobs.native, table.jobs.fp32))
    with pytest.raises(ConfigError, match="no embeddings"):
        PredictDDLRegression().fit(bare, np.arange(ROWS))
    with pytest.raises(ConfigError, match="no row"):
        PredictDDLRegression().fit(table, np.arange(0))
