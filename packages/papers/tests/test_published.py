"""Baselines on a synthetic table: its jobs and times are made up, only the formulas are under test."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.measurement import Measurement
from precision_time.errors import ConfigError
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time.workload.graph import PRODUCT_CLASSES
from precision_time_papers.contract import FeatureTable, JobViews, column
from precision_time_papers.daydream import DaydreamWhatIf, what_if
from precision_time_papers.flops_regression import FlopsRegression
from precision_time_papers.formulas import Formulas
from precision_time_papers.paleo import PaleoLike, compute_s, sync_s
from precision_time_papers.precision_aware import PrecisionAware
from precision_time_papers.roofline import RooflineOnly, bound_s

N = 200
SETTINGS = {
    stage: replace(item, num_trees=10, min_data_in_leaf=5, num_leaves=8)
    for stage, item in DEFAULT_SETTINGS.items()
}
CLASSES = tuple(f"class.{item.value}" for item in sorted(PRODUCT_CLASSES))
NAMES = (
    *("log_flops", "log_flops_per_byte", "log_params", "log_micro_batch_size", "log_num_micro_batches"),
    *("log_tp", "log_pp", "log_cp", "log_dp", "log_devices", "log_nodes", "log_peak", "log_fp32_peak"),
    *("log_bandwidth", "tensor_core_share", "intra_bandwidth", "inter_bandwidth", "activation_bytes"),
    *("matmul.fp16", "share.gemm_s", "share.host_stall_s", "share.data_exposed_s"),
    *CLASSES,
)
HALF = np.arange(N) % 2 == 1
"""Every other job is the one before it in fp16."""
ALONE = np.arange(N) % 4 < 2


def jobs_of(columns: dict[str, np.ndarray], analytical_s: np.ndarray) -> JobTable:
    features = np.zeros((N, len(NAMES)))
    for name, values in columns.items():
        features[:, NAMES.index(name)] = values
    exposed = np.where(ALONE, 0.0, 0.2)
    return JobTable(
        features=features,
        names=NAMES,
        analytical_s=analytical_s,
        compute_s=(1.0 - exposed) * analytical_s,
        exposed_s=exposed * analytical_s,
        least_s=np.zeros(N),
    )


def synthetic() -> FeatureTable:
    draw = np.random.default_rng(0)
    each = lambda *arguments: np.repeat(draw.normal(*arguments, size=N // 2), 2)  # noqa: E731
    columns = {
        "log_flops": each(28.0, 1.0),
        "log_flops_per_byte": each(3.0, 0.5),
        "log_params": each(17.0, 1.0),
        "log_micro_batch_size": each(4.0, 1.0),
        "log_dp": np.log(np.repeat(draw.integers(1, 9, size=N // 2), 2)),
        "log_fp32_peak": each(30.5, 0.3),
        "log_bandwidth": each(27.5, 0.3),
        "intra_bandwidth": np.full(N, 1e11),
        "share.gemm_s": np.full(N, 0.6),
        "share.host_stall_s": np.full(N, 0.2),
        "share.data_exposed_s": np.full(N, 0.2),
        CLASSES[0]: np.full(N, 0.5),
    }
    seconds = np.repeat(np.exp(draw.normal(size=N // 2)), 2)
    wide = columns | {"log_peak": columns["log_fp32_peak"], "activation_bytes": np.full(N, 4.0)}
    own = columns | {
        "log_peak": columns["log_fp32_peak"] + np.where(HALF, np.log(8.0), 0.0),
        "activation_bytes": np.where(HALF, 2.0, 4.0),
        "matmul.fp16": HALF.astype(float),
        "tensor_core_share": np.where(HALF, 0.9, 0.0),
    }
    rows = tuple(
        Measurement(
            source="synthetic",
            source_ref="made up for this test",
            model=f"synthetic-{index // 20}",
            device="none",
            num_devices=1,
            num_nodes=1,
            precision="fp16" if half else "fp32",
            configuration_key=f"{index:016x}",
        )
        for index, half in enumerate(HALF)
    )
    native = jobs_of(own, np.where(HALF, 0.5, 1.0) * seconds)
    measured = MeasuredTable(
        jobs=native,
        measurements=rows,
        measured_s=seconds * np.where(HALF, 0.6, 1.2),
        sync_s=np.full(N, np.nan),
        rejected=Counter(),
    )
    return FeatureTable(measured=measured, jobs=JobViews.of(native, jobs_of(wide, seconds)))


TABLE = synthetic()
ALL = np.arange(N)


def timed(seconds: np.ndarray) -> FeatureTable:
    return replace(TABLE, measured=replace(TABLE.measured, measured_s=seconds))


def test_both_views_are_kept_apart() -> None:
    own, fp32 = TABLE.jobs.native, TABLE.jobs.fp32
    assert own.names == fp32.names == NAMES
    np.testing.assert_array_equal(own.analytical_s[HALF], 0.5 * fp32.analytical_s[HALF])
    np.testing.assert_allclose(fp32.compute_s + fp32.exposed_s, fp32.analytical_s)
    assert column(own, "matmul.fp16")[HALF].all()
    assert not column(fp32, "matmul.fp16").any()


def test_roofline_finds_its_one_constant() -> None:
    bound = bound_s(TABLE.jobs.native)
    fitted = RooflineOnly().fit(timed(3.0 * bound), ALL)
    np.testing.assert_allclose(fitted.predict(TABLE.jobs), 3.0 * bound)


def test_roofline_is_the_greater_of_both_bounds() -> None:
    jobs = TABLE.jobs.native
    flops, moved = (
        np.exp(column(jobs, "log_flops")),
        np.exp(column(jobs, "log_flops") - column(jobs, "log_flops_per_byte")),
    )
    memory_s = moved / np.exp(column(jobs, "log_bandwidth"))
    compute_s = flops / np.exp(column(jobs, "log_fp32_peak"))
    wide = ~HALF
    np.testing.assert_allclose(bound_s(jobs)[wide], np.maximum(compute_s, memory_s)[wide])
    assert (bound_s(jobs)[HALF] <= 1.000001 * np.maximum(compute_s, memory_s)[HALF]).all()


def test_regression_recovers_a_power_law() -> None:
    jobs = TABLE.jobs.fp32
    seconds = np.exp(0.9 * column(jobs, "log_flops") - 0.7 * column(jobs, "log_fp32_peak") - 3.0)
    fitted = FlopsRegression().fit(timed(seconds), ALL[:150])
    np.testing.assert_allclose(fitted.predict(TABLE.jobs)[150:], seconds[150:], rtol=0.02)


def test_paleo_finds_the_percent_of_peak() -> None:
    jobs = TABLE.jobs.fp32
    seconds = compute_s(jobs) / 0.4 + sync_s(jobs)
    fitted = PaleoLike().fit(timed(seconds), ALL)
    assert fitted.share_of_peak == pytest.approx(0.4)
    np.testing.assert_allclose(fitted.predict(TABLE.jobs), seconds)


def test_paleo_synchronises_by_a_ring() -> None:
    jobs = TABLE.jobs.fp32
    replicas, volume = np.exp(column(jobs, "log_dp")), 4.0 * np.exp(column(jobs, "log_params"))
    np.testing.assert_allclose(sync_s(jobs), 2.0 * (replicas - 1.0) / replicas * volume / 0.72e11, atol=1e-12)


def test_daydream_scales_kernels_of_narrow_types_only() -> None:
    factor = what_if(TABLE.jobs)
    assert (factor[~HALF] == 1.0).all()
    np.testing.assert_allclose(factor[HALF], 0.4 + 0.6 * (0.5 / 3.0 + 0.5 / 2.0))


def test_daydream_starts_from_the_fp32_predictor() -> None:
    fp32 = PrecisionAware(trees=SETTINGS, blind=True, fp32_only=True)
    answer = DaydreamWhatIf(trees=SETTINGS).fit(TABLE, ALL).predict(TABLE.jobs)
    np.testing.assert_allclose(answer, fp32.fit(TABLE, ALL).predict(TABLE.jobs) * what_if(TABLE.jobs))


@pytest.mark.parametrize("fp32_only", [False, True])
def test_a_blind_predictor_says_the_same_at_every_precision(fp32_only) -> None:
    estimator = PrecisionAware(trees=SETTINGS, blind=True, fp32_only=fp32_only)
    predicted = estimator.fit(TABLE, ALL).predict(TABLE.jobs)
    np.testing.assert_array_equal(predicted[~HALF], predicted[HALF])
    assert len(np.unique(predicted)) > N // 4


def test_fp32_trained_reads_single_precision_runs_only() -> None:
    estimator = PrecisionAware(trees=SETTINGS, blind=True, fp32_only=True)
    other = timed(np.where(HALF, 100.0, TABLE.measured_s))
    np.testing.assert_array_equal(
        estimator.fit(TABLE, ALL).predict(TABLE.jobs), estimator.fit(other, ALL).predict(TABLE.jobs)
    )


def test_fp32_trained_needs_single_precision_runs() -> None:
    with pytest.raises(ConfigError, match="fp32 or tf32"):
        PrecisionAware(trees=SETTINGS, blind=True, fp32_only=True).fit(TABLE, np.flatnonzero(HALF))


def test_formulas_are_the_cost_model() -> None:
    np.testing.assert_array_equal(
        Formulas().fit(TABLE, ALL).predict(TABLE.jobs), TABLE.jobs.native.analytical_s
    )
