"""What a question leaves open widens its interval, and decides its answer no more than practice does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time import predict_many, predict_time
from precision_time.cost.job import Jobs
from precision_time.learn.artifact import shipped_predictor
from precision_time.predict.answer import answer
from precision_time.predict.scenarios import (
    POINTS,
    Widening,
    mixture,
    on_bearable_links,
    scenarios_of,
)
from precision_time.request.practice import axes_of
from precision_time.request.request import Request
from precision_time.request.votes import STACK

CNN: dict[str, Any] = {"model": "resnet50", "device": "A100", "gpus": 8, "precision": "fp16-mixed"}
LLM: dict[str, Any] = {"model": "llama3-8b", "device": "H100", "gpus": 8, "precision": "bf16-mixed"}
SAID: dict[str, Any] = {
    "stack": "ngc-pytorch", "software": 2023.5, "compiler": "none", "channels_last": True,
    "real_input": False,
    "zero_stage": 0, "recompute": "none", "attention": "flash2", "num_microbatches": 1,
}  # fmt: skip
QUESTIONS = [
    {**CNN, "global_batch_size": 1024},
    {**LLM, "global_batch_size": 64, "seq_len": 4096},
    {**LLM, "gpus": 64, "nodes": 8, "global_batch_size": 256, "seq_len": 4096},
    {"model": "bert-base", "device": "T4", "precision": "fp16-mixed", "batch_size": 16},
    {"model": "llama3-8b", "device": "TPUv6e", "gpus": 16, "global_batch_size": 64},
]


def logistic(center_s: float, low_s: float, high_s: float, times: float = 1.0) -> tuple[Any, ...]:
    row = np.array([[center_s, low_s, high_s]]) * times
    return row[:, :1], row[:, 1:2], row[:, 2:]


@pytest.mark.parametrize("asked", QUESTIONS)
def test_scenarios_are_weighted_and_the_own_job_is_first(asked: dict[str, Any]) -> None:
    request = Request.of(asked)
    job = request.resolve()
    found = scenarios_of(request, job)
    assert found[0].job is job and not found[0].fields
    assert math.fsum(each.weight for each in found) == pytest.approx(1.0)
    assert len(found) > 4 and all(each.weight > 0.0 for each in found)
    for each in found[1:]:
        assert not each.fields.keys() & asked.keys()
        assert each.job.cluster.num_devices == job.cluster.num_devices
        assert each.job.workload is job.workload and each.job.precision == job.precision
        own = job.layout
        micro, counts, _ = each.batches(
            own, np.array([own.micro_batch_size]), np.array([float(own.num_microbatches)])
        )
        # The same samples per step, however they are cut.
        assert micro[0] * counts[0] * each.job.layout.dp == pytest.approx(own.global_batch_size)


def test_no_stack_cuts_a_model_up_by_axes_that_it_lacks() -> None:
    request = Request.of({"model": "deepseek-v3", "device": "H800", "gpus": 2048, "precision": "fp8-mixed"})
    job = request.resolve()
    assert job.layout.pp > 1 and job.layout.ep > 1
    found = scenarios_of(request, job)
    lacking = [each for each in found if not {"pp", "ep"} <= set(axes_of(each.job.stack.profile))]
    assert lacking
    for each in lacking:
        layout = each.job.layout
        assert (layout.dp, layout.tp, layout.pp, layout.ep) == (2048, 1, 1, 1)
        assert not layout.expert_overlap and not layout.expert_nodes


def test_what_is_said_in_full_is_the_predictors_own_answer() -> None:
    request = Request.of({**CNN, **SAID, "global_batch_size": 1024})
    assert len(scenarios_of(request, request.resolve())) == 1


@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_question_has_a_wider_interval_than_its_own_job(asked: dict[str, Any]) -> None:
    bare = predict_time(**asked)
    columns = answer(Jobs.of([Request.of(asked).resolve()]), shipped_predictor()).figures
    own = columns["interval_high_s"][0] / columns["interval_low_s"][0]
    assert own < bare.interval.high_s / bare.interval.low_s
    assert bare.interval.low_s < bare.step_time_s < bare.interval.high_s
    assert math.fsum(bare.terms.values()) == pytest.approx(bare.step_time_s, rel=1e-12)
    [told] = [item.text for item in bare.diagnostics if item.code == "left-open"]
    assert "as people do" in told and "say " in told


def test_measured_steps_of_ones_own_leave_nothing_open() -> None:
    request = Request.of({**CNN, "batch_size": 128, "anchors": [{"batch_size": 64, "step_time_s": 0.05}]})
    assert len(scenarios_of(request, request.resolve())) == 1


def test_many_questions_are_answered_as_each_alone() -> None:
    together = predict_many([Request.of(asked) for asked in QUESTIONS]).predictions
    for asked, one in zip(QUESTIONS, together, strict=True):
        alone = predict_time(**asked)
        assert (one.step_time_s, one.interval) == (alone.step_time_s, alone.interval)


def test_points_are_of_how_a_job_runs() -> None:
    assert STACK not in POINTS
    assert not {"precision", "length", "adapter", "batch", "optimizer"} & set(POINTS)


OPEN = np.array([True])
WIDE = Widening(own=20.0, layout_open=20.0, layout_said=20.0)


def test_one_scenario_has_its_own_interval() -> None:
    found = mixture(*logistic(1.0, 0.7, 1.6), np.ones((1, 1)), np.array([0.9]), layout_open=OPEN)
    assert [each[0] for each in found] == pytest.approx([1.0, 0.7, 1.6], rel=1e-9)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 100.0), st.floats(1.01, 5.0), st.floats(1.01, 5.0), st.floats(0.01, 1.0)),
        min_size=1, max_size=12,
    ),
    st.floats(0.5, 0.99),
)  # fmt: skip
def test_a_mixture_lies_among_its_scenarios_and_scales_with_them(
    scenarios: list[tuple[float, float, float, float]], coverage: float
) -> None:
    center, down, up, weight = (np.array([each]) for each in zip(*scenarios, strict=True))
    weight = weight / weight.sum()
    share = np.array([coverage])
    median, low, high = (
        each[0] for each in mixture(center, center / down, center * up, weight, share, layout_open=OPEN)
    )
    assert low <= median <= high
    assert (center / down).min() * (1 - 1e-9) <= median <= (center * up).max() * (1 + 1e-9)
    thrice = mixture(3.0 * center, 3.0 * center / down, 3.0 * center * up, weight, share, layout_open=OPEN)
    assert [each[0] for each in thrice] == pytest.approx([3.0 * median, 3.0 * low, 3.0 * high], rel=1e-9)
    wide = mixture(center, center / down, center * up, weight, share, layout_open=OPEN, widening=WIDE)
    assert wide[1][0] <= low * (1 + 1e-12) and high <= wide[2][0] * (1 + 1e-12)
    twice = [np.concatenate([each, each], axis=1) for each in (center, center / down, center * up)]
    if len(scenarios) > 1:  # one alone is as wide as it is
        same = mixture(*twice, np.concatenate([weight, weight], axis=1) / 2.0, share, layout_open=OPEN)
        assert [each[0] for each in same] == pytest.approx([median, low, high], rel=1e-6)


def test_more_devices_of_a_host_are_no_other_people() -> None:
    """One sweep over devices asks one practice: the same stack and scenarios, whatever the number."""
    for asked in (CNN, {**LLM, "seq_len": 2048}, {**LLM, "model": "llama2-7b", "adapter": "lora", "gpus": 1}):
        found = []
        for gpus in (1, 2, 4, 8):
            request = Request.of({**asked, "gpus": gpus, "global_batch_size": 64})
            job = request.resolve()
            found.append((job.stack, [each.fields for each in scenarios_of(request, job)]))
        assert all(each == found[0] for each in found)


def test_no_scenario_is_there_twice() -> None:
    asked = {"model": "llama2-7b", "device": "A10G", "adapter": "lora", "seq_len": 2048, "gpus": 2}
    request = Request.of({**asked, "global_batch_size": 64})
    scenarios = scenarios_of(request, request.resolve())[1:]
    assert len(scenarios) > 4
    assert len({repr(sorted(each.fields.items())) for each in scenarios}) == len(scenarios)


def test_nobody_runs_on_links_that_make_a_step_many_times_longer() -> None:
    weights = np.array([[0.4, 0.2, 0.2, 0.2], [0.4, 0.2, 0.2, 0.2]])
    links = np.array([[False, True, True, False], [False, True, False, False]])
    step_s = np.array([[1.0, 2.0, 20.0, 20.0], [1.0, 20.0, 20.0, 1.0]])
    kept = on_bearable_links(weights, links, step_s) > 0.0
    assert kept.tolist() == [[True, True, False, True], [True, False, True, True]]


@pytest.mark.parametrize(
    "model, device, gpus", [("llama-65b", "A100-SXM4-80GB", 2048), ("mpt-7b", "A100-SXM4-40GB", 440)]
)
def test_a_cluster_of_a100_has_no_interval_of_ten_times_its_time(model: str, device: str, gpus: int) -> None:
    found = predict_time(model, device=device, gpus=gpus)
    assert found.interval.high_s < 5.0 * found.step_time_s
