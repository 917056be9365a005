"""What is true of every training step is true of every answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.serving import predict_step_times
from precision_time.predict.api import predict_time
from precision_time.request.request import Request

MODELS = ("resnet50", "mobilenetv2_100", "bert-base", "gpt2", "vgg16", "dlrm", "ncf", "efficientnet_b0")
DEVICES = ("K80", "P100-PCIE-16GB", "V100-SXM2-16GB", "RTX3090", "A100-SXM4-80GB", "H100-SXM5-80GB")


@settings(max_examples=20)
@given(
    model=st.sampled_from(MODELS),
    device=st.sampled_from(DEVICES),
    gpus=st.sampled_from([1, 2, 8]),
    batch=st.integers(1, 512),
    stack=st.sampled_from([None, "pytorch-eager", "ngc-pytorch", "pytorch-adaptive"]),
)
def test_no_step_is_shorter_than_with_half_the_batch(model, device, gpus, batch, stack) -> None:
    def seconds(size: int) -> float:
        return predict_time(
            model=model, device=device, gpus=gpus, batch_size=size, precision="fp32", stack=stack, zero=0
        ).step_time_s

    # Within a percent: where a measured run is like the job with the larger batch, that run has the word.
    assert seconds(2 * batch) >= seconds(batch) * 0.99


def test_the_terms_of_a_raised_step_add_up() -> None:
    for batch in (8, 16, 32, 64, 128):
        found = predict_time(
            model="resnet18", device="K80", batch_size=batch, precision="fp32", stack="pytorch-adaptive"
        )
        assert sum(found.terms.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert found.interval.low_s <= found.step_time_s <= found.interval.high_s


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "bert-base", "mobilenetv2_100"])
@pytest.mark.parametrize("device", ["P40", "L20", "GTX1080", "A800-SXM4-80GB"])
def test_where_nothing_was_measured_copies_of_a_model_are_not_faster_than_one(
    model: str, device: str
) -> None:
    # Replicas of the same: sharded over eight, a model may fit that one device has to recompute.
    asked = {"model": model, "device": device, "batch_size": 32, "precision": "fp32", "zero": 0}
    one, eight = (predict_time(gpus=gpus, **asked).step_time_s for gpus in (1, 8))
    assert eight >= one * (1.0 - 1e-9)


@pytest.mark.parametrize("model", ["resnet50", "bert-base"])
@pytest.mark.parametrize("device", ["P40", "L20"])
def test_where_nothing_was_measured_no_batch_is_faster_than_a_smaller_one(model: str, device: str) -> None:
    """Not only powers of two; the batches of one request do not depend on each other."""
    batches = [*range(1, 18), 24, 31, 33, 48, 63, 65, 96, 100]
    jobs = [
        Request.of({"model": model, "device": device, "precision": "fp32", "batch_size": batch}).resolve()
        for batch in batches
    ]
    times = predict_step_times(jobs, shipped_predictor(), coverage=0.9)
    assert (times.corrected.novelty.max(axis=1) > 0.01).all()
    assert (np.diff(times.step_time_s) >= 0.0).all()
    alone = predict_step_times([jobs[batches.index(33)]], shipped_predictor(), coverage=0.9)
    assert alone.step_time_s[0] == pytest.approx(times.step_time_s[batches.index(33)], rel=1e-12)


@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "RTX4090", "L20"])
def test_where_nothing_was_measured_allowing_tf32_is_not_slower(device: str) -> None:
    models = ("regnety_032", "densenet121", "t5-base", "convnext_tiny")
    asked = [
        {"model": model, "device": device, "precision": precision, "batch_size": batch}
        for model in models
        for batch in (1, 8, 48)
        for precision in ("tf32", "fp32")
    ]
    times = predict_step_times(
        [Request.of(each).resolve() for each in asked], shipped_predictor(), coverage=0.9
    )
    new = times.corrected.novelty.max(axis=1)[::2] > 0.01
    assert (times.step_time_s[::2] <= times.step_time_s[1::2] * (1.0 + 1e-9))[new].all()
