"""Optuna: constraints and objectives of predictions, and trials that cannot end in time or win."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import optuna
import pytest

from precision_time.errors import ConfigError
from precision_time.predict.headline import Interval
from precision_time_integrations.online.eta import Eta
from precision_time_integrations.online.monitor import RunMonitor
from precision_time_integrations.optuna import (
    DeadlinePruner,
    Predictions,
    distributions,
    layout_fields,
    report_eta,
)
from precision_time_integrations.trials import TrialPredictions, best_possible, least_remaining_s

BERT = {
    "model": "bert-base",
    "device": "8xA100-SXM4-40GB",
    "seq_len": 128,
    "epochs": 1,
    "samples": 10_000_000,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)


def eta(remaining_s: float, low_s: float, high_s: float, coverage: float = 0.9) -> Eta:
    return Eta(
        step=1, total_steps=2, elapsed_s=1.0, remaining_s=remaining_s,
        interval=Interval(low_s=low_s, high_s=high_s, coverage=coverage), step_time_s=1.0, pause_s=0.0,
        basis="1 step",
    )  # fmt: skip


def test_the_least_remaining_time_is_a_quantile_of_the_interval() -> None:
    found = eta(10.0, 5.0, 20.0)
    assert least_remaining_s(found) == pytest.approx(5.0)  # 5 % lie below the interval of 90 %
    assert least_remaining_s(found, risk=0.5) == pytest.approx(10.0)
    assert least_remaining_s(found, risk=0.01) < 5.0  # type: ignore[operator]
    assert least_remaining_s(found.metrics(), risk=0.05) == pytest.approx(5.0)
    assert least_remaining_s({"eta/remaining_s": "soon"}) is None
    wide = eta(10.0, 5.0, 20.0, coverage=0.5)
    assert least_remaining_s(wide) < 5.0  # type: ignore[operator]


def test_the_best_possible_value_lies_below_what_a_curve_reaches() -> None:
    def curve(step: float) -> float:
        return 0.3 + 2.0 / (1.0 + step)  # flattens

    for seen in (5, 10, 40):
        steps = list(range(seen))
        possible = best_possible(steps, [curve(step) for step in steps], 100)
        assert possible is not None
        assert possible < curve(100)
    assert best_possible([0, 1, 2], [3.0, 2.0, 1.0], 100) is None
    # One that does not fall any more cannot reach a value far below.
    assert best_possible(list(range(8)), [1.0] * 8, 100) == pytest.approx(1.0)


def test_a_batch_that_does_not_fit_and_a_time_that_is_too_long_are_constraints() -> None:
    predictions = Predictions(BERT)
    seconds = {batch: predictions.of({"batch_size": batch}).duration_s() for batch in (8, 128)}
    assert seconds[8] > 2 * seconds[128]  # type: ignore[operator]
    limit_s = (seconds[8] + seconds[128]) / 2  # type: ignore[operator]
    small = predictions.constraint_values({"batch_size": 8}, time_limit_s=limit_s)
    large = predictions.constraint_values({"batch_size": 128}, time_limit_s=limit_s)
    assert small["time"] == pytest.approx(seconds[8] / limit_s - 1.0)  # type: ignore[operator]
    assert large["time"] < 0.0 < small["time"]
    assert max(small["memory"], large["memory"]) < 0.0
    assert predictions.constraint_values({"batch_size": 4096, "recompute": "none"})["memory"] > 0.0
    assert predictions.constraint_values({"tp": 7}) == {"prediction": 1.0}
    with pytest.raises(ConfigError, match="no field of a request"):
        Predictions(BERT, fields={"bs": "batches"})


def test_a_sampler_keeps_to_the_constraints_and_trials_beyond_them_do_not_start() -> None:
    predictions = Predictions(BERT, fields={"bs": "batch_size"})
    limit_s = predictions.of({"bs": 64}).duration_s()
    started = []

    def objective(trial: Any) -> tuple[float, float]:
        batch = trial.suggest_categorical("bs", [2, 8, 64, 4096])
        trial.suggest_categorical("recompute", ["none"])
        found = predictions.constrain(trial, time_limit_s=limit_s)
        started.append(batch)
        return 1.0 / batch, predictions.time_objective_s(trial) if found else 0.0

    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0)
    )
    study.optimize(objective, n_trials=20)
    assert 2 not in started  # cannot end in time
    assert set(started) & {64, 4096}
    pruned = [trial for trial in study.trials if trial.state is optuna.trial.TrialState.PRUNED]
    assert pruned
    assert all(max(trial.constraints.values()) > 0.0 for trial in pruned)


def test_constraints_of_older_samplers() -> None:
    of_trial = Predictions(BERT).constraints(time_limit_s=1e9)
    trial = optuna.trial.create_trial(
        params={"batch_size": 8}, distributions={"batch_size": optuna.distributions.IntDistribution(1, 8)},
        value=1.0,
    )  # fmt: skip
    memory, seconds = of_trial(trial)
    assert memory < 0.0
    assert seconds == pytest.approx(-1.0, abs=1e-3)


def test_predictions_learn_the_ratio_of_this_machine() -> None:
    predictions = TrialPredictions(BERT)
    expected_s = predictions.time_s({"batch_size": 64})
    for batch in (8, 16, 32, 128):
        predictions.observe({"batch_size": batch}, 3.0 * predictions.of({"batch_size": batch}).duration_s())  # type: ignore[operator]
    assert predictions.time_s({"batch_size": 64}) == pytest.approx(3.0 * expected_s)  # type: ignore[operator]
    assert predictions.time_s({"batch_size": 64}, 0.05) > 2.0 * expected_s  # type: ignore[operator]


def test_what_to_search_over_is_what_runs() -> None:
    request = {"model": "bert-base", "device": "V100-SXM2-16GB", "precision": "fp32", "seq_len": 512}
    found = distributions(request)
    batch, precision = found["batch_size"], found["precision"]
    assert batch.low == 1  # type: ignore[attr-defined]
    predictions = Predictions(request)
    assert predictions.of({"batch_size": batch.high}).fits  # type: ignore[attr-defined]
    assert "fp16-mixed" in precision.choices  # type: ignore[attr-defined]
    assert "fp8-mixed" not in precision.choices  # type: ignore[attr-defined]
    layouts = distributions({**BERT, "batch_size": 8}, ["layout"], layouts=2)["layout"]
    for text in layouts.choices:  # type: ignore[attr-defined]
        assert (
            Predictions(BERT, fields=lambda params: layout_fields(params["layout"])).of({"layout": text}).fits
        )
    with pytest.raises(ConfigError, match="batch_size, precision or layout"):
        distributions(request, ["lr"])


class Machine:
    """A clock, and trials that take what they are told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def objective(
        self, epochs: int, *, monitored: bool = False, loss: Callable[[Any, int], float] | None = None
    ) -> Callable[[Any], float]:
        def run(trial: Any) -> float:
            seconds = trial.suggest_float("epoch_s", 0.1, 100.0, log=True)
            monitor = RunMonitor(total_steps=epochs, clock=self.clock)
            monitor.begin()
            value = 1.0
            for epoch in range(epochs):
                self.now_s += seconds
                value = loss(trial, epoch) if loss else 1.0 / (epoch + 1)
                trial.report(value, epoch)
                if monitored:
                    monitor.step()
                    report_eta(trial, monitor)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return value

        return run


