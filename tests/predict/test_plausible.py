"""Jobs of a size that nobody runs are told so in a line, and others are not."""

import pytest

from precision_time import predict_time
from precision_time.io import packaged_toml
from precision_time.learn.features import FAMILIES


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ({"model": "resnet50", "gpus": 1024, "batch_size": 256}, {"short-epoch", "huge-batch"}),
        ({"model": "resnet50", "gpus": 8, "batch_size": 256}, set()),
        ({"model": "gpt2", "gpus": 4096, "batch_size": 64, "steps": 9}, {"huge-batch"}),
        ({"model": "gpt2", "gpus": 64, "batch_size": 8, "steps": 9}, set()),
        (
            {"model": "alexnet", "gpus": 8, "batch_size": 1024, "stack": "ngc-pytorch", "samples": 10**8},
            {"data-rate"},
        ),
    ],
)
def test_only_what_nobody_runs_is_remarked(asked: dict, codes: set[str]) -> None:
    answer = predict_time(device="H100-SXM5-80GB", precision="fp16-mixed", **asked)
    found = {item.code for item in answer.diagnostics}
    assert found & {"short-epoch", "huge-batch", "data-rate"} == codes


def test_the_batch_that_a_published_run_had_is_no_reason_to_warn() -> None:
    """15,360 sequences on 2,048 devices are assumed as 16,384: a whole number on each."""
    answers = [
        predict_time(model="deepseek-v3", device="H800", gpus=2048, ep=64, zero_stage=1, **more)
        for more in ({"global_batch_size": 16384}, {"global_batch_size": 32768})
    ]
    warned = ["huge-batch" in {item.code for item in each.diagnostics} for each in answers]
    assert warned == [False, True]


@pytest.mark.parametrize(
    ("asked", "warned"),
    [
        ({"gpus": 8, "offload": "parameters"}, True),
        ({"gpus": 16, "offload": "parameters"}, False),
        ({"gpus": 8}, False),
    ],
)
def test_what_is_offloaded_must_fit_the_memory_of_the_hosts(asked: dict, warned: bool) -> None:
    """70 billion parameters of 16 bytes are 140 GB on each of eight devices, and a host has 125."""
    answer = predict_time(
        model="llama2-70b", device="A100", zero_stage=3, batch_size=1, recompute="full", **asked
    )
    texts = [str(item) for item in answer.diagnostics if item.code == "host-memory"]
    assert bool(texts) is warned
    assert all("128.5 GiB per device" in text and "116.4 GiB" in text for text in texts)


def test_every_figure_has_a_source_and_every_family_is_one() -> None:
    figures = packaged_toml("precision_time.predict", "data/plausible.toml")
    assert set(figures["batch"]) <= set(FAMILIES)
    assert all(row["most"] > 0 and row["unit"] in ("samples", "tokens") and row["source"]
               for row in figures["batch"].values())  # fmt: skip


def test_convolutions_of_fp32_may_do_fewer_products_than_are_counted() -> None:
    """Winograd's algorithm: VGG-16 on an RTX 2080 Ti is answered, without a utilization of more than 1."""
    answer = predict_time(model="vgg16", device="RTX2080Ti", precision="fp32", batch_size=32)
    assert answer.mfu is None or answer.mfu <= 1.0
