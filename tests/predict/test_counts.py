"""Counts in answers: written out, one is one, and a plan says of what its steps are."""

from __future__ import annotations

import json

import pytest

from precision_time import plan, predict_time


@pytest.mark.parametrize(
    ("batch", "words"), [(1_048_576, "batch 1048576 per device"), (0.5, "batch 0.5 per device")]
)
def test_batches_are_written_out(batch: float, words: str) -> None:
    answer = predict_time("ncf", device="A100", batch_size=batch)
    assert words in str(answer)


def test_one_step_is_no_steps() -> None:
    answer = predict_time("resnet18", device="T4", batch_size=64, steps=1)
    assert "of 1 step takes" in str(answer)
    assert any(note.startswith("The run is 1 step;") for note in answer.assumptions)


def test_a_plan_says_the_batch_of_its_steps() -> None:
    found = plan("resnet18", devices="T4", epochs=1, max_gpus=2)
    assert found.length == "1 epoch, 5,005 steps of 256 samples"
    assert json.loads(json.dumps(found.to_dict()))["length"] == found.length


def test_a_plan_writes_tokens_out() -> None:
    assert plan("gpt2", devices="A100", tokens=10_000_000_000, max_gpus=1).length.startswith(
        "10,000,000,000 tokens,"
    )