@pytest.mark.parametrize("monitored", [False, True])
def test_trials_that_cannot_end_in_time_stop_early_and_no_others(monitored: bool) -> None:
    machine = Machine()
    pruner = DeadlinePruner(total_steps=20, trial_limit_s=100.0, clock=machine.clock, beat_best=False)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), pruner=pruner)
    study.optimize(machine.objective(20, monitored=monitored), n_trials=40)
    for trial in study.trials:
        slow = 20 * trial.params["epoch_s"] > 100.0
        pruned = trial.state is optuna.trial.TrialState.PRUNED
        assert pruned == slow
        assert (trial.number in pruner.reasons) == slow
        if slow and trial.params["epoch_s"] > 10.0:
            assert len(trial.intermediate_values) <= 3


def test_the_study_ends_at_its_deadline() -> None:
    machine = Machine()
    pruner = DeadlinePruner(total_steps=5, deadline=60.0, clock=machine.clock, beat_best=False)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), pruner=pruner)
    for _ in range(30):
        trial = study.ask()
        try:
            study.tell(trial, machine.objective(5)(trial))
            assert machine.now_s <= 60.0
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    assert any(trial.state is optuna.trial.TrialState.COMPLETE for trial in study.trials)
    soon = DeadlinePruner(total_steps=5, deadline=datetime.now() + timedelta(seconds=5))
    assert not soon.reasons


def test_a_trial_that_cannot_win_stops_and_the_other_pruner_is_asked() -> None:
    machine = Machine()
    asked = []

    class Other(optuna.pruners.BasePruner):  # type: ignore[misc]
        def prune(self, study: Any, trial: Any) -> bool:
            asked.append(trial.number)
            return trial.number == 2

    def loss(trial: Any, epoch: int) -> float:
        floor = (0.1, 0.5, 0.1)[trial.number]
        return floor + 1.0 / (1.0 + epoch) ** 2

    pruner = DeadlinePruner(Other(), total_steps=30, trial_limit_s=1e9, clock=machine.clock)
    study = optuna.create_study(pruner=pruner)
    study.optimize(machine.objective(30, loss=loss), n_trials=3)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "PRUNED", "PRUNED"]
    assert "the best has" in pruner.reasons[1]
    assert len(study.trials[1].intermediate_values) < 30
    assert 2 in asked
    assert 2 not in pruner.reasons


def test_a_prediction_speaks_before_the_first_step() -> None:
    predictions = TrialPredictions({**BERT, "batch_size": 8})
    limit_s = predictions.time_s({}, 0.01)
    assert limit_s is not None
    machine = Machine()
    steps = predictions.of({}).step.total_steps  # type: ignore[union-attr]
    pruner = DeadlinePruner(
        total_steps=steps, trial_limit_s=0.1 * limit_s, predictions=predictions, clock=machine.clock
    )
    study = optuna.create_study(pruner=pruner)
    assert study.ask().should_prune()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"total_steps": 5}, "deadline nor trial_limit_s"),
        ({"total_steps": 0, "deadline": 5.0}, "total_steps=0"),
        ({"total_steps": 5, "deadline": 5.0, "risk": 1.0}, "risk=1"),
    ],
)
def test_wrong_limits_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DeadlinePruner(**options)
