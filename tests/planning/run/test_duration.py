"""Expected seconds of whole runs: sums, limits, the optimum, and a run played out event by event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.planning.run.duration import (
    TERMS,
    Segments,
    Work,
    daly_interval_s,
    expected_failures,
    total_s,
)
from precision_time.planning.run.settings import (
    checkpoint_bytes,
    default_settings,
    published_mtbf_s,
    relative_samples,
    relative_steps,
)
from precision_time.planning.run.simulation import simulated_s
from precision_time.request.request import Request

USUAL = default_settings()
QUIET = replace(USUAL, start_up_s=0.0, start_up_per_device_s=0.0, warm_up_steps=0.0, mtbf_device_s=np.inf)
"""Nothing but steps and checkpoints."""
FREQUENT = replace(USUAL, mtbf_device_s=3600.0 * 500.0, mtbf_spread=0.0, step_spread=0.0)
RUN = (1.0, 20_000.0, 512.0, 2e12)
"""Step, steps, devices, bytes of a checkpoint."""


def played_s(cut: Segments, runs: int) -> list[float]:
    """Runs played out one attempt after the other."""
    rng = np.random.default_rng(1)
    at = {name: float(getattr(cut, name)) for name in Segments.__slots__}

    def passed(needed_s: float) -> tuple[float, bool]:
        fails_s = float(rng.exponential(1.0 / at["failures_per_s"]))
        return min(fails_s, needed_s), fails_s >= needed_s

    def until_through(needed_s: float, then_restart: bool) -> float:
        spent_s = 0.0
        while True:
            seconds, through = passed(needed_s)
            spent_s += seconds
            if through:
                return spent_s
            spent_s += at["wait_s"]
            if then_restart:
                spent_s += until_through(at["restart_s"], then_restart=False)

    segment_s = at["interval_s"] + at["checkpoint_s"]
    return [
        until_through(at["start_s"], then_restart=False)
        + sum(until_through(segment_s, then_restart=True) for _ in range(int(at["count"])))
        for _ in range(runs)
    ]


def runs(step_s: Any, steps: Any, devices: Any, size: Any, **given: Any) -> Work:
    ends = {"low_s": step_s, "high_s": step_s}
    return Work(step_s=step_s, steps=steps, devices=devices, checkpoint_bytes=size, **{**ends, **given})


def work(**changes: Any) -> Work:
    return runs(*RUN, **{"settings": FREQUENT, **changes})


def test_formula_and_simulation_agree_with_a_run_played_out() -> None:
    cut = runs(*RUN, settings=FREQUENT).segments()
    played, simulated = np.array(played_s(cut, 1500)), simulated_s([work()], draws=20_000)
    expected = float(total_s(runs(*RUN, settings=FREQUENT).expected_s()))
    assert played.mean() == pytest.approx(expected, abs=4.0 * played.std() / np.sqrt(played.size))
    assert simulated.mean() == pytest.approx(expected, abs=4.0 * simulated.std() / np.sqrt(20_000))
    assert simulated.std() == pytest.approx(played.std(), rel=0.1)


def test_many_failures_are_summed_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = simulated_s([work()])
    monkeypatch.setattr("precision_time.planning.run.simulation._MOST_EVENTS", 0)
    assert np.quantile(simulated_s([work()]), (0.1, 0.5, 0.9)) == pytest.approx(
        np.quantile(one_by_one, (0.1, 0.5, 0.9)), rel=0.01
    )


@settings(max_examples=40, deadline=None)
@given(
    step_s=st.floats(1e-3, 100.0),
    steps=st.floats(1.0, 1e6),
    devices=st.integers(1, 16_384),
    size=st.floats(1e6, 1e13),
    mtbf_h=st.floats(2e3, 1e6),
    asynchronous=st.booleans(),
)
def test_more_failures_never_shorten_a_run(
    step_s: float, steps: float, devices: int, size: float, mtbf_h: float, *, asynchronous: bool
) -> None:
    # At stated intervals: the optimum would follow the failures.
    chosen = replace(USUAL, asynchronous=asynchronous, checkpoint_interval_s=3600.0)
    mtbf_s = 3600.0 * mtbf_h * np.array([1.0, 0.5])
    rare, often = total_s(
        runs(step_s, steps, devices, size, settings=replace(chosen, mtbf_device_s=mtbf_s)).expected_s()
    )
    assert often >= rare >= steps * step_s


def test_without_failures_and_overhead_a_run_is_its_steps() -> None:
    terms = runs(0.25, 1000.0, 8.0, 0.0, settings=QUIET).expected_s()
    assert float(total_s(terms)) == 250.0
    assert tuple(terms) == TERMS
    assert {name for name, seconds in terms.items() if seconds > 0.0} == {"steps"}


def test_time_at_risk_is_that_of_the_failures() -> None:
    cut = runs(*RUN, settings=FREQUENT).segments()
    terms = runs(*RUN, settings=FREQUENT).expected_s()
    waiting = expected_failures(cut) * cut.wait_s
    at_risk = total_s(terms) - waiting
    assert float(expected_failures(cut) / cut.failures_per_s) == pytest.approx(float(at_risk))


@pytest.mark.parametrize(("size", "devices"), [(1e12, 512.0), (6e12, 16_384.0), (1e10, 8.0)])
def test_the_interval_of_young_and_daly_costs_least(size: float, devices: float) -> None:
    chosen = replace(USUAL, start_up_s=0.0)
    cut = runs(1.0, 1e8, devices, size, settings=chosen).segments()
    intervals = float(cut.interval_s) * np.geomspace(0.5, 2.0, 201)
    of_each = total_s(
        runs(1.0, 1e8, devices, size, settings=replace(chosen, checkpoint_interval_s=intervals)).expected_s()
    )
    best = total_s(runs(1.0, 1e8, devices, size, settings=chosen).expected_s())
    assert float(best) <= of_each.min() * (1.0 + 1e-5)
    assert of_each[0] > float(best)


def test_the_interval_is_youngs_where_checkpoints_are_short() -> None:
    assert float(daly_interval_s(1.0, 1e-8)) == pytest.approx(np.sqrt(2e8), rel=1e-3)


def test_asynchronous_checkpoints_stop_less_and_lose_more() -> None:
    chosen = replace(FREQUENT, checkpoint_interval_s=600.0)
    stopped = runs(*RUN, settings=chosen).expected_s()
    behind = runs(*RUN, settings=replace(chosen, asynchronous=True)).expected_s()
    assert float(behind["checkpoints"]) < 0.5 * float(stopped["checkpoints"])
    assert float(behind["lost_work"]) > float(stopped["lost_work"])


def test_llama_3_ran_more_than_nine_tenths_of_its_time() -> None:
    # 54 days on 16,384 devices with the failures that were counted there: "higher than 90 %".
    chosen = replace(USUAL, mtbf_device_s=published_mtbf_s()[0])
    terms = runs(13.0, 54 * 86_400 / 13.0, 16_384.0, 405e9 * 14.0, settings=chosen).expected_s()
    assert 0.90 < float(terms["steps"] / total_s(terms)) < 0.96


def test_bloom_lost_and_wrote_what_its_chronicles_say() -> None:
    # A checkpoint of 40 s every 3 h: 0.37 % of the time; 1.5 h lost with each failure. 48 hosts of 8 devices.
    chosen = replace(USUAL, mtbf_device_s=published_mtbf_s()[2], checkpoint_interval_s=3.0 * 3600.0)
    run = (107.0, 90 * 86_400 / 107.0, 384.0, 2.3e12)
    terms = runs(*run, settings=chosen).expected_s()
    failures = expected_failures(runs(*run, settings=chosen).segments())
    assert float(terms["checkpoints"] / total_s(terms)) == pytest.approx(0.0037, rel=0.05)
    assert float(terms["lost_work"] / failures) == pytest.approx(1.5 * 3600.0, rel=0.05)
    assert 10.0 < float(failures) < 30.0


@pytest.mark.parametrize("deadline_s", [15_000.0, 20_000.0, 24_000.0, 35_000.0])
def test_the_probability_of_a_deadline_is_that_of_the_simulation(deadline_s: float) -> None:
    uncertain = replace(FREQUENT, mtbf_device_s=USUAL.mtbf_device_s, mtbf_spread=0.6, step_spread=0.2)
    simulated = simulated_s([work(low_s=0.8, high_s=1.4, settings=uncertain)], draws=20_000)
    found = work(low_s=0.8, high_s=1.4, settings=uncertain).probability_within(deadline_s)
    assert float(found) == pytest.approx(float((simulated <= deadline_s).mean()), abs=0.03)


@pytest.mark.filterwarnings("error")
def test_a_candidate_that_cannot_run_is_none_of_the_others() -> None:
    steps_s = np.array([1.0, np.nan, np.inf])
    totals = total_s(runs(steps_s, 1000.0, 8.0, 1e9).expected_s())
    assert np.isfinite(totals).tolist() == [True, False, False]
    found = runs(steps_s, 1000.0, 8.0, 1e9, low_s=0.8 * steps_s, high_s=1.2 * steps_s).probability_within(
        2000.0
    )
    assert found[0] > 0.9
    assert found[1:].tolist() == [0.0, 0.0]


def test_probabilities_of_many_runs_are_arrays() -> None:
    steps_s = np.linspace(0.5, 2.0, 1000)
    found = runs(steps_s, *RUN[1:], low_s=0.8 * steps_s, high_s=1.3 * steps_s).probability_within(30_000.0)
    assert found.shape == (1000,)
    # Whole checkpoints leave steps of rounding.
    assert np.all(np.diff(found) <= 1e-3)


def test_a_checkpoint_of_bloom_has_its_published_size() -> None:
    job = Request.of({"model": "bloom-176b", "gpus": 384, "stack": "deepspeed-megatron", "tp": 4}).resolve()
    assert checkpoint_bytes(job) == pytest.approx(2.3 * 2**40, rel=0.05)


def test_at_the_critical_batch_a_run_takes_twice_the_least_samples() -> None:
    assert relative_samples(500.0, 1e-9, 500.0) == pytest.approx(2.0)
    batches = np.array([64.0, 512.0, 4096.0])
    samples = relative_samples(batches, 512.0, 900.0)
    assert relative_steps(batches, 512.0, 900.0) * batches / 512.0 == pytest.approx(samples)
    assert np.all(np.diff(samples) > 0.0)
