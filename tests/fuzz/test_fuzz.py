"""A few inputs of every kind; `fuzz.py` sends thousands (docs/reference/limits.md has the counts)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from fuzz_inputs import requests
from fuzz_targets import Target, fresh, targets
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.device_table import known_device_names
from precision_time.predict.api import predict_time

INPUTS = int(os.environ.get("PRECISION_TIME_FUZZ", "120"))
"""Over all targets; set it for a longer run."""
TARGETS = [target for target in targets() if not target.heavy]
TOTAL = sum(target.share for target in TARGETS)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = fresh(tmp_path / "examples")
    monkeypatch.chdir(folder)
    yield folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_in_is_answered_or_refused(target: Target, examples: Path) -> None:
    @settings(
        max_examples=max(round(INPUTS * target.share / TOTAL), 3),
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(target.inputs)
    def run(given_input: object) -> None:
        target.try_(given_input, examples)

    run()


@settings(max_examples=8, phases=[Phase.generate], suppress_health_check=[HealthCheck.filter_too_much])
@given(requests())
def test_what_an_answer_says_of_its_job_asks_it_again(fields: dict[str, object]) -> None:
    device = fields.get("device", "A100-SXM4-80GB")
    assume(device in known_device_names())  # others stand for hosts, or for several devices
    try:
        answer = predict_time(**fields)
    except PrecisionTimeError:
        assume(False)
    for names in (("gpus", "nodes"), ("device", "precision", "stack"), ("model",)):
        again = predict_time(**fields | {name: getattr(answer, name) for name in names})
        # Sums of a group are rounded otherwise where more of it is priced together; what is said is not open.
        before, after = answer.analytical_step_time_s, again.analytical_step_time_s
        assert after == pytest.approx(before, rel=1e-12), names
