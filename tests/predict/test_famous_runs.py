"""Step rates of famous trainings, asked as a user would: how far off the answers may be."""

from __future__ import annotations

import numpy as np
import pytest

from precision_time.cli.request_options import requests_in_words
from precision_time.predict.api import predict
from precision_time.predict.prediction import Prediction
from published_runs import FamousRun, famous_runs

STEPS = [run for run in famous_runs() if run.scope == "step" and run.steps and not run.not_said]
MOST_MEDIAN_PERCENT = 16.0
"""14 as shipped; the target of 12 is missed."""
MOST_OUT_OF_MEMORY = 1
"""Llama-3.1 405B on 8,192 devices, whose trainer freed activations early: 83.9 GiB of the 79.1 to use."""


@pytest.fixture(scope="module")
def answers() -> list[tuple[FamousRun, Prediction]]:
    found = []
    for run in STEPS:
        (words,) = run.asked
        (request,) = requests_in_words(words.split())
        found.append((run, predict(request)))
    return found


def test_step_rates_are_near_what_was_reported(answers: list[tuple[FamousRun, Prediction]]) -> None:
    errors = [abs(found.step_time_s / run.seconds - 1.0) for run, found in answers]
    assert len(errors) >= 30
    assert 100.0 * float(np.median(errors)) < MOST_MEDIAN_PERCENT
    within = [found.interval.low_s <= run.seconds <= found.interval.high_s for run, found in answers]
    assert np.mean(within) > 0.85


def test_what_ran_fits(answers: list[tuple[FamousRun, Prediction]]) -> None:
    assert len([run.name for run, found in answers if not found.fits]) <= MOST_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("words", "reported_s"),
    [
        # 2.664M GPU-hours for 14.8T tokens in steps of 15,360 sequences (arXiv:2412.19437, table 1).
        (
            "deepseek-v3 -d H800 -g 2048 -p fp8-mixed --seq-len 4096 --global-batch-size 15360",
            2.664e6 / 2048 * 3600 / (14.8e12 / (15360 * 4096)),
        ),
        # 400 TFLOPS per device (arXiv:2407.21783, table 4).
        ("llama3.1-405b -d H100 -g 16384 -p bf16-mixed --seq-len 8192 --global-batch-size 2048", 6.49285),
    ],
    ids=["DeepSeek-V3", "Llama 3.1 405B"],
)
def test_flagships_are_near_from_the_question_alone(words: str, reported_s: float) -> None:
    (request,) = requests_in_words(words.split())
    found = predict(request)
    assert found.fits
    assert found.step_time_s == pytest.approx(reported_s, rel=0.25)
