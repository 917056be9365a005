"""What questions are off by is corrected near measured runs, not far from them nor for runs said in full."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from precision_time import predict_time
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.novelty import KINDS
from precision_time.learn.table import job_table
from precision_time.predict.question_model import SAID, left_of, question_model, read_of, said_of
from precision_time.request.request import Request

CNN: dict[str, Any] = {"model": "resnet50", "device": "V100", "gpus": 8, "precision": "fp16-mixed"}
FULL: dict[str, Any] = {**CNN, "stack": "ngc-pytorch", "zero_stage": 0, "batch_size": 128}


def corrected(asked: dict[str, Any], distance: float = 0.0) -> tuple[float, float, float]:
    """A mixture of median 2 and interval 1 to 4 after the correction."""
    request = Request.of(asked)
    jobs = job_table([request.resolve()]).select(shipped_predictor().names)
    away = np.full((1, len(KINDS)), distance)
    mixed = (np.array([2.0]), np.array([1.0]), np.array([4.0]))
    answers = question_model().corrected(jobs, away, said_of([request]), np.array([True]), mixed)
    median, low, high = (float(each[0]) for each in answers)
    return median, low, high


def test_what_is_said() -> None:
    """Of the software alone: layout, links and batch are said by doors that try many of them."""
    assert said_of([Request.of(CNN), Request.of({**CNN, "zero_stage": 1, "batch_size": 8})]).sum() == 0.0
    [said] = said_of([Request.of(FULL)]).tolist()
    assert [name for name, value in zip(SAID, said, strict=True) if value] == ["framework", "stack"]


def test_a_run_whose_stack_is_said_is_not_corrected() -> None:
    assert corrected(FULL) == (2.0, 1.0, 4.0)


def test_corrections_fade_with_the_distance() -> None:
    near, away = corrected(CNN)[0], corrected(CNN, 1e6)[0]
    assert abs(np.log(near / 2.0)) > 0.01
    assert away == pytest.approx(2.0, rel=1e-3)
    assert left_of(np.zeros((1, len(KINDS)))).tolist() == [1.0]
    assert left_of(np.log1p(np.full((1, 2), 3.0))).tolist() == pytest.approx([0.25])


def test_an_interval_keeps_its_shape() -> None:
    """By a power about the median: what is known on one side more than on the other stays so."""
    median, low, high = corrected(CNN)
    assert np.log(median / low) == pytest.approx(np.log(high / median))
    assert low < median < high


def test_the_trees_read_no_batch_and_no_number_of_devices() -> None:
    jobs = job_table([Request.of(CNN).resolve()]).select(shipped_predictor().names)
    assert not any(
        "batch" in name or name in ("log_devices", "log_nodes", "log_dp", "log_analytical_s")
        for name in jobs.names
        if read_of(_marked(jobs, name), np.zeros((1, 0)), np.zeros((1, 0))).any()
    )


def _marked(jobs: Any, name: str) -> Any:
    """The table with 1 in one column and 0 in all others."""
    from dataclasses import replace

    marked = np.zeros_like(jobs.features)
    marked[:, jobs.names.index(name)] = 1.0
    return replace(jobs, features=marked)


@pytest.mark.parametrize("model", ["resnet50", "llama3-8b", "bert-base"])
def test_a_larger_batch_takes_no_less(model: str) -> None:
    """But for 2 %: an answer lies below its median, the more the less is known (docs/reference/limits.md)."""
    asked: dict[str, Any] = {**CNN, "model": model, "device": "A100"}
    steps = [predict_time(**asked, batch_size=size).step_time_s for size in (1, 2, 4, 8, 16)]
    assert all(before <= after * 1.02 for before, after in zip(steps, steps[1:], strict=False))


def test_the_answer_says_its_correction() -> None:
    [told] = [
        each.text for each in predict_time(**CNN, batch_size=128).diagnostics if each.code == "left-open"
    ]
    assert re.search(r"[-+]\d+ %, as measured runs asked like this took", told)
