"""Ray Tune: trials that cannot end before the deadline are stopped, on a real local Ray and beside ASHA."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_time.errors import ConfigError
from precision_time_integrations.trials import TrialPredictions
from surface import SOURCES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, about its own dashboards and futures
]
SOURCE = os.pathsep.join(map(str, SOURCES.values()))


def scheduler(**options: Any) -> Any:
    from precision_time_integrations.ray_tune import DeadlineScheduler

    found = DeadlineScheduler(**options)
    found.set_search_properties("loss", "min")
    return found


def decisions(found: Any, name: str, epoch_s: float, losses: list[float], **reported: float) -> list[str]:
    """What is decided of a trial after each of its reports."""
    trial = SimpleNamespace(trial_id=name, config={}, status="RUNNING")
    found.on_trial_add(None, trial)
    made = []
    for number, loss in enumerate(losses, 1):
        result = {"training_iteration": number, "time_total_s": number * epoch_s, "loss": loss, **reported}
        made.append(found.on_trial_result(None, trial, result))
        if made[-1] == "STOP":
            break
    found.on_trial_complete(None, trial, result)
    return made


def test_a_trial_that_cannot_end_in_time_stops_after_few_reports() -> None:
    found = scheduler(total=20, trial_limit_s=100.0, beat_best=False)
    losses = [1.0] * 20
    assert decisions(found, "fast", 4.0, losses) == ["CONTINUE"] * 20
    assert len(decisions(found, "slow", 10.0, losses)) <= 3
    assert "100" not in found.reasons.get("fast", "")
    assert "s are left" in found.reasons["slow"]
    # What the trial itself reports of its remaining time counts more than the times of its reports.
    eta = {"eta/remaining_s": 500.0, "eta/low_s": 400.0, "eta/high_s": 600.0}
    assert decisions(found, "warned", 4.0, losses, **eta) == ["STOP"]


def test_a_trial_that_cannot_win_stops() -> None:
    found = scheduler(total=30, trial_limit_s=1e9)
    good = [0.1 + 1.0 / (1 + epoch) ** 2 for epoch in range(30)]
    assert len(decisions(found, "good", 1.0, good)) == 30
    assert len(decisions(found, "bad", 1.0, [loss + 0.5 for loss in good])) < 20
    assert "the best has" in found.reasons["bad"]


def test_a_pending_trial_that_is_predicted_to_be_too_long_is_not_started() -> None:
    predictions = TrialPredictions({"model": "bert-base", "device": "A100", "steps": 1000})
    seconds = predictions.time_s({"batch_size": 8}, 0.05)
    assert seconds is not None
    found = scheduler(total=1000, trial_limit_s=seconds, predictions=predictions)
    trials = [
        SimpleNamespace(trial_id=str(batch), config={"batch_size": batch}, status="PENDING")
        for batch in (256, 4)
    ]

    class Controller:
        def get_trials(self) -> list[Any]:
            return [trial for trial in trials if trial.status == "PENDING"]

        def stop_trial(self, trial: Any) -> None:
            trial.status = "TERMINATED"

    assert found.choose_trial_to_run(Controller()) is trials[1]
    assert [trial.status for trial in trials] == ["TERMINATED", "PENDING"]
    assert list(found.reasons) == ["256"]


@pytest.mark.parametrize("options", [{"total": 5}, {"total": 0, "deadline": 5.0}])
def test_wrong_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        scheduler(**options)


def test_a_real_search_with_asha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_time.ray.executor import ray_session
    from precision_time_integrations.ray_tune import DeadlineScheduler

    from ray import tune  # isort: skip - after Ray is told to send no statistics

    def train(config: dict[str, Any]) -> None:
        for epoch in range(10):
            time.sleep(config["epoch_s"])
            tune.report({"loss": config["floor"] + 1.0 / (1 + epoch)})

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")])))
    monkeypatch.chdir(tmp_path)
    found = DeadlineScheduler(tune.schedulers.ASHAScheduler(max_t=10), total=10, trial_limit_s=4.0)
    with ray_session("local", num_cpus=2):
        results = tune.Tuner(
            train,
            param_space={"epoch_s": tune.grid_search([0.02, 2.0]), "floor": 0.1},
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=found),
            run_config=tune.RunConfig(verbose=0, storage_path=str(tmp_path)),
        ).fit()
    ended = {each.config["epoch_s"]: each.metrics["training_iteration"] for each in results}
    assert ended[0.02] == 10
    assert ended[2.0] < 3
    assert len(found.reasons) == 1
