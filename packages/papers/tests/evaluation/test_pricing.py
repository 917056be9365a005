"""The corpus priced in four ways, on a handful of its runs."""

import os

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from precision_time_papers.contract import column
from precision_time_papers.evaluation.ablations import (
    ABLATIONS,
    POLICY_FEATURES,
    SHAPE_FEATURES,
    link_s,
    terms_of,
    with_terms,
)
from precision_time_papers.evaluation.cache import prune
from precision_time_papers.evaluation.pricing import priced_corpus

MODELS = ("bert-base", "resnet50")
COLUMNS = ("features", "analytical_s", "compute_s", "exposed_s")

LEARNED = 2e-3
"""Features of fp16 are those of bf16 where one rate multiplies both: shares are off by so much."""


@pytest.fixture(scope="module")
def runs():
    """Of one source: one device and several, single and mixed precision."""
    chosen = [
        item
        for item in load_corpus()
        if item.usable and item.source == "nvidia-dle" and item.model in MODELS and item.num_devices <= 16
    ]
    return chosen[:60]


@pytest.fixture(scope="module")
def priced(runs):
    return priced_corpus(runs)


def rows_at(priced, *precisions):
    return np.array([item.precision in precisions for item in priced.table.measurements])


def assert_same(left, right) -> None:
    assert left.names == right.names
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_fp32_view_changes_what_did_not_run_in_fp32(priced) -> None:
    wide = np.flatnonzero(rows_at(priced, "fp32"))
    narrow = rows_at(priced, "fp16-mixed")
    assert len(wide)
    assert narrow.any()
    assert_same(priced.table.jobs.take(wide), priced.fp32.take(wide))
    assert (priced.fp32.compute_s[narrow] > priced.table.jobs.compute_s[narrow]).all()


def test_fp32_view_tells_nothing_of_precision(priced) -> None:
    told = [index for index, name in enumerate(priced.fp32.names) if name.startswith(POLICY_FEATURES)]
    assert told
    assert (np.ptp(priced.fp32.features[:, told], axis=0) == 0.0).all()


def test_fp32_wire_changes_narrow_gradients_only(priced) -> None:
    jobs, wide = priced.table.jobs, priced.fp32_wire
    changed = jobs.analytical_s != wide.analytical_s
    assert not changed[column(jobs, "wire_bytes") >= 4.0].any()
    assert (column(wide, "wire_bytes")[column(jobs, "log_devices") > 0.0] >= 4.0).all()
    assert changed.any()
    # More buckets may hide better; on the wire more bytes take longer.
    assert (link_s(wide)[changed] > link_s(jobs)[changed]).all()


def test_shapes_cost_time(priced) -> None:
    assert (priced.shape_ratio > 0.0).all()
    assert (priced.shape_ratio <= 1.0).all()
    assert (priced.shape_ratio < 0.95).any()


def test_the_cache_gives_back_what_was_priced(runs, priced, tmp_path) -> None:
    written = priced_corpus(runs, folder=tmp_path)
    (path,) = tmp_path.glob("priced-*/*.npz")
    told = []
    read = priced_corpus(runs, folder=tmp_path, progress=told.append)
    assert told == []
    for left, right in ((written, read), (priced, read)):
        assert left.table.measurements == right.table.measurements
        assert left.table.rejected == right.table.rejected
        assert_same(left.table.jobs, right.table.jobs)
        assert_same(left.fp32, right.fp32)
        assert_same(left.fp32_wire, right.fp32_wire)
        np.testing.assert_array_equal(left.shape_ratio, right.shape_ratio)
        np.testing.assert_array_equal(left.table.measured_s, right.table.measured_s)
    path.write_bytes(b"no archive")
    again = priced_corpus(runs, folder=tmp_path, progress=told.append)
    assert told
    assert_same(again.table.jobs, priced.table.jobs)


def test_other_runs_have_a_cache_of_their_own(runs, tmp_path) -> None:
    for part in (runs[:3], runs[3:6]):
        assert len(priced_corpus(part, folder=tmp_path)) == 3
    assert len(list(tmp_path.glob("priced-*/*.npz"))) == 2


