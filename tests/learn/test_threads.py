"""Answers worked out in several threads at once: what one forgets does not disturb the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import product

import pytest

from precision_time import Prediction, Request
from precision_time.learn import novelty
from precision_time.predict.api import predict_each


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads take turns often, and hardly anything is remembered."""
    for name in ("_novelty", "_candidates"):
        kept = lru_cache(maxsize=20)(getattr(novelty, name).__wrapped__)
        monkeypatch.setattr(novelty, name, kept)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("forgetful")
def test_threads_get_the_answers_of_one() -> None:
    axes = product(("gpt2", "resnet50"), ("H200-SXM-141GB", "L40S"), (1, 6), ("fp32", "bf16"))
    requests = [
        Request.of({"model": model, "device": device, "gpus": gpus, "precision": precision, "batch_size": 6})
        for model, device, gpus, precision in axes
    ]
    expected = predict_each(requests, remedies=False)
    with ThreadPoolExecutor(4) as pool:
        halves = [requests[number % 2 :: 2] for number in range(8)]
        found = list(pool.map(lambda some: predict_each(some, remedies=False), halves))
    for number, answers in enumerate(found):
        for answer, wanted in zip(answers, expected[number % 2 :: 2], strict=True):
            assert isinstance(answer, Prediction)
            assert isinstance(wanted, Prediction)
            assert answer.step_time_s == pytest.approx(wanted.step_time_s, rel=1e-9)
