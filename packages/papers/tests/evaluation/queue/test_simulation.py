"""Replays of traces: a simulator that is right on what can be enumerated, and traces with measured steps."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from queue_replay.plans import makespan_of_plan
from queue_replay.replay import measured_pairs, rank_correlation
from queue_replay.simulation import Arrivals, simulate, simulate_preemptive
from queue_replay.traces import CASES, HELD_OUT, trace_rows, workloads_of


def queue_on_one_gpu(seed: int, *, together: bool) -> Arrivals:
    draw = np.random.default_rng(seed)
    return Arrivals(
        arrival_s=np.zeros(6) if together else np.sort(draw.uniform(0, 10, 6)),
        gpus=np.ones(6, dtype=np.intp),
        true_s=draw.uniform(1, 9, (6, 1)),
        capacity=np.array([1]),
    )


@pytest.mark.parametrize("seed", range(3))
def test_shortest_first_is_the_best_order_on_one_gpu(seed: int) -> None:
    jobs = queue_on_one_gpu(seed, together=True)
    ends_s = simulate(jobs, jobs.true_s[:, 0], jobs.true_s)
    best = min(np.cumsum(jobs.true_s[list(order), 0]).sum() for order in permutations(range(6)))
    assert ends_s.sum() == pytest.approx(best)
    assert ends_s.max() == pytest.approx(jobs.true_s.sum())


@pytest.mark.parametrize("seed", range(3))
def test_shortest_remaining_first_is_no_worse_than_any_order(seed: int) -> None:
    jobs = queue_on_one_gpu(seed, together=False)
    preemptive = simulate_preemptive(jobs, jobs.true_s)
    for order in permutations(range(6)):
        assert preemptive.sum() <= simulate(jobs, np.argsort(order).astype(float), jobs.true_s).sum() + 1e-9
    assert np.all(preemptive - jobs.arrival_s >= jobs.true_s[:, 0] - 1e-9)


def test_beliefs_order_jobs_and_measured_times_end_them() -> None:
    jobs = Arrivals(
        arrival_s=np.zeros(2),
        gpus=np.ones(2, dtype=np.intp),
        true_s=np.array([[1.0], [5.0]]),
        capacity=np.array([1]),
    )
    believed_s = np.array([[5.0], [1.0]])
    assert simulate(jobs, believed_s[:, 0], believed_s).tolist() == [6.0, 5.0]


def test_none_overtakes_the_first_and_a_faster_pool_is_waited_for() -> None:
    jobs = Arrivals(
        arrival_s=np.array([0.0, 1.0, 2.0]), gpus=np.array([1, 2, 1]), true_s=np.array([[4.0], [4.0], [1.0]]),
        capacity=np.array([2]),
    )  # fmt: skip
    assert simulate(jobs, jobs.arrival_s, jobs.true_s).tolist() == [4.0, 8.0, 9.0]
    pools = Arrivals(
        arrival_s=np.array([0.0, 1.0]), gpus=np.array([1, 1]), true_s=np.array([[3.0, 20.0], [3.0, 20.0]]),
        capacity=np.array([1, 1]),
    )  # fmt: skip
    assert simulate(pools, pools.arrival_s, pools.true_s, waits=True).tolist() == [3.0, 6.0]
    assert simulate(pools, pools.arrival_s, pools.true_s).tolist() == [3.0, 21.0]


def test_jobs_of_the_traces_have_measured_steps() -> None:
    rows = [row for row in load_corpus() if row.usable and row.source in HELD_OUT]
    step_time_s = np.array([row.measured_step_time_s for row in rows])
    jobs = trace_rows()
    assert {row["trace"] for row in jobs} == {facts["trace"] for facts in CASES.values()}
    for case, facts in CASES.items():
        found = workloads_of(case, rows, step_time_s)
        kept = sum(len(workload.rows) for workload in found)
        assert kept + sum(w.left_out for w in found) == sum(row["trace"] == facts["trace"] for row in jobs)
        assert kept > 0.9 * (kept + sum(w.left_out for w in found))
        for workload in found:
            at, pool = np.nonzero(workload.rows >= 0)
            for job, place in zip(at[:20], pool[:20], strict=True):
                run = rows[workload.rows[job, place]]
                assert run.device == facts["pools"][place]["device"]
                assert run.num_devices == workload.arrivals.gpus[job]
    pairs = measured_pairs(rows)
    assert len(pairs) > 20 and all(rows[a].model == rows[b].model for a, b in pairs)


def test_rank_correlation_of_the_same_order_is_one() -> None:
    values = np.array([3.0, 1.0, 2.0, 2.0])
    assert rank_correlation(values, values**3) == pytest.approx(1.0)
    assert rank_correlation(values, -values) == pytest.approx(-1.0)


def test_a_plan_by_the_true_times_is_no_later_than_the_order_by_them() -> None:
    draw = np.random.default_rng(0)
    true_s = np.round(draw.uniform(10, 90, (7, 1)) * np.array([1.0, 2.0, 4.0]))
    jobs = Arrivals(
        arrival_s=np.zeros(7), gpus=draw.integers(1, 5, 7), true_s=true_s, capacity=np.array([4, 8, 8])
    )
    planned_s, gap = makespan_of_plan("gavel", jobs, true_s, 10.0)
    assert gap == 0.0
    assert planned_s <= simulate(jobs, true_s.min(axis=1), true_s).max() + 1e-6
    assert planned_s >= (jobs.gpus @ true_s.min(axis=1)) / jobs.capacity.sum() - 1e-6
