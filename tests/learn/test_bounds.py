"""What is remembered of other jobs may be forgotten at any time; the answers stay."""

import numpy as np
import pytest

from precision_time.learn import bounds
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.serving import predict_step_times
from precision_time.request.request import Request

JOBS = [
    Request.of({"model": "resnet50", "device": device, "gpus": gpus, "batch_size": batch}).resolve()
    for device in ("L40S", "MI250X")
    for gpus in (2, 4, 16)
    for batch in (1, 3, 24, 32)
]


def test_forgetting_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = predict_step_times(JOBS, shipped_predictor(), coverage=0.9).step_time_s
    monkeypatch.setattr(bounds, "_MOST_KEPT", 1)
    monkeypatch.setattr(bounds, "_OTHERS", {})
    monkeypatch.setattr(bounds, "_CLUSTERS", {})
    for _ in range(2):
        bounds.forget_bounds()
        found = predict_step_times(JOBS, shipped_predictor(), coverage=0.9).step_time_s
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_unmeasured_batch_lies_between_its_powers_of_two() -> None:
    times = predict_step_times(JOBS, shipped_predictor(), coverage=0.9).step_time_s.reshape(-1, 4)
    one, three, twenty_four, thirty_two = times.T
    assert (one <= three).all() and (three <= twenty_four).all() and (twenty_four <= thirty_two).all()


def test_two_precisions_with_one_mixed_counterpart_are_answered_together() -> None:
    """fp16 and bf16 throughout are held against the same job in mixed precision, which is bounded once."""
    asked = {"model": "llama3-8b", "device": "H100", "gpus": 64, "zero": 3, "batch_size": 1}
    jobs = [Request.of(asked | {"precision": name}).resolve() for name in ("fp16", "bf16")]
    bounds.forget_bounds()
    together = predict_step_times(jobs, shipped_predictor(), coverage=0.9).step_time_s
    for job, expected in zip(jobs, together, strict=True):
        bounds.forget_bounds()
        [alone] = predict_step_times([job], shipped_predictor(), coverage=0.9).step_time_s
        assert alone == pytest.approx(expected, rel=1e-12)
