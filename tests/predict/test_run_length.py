"""How long a run is, in whatever words its length is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from precision_time.errors import ConfigError
from precision_time.predict.api import predict_time
from precision_time.request.request import Request

GPT2: dict[str, Any] = {"model": "gpt2", "gpus": 8, "batch_size": 12, "num_microbatches": 5, "seq_len": 1024}


def test_tokens_are_steps_device_hours_and_an_interval() -> None:
    answer = predict_time(**GPT2, tokens="300B")
    assert answer.total_steps == math.ceil(300e9 / (8 * 12 * 5 * 1024))
    assert answer.total_time_s == answer.total_steps * answer.step_time_s
    assert answer.device_hours == pytest.approx(8 * answer.total_time_s / 3600)
    assert answer.total_interval is not None
    low, high = answer.total_interval.low_s, answer.total_interval.high_s
    assert low < answer.total_time_s < high
    # What the interval of a step allows for is the same in all steps of a run, and whole runs differ by more.
    assert high / answer.total_time_s > answer.interval.high_s / answer.step_time_s
    assert low / answer.total_time_s < answer.interval.low_s / answer.step_time_s
    assert any("evaluation, checkpoints and start-up are not included" in text for text in answer.assumptions)
    assert predict_time(**GPT2, steps=answer.total_steps).total_time_s == answer.total_time_s


@pytest.mark.parametrize(
    ("asked", "says", "warned"),
    [
        ({"model": "resnet50", "dataset": "mydata", "epochs": 90}, "dataset 'mydata' is not known", True),
        ({**GPT2, "epochs": 3}, "How many samples per epoch", True),
        (GPT2, "its length is not given", False),
    ],
)
def test_a_run_time_that_cannot_be_said_says_why(asked: dict[str, Any], says: str, warned: bool) -> None:
    answer = predict_time(**asked)
    assert answer.total_time_s is answer.total_interval is answer.device_hours is None
    assert says in answer.total_time_missing and "give samples=" in answer.total_time_missing.replace(
        "give tokens= or steps=, or samples=", "give samples="
    )
    told = answer.warnings if warned else answer.assumptions
    assert answer.total_time_missing in told


@pytest.mark.parametrize(
    ("field", "said", "means"),
    [
        ("tokens", "300B", 3 * 10**11),
        ("samples", "1.28M", 1_280_000),
        ("steps", "600k", 600_000),
        ("tokens", "1.4e12", 14 * 10**11),
        ("seq_len", "8k", 8192),
        ("gpus", "1k", 1024),
        ("global_batch_tokens", "4M", 2**22),
        ("global_batch_size", "2k", 2048.0),
        ("epochs", "0.5", 0.5),
    ],
)
def test_suffixes(field: str, said: str, means: float) -> None:
    """Powers of 1000 in lengths of runs, of 1024 in batches and sizes, as those who write them mean them."""
    assert Request.of({"model": "gpt2", field: said}).given()[field] == means


@pytest.mark.parametrize("said", ["1.5q", "k", "1.2345k", "-4k", "0k", "1e999k"])
def test_what_is_no_count_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=r"steps=.* is invalid"):
        Request.of({"model": "gpt2", "steps": said})


def test_a_batch_in_tokens_is_the_nearest_that_the_replicas_share() -> None:
    asked = {"model": "gpt2", "gpus": 8, "batch_size": 12, "seq_len": 1024}
    job = Request.of({**asked, "global_batch_tokens": 500_000}).resolve()
    assert job.layout.global_batch_size == 480.0
    assert any("500,000 tokens per step read as 480 samples" in item.text for item in job.diagnostics)
    assert job.layout.num_microbatches == 5
    exact = Request.of({**asked, "global_batch_tokens": 480 * 1024}).resolve()
    assert all("read as" not in item.text or "tokens per step" not in item.text for item in exact.diagnostics)


def test_another_length_takes_the_place_of_the_first() -> None:
    asked = Request.of({"model": "gpt2", "epochs": 3}).with_(tokens="1B")
    assert asked.epochs is None and asked.tokens == 10**9