def test_the_oldest_of_the_cache_goes_first(tmp_path) -> None:
    for age, name in enumerate(("d", "c", "b", "a")):
        path = tmp_path / f"held-out-{name}"
        path.mkdir()
        (path / "some.npz").touch()
        os.utime(path, (1000.0 - age, 1000.0 - age))
    (tmp_path / "kept.txt").touch()
    prune(tmp_path, "held-out-*", keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held-out-c", "held-out-d", "kept.txt"]


def test_taking_rows_takes_all_columns(priced) -> None:
    rows = np.array([4, 2])
    part = priced.table.take(rows)
    assert part.measurements == tuple(priced.table.measurements[row] for row in rows)
    assert_same(part.jobs, priced.table.jobs.take(rows))
    np.testing.assert_array_equal(part.measured_s, priced.table.measured_s[rows])


def test_terms_add_up_and_go_back(priced) -> None:
    jobs = priced.table.jobs
    terms = terms_of(jobs)
    np.testing.assert_allclose(sum(terms.values()), jobs.analytical_s)
    same = with_terms(jobs, terms)
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(same, name), getattr(jobs, name), rtol=LEARNED, atol=1e-6)


def test_features_follow_changed_terms(priced) -> None:
    jobs = priced.table.jobs
    terms = terms_of(jobs)
    slower = with_terms(jobs, terms | {"gemm_s": terms["gemm_s"] + 1.0})
    np.testing.assert_allclose(slower.analytical_s, jobs.analytical_s + 1.0)
    np.testing.assert_allclose(slower.exposed_s, jobs.exposed_s, rtol=LEARNED)
    np.testing.assert_allclose(np.exp(column(slower, "log_analytical_s")), slower.analytical_s)
    np.testing.assert_allclose(column(slower, "share.gemm_s"), (terms["gemm_s"] + 1.0) / slower.analytical_s)
    np.testing.assert_allclose(link_s(slower), link_s(jobs))


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_is_a_table_of_the_same_runs(name, priced) -> None:
    own, jobs = priced.table.jobs, ABLATIONS[name].jobs(priced)
    assert jobs.features.shape == (len(priced), len(jobs.names))
    assert set(jobs.names) <= set(own.names)
    np.testing.assert_allclose(jobs.compute_s + jobs.exposed_s, jobs.analytical_s)
    assert np.isfinite(jobs.features).all()
    same = jobs.names == own.names and np.array_equal(jobs.features, own.features)
    assert not same or ABLATIONS[name].no_shrinkage or jobs.smaller is None


def test_ablations_take_away_what_they_say(priced) -> None:
    own, mixed = priced.table.jobs, rows_at(priced, "fp16-mixed")
    views = {name: ablation.jobs(priced) for name, ablation in ABLATIONS.items()}
    assert (views["casts"].analytical_s[mixed] < own.analytical_s[mixed]).any()
    np.testing.assert_allclose(views["casts"].analytical_s[~mixed], own.analytical_s[~mixed])
    scaled = column(own, "share.unscale_s") > 0.0
    two_rates = np.array([item.device.startswith("V100") for item in priced.table.measurements])
    np.testing.assert_array_equal(scaled, mixed & two_rates)
    assert (views["scaler"].analytical_s[scaled] < own.analytical_s[scaled]).all()
    assert (views["overlap-simulation"].exposed_s >= own.exposed_s * (1.0 - 1e-9)).mean() > 0.9
    assert (views["shapes"].analytical_s <= own.analytical_s * (1.0 + 1e-9)).all()
    assert not set(SHAPE_FEATURES) & set(views["shapes"].names)
    assert not [name for name in views["dtype-features"].names if name.startswith(POLICY_FEATURES)]
    np.testing.assert_array_equal(views["dtype-features"].analytical_s, own.analytical_s)
    np.testing.assert_array_equal(views["dtype-lowering"].analytical_s, priced.fp32.analytical_s)
    told = [index for index, name in enumerate(own.names) if name.startswith("matmul.")]
    np.testing.assert_array_equal(views["dtype-lowering"].features[:, told], own.features[:, told])
