"""Plans of queues: proved against enumeration, placed as solved, and bad input."""

from __future__ import annotations

from datetime import datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time_papers.queue.choices import Choice
from precision_time_papers.queue.devices import executed, place
from precision_time_papers.queue.jobs import queue_of
from precision_time_papers.queue.objectives import OBJECTIVES, Objective, objective_of
from precision_time_papers.queue.pools import Pool, pools_of
from precision_time_papers.queue.solver import solve

POOLS = (
    Pool(name="two hosts", device="A", nodes=2, devices_per_node=2),
    Pool(name="one", device="B", nodes=1, devices_per_node=1),
)


def choice(pool: int, devices: int, seconds: float, *, per_node: int = 2) -> Choice:
    spread = np.linspace(0.5, 1.5, 101)
    return Choice(
        pool=pool, devices=devices, nodes=-(-devices // per_node), precision="fp32",
        quantiles_s=tuple(seconds * spread),
    )  # fmt: skip


JOB = st.tuples(
    st.sampled_from([(0, 1), (0, 2), (0, 4), (1, 1)]),
    st.integers(1, 3),
    st.sampled_from([(0, 1), (0, 2), (1, 1)]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(2, 6),
    st.sampled_from([1.0, 3.0]),
)


def fits(chosen: list[Choice], starts: tuple[int, ...]) -> bool:
    """Whether hosts can be found for all jobs: tries every host of every job."""
    options = []
    for own in chosen:
        pool = POOLS[own.pool]
        sets = [hosts for hosts in product([0, 1], repeat=pool.nodes) if sum(hosts) == own.nodes]
        options.append(sets)
    instants = {start for start in starts}
    for hosts in product(*options):
        fine = True
        for now in instants:
            for number, pool in enumerate(POOLS):
                for host in range(pool.nodes):
                    used = sum(
                        own.per_node
                        for own, start, on in zip(chosen, starts, hosts, strict=True)
                        if own.pool == number and on[host] and start <= now < start + own.duration_s
                    )
                    fine = fine and used <= pool.devices_per_node
        if fine:
            return True
    return False


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(JOB, min_size=2, max_size=3), st.sampled_from([*OBJECTIVES]))
def test_plan_is_the_best_of_all_there_are(jobs: list[tuple], name: str) -> None:
    choices = [(choice(*one, first), choice(*two, second)) for one, first, two, second, *_ in jobs]
    figure = Objective(
        name=name,
        submit_s=np.array([float(job[4]) for job in jobs]),
        deadline_s=np.array([float(job[5]) for job in jobs]),
        weight=np.array([job[6] for job in jobs]),
        share_s=np.array([float(job[1]) for job in jobs]),
    )
    planned_s = [np.array([each.duration_s for each in own]) for own in choices]
    best = np.inf
    latest = 2 + sum(max(times) for times in planned_s)
    for chosen in product(*choices):
        seconds = np.array([each.duration_s for each in chosen])
        for starts in product(*(range(int(submit), int(latest)) for submit in figure.submit_s)):
            value = figure.value(np.array(starts) + seconds)
            if value < best - 1e-9 and fits(list(chosen), starts):
                best = value
    found = solve(POOLS, choices, planned_s, figure, time_limit_s=20.0)
    chosen = [own[k] for own, k in zip(choices, found.chosen, strict=True)]
    seconds = np.array([each.duration_s for each in chosen])
    order = sorted(range(len(jobs)), key=lambda job: found.start_s[job])
    placed = place(POOLS, chosen, order, figure.submit_s, seconds, hosts=found.hosts)
    assert found.optimal
    assert figure.value(placed.end_s) == pytest.approx(best, abs=1e-3)
    assert np.all(placed.start_s <= np.array(found.start_s) + 1e-6)


def test_free_devices_on_two_hosts_are_no_place_for_a_job_on_one() -> None:
    # One device of each host is taken for long: two are free, but not on one host.
    taken, wide = choice(0, 1, 10), choice(0, 2, 1)
    placed = place(POOLS, [taken, taken, wide], [0, 1, 2], np.zeros(3), np.array([10.0, 10.0, 1.0]))
    assert placed.start_s[2] == 0.0, "both short jobs share a host, and the other stays whole"
    spread = place(
        POOLS,
        [taken, taken, wide],
        [0, 1, 2],
        np.zeros(3),
        np.array([10.0, 10.0, 1.0]),
        hosts=[(0,), (1,), None],
    )
    assert spread.start_s[2] == 10.0


def test_executed_with_the_planned_times_ends_as_planned() -> None:
    draw = np.random.default_rng(0)
    chosen = [choice(0, int(devices), 1) for devices in draw.choice([1, 2, 4], 20)]
    submit_s, seconds = draw.uniform(0, 5, 20), draw.uniform(1, 9, 20)
    placed = place(POOLS, chosen, np.argsort(submit_s).tolist(), submit_s, seconds)
    ends_s = executed(POOLS, chosen, placed, submit_s, np.stack([seconds, seconds * 1.5]))
    assert ends_s[0] == pytest.approx(placed.end_s)
    assert np.all(ends_s[1] > ends_s[0])
    moments = placed.start_s[:, None] + 1e-9
    running = (placed.start_s <= moments) & (moments < placed.end_s)
    assert np.all(running @ np.array([each.devices for each in chosen]) <= POOLS[0].devices)


def test_quantiles_are_those_of_the_runs() -> None:
    own = choice(0, 1, 100)
    assert [own.quantile_s(q) for q in (0.05, 0.5, 0.955)] == pytest.approx([55.0, 100.0, 145.5])
    assert own.durations_s(np.array([0.0, 1.0])) == pytest.approx([50.0, 150.0])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"deadline": "2h", "submit": "3h"}, "submitted before its deadline"),
        ({"deadline": "2020-01-01"}, "a deadline lies ahead"),
        ({"deadline": "soon"}, "neither a duration nor a date"),
        ({"weight": 0}, "above 0"),
        ({"run": {"start": "5m"}}, "Unknown field 'start'"),
        ({"phases": [{"steps": 1}]}, "a job of its own"),
        ({"nodes": 2}, "cluster file"),
        ({"batch_size": [1, 2]}, "several values"),
        ({"modle": "x"}, "Unknown field"),
    ],
)
def test_jobs_that_break_a_rule_are_named(fields: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        queue_of([{"model": "gpt2", "steps": 1}, {"model": "gpt2", "steps": 1, **fields}], start="2030-01-01")
    assert "job 2" in str(error.value) and "To fix" in str(error.value)


def test_dates_count_from_the_start_and_names_are_unique() -> None:
    job = {"model": "gpt2", "steps": 1}
    queue = queue_of(
        [
            {**job, "name": "a", "submit": "2029-12-31", "deadline": "2030-01-02 06:00"},
            {**job, "submit": "90m"},
        ],
        start=datetime(2030, 1, 1),
    )
    assert [each.submit_s for each in queue.jobs] == [0.0, 5400.0]
    assert queue.jobs[0].deadline_s == 30 * 3600.0
    assert "can start at once" in queue.notes[0]
    with pytest.raises(ConfigError, match="two jobs are named"):
        queue_of([{**job, "name": "a"}, {**job, "name": "a"}])


def test_bad_clusters_are_refused(tmp_path: object) -> None:
    for text, said in (
        ("nodes: [{device: NoSuchDevice, devices: 8}]", "no device named 'NoSuchDevice'"),
        ("nodes: [{device: A100-SXM4-80GB, devices: 0}]", "has no device"),
        ("nodes: [{device: A100-SXM4-80GB, gpus: 8}]", "gpus"),
    ):
        path = tmp_path / "cluster.yaml"  # type: ignore[operator]
        path.write_text(text)
        with pytest.raises(PrecisionTimeError, match=said):
            pools_of(path)


def test_tenants_have_equal_shares_and_their_jobs_parts_of_them() -> None:
    job = {"model": "gpt2", "steps": 1}
    queue = queue_of([{**job, "tenant": tenant} for tenant in ("a", "a", "b")])
    own = (choice(0, 2, 10),)
    figure = objective_of("fairness", queue.jobs, POOLS, [own] * 3, [np.array([10.0])] * 3)
    # A quarter of the four devices is one: two devices half of the time.
    assert figure.share_s.tolist() == [20.0, 20.0, 10.0]
    assert figure.value(np.array([10.0, 20.0, 20.0])) == 2.0
