"""The remaining time of a run, as its monitor says it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from precision_time import predict_time
from precision_time_integrations.online import RunMonitor

from .conftest import Clock

JOB = {"model": "resnet50", "device": "V100-SXM2-16GB", "batch_size": 64, "precision": "fp16-mixed"}


def test_before_the_first_step_the_prediction_is_said() -> None:
    prediction = predict_time(**JOB)
    eta = RunMonitor(total_steps=100, request=JOB, pauses={}).eta()
    assert eta.remaining_s == pytest.approx(100 * prediction.step_time_s)
    assert eta.interval is not None and eta.basis == "prediction"
    assert eta.interval.low_s < eta.remaining_s < eta.interval.high_s


def test_steady_run_is_told_to_the_second_and_ever_more_surely() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=1000, clock=clock, pauses={})
    monitor.begin()
    widths = []
    for step in range(1, 901):
        clock.now_s += 0.5
        monitor.step()
        if step in (100, 500, 900):
            monitor._computed = None
            eta = monitor.eta()
            assert eta.remaining_s == pytest.approx((1000 - step) * 0.5)
            assert eta.interval is not None and eta.interval.low_s < eta.remaining_s < eta.interval.high_s
            widths.append(eta.interval.high_s / eta.interval.low_s)
    assert widths[0] > widths[1] > widths[2]


@pytest.mark.parametrize("second_s", [0.25, 1.0, 4.0, 400.0])
def test_two_steps_of_any_ratio_are_an_estimate(second_s: float) -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=10, clock=clock, pauses={})
    monitor.begin()
    for seconds in (1.0, second_s):
        clock.now_s += seconds
        monitor.step()
    assert monitor.eta().step_time_s == pytest.approx(second_s, rel=0.5) and not monitor.failure


def test_evidence_outweighs_a_wrong_prediction() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=10_000, request=JOB, clock=clock, on_warning=lambda _: None, pauses={})
    true_s = 3.0 * predict_time(**JOB).step_time_s
    monitor.begin()
    for _ in range(200):
        clock.now_s += true_s
        monitor.step()
    assert monitor.eta().remaining_s == pytest.approx(9_800 * true_s, rel=0.02)


def test_warm_up_stalls_and_announced_pauses_are_not_steps() -> None:
    rng, clock = np.random.default_rng(3), Clock()
    monitor = RunMonitor(total_steps=2_000, clock=clock, pauses={"evaluation": 100})
    monitor.begin()
    for step in range(1, 501):
        clock.now_s += (20.0 if step == 1 else 0.0) + 0.2 * float(np.exp(rng.normal(0.0, 0.05)))
        monitor.step()
        if step % 100 == 0:
            with monitor.pause("evaluation"):
                clock.now_s += 7.0
    eta = monitor.eta()
    assert eta.step_time_s == pytest.approx(0.2, rel=0.02)
    assert eta.pause_s == pytest.approx(15 * 7.0)
    assert eta.remaining_s == pytest.approx(1_500 * 0.2 + 15 * 7.0, rel=0.02)


def test_resumed_run_counts_from_where_it_goes_on() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=1_000, clock=clock)
    monitor.begin(step=900)
    for _ in range(10):
        clock.now_s += 1.0
        monitor.step()
    assert monitor.eta().remaining_s == pytest.approx(90.0)
    assert monitor.end().steps == 10


def watched(clock: Clock, ratio: float, **start: Any) -> RunMonitor:
    monitor = RunMonitor(total_steps=1_000, clock=clock, on_warning=lambda _: None, pauses={}, **start)
    monitor.begin()
    predicted_s = predict_time(**JOB).step_time_s
    for _ in range(300):
        clock.now_s += ratio * predicted_s
        monitor.step()
    return monitor


def test_change_of_precision_keeps_the_ratio_to_the_prediction() -> None:
    clock, slow = Clock(), predict_time(**{**JOB, "precision": "fp32"})
    monitor = watched(clock, 1.2, prediction=predict_time(**JOB))
    monitor.changed(prediction=slow)
    assert monitor.eta().remaining_s == pytest.approx(700 * 1.2 * slow.step_time_s, rel=0.02)
    for _ in range(50):
        clock.now_s += 0.9
        monitor.step()
    record = monitor.end()  # of steps that were measured at the precision that it names
    assert record.step_time_s == pytest.approx(0.9) and record.steady_steps == 50


def test_change_of_request_makes_an_anchor_of_the_steps_so_far() -> None:
    clock, changed = Clock(), {**JOB, "image_size": 160}
    monitor = watched(clock, 1.3, request=JOB)
    monitor.changed(request=changed)
    plain, anchored = predict_time(**changed), monitor.prediction
    assert anchored is not None and not monitor.failure
    assert 1.1 * plain.step_time_s < anchored.step_time_s < 1.4 * plain.step_time_s
    assert monitor.eta().remaining_s == pytest.approx(700 * anchored.step_time_s)
    for _ in range(100):
        clock.now_s += 1.5 * plain.step_time_s
        monitor.step()
    assert monitor.eta().remaining_s == pytest.approx(600 * 1.5 * plain.step_time_s, rel=0.02)


def test_slow_run_is_said_once_with_the_cause() -> None:
    clock, said = Clock(), list[str]()
    prediction = predict_time(**JOB)
    monitor = RunMonitor(total_steps=1_000, prediction=prediction, clock=clock, on_warning=said.append)
    monitor.begin()
    for _ in range(100):
        clock.now_s += 3.0 * prediction.step_time_s
        monitor.waited(2.0 * prediction.step_time_s)
        monitor.step()
        monitor.eta()
    monitor.end()
    assert len(said) == 1 and "waiting for input" in said[0]


def test_clock_that_goes_back_and_steps_that_go_back_are_survived() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=100, clock=clock)
    monitor.begin()
    for number in range(50):
        clock.now_s += -3.0 if number == 20 else 1.0
        monitor.step()
    assert monitor.eta().remaining_s == pytest.approx(50.0, rel=0.05)
    monitor.step(10)  # back to a checkpoint
    assert monitor.eta().remaining_s == pytest.approx(90.0, rel=0.05)
    assert not monitor.failure


def test_first_failure_inside_is_warned_about_once_and_ends_the_monitor() -> None:
    monitor = RunMonitor(total_steps=10, clock=lambda: 1.0 / 0.0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        monitor.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.step()
        assert monitor.eta().remaining_s is None and monitor.eta().text == ""
        assert monitor.end().step_time_s is None


def test_pauses_that_nobody_planned_come_as_far_apart_as_they_came() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=1_000, clock=clock)
    monitor.begin()
    for step in range(1, 501):
        clock.now_s += 1.0
        monitor.step()
        if step in (400, 450, 500):
            with monitor.pause("evaluation"):
                clock.now_s += 10.0
    assert monitor.eta().pause_s == pytest.approx(10 * 10.0)


def test_what_goes_on_beside_the_steps_is_no_pause() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=100, clock=clock, pauses={})
    monitor.begin()
    for step in range(50):
        if step % 10 == 0:
            monitor.begin_pause("checkpoint")
        clock.now_s += 1.0
        monitor.step()
        if step % 10 == 2:
            monitor.end_pause()
    assert monitor.eta().remaining_s == pytest.approx(50.0)
    assert monitor.end().pauses_s == {}


def test_handler_of_warnings_that_fails_ends_nothing() -> None:
    def broken(text: str) -> None:
        raise OSError(text)

    clock, prediction = Clock(), predict_time(**JOB)
    monitor = RunMonitor(total_steps=100, prediction=prediction, clock=clock, on_warning=broken)
    monitor.begin()
    for _ in range(100):
        clock.now_s += 5.0 * prediction.step_time_s
        monitor.step()
    record = monitor.end()
    assert not monitor.failure and record.step_time_s == pytest.approx(5.0 * prediction.step_time_s)
    assert len(record.warnings) == 1


def test_unknown_length_gives_the_step_alone() -> None:
    clock = Clock()
    monitor = RunMonitor(clock=clock)
    monitor.begin()
    for _ in range(10):
        clock.now_s += 2.0
        monitor.step()
    eta = monitor.eta()
    assert eta.remaining_s is None and eta.interval is None
    assert eta.step_time_s == pytest.approx(2.0) and eta.text == "2 s per step"


def test_no_steps_and_no_prediction_say_nothing() -> None:
    monitor = RunMonitor(total_steps=0)
    monitor.begin()
    assert monitor.eta().remaining_s is None and monitor.end().to_row() == {}
    assert RunMonitor(total_steps=0, request=JOB).eta().remaining_s == 0.0


def test_history_is_bounded() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=10**6, clock=clock, pauses={})
    monitor.begin()
    for _ in range(20_000):
        clock.now_s += 0.25
        monitor.step()
    assert len(monitor._history) <= 2_048
    assert monitor.eta().remaining_s == pytest.approx(0.25 * (10**6 - 20_000), rel=1e-6)


def test_measured_run_is_a_row_of_measured_steps() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=50, request=JOB, clock=clock)
    monitor.begin()
    for _ in range(50):
        clock.now_s += 0.11
        monitor.step()
    row = monitor.end().to_row()
    assert row["model"] == "resnet50" and row["step_time_s"] == pytest.approx(0.11)


def test_before_the_first_step_the_interval_is_that_of_the_prediction() -> None:
    prediction = predict_time(**JOB)
    eta = RunMonitor(total_steps=100, prediction=prediction, pauses={}).eta()
    assert eta.interval is not None
    said = prediction.interval.high_s / prediction.interval.low_s
    assert eta.interval.high_s / eta.interval.low_s == pytest.approx(said, rel=0.05)


def test_short_run_is_told_as_it_goes_and_computing_stays_rare() -> None:
    clock = Clock()
    monitor = RunMonitor(total_steps=600, request=JOB, clock=clock, pauses={}, on_warning=lambda _: None)
    monitor.eta()
    monitor.begin()
    computed = set()
    for _ in range(600):
        clock.now_s += 0.015
        monitor.step()
        monitor.eta()
        assert monitor._computed is not None
        computed.add(monitor._computed[1])
    assert len(computed) <= 60
    assert monitor._spent_s <= 0.01 + 2 * 5e-4 * 9.0 + 2 * monitor._cost_s
    monitor._computed = None
    assert monitor.eta().remaining_s == 0.0
