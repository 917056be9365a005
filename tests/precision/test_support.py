"""What a device can do with a precision."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from precision_time import predict_time
from precision_time.cost.job import group_key
from precision_time.cost.roofline import peak_flops_per_s, rates_of
from precision_time.errors import ConfigError
from precision_time.hardware.catalog import get_device, known_devices
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.priced import predict_step_times
from precision_time.precision.catalog import get_policy, known_policies, known_variants
from precision_time.precision.lowering import DTYPES
from precision_time.precision.policy import DType
from precision_time.precision.support import (
    as_bf16,
    check_support,
    computed_as,
    effective_dtype,
    on_device,
    one_rate_for_16_bits,
    supported_precisions,
)
from precision_time.request.request import Request


def test_fp8_on_v100_says_what_the_device_can_do() -> None:
    with pytest.raises(ConfigError, match="V100-SXM2-16GB cannot compute in fp8") as caught:
        check_support(get_policy("fp8-mixed"), get_device("V100-SXM2-16GB"))
    for name in ("fp32", "fp16", "fp16-mixed"):
        assert name in str(caught.value)
    assert "bf16" not in str(caught.value).partition("To fix")[2]


@pytest.mark.parametrize("name", ["V100", "T4", "P100", "RTX2080Ti"])
def test_bf16_without_hardware_is_emulated_and_warned(name: str) -> None:
    device = get_device(name)
    warnings = check_support(get_policy("bf16-mixed"), device)
    assert len(warnings) == 1
    assert "emulated" in warnings[0]
    assert effective_dtype(DType.BF16, device) is DType.FP32


@pytest.mark.parametrize("name", ["GTX1080Ti", "TitanXp", "P4", "K80", "M40"])
def test_fp16_without_fast_hardware_is_warned(name: str) -> None:
    assert "no fast fp16" in check_support(get_policy("fp16-mixed"), get_device(name))[0]


@pytest.mark.parametrize("name", ["P100", "V100", "T4", "A100", "MI100", "IPU-GC200"])
def test_fp16_with_hardware_is_silent(name: str) -> None:
    assert check_support(get_policy("fp16-mixed"), get_device(name)) == ()


def test_tf32_before_ampere_is_fp32() -> None:
    assert "runs as fp32" in check_support(get_policy("tf32"), get_device("V100"))[0]
    assert effective_dtype(DType.TF32, get_device("V100")) is DType.FP32
    assert effective_dtype(DType.TF32, get_device("A100")) is DType.TF32


@pytest.mark.parametrize(
    ("name", "can"), [("A100", False), ("H100", False), ("L4", False), ("B200", True), ("MI355X", True)]
)
def test_fp4_needs_blackwell_or_mi350(name: str, can: bool) -> None:
    assert ("nvfp4-mixed" in supported_precisions(get_device(name))) is can
    if not can:
        with pytest.raises(ConfigError, match="fp4 needs"):
            check_support(get_policy("nvfp4-mixed"), get_device(name))


def test_block_scales_before_blackwell_are_warned() -> None:
    assert "mxfp8" in check_support(get_policy("mxfp8"), get_device("H100"))[0]
    assert check_support(get_policy("mxfp8"), get_device("B200")) == ()
    assert check_support(get_policy("fp8-mixed"), get_device("H100")) == ()


def test_fp32_on_a_tpu_is_one_bf16_pass() -> None:
    device = get_device("TPUv4")
    assert effective_dtype(DType.FP32, device) is DType.BF16
    assert "bf16 pass" in check_support(get_policy("fp32"), device)[0]
    assert check_support(get_policy("bf16-mixed"), device) == ()


@pytest.mark.parametrize("device", known_devices(), ids=lambda device: device.name)
def test_what_is_listed_as_supported_runs_and_has_a_peak(device) -> None:  # type: ignore[no-untyped-def]
    listed = supported_precisions(device)
    for policy in known_policies():
        if policy.name in listed:
            check_support(policy, device)
            assert effective_dtype(policy.matmul, device).value in device.peak_flops_per_s
        elif policy.matmul in (DType.FP8, DType.FP4, DType.INT8):
            with pytest.raises(ConfigError):
                check_support(policy, device)
        else:
            assert check_support(policy, device)


def test_effective_type_is_never_faster_than_hardware_says() -> None:
    for device in known_devices():
        for dtype in (DType.FP32, DType.TF32, DType.FP16, DType.BF16, DType.FP64):
            assert effective_dtype(dtype, device).value in device.peak_flops_per_s


@pytest.mark.parametrize(("name", "taken"), [("TPUv4", DType.BF16), ("Ascend910", DType.FP16)])
def test_products_are_priced_in_the_type_that_they_run_in(name: str, taken: DType) -> None:
    """What a warning says of a device must also be what its step costs."""
    device = get_device(name)
    assert peak_flops_per_s(device, DType.FP32) == peak_flops_per_s(device, taken)
    rates = rates_of(device).peak[0, 0]
    assert rates[DTYPES.index(DType.FP32)] == rates[DTYPES.index(taken)]


POLICIES = [
    get_policy(policy.name, variant=variant)
    for policy in known_policies()
    for variant in (None, *known_variants(policy.name))
]


def test_what_runs_is_multiplied_in_a_type_that_the_device_has_and_stored_as_wide_as_asked() -> None:
    """Every device and every policy that it does not refuse; what runs, asked again, is itself."""
    for device in known_devices():
        for policy in POLICIES:
            try:
                check_support(policy, device)
            except ConfigError:
                continue
            runs = on_device(policy, device)
            assert on_device(runs, device) == runs
            for dtype in (runs.matmul, runs.conv):
                assert dtype.value in device.peak_flops_per_s or dtype is DType.FP64
                assert computed_as(device, dtype) is dtype
            for name in ("activation", "param", "grad", "reduce", "optimizer_state"):
                assert getattr(runs, name).num_bytes == getattr(policy, name).num_bytes
            assert (runs.master is None) == (policy.master is None)


def test_policies_that_differ_in_nothing_a_device_does_are_one_job_on_every_device() -> None:
    """One key is one price, one row of features, one distance: what is computed of it cannot differ."""
    base = Request.of({"model": "gpt2", "device": "A100", "precision": "fp32", "zero_stage": 0}).resolve()
    alike = 0
    for device in known_devices():
        cluster = replace(base.cluster, device=device)
        kinds = defaultdict(set)
        for policy in POLICIES:
            job = replace(base, cluster=cluster, precision=policy)
            kinds[job.runs].add(group_key(job))
        assert all(len(keys) == 1 for keys in kinds.values())
        alike += len(POLICIES) - len(kinds)
        same = on_device(get_policy("tf32"), device) == on_device(get_policy("fp32"), device)
        assert same is (effective_dtype(DType.TF32, device) is effective_dtype(DType.FP32, device))
    assert alike > len(known_devices())  # apex O1 is autocast, everywhere


@pytest.mark.parametrize(
    ("device", "one", "other"),
    [
        *((name, "fp32", "tf32") for name in ("V100", "T4", "P100", "RTX2080Ti", "TPUv4", "Gaudi1")),
        ("TPUv4", "bf16", "fp16"),
        ("V100", "fp32", "fp32:tf32-conv"),
        ("A100", "fp16-mixed:autocast", "fp16-mixed:apex-o1"),
    ],
)
@pytest.mark.parametrize("model", ["resnet50", "bert-base"])
def test_a_type_that_a_device_lacks_is_answered_as_what_runs(
    device: str, one: str, other: str, model: str
) -> None:
    asked = {"model": model, "device": device, "batch_size": 16, "gpus": 2, "zero_stage": 0}
    a, b = (predict_time(**asked, precision=name) for name in (one, other))
    assert (a.precision, b.precision) == (one.partition(":")[0], other.partition(":")[0])
    for name in (
        "step_time_s", "terms", "interval", "mfu", "memory_terms", "nearest_measurements", "fits",
        "analytical_step_time_s", "total_time_s",
    ):  # fmt: skip
        assert getattr(a, name) == getattr(b, name), name


def test_fp16_and_bf16_share_what_is_learned_where_one_rate_multiplies_both() -> None:
    """Every device: what is left between them is what is priced, loss scaling and the casts of a softmax."""
    for device in known_devices():
        learned = {
            name: as_bf16(on_device(get_policy(name), device), device)
            for name in (
                "fp16",
                "bf16",
                "fp16-mixed",
                "bf16-mixed",
                "fp16-mixed:apex-o2",
                "bf16-mixed:deepspeed",
            )
        }
        peaks = device.peak_flops_per_s
        alike = peaks[computed_as(device, DType.FP16)] == peaks[computed_as(device, DType.BF16)]
        assert alike is one_rate_for_16_bits(device)
        assert (learned["fp16-mixed"] == learned["bf16-mixed"]) is alike, device.name
        assert (learned["fp16-mixed:apex-o2"] == learned["bf16-mixed:deepspeed"]) is alike, device.name
        assert (learned["fp16"] == learned["bf16"]) is (
            alike or on_device(get_policy("fp16"), device) == on_device(get_policy("bf16"), device)
        )
        assert learned["fp16"] != learned["fp16-mixed"]


SIXTEEN_BITS = ("fp16-mixed:autocast", "bf16-mixed:autocast", "fp16", "bf16")


@pytest.mark.parametrize("device", ["A100-SXM4-80GB", "L20", "EPYC-7763", "TPUv4"])
def test_sixteen_bits_differ_by_what_is_priced_alone(device: str) -> None:
    asked = [
        Request.of(
            {
                "model": model,
                "device": device,
                "gpus": gpus,
                "batch_size": batch,
                "precision": precision,
                "zero_stage": 0,
            }
        ).resolve()
        for model in ("resnet50", "bert-base", "lstm-lm")
        for gpus, batch in ((1, 32), (4, 8))
        for precision in SIXTEEN_BITS
    ]
    times = predict_step_times(asked, shipped_predictor(), coverage=0.9)
    half, brain, pure_half, pure_brain = times.step_time_s.reshape(-1, 4).T
    priced = times.jobs.analytical_s.reshape(-1, 4).T
    # No step is shorter than with half the batch: where that holds one up, they part by less than this.
    np.testing.assert_allclose(half / brain, priced[0] / priced[1], rtol=0.02)
    np.testing.assert_allclose(pure_half, pure_brain, rtol=1e-9)
    # Answers lie below their medians by the width of their intervals, which differ a little: one per cent.
    assert (pure_half <= np.minimum(half, brain) * (1.0 + 1e-2)).all()


@pytest.mark.parametrize("device", ["V100", "GTX1080Ti", "EPYC-7763"])
def test_emulation_computes_at_the_rate_of_the_wider_type_and_moves_half(device: str) -> None:
    """PyTorch multiplies bf16 in fp32 before Ampere, fp16 on Pascal and on processors (support.toml)."""
    chip = get_device(device)
    runs = on_device(get_policy("bf16-mixed"), chip)
    assert (runs.matmul, runs.conv, runs.activation) == (DType.FP32, DType.FP32, DType.BF16)
