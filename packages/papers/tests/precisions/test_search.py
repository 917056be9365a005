"""Schedules of real jobs: budgets kept, never slower than the reference, files that say the same again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from precision_time import Request, predict_time
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.planning.precisions.risk import Basis, Risk
from precision_time.planning.run.api import predict_run
from precision_time.precision.rules import layers_of_pattern
from precision_time_papers.precisions.groups import layer_groups
from precision_time_papers.precisions.layer_risk import share_of_gap
from precision_time_papers.precisions.methods import METHODS
from precision_time_papers.precisions.schedules import Schedules, schedules_of
from precision_time_papers.precisions.search import search_precisions

BERT = {"model": "bert-large", "device": "H100-SXM5-80GB", "gpus": 8, "batch_size": 64}
BUDGETS = (0.0, 0.0004, 0.001, 0.0025, 1.0)


@cache
def schedules() -> Schedules:
    """Of BERT, with risks by FLOPs: what is found does not depend on what is measured."""
    found = schedules_of(Request.of(BERT), types=["fp8"])
    risks = [
        Risk(loss_gap=0.0025 * group.flops_share, basis=Basis.PUBLISHED, source="") for group in found.groups
    ]
    return replace(found, risks=tuple((risk,) for risk in risks))


@pytest.mark.parametrize(
    "model", ["llama3-8b", "bert-large", "resnet50", "t5-base", "mixtral-8x7b", "vit-b16"]
)
def test_groups_name_every_large_product_once(model: str) -> None:
    graph = Request(model=model).resolve().workload.graph
    groups = layer_groups(graph, bands=2)
    patterns = [pattern for group in groups for pattern in group.patterns]
    assert all(layers_of_pattern(graph, pattern) for pattern in patterns)
    assert sum(group.flops_share for group in groups) == pytest.approx(1.0, abs=0.01)
    assert len({group.name for group in groups}) == len(groups)


@pytest.mark.parametrize("method", ["dynamic-programming", "exhaustive"])
def test_a_method_keeps_the_budget_and_is_never_slower_than_the_reference(method: str) -> None:
    found = schedules()
    reference_s = found.times_s([(0,) * len(found.groups)])[0]
    for budget in BUDGETS:
        picks = METHODS[method](found, budget)
        assert found.risks_of([picks])[0] <= budget * (1 + 1e-9)
        assert found.times_s([picks])[0] <= reference_s


@pytest.mark.parametrize("method", ["dynamic-programming", "exhaustive"])
def test_a_larger_budget_is_never_slower(method: str) -> None:
    found = schedules()
    times = [found.times_s([METHODS[method](found, budget)])[0] for budget in np.linspace(0.0, 0.004, 9)]
    assert (np.diff(times) <= 0.0).all()
    assert times[-1] < 0.97 * times[0], "fp8 saves something on an H100"


def test_dynamic_programming_is_near_the_best_of_all() -> None:
    found = schedules()
    for budget in BUDGETS:
        best_s, near_s = (
            found.times_s([METHODS[name](found, budget)])[0] for name in ("exhaustive", "dynamic-programming")
        )
        assert best_s <= near_s <= 1.03 * best_s


def test_no_risk_is_the_reference() -> None:
    nothing = search_precisions(Request.of(BERT), types="fp8", risk_budget=0)
    assert nothing.saved_share == 0.0
    assert nothing.risk == 0.0
    assert "layers" not in nothing.policy
    assert nothing.step_time_s == predict_time(**BERT).step_time_s


def test_a_policy_file_is_predicted_as_found(tmp_path: Path) -> None:
    found = search_precisions(Request.of(BERT), types="fp8", risk_budget="90%")
    path = tmp_path / "policy.yaml"
    found.write(path)
    again = predict_time(**BERT, precision=path)
    assert again.step_time_s == pytest.approx(found.step_time_s, rel=1e-12)
    assert again.step_time_s < found.reference_step_time_s


def test_phases_are_priced_as_found_and_beat_one_schedule(tmp_path: Path) -> None:
    asked = Request.of(BERT | {"steps": 1000})
    budget = 0.5 * search_precisions(asked, types="fp8", risk_budget=1.0).risk
    one = search_precisions(asked, types="fp8", risk_budget=budget)
    two = search_precisions(asked, types="fp8", risk_budget=budget, phases="80%,20%")
    assert 0.0 < two.risk <= budget * (1.0 + 1e-9)
    assert two.step_time_s <= one.step_time_s
    assert len(two.phases) == 2
    path = tmp_path / "job.yaml"
    two.write(path)
    said = yaml.safe_load(path.read_text(encoding="utf-8"))
    run = predict_run(asked, phases=said["phases"])
    for phase, done in zip(two.phases, run.phases, strict=True):
        assert done.prediction.step_time_s == pytest.approx(phase.step_time_s, rel=1e-9)
        assert done.steps == pytest.approx(1000 * phase.share)
    assert run.terms["steps"] == pytest.approx(1000 * two.step_time_s, rel=1e-9)


def test_parts_of_a_run_leave_the_whole_gap() -> None:
    for curve in ("published", "uniform"):
        parts = [share_of_gap(curve, low, low + 0.25) for low in (0.0, 0.25, 0.5, 0.75)]
        assert sum(parts) == pytest.approx(1.0)
        assert min(parts) > 0.0


def test_a_faster_policy_of_mixed_types_is_no_measuring_error() -> None:
    """The peak that a step is held against is that of the fastest type, also where only layers have it."""
    said = {"base": "fp32", "layers": {"blocks.*": "bf16"}}
    answer = predict_time("bert-large", device="A100-SXM4-80GB", batch_size=16, precision=said)
    assert answer.mfu is not None
    assert answer.mfu < 1.0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"risk_budget": -0.1}, ConfigError, "risk_budget"),
        ({"risk_budget": "much"}, ConfigError, "relative gap"),
        ({"method": "luck"}, UnknownNameError, "dynamic-programming"),
        ({"types": "fp12"}, ConfigError, "fp12"),
        ({"types": "fp4"}, ConfigError, "no units"),
        ({"phases": "50%,40%"}, ConfigError, "add up"),
        ({"phases": "80%,20%", "method": "reinforcement"}, ConfigError, "one phase"),
        ({"phases": "80%,20%", "over_time": "never"}, UnknownNameError, "uniform"),
        ({"layers": 0}, ConfigError, "ranges"),
        ({"layers": 9, "types": "fp16,fp8", "method": "exhaustive"}, ConfigError, "at most"),
    ],
)
def test_what_cannot_be_says_why(changes: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        search_precisions(Request.of(BERT), **{"types": "fp8", **changes})
