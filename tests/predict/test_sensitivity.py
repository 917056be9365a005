"""What each number of a job does to its time."""

from __future__ import annotations

import pytest

from precision_time import sensitivity
from precision_time.predict.changes import Sensitivity
from precision_time.testing.jobs import own_job_s


def rows(**asked: object) -> dict[str, Sensitivity]:
    return {row.name: row for row in sensitivity(**asked)}  # type: ignore[arg-type]


def test_faster_hardware_is_never_slower_and_rates_explain_the_step() -> None:
    found = rows(model="bert-large", device="A100", gpus=16, precision="bf16-mixed", batch_size=16)
    for name in ("device.peak_flops_per_s", "device.memory_bandwidth_bytes_per_s"):
        assert found[name].at_half is not None and found[name].at_double is not None
        assert found[name].at_half > 0.0 > found[name].at_double
    # Where nothing waits for the host or a link, time is work over rates: the slopes add up to about -1.
    whole = found["device.peak_flops_per_s"].elasticity
    whole += found["device.memory_bandwidth_bytes_per_s"].elasticity
    assert -1.05 < whole < -0.8


def test_a_changed_field_is_what_the_predictor_says_of_the_job() -> None:
    asked = {"model": "gpt2", "device": "A100", "gpus": 8, "precision": "bf16-mixed", "batch_size": 8}
    base_s, longer_s = own_job_s(**asked), own_job_s(**asked, seq_len=2048)
    row = rows(**asked)["seq_len"]
    assert row.value == 1024
    assert row.step_at_double == pytest.approx(longer_s / base_s - 1.0, rel=1e-9)


def test_one_device_has_no_links_and_a_network_counts_where_it_is_waited_for() -> None:
    assert not [name for name in rows(model="resnet18", batch_size=64) if "_node" in name]
    slow = rows(
        model="bert-large", device="V100", gpus=16, batch_size=4, network="10g-tcp", precision="fp16-mixed"
    )
    hardware = [row.name for row in slow.values() if "." in row.name]
    assert hardware[0] == "inter_node.bandwidth_bytes_per_s"
