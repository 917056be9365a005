"""What of a job is new, how much of a correction holds then, and which measured runs are most like it."""

import gc
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.learn.novelty import (
    KINDS,
    new_kinds,
    positions_of,
    run_index,
    shrinkage,
    training_set,
)
from precision_time.learn.table import JobTable

CONFIGURATION = (
    *("log_micro_batch_size", "log_num_micro_batches", "log_seq_len", "log_image_size", "log_tp", "log_pp"),
    *("zero_stage", "autocast", "fused_optimizer", "channels_last"),
)
NAMES = (
    *("log_params", "log_fp32_peak", "log_bandwidth", "log_devices", "stack.one", "stack.two"),
    *("matmul.fp32", "matmul.16", "share.gemm_s", *CONFIGURATION),
)


def table(*rows: dict[str, float]) -> JobTable:
    features = np.array([[row.get(name, 0.0) for name in NAMES] for row in rows])
    ones = np.ones(len(rows))
    none = np.zeros(len(rows))
    return JobTable(
        features=features, names=NAMES, analytical_s=ones, compute_s=ones, exposed_s=none, least_s=none
    )


def novelty(jobs: JobTable) -> np.ndarray:
    """Of every job against the first."""
    return training_set(jobs, np.array([0])).novelty(jobs)


@given(st.lists(st.floats(0.0, 100.0), min_size=len(KINDS), max_size=len(KINDS)), st.integers(0, 4))
def test_the_more_is_new_the_less_of_a_correction_holds(distances: list[float], kind: int) -> None:
    some = np.array([distances])
    more = some + np.eye(len(KINDS))[[kind]]
    assert 0.0 < shrinkage(more)[0] <= shrinkage(some)[0] <= 1.0
    assert shrinkage(np.zeros((1, len(KINDS))))[0] == 1.0


def test_a_model_far_from_all_keeps_less_of_a_correction_and_a_near_one_all() -> None:
    steps = np.zeros((4, len(KINDS)))
    steps[:, KINDS.index("model")] = [0.5, 1.0, 2.0, 4.0]
    near, one, far, further = shrinkage(steps)
    assert near == one == 1.0
    assert 0.5 > far > further > 0.0


def test_only_other_software_shrinks_a_correction() -> None:
    shares = dict(zip(KINDS, shrinkage(np.eye(len(KINDS))).tolist(), strict=True))
    assert shares.pop("software") < 1.0
    assert set(shares.values()) == {1.0}


@pytest.mark.parametrize(
    ("changed", "kind", "steps"),
    [
        ({"log_params": 2.0}, "model", 1.0),
        ({"log_fp32_peak": 0.7}, "device", 2.0),
        ({"log_devices": 2.0}, "scale", 1.0),
        ({"stack.one": 0.0, "stack.two": 1.0}, "software", np.sqrt(2.0)),
        ({"matmul.fp32": 0.0, "matmul.16": 1.0}, "precision", np.sqrt(0.5)),
    ],
)
def test_a_change_is_new_in_its_kind_alone(changed: dict[str, float], kind: str, steps: float) -> None:
    base = {"log_params": 1.0, "stack.one": 1.0, "matmul.fp32": 1.0}
    found = novelty(table(base, {**base, **changed}))
    expected = np.zeros(len(KINDS))
    expected[KINDS.index(kind)] = steps
    np.testing.assert_allclose(found, [np.zeros(len(KINDS)), expected], atol=1e-3)
    assert new_kinds(found[1], steps=0.9 * steps) == (kind,)
    assert new_kinds(found[0], steps=0.0) == ()


def test_a_measured_run_is_not_new_whatever_else_it_is() -> None:
    assert not novelty(table({"log_seq_len": 3.0}, {"log_seq_len": 9.0, "share.gemm_s": 1.0})).any()


@given(st.integers(2, 40), st.integers(0, 10**6))
def test_novelty_is_that_of_the_nearest_run(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    jobs = table(*({name: float(draw.normal()) for name in NAMES} for _ in range(count)))
    known = np.arange(count // 2 + 1)
    found = training_set(jobs, known).novelty(jobs)
    points = positions_of(jobs).astype(float)
    apart = np.sqrt(np.square(points[:, None] - points[known][None]).sum(axis=2)).min(axis=1)
    np.testing.assert_allclose(np.sqrt(np.square(found).sum(axis=1)), apart, atol=2e-3)


def test_the_runs_shown_are_the_most_similar_ones_and_a_run_is_most_like_itself() -> None:
    draw = np.random.default_rng(0)
    jobs = table(*({name: float(draw.integers(0, 3)) for name in NAMES} for _ in range(200)))
    rows = np.arange(50, 200)
    found, alike = run_index(jobs, rows).nearest(jobs, 5)
    assert np.isin(found, rows).all()
    assert (np.diff(alike, axis=1) <= 0.0).all()
    same = alike[rows, 0] == 1.0
    assert same.all()
    np.testing.assert_array_equal(jobs.features[found[rows, 0]][:, 9:], jobs.features[rows][:, 9:])
    few, _ = run_index(jobs, np.array([3, 7])).nearest(jobs, 5)
    assert few.shape == (200, 2)


def test_what_is_remembered_of_positions_stays_within_bounds() -> None:
    known = table({"log_params": 1.0, "stack.one": 1.0}, {"log_params": 9.0, "stack.two": 1.0})
    rows = np.arange(2)
    trained, runs = training_set(known, rows), run_index(known, rows)

    def asked(first: int, count: int) -> int:
        for start in range(first, first + count, 500):
            jobs = table(*({"log_params": 10.0 + number} for number in range(start, start + 500)))
            trained.novelty(jobs)
            runs.nearest(jobs, 2)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        held = asked(0, 2_500)
        assert asked(2_500, 5_000) - held < 300_000
    finally:
        tracemalloc.stop()
