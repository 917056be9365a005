"""The environment of the agent: as Gymnasium wants it, within its budget, its rewards what is saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from precision_time import Request
from precision_time.planning.precisions.risk import Basis, Risk
from precision_time_papers.precisions.environment import ScheduleEnvironment, train
from precision_time_papers.precisions.schedules import Schedules, schedules_of

BUDGET = 0.0012


@pytest.fixture(scope="module")
def schedules() -> Schedules:
    request = Request.of({"model": "bert-large", "device": "H100-SXM5-80GB", "gpus": 8, "batch_size": 64})
    found = schedules_of(request, types=["fp8"])
    risks = [
        Risk(loss_gap=0.0025 * group.flops_share, basis=Basis.PUBLISHED, source="") for group in found.groups
    ]
    return replace(found, risks=tuple((risk,) for risk in risks))


def test_it_is_a_gymnasium_environment(schedules: Schedules) -> None:
    check_env(ScheduleEnvironment(schedules, BUDGET), skip_render_check=True)


def test_rewards_add_up_to_what_is_saved_within_the_budget(schedules: Schedules) -> None:
    environment = ScheduleEnvironment(schedules, BUDGET)
    actions = np.random.default_rng(0)
    reference_s = schedules.times_s([(0,) * len(schedules.groups)])[0]
    for _ in range(20):
        environment.reset(seed=0)
        total, ended = 0.0, False
        while not ended:
            _, reward, ended, _, _ = environment.step(int(actions.integers(schedules.kinds)))
            total += reward
        picks = environment.picks
        assert schedules.risks_of([picks])[0] <= BUDGET * (1 + 1e-9)
        assert total == pytest.approx(1.0 - schedules.times_s([picks])[0] / reference_s, abs=1e-12)


def test_an_agent_is_trained_and_keeps_the_budget(schedules: Schedules) -> None:
    trained = train(schedules, BUDGET, seed=3, steps=256)
    for picks in (trained.best, trained.greedy):
        assert schedules.risks_of([picks])[0] <= BUDGET * (1 + 1e-9)
    best_s, greedy_s = schedules.times_s([trained.best, trained.greedy])
    assert best_s <= greedy_s
    assert trained == train(schedules, BUDGET, seed=3, steps=256)
