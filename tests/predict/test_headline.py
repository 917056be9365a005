"""What an answer says first: the run, its money, whether it fits, the step."""

from __future__ import annotations

import re
from typing import Any

import pytest

from precision_time import predict_time
from precision_time.diagnostics import TF32_BY_DEFAULT
from precision_time.predict.headline import FIGURES, Headline
from precision_time.units import format_duration

_LORA = {"model": "llama3-8b", "adapter": "lora", "device": "H100", "gpus": 8, "dataset": "alpaca"}


def test_a_run_leads_with_its_time_its_interval_and_its_money() -> None:
    answer = predict_time(**_LORA, epochs=3)
    run, step, *_ = Headline.of(answer).lines()
    assert answer.total_time_s is not None
    assert f"takes {format_duration(answer.total_time_s)} (" in run
    assert "$" in run and "device-hours" in run
    assert "tokens a sample" in run
    order = [step.index(text) for text in ("Fits:", "GiB", "A step takes", "tokens/s")]
    assert order == sorted(order)
    assert str(answer).splitlines()[0].startswith(run[:40])


@pytest.mark.parametrize(
    ("asked", "starts", "says"),
    [
        ({"model": "resnet50", "device": "A100", "gpus": 8}, "An epoch of ", "give epochs= for the run"),
        (
            {"model": "llama3-8b", "device": "H100", "gpus": 8},
            "A million tokens take ",
            "give tokens= or steps=",
        ),
        ({"model": "resnet50", "device": "A100", "epochs": 90}, "The run of ", "not included"),
        (
            {"model": "llama3-70b", "device": "T4", "batch_size": 4},
            "If it fitted, a million tokens",
            "steps=",
        ),
    ],
)
def test_what_is_not_known_of_the_run_is_said_first(asked: dict[str, Any], starts: str, says: str) -> None:
    line = Headline.of(predict_time(**asked)).run_line()
    assert line.startswith(starts)
    assert says in line


def test_the_money_is_the_price_times_the_hours() -> None:
    answer = predict_time(**_LORA, epochs=3)
    found = Headline.of(answer)
    assert found.cost_usd is not None and found.run_s is not None
    hourly, instances = re.match(r"([\d.]+) USD an hour, (\d+) x ", found.price).groups()  # type: ignore[union-attr]
    assert found.cost_usd == pytest.approx(float(hourly) * int(instances) * found.run_s / 3600.0, rel=0.01)
    assert {*FIGURES} <= found.to_dict().keys()


def test_a_line_and_a_price_do_not_look_for_what_would_fit() -> None:
    """The remedy takes longer than all else, and neither shows it."""
    answer = predict_time("llama3-8b", device="T4", gpus=8, batch_size=4, steps=10)
    assert "does not fit" in repr(answer)
    assert (answer.cost_usd or 0.0) > 0.0 and (answer.usd_per_hour or 0.0) > 0.0
    assert "remedy" not in vars(answer) and answer.remedy


def test_convolutions_in_fp32_are_said_to_run_in_tf32_where_they_do() -> None:
    def codes(**fields: Any) -> set[str]:
        return {item.code for item in predict_time(**fields).diagnostics}

    assert TF32_BY_DEFAULT in codes(model="resnet50", device="A100", precision="fp32")
    assert TF32_BY_DEFAULT not in codes(model="resnet50", device="V100", precision="fp32")  # has no TF32
    assert TF32_BY_DEFAULT not in codes(model="resnet50", device="A100", precision="tf32")
    assert TF32_BY_DEFAULT not in codes(model="bert-base", device="A100", precision="fp32")  # no convolutions
    page = str(predict_time("resnet50", device="A100", precision="fp32"))
    assert page.startswith("Warning: PyTorch computes fp32 convolutions in TF32")


def test_a_device_that_nobody_measured_is_said_before_the_first_figure() -> None:
    assert str(predict_time("llama3-8b", device="Gaudi3", gpus=8)).startswith(
        "Warning: No measured run on Gaudi3"
    )
