"""What is true of every training step is true of every answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.predict.api import predict_time

MODELS = ("resnet50", "mobilenetv2_100", "bert-base", "gpt2", "vgg16", "dlrm", "ncf", "efficientnet_b0")
ROUND = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
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
            model=model,
            device=device,
            gpus=gpus,
            batch_size=size,
            precision="fp32",
            stack=stack,
            zero_stage=0,
        ).step_time_s

    assert seconds(2 * batch) >= seconds(batch) * (1.0 - 1e-9)
    round_batch = next(size for size in ROUND if 2 * size > batch)
    assert seconds(batch + round_batch) >= seconds(round_batch) * (1.0 - 1e-9)


def test_the_terms_of_a_raised_step_add_up() -> None:
    for batch in (8, 16, 32, 64, 128):
        found = predict_time(
            model="resnet18", device="K80", batch_size=batch, precision="fp32", stack="pytorch-adaptive"
        )
        assert sum(found.terms.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert found.interval.low_s <= found.step_time_s <= found.interval.high_s
