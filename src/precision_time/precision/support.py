"""What a device can do with a precision: errors where it cannot, warnings where it pretends.

A dtype without hardware of its own either runs as a wider one (bf16 on V100 multiplies in fp32) or
does not run at all (fp8 before Ada and Hopper). Which, is data: `data/support.toml`. What is priced, and
compared with measured runs, is what runs: `on_device`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..arrays import Same
from ..cache import derived
from ..errors import ConfigError
from ..hardware.device import Device
from ..io import packaged_toml
from .catalog import known_policies
from .policy import NARROW, DType, PrecisionPolicy

_MATRIX_UNITS = 3.0
"""Times the fp32 rate: packed fp16 arithmetic reaches two (P100), matrix units eight (V100, T4)."""
_STORED = ("activation", "param", "grad", "reduce", "optimizer_state")


def on_device(policy: PrecisionPolicy, device: Device) -> PrecisionPolicy:
    """What runs when `policy` is asked of `device`: equal for all policies that differ in nothing it does.

    Products are of the type that multiplies them. What is stored keeps its width: tf32 before Ampere is fp32
    throughout; bf16 on V100 is held in 2 bytes and multiplied in fp32; fp32 on a TPU is held in 4 bytes and
    multiplied in bf16; fp16 there is bf16. A policy that runs has no name: it is its types.
    """
    return _on_device(policy, Same(device))


@derived
def _on_device(policy: PrecisionPolicy, key: Same) -> PrecisionPolicy:
    def runs(dtype: DType) -> DType:
        return dtype if dtype in NARROW else computed_as(key.value, dtype)

    held: dict[str, Any] = {name: getattr(policy, name) for name in _STORED}
    if policy.master is not None:
        held["master"] = policy.master
    same_width: dict[str, Any] = {
        name: runs(t) for name, t in held.items() if runs(t).num_bytes == t.num_bytes
    }
    layers = tuple(
        replace(
            rule,
            dtype=runs(rule.dtype) if runs(rule.dtype).num_bytes == rule.dtype.num_bytes else rule.dtype,
            multiplied=runs(rule.multiplied),
        )
        for rule in policy.layers
    )
    return replace(
        policy,
        name="",
        summary="",
        matmul=runs(policy.matmul),
        conv=runs(policy.conv),
        layers=layers,
        **same_width,
    )


def as_bf16(runs: PrecisionPolicy, device: Device) -> PrecisionPolicy:
    """What runs, with bf16 for fp16 and no loss scaling; itself where `device` multiplies them at two rates.

    The two differ there by loss scaling, and by the casts before a softmax, which PyTorch does inside the
    kernel for fp16 alone (ATen/native/SoftMax.cpp). Both are priced.
    """
    return _as_bf16(runs, Same(device))


@derived
def _as_bf16(runs: PrecisionPolicy, key: Same) -> PrecisionPolicy:
    narrow: dict[str, Any] = {
        item.name: DType.BF16 for item in fields(runs) if getattr(runs, item.name) is DType.FP16
    }
    layers = tuple(
        replace(rule, dtype=DType.BF16, multiplied=DType.BF16) if rule.dtype is DType.FP16 else rule
        for rule in runs.layers
    )
    if layers != runs.layers:
        narrow["layers"] = layers
    if not (narrow or runs.loss_scaling) or not one_rate_for_16_bits(key.value):
        return runs
    return _on_device(replace(runs, loss_scaling=False, static_scaling=False, **narrow), key)


def one_rate_for_16_bits(device: Device) -> bool:
    """Whether `device` multiplies fp16 and bf16 at one rate, as GPUs since Ampere and processors do."""
    half, brain = (computed_as(device, dtype).value for dtype in (DType.FP16, DType.BF16))
    return device.peak_flops_per_s.get(half) == device.peak_flops_per_s.get(brain)


def computed_as(device: Device, dtype: DType) -> DType:
    """The type whose units multiply `dtype` on `device`; the next wider one where it does not run."""
    word = multiplied_as(dtype, device.arch)
    while word.value not in device.peak_flops_per_s and word.runs_as is not None:
        word = word.runs_as
    return word


def effective_dtype(dtype: DType, device: Device) -> DType:
    """The type in which a product of `dtype` is multiplied on `device`.

    A type with a peak of its own in the catalog is itself; the others follow the fallback of
    `data/support.toml` until one has a peak: tf32 is fp32 before Ampere, bf16 on V100 and T4 is fp32
    (emulated; storage stays 2 bytes), fp16 on Pascal's consumer chips is fp32, fp32 on a TPU is one bf16
    pass (XLA's default precision).

    Raises:
        ConfigError: The device cannot run the type at all (fp8 on V100).
    """
    usual = multiplied_as(dtype, device.arch)
    if usual is not dtype:
        return usual
    word = dtype.value
    while word not in device.peak_flops_per_s:
        wider = _rules()["fallback"].get(word)
        if wider is None:
            raise ConfigError(
                f"{device.name} cannot compute in {dtype.value}: {_rules()['needs'][dtype.value]}. "
                f"To fix: use one of {', '.join(supported_precisions(device))}, or another device."
            )
        word = wider
    return DType(word)


def multiplied_as(dtype: DType, arch: str) -> DType:
    """The type that an architecture takes for products of `dtype` whatever peaks it has; usually `dtype`."""
    return DType(_rules()["arch"].get(arch, {}).get(dtype.value, dtype))


def supported_precisions(device: Device) -> tuple[str, ...]:
    """Names of the policies that the device has hardware for, widest first."""
    types = [
        dtype
        for dtype in DType
        if dtype is DType.FP32 or (dtype.value in device.peak_flops_per_s and not is_emulated(dtype, device))
    ]
    return tuple(policy.name for dtype in types for policy in known_policies() if policy.matmul is dtype)


def is_emulated(dtype: DType, device: Device) -> bool:
    """Whether a narrow type is stated to run slower than fp32: it was measured there, and has no units."""
    peaks = device.peak_flops_per_s
    return dtype.num_bytes < DType.FP32.num_bytes and peaks.get(dtype.value, np.inf) < peaks["fp32"]


def natural_precision(device: Device) -> str:
    """What training on a device usually runs in.

    bf16-mixed where it has bf16 hardware, fp16-mixed where only fp16 has matrix units (V100, T4), else fp32.
    """
    peaks = device.peak_flops_per_s
    if peaks.get("bf16", 0.0) >= peaks["fp32"] and effective_dtype(DType.BF16, device) is DType.BF16:
        return "bf16-mixed"
    if peaks.get("fp16", 0.0) >= _MATRIX_UNITS * peaks["fp32"]:
        return "fp16-mixed"
    return "fp32"


def check_support(policy: PrecisionPolicy, device: Device) -> tuple[str, ...]:
    """What to know about `policy` on `device`.

    Returns:
        Warnings, empty where the device has hardware for every type of the policy.

    Raises:
        ConfigError: A type of the policy cannot run on the device; the message lists what can.
    """
    of_layers = (rule.dtype for rule in policy.layers)
    types = dict.fromkeys((policy.matmul, policy.conv, policy.activation, *of_layers))
    warnings = []
    for dtype in types:
        effective = effective_dtype(dtype, device)
        if effective is not dtype:
            warnings.append(_warning(dtype, effective, device))
        elif is_emulated(dtype, device):
            share = device.peak_flops_per_s[dtype.value] / device.peak_flops_per_s["fp32"]
            text = _rules()["warning"]["slower"]
            warnings.append(text.format(dtype=dtype.value, device=device.name, share=share))
    recipe = _rules()["recipe"].get(policy.fp8_recipe or "")
    if recipe is not None and device.arch not in recipe["archs"]:
        warnings.append(f"{policy.fp8_recipe} on {device.name}: {recipe['warning']}")
    return tuple(warnings)


def _warning(dtype: DType, effective: DType, device: Device) -> str:
    texts = _rules()["warning"]
    named = effective.num_bytes != dtype.num_bytes or dtype is DType.TF32
    word = dtype.value if named else "other"
    text: str = texts.get(word, texts["other"])
    return text.format(dtype=dtype.value, device=device.name, effective=effective.value)


def _rules() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/support.toml")
