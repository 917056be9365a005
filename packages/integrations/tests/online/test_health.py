"""A slow run is explained by what was measured first; else several causes are named, none as certain."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from precision_time import predict_time
from precision_time_integrations.online.estimate import steady
from precision_time_integrations.online.health import HostState, clocks_of, slow_run
from precision_time_integrations.online.history import StepHistory

JOB: dict[str, Any] = {
    "model": "bert-large",
    "device": "A100-SXM4-80GB",
    "batch_size": 32,
    "precision": "fp16",
}
CALM = HostState(busy_processors=0.1)


def explained(
    ratio: float, host: HostState = CALM, waited_s: float | None = None, grows: float = 0.0, **job: Any
) -> str:
    prediction = predict_time(**{**JOB, **job})
    history = StepHistory()
    for step in range(1, 101):
        history.add(1, ratio * prediction.step_time_s * (1.0 + grows * step / 100))
    level = steady(history)
    assert level is not None
    return slow_run(prediction, level, waited_s, host)


def test_what_was_measured_speaks_first() -> None:
    step_s = predict_time(**JOB).step_time_s
    assert "waiting for input" in explained(2.0, waited_s=0.9 * step_s)
    assert "waiting for input" not in explained(2.0, waited_s=0.1 * step_s)
    assert "clock is at 45%" in explained(2.0, HostState(clock_share=0.45, throttled=True))
    assert "host is busy" in explained(2.0, HostState(busy_processors=4.0))
    assert "slower while it ran" in explained(2.0, grows=0.5)


def test_several_causes_are_named_and_none_is_certain() -> None:
    ratio = predict_time(**{**JOB, "precision": "fp32"}).step_time_s / predict_time(**JOB).step_time_s
    said = explained(ratio)
    assert "a wider precision than meant" in said
    shares = [int(share) for share in re.findall(r"\((\d+)%\)", said)]
    assert len(shares) == 4, "three causes and what is left"
    assert max(shares) < 95
    assert sum(shares) == pytest.approx(100, abs=2)
    assert "check first: " in said


def test_slow_network_explains_what_kernels_would_not() -> None:
    far = {"gpus": 16, "nodes": 2, "batch_size": 8, "precision": "fp16-mixed"}
    assert "a slow network between hosts" in explained(6.0, **far)
    assert "network" not in explained(3.0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("1980, 1980, 0x0000000000000000\n", (1.0, False)),
        ("1980, 1980, 0x0000000000000001\n990, 1980, 0x0000000000000040\n", (0.5, True)),
        ("210, 1980, 0x0000000000000001\n", (210 / 1980, False)),
        ("[N/A], [N/A], [N/A]\n", (None, False)),
        ("", (None, False)),
    ],
)
def test_clocks_are_read(said: str, expected: tuple[float | None, bool]) -> None:
    assert clocks_of(said) == expected


def test_a_prediction_without_its_request_is_explained_too() -> None:
    prediction = replace(predict_time(**JOB), request={})
    history = StepHistory()
    for _ in range(100):
        history.add(1, 3.0 * prediction.step_time_s)
    level = steady(history)
    assert level is not None and "not known well enough" in slow_run(prediction, level, None, CALM)
