"""What a device can do with a precision: errors where it cannot, warnings where it pretends.

A dtype without hardware of its own either runs as a wider one (bf16 on V100 multiplies in fp32) or
does not run at all (fp8 before Ada and Hopper). Which, is data: `data/support.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..hardware.device import Device
from .policy import DType, PrecisionPolicy

_MIXED_NAMES = {
    DType.FP16: ("fp16", "fp16-mixed"),
    DType.BF16: ("bf16", "bf16-mixed"),
    DType.FP8: ("fp8-mixed",),
    DType.FP4: ("nvfp4-mixed",),
    DType.INT8: ("int8-mixed",),
}
_MATRIX_UNITS = 3.0
"""Times the fp32 rate: packed fp16 arithmetic reaches two (P100), matrix units eight (V100, T4)."""


def effective_dtype(dtype: DType, device: Device) -> DType:
    """The type in which a product of `dtype` is multiplied on `device`.

    A type with a peak of its own in the catalogue is itself; the others follow the fallback of
    `data/support.toml` until one has a peak: tf32 is fp32 before Ampere, bf16 on V100 and T4 is fp32
    (emulated; storage stays 2 bytes), fp16 on Pascal's consumer chips is fp32, fp32 on a TPU is one bf16
    pass (XLA's default precision).

    Raises:
        ConfigError: The device cannot run the type at all (fp8 on V100).
    """
    overrides = _rules()["arch"].get(device.arch, {})
    word = dtype.value
    if word in overrides:
        return DType(overrides[word])
    while word not in device.peak_flops_per_s:
        wider = _rules()["fallback"].get(word)
        if wider is None:
            raise ConfigError(_cannot(dtype, device))
        word = wider
    return DType(word)


def supported_precisions(device: Device) -> tuple[str, ...]:
    """Names of the policies that the device has hardware for, widest first."""
    names = ["fp32"]
    if "fp64" in device.peak_flops_per_s:
        names.insert(0, "fp64")
    if "tf32" in device.peak_flops_per_s:
        names.append("tf32")
    for dtype, policies in _MIXED_NAMES.items():
        if dtype.value in device.peak_flops_per_s:
            names.extend(policies)
    return tuple(names)


def natural_precision(device: Device) -> str:
    """What training on a device usually runs in.

    bf16-mixed where it has bf16 hardware, fp16-mixed where only fp16 has matrix units (V100, T4), else fp32.
    """
    peaks = device.peak_flops_per_s
    if "bf16" in peaks and effective_dtype(DType.BF16, device) is DType.BF16:
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
    types = dict.fromkeys((policy.matmul, policy.conv, policy.activation))
    warnings = []
    for dtype in types:
        effective = effective_dtype(dtype, device)
        if effective is not dtype:
            warnings.append(_warning(dtype, effective, device))
    recipe = _rules()["recipe"].get(policy.fp8_recipe or "")
    if recipe is not None and device.arch not in recipe["archs"]:
        warnings.append(f"{policy.fp8_recipe} on {device.name}: {recipe['warning']}")
    return tuple(warnings)


def _warning(dtype: DType, effective: DType, device: Device) -> str:
    texts = _rules()["warning"]
    word = dtype.value if effective.num_bytes != dtype.num_bytes or dtype is not DType.BF16 else "other"
    text: str = texts.get(word, texts["other"])
    return text.format(dtype=dtype.value, device=device.name, effective=effective.value)


def _cannot(dtype: DType, device: Device) -> str:
    return (
        f"{device.name} cannot compute in {dtype.value}: {_rules()['needs'][dtype.value]}. "
        f"To fix: use one of {', '.join(supported_precisions(device))}, or another device."
    )


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, Any]:
    path = Path(__file__).parent / "data" / "support.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
