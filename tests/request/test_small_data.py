"""Data sets that are small: no batch above an epoch, and images that are enlarged are said to be."""

from __future__ import annotations

import pytest

from precision_time import plan, predict_time
from precision_time.diagnostics import Severity, texts_of
from precision_time.predict.prediction import Prediction


def warnings_of(answer: Prediction) -> str:
    return " ".join(texts_of(answer.diagnostics, Severity.WARNING))


@pytest.mark.parametrize(
    ("model", "gpus", "samples", "batch"),
    [("gcn-cora", 1, None, 1), ("gcn-cora", 2, None, 1), ("resnet18", 1, 100, 64), ("resnet18", 2, 100, 32)],
)
def test_an_assumed_batch_is_within_an_epoch(model: str, gpus: int, samples: int | None, batch: int) -> None:
    answer = predict_time(model, device="T4", gpus=gpus, samples=samples)
    assert answer.batch_size == batch


def test_a_stated_batch_may_be_above_an_epoch() -> None:
    assert predict_time("gcn-cora", device="T4", batch_size=8).batch_size == 8


def test_a_plan_of_one_graph_takes_it_once_a_step_and_says_so() -> None:
    found = plan("gcn-cora", devices="T4", epochs=200, max_gpus=1)
    assert "200 steps of 1 samples" in found.length


@pytest.mark.parametrize(
    ("dataset", "image_size", "told"),
    [
        ("cifar10", None, "image_size=32"),
        ("mnist", None, "image_size=28"),
        ("cifar10", 224, ""),
        ("imagenet", None, ""),
    ],
)
def test_small_images_that_are_enlarged_are_told(dataset: str, image_size: int | None, told: str) -> None:
    answer = predict_time("resnet18", device="T4", dataset=dataset, image_size=image_size)
    said = warnings_of(answer)
    assert (told in said) if told else ("enlarged" not in said)


def test_a_network_for_small_images_is_not_told_so() -> None:
    assert "enlarged" not in warnings_of(predict_time("resnet18-cifar", device="T4", dataset="cifar10"))
