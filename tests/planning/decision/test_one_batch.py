"""`plan` and `predict` take the same batch for the same question."""

from typing import Any

import pytest

from precision_time import plan, predict_time


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "resnet50", "epochs": 90},
        {"model": "llama3-8b", "adapter": "lora", "dataset": "alpaca", "epochs": 3},
        {"model": "bert-base", "dataset": "squad", "epochs": 2},
    ],
)
def test_plan_takes_the_batch_of_predict(asked: dict[str, Any]) -> None:
    step = predict_time(**asked, device="H100-SXM5-80GB", gpus=8)
    chosen = plan(**asked, devices="H100-SXM5-80GB", gpus=8).choices[0].candidate
    assert chosen.global_batch_size == step.global_batch_size
