"""Whatever is asked, the answer adds up, is ordered and finite."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.predict.api import predict_time
from precision_time.request.request import Request

MODELS = ("resnet50", "mobilenetv2_100", "vit_base_patch16_224", "bert-base-uncased", "gpt2", "llama2-7b")
PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16", "fp8-mixed")
DEVICES = ("A100-SXM4-80GB", "H100-SXM5-80GB", "V100-SXM2-16GB", "RTX3090")

questions = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "precision": st.sampled_from(PRECISIONS),
        "device": st.sampled_from(DEVICES),
        "gpus": st.sampled_from([1, 2, 8, 16, 64]),
        "batch_size": st.sampled_from([1, 4, 32, 128]),
    },
    optional={
        "num_microbatches": st.sampled_from([1, 4]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "stack": st.sampled_from(["pytorch-eager", "megatron", "ngc-pytorch"]),
    },
)


def asked(**question):
    """The answer; questions that the device has no hardware for do not count."""
    try:
        return predict_time(**question)
    except ConfigError as error:
        assume("cannot compute" not in str(error))
        raise


@given(questions)
def test_an_answer_adds_up(question):
    answer = asked(**question)
    assert 0.0 < answer.step_time_s < math.inf
    assert math.fsum(answer.terms.values()) == pytest.approx(answer.step_time_s, rel=1e-9)
    assert min(answer.terms.values()) > 0.0
    assert 0.0 < answer.interval.low_s <= answer.step_time_s <= answer.interval.high_s < math.inf
    assert answer.global_batch_size == question["batch_size"] * question["gpus"] * question.get(
        "num_microbatches", 1
    )
    assert answer.throughput * answer.step_time_s >= answer.global_batch_size * (1 - 1e-9)
    assert answer.memory_bytes_per_device == pytest.approx(math.fsum(answer.memory_terms.values()))
    assert answer.analytical_step_time_s > 0.0
    assert all(0.0 < run.similarity <= 1.0 for run in answer.nearest_measurements)


@given(questions)
def test_one_device_exposes_no_communication(question):
    answer = asked(**{**question, "gpus": 1})
    assert not [name for name in answer.terms if "exposed" in name or name == "contention_s"]


@given(questions)
def test_more_coverage_is_wider(question):
    narrow, wide = (asked(**question, coverage=coverage).interval for coverage in (0.5, 0.95))
    assert wide.low_s <= narrow.low_s <= narrow.high_s <= wide.high_s


@given(questions)
def test_memory_grows_with_the_batch(question):
    zero = question.get("zero_stage", 0)  # else a larger batch may be answered with sharding
    small, large = (
        asked(**{**question, "zero_stage": zero, "batch_size": question["batch_size"] * times})
        for times in (1, 4)
    )
    assert small.memory_bytes_per_device < large.memory_bytes_per_device


@settings(max_examples=20)
@given(questions)
def test_the_same_question_has_the_same_answer(question):
    assert asked(**question) == asked(**question)


@settings(max_examples=20)
@given(questions, st.integers(1, 20))
def test_a_run_is_its_steps(question, steps):
    answer = asked(**question, steps=steps)
    assert answer.total_time_s == pytest.approx(steps * answer.step_time_s)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tinyllama-1.1b", "device": "A100-SXM4-80GB", "precision": "bf16-mixed", "seq_len": 2048},
        {"model": "resnet50", "device": "RTX4090", "precision": "fp16-mixed"},
    ],
    ids=lambda fields: fields["model"],
)
def test_intervals_of_neighbors_are_alike(fields: dict[str, Any]) -> None:
    """Twice the batch or the devices changes the relative width of the interval by less than twice."""
    counts, batches = (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32)
    jobs = [
        Request.of({**fields, "gpus": gpus, "batch_size": batch}).resolve()
        for gpus in counts
        for batch in batches
    ]
    times = predict_step_times(jobs, shipped_predictor(), coverage=0.9)
    widths = np.log(times.high_s / times.low_s).reshape(len(counts), len(batches))
    for axis in (0, 1):
        assert np.abs(np.diff(np.log2(widths), axis=axis)).max() < 1.0
