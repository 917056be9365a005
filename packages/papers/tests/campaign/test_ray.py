"""Whole campaigns on a real local Ray: what is measured, what fails, what an interrupted one goes on with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_time.errors import ConfigError
from precision_time_integrations.measure.report import Progress
from precision_time_integrations.measure.trial import TrainingTrial
from precision_time_papers.campaign import groups
from precision_time_papers.campaign.campaign import Campaign
from precision_time_papers.campaign.ray import run_campaign
from precision_time_papers.campaign.result import TrialResult
from precision_time_papers.campaign.store import read_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray")]
Make = Callable[..., TrainingTrial]


def campaign_of(trials: Sequence[TrainingTrial]) -> Campaign:
    return Campaign(name="test", trials=tuple(trials))


def by_model(path: Path) -> dict[str, TrialResult]:
    return {trial.model: trial for trial in read_store(path)}


def test_one_worker_measures_what_it_can_and_tells_of_the_rest(tmp_path: Path, trial_of: Make) -> None:
    trials = [
        trial_of(model="mlp"),
        trial_of(model="campaign_loops:raises"),
        trial_of(model="campaign_loops:whole_run", epochs=2),
        trial_of(model="campaign_loops:steps"),
        trial_of(model="campaign_loops:dies"),
        trial_of(model="campaign_loops:pair"),
        trial_of(model="campaign_loops:hangs", time_limit_s=1.0),
    ]
    path = tmp_path / "trials.sqlite"
    report = run_campaign(campaign_of(trials), path)
    found = by_model(path)
    assert (len(report.measured), len(report.failed), report.left) == (4, 3, 0)
    assert found["campaign_loops:raises"].error == "RuntimeError: the loss is not finite"
    assert "not done within 1 s" in found["campaign_loops:hangs"].error
    assert "WorkerLost" in found["campaign_loops:dies"].error
    mlp = found["mlp"]
    assert mlp.num_steps == mlp.steps_per_epoch == 8
    assert mlp.first_step_s is not None and mlp.step_time_s is not None and mlp.warmup_s is not None
    assert 0 < mlp.step_time_s <= (mlp.step_time_p90_s or 0) < (mlp.train_time_s or 0)
    assert mlp.epoch_times_s == (mlp.epoch_time_s,) == (mlp.train_time_s,)
    assert mlp.gradient_wait_s is None
    assert (mlp.peak_memory_bytes or 0) > 1e8
    assert (mlp.params, mlp.backend, mlp.label) == (2_103_818, "", "")
    whole = found["campaign_loops:whole_run"]
    assert whole.num_epochs == 2
    assert min(whole.epoch_times_s) >= 0.05
    assert whole.step_time_s is None


def test_two_workers_wait_for_gradients(tmp_path: Path, trial_of: Make) -> None:
    path = tmp_path / "trials.sqlite"
    trials = [
        trial_of(model="recommender", workers=2, epochs=2),
        trial_of(model="transformer", workers=2, precision="bf16-mixed", seconds=1e-6),
    ]
    report = run_campaign(campaign_of(trials), path)
    assert report.failed == {}
    found = by_model(path)
    recommender = found["recommender"]
    assert (recommender.num_steps, recommender.num_epochs, recommender.backend) == (8, 2, "gloo")
    assert recommender.gradient_wait_method == "ddp-hook-host-clock"
    assert 0 < (recommender.gradient_wait_s or 0) < (recommender.step_time_s or 0)
    assert len(recommender.hosts) == 2
    assert recommender.samples_per_s == pytest.approx(16 / (recommender.step_time_s or 1))
    # Three steps are the fewest; the epoch of four was not finished, and is not made up.
    transformer = found["transformer"]
    assert (transformer.num_steps, transformer.num_epochs, transformer.epoch_time_s) == (3, 0, None)


@pytest.mark.nightly(
    covered_by="packages/papers/tests/campaign/test_coordinator.py::test_the_first_error_of_a_trial_counts"
)
def test_workers_that_are_not_ready_in_time_are_reported_and_leave_nothing_behind(
    tmp_path: Path, trial_of: Make, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trials.sqlite"
    campaign = campaign_of([trial_of(model="mlp"), trial_of(model="mlp", repeat=1)])
    with monkeypatch.context() as patch:
        patch.setattr(groups, "START_LIMIT_S", 0.5)
        report = run_campaign(campaign, path)
    assert (len(report.measured), len(report.failed), report.left) == (0, 2, 0)
    assert {each.error for each in read_store(path)} == {
        "its 1 workers could not be started: not ready within 0.5 s; is the cluster busy?"
    }
    again = run_campaign(campaign, path, retry_failed=True)
    assert (len(again.measured), again.failed) == (2, {})
    deadline_s = time.monotonic() + 30
    while ray.available_resources().get("CPU") != 2.0 and time.monotonic() < deadline_s:
        time.sleep(0.5)
    assert ray.available_resources().get("CPU") == 2.0


@pytest.mark.nightly(
    covered_by="packages/papers/tests/campaign/test_ray.py::test_a_budget_leaves_trials_for_later"
)
def test_an_interrupted_campaign_goes_on_where_it_stopped(tmp_path: Path, trial_of: Make) -> None:
    path = tmp_path / "trials.sqlite"
    trials = [trial_of(model="mlp", repeat=repeat) for repeat in range(3)]
    told: list[Progress] = []

    def interrupt(now: Progress) -> None:
        told.append(now)
        if now.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_campaign(campaign_of(trials), path, progress=interrupt)
    assert [trial.repeat for trial in read_store(path)] == [0, 1]
    assert told[-1].total == 3
    assert told[-1].left_s > 0
    report = run_campaign(campaign_of(trials), path)
    assert (report.skipped, len(report.measured), report.about["points"]) == (2, 1, 3)
    assert [trial.repeat for trial in read_store(path)] == [0, 1, 2]
    assert run_campaign(campaign_of(trials), path).skipped == 3


def test_a_budget_leaves_trials_for_later(tmp_path: Path, trial_of: Make) -> None:
    trials = [replace(trial_of(model="mlp", repeat=index), seconds=400.0) for index in range(3)]
    report = run_campaign(campaign_of(trials), tmp_path / "trials.sqlite", budget_s=30.0)
    assert (len(report.measured), report.left) == (0, 3)


def test_what_does_not_fit_is_refused_before_anything_starts(tmp_path: Path, trial_of: Make) -> None:
    import os

    many = (os.cpu_count() or 1) + 1
    trial = trial_of(workers=many)
    with pytest.raises(ConfigError, match=rf"w{many}c1.*needs {many} workers.*To fix"):
        run_campaign(campaign_of([trial]), tmp_path / "trials.sqlite")
    gpu = trial_of(group=replace(trial.group, num_workers=1, gpus_per_worker=99.0))
    with pytest.raises(ConfigError, match=r"99 GPU.*To fix: ask for fewer GPUs"):
        run_campaign(campaign_of([gpu]), tmp_path / "trials.sqlite")


def test_workers_of_ray_run_the_package_under_test(ray: Any) -> None:
    import precision_time

    def where() -> str:
        import precision_time

        return str(precision_time.__file__)

    assert ray.get(ray.remote(where).remote()) == precision_time.__file__
