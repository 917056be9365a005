r"""Seconds of every kernel of a lowered step: a roofline with tiles, waves and start-up latency.

$t = \left(t_c^3 + t_m^3\right)^{1/3} + t_0 \cdot launches$, with
$t_c = flops / (peak_{dtype} \cdot u_{class} \cdot u_{tile} \cdot u_{wave} \cdot u_k)$ and
$t_m = bytes / (bandwidth \cdot v_{class})$.

At the ridge a kernel takes 1.26 times either bound. The class utilizations u and v are calibrated on the
corpus (`cost/data/kernels.toml`). Arrays broadcast: configurations along axis 0, kernels along axis 1.

References: Williams et al., CACM 52(4), 2009, for the roofline; tile and wave quantization after
NVIDIA's matrix multiplication guide and NeuSight (ASPLOS 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from ..arrays import Floats, Indices
from ..hardware.device import Device
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES
from ..precision.policy import DType
from ..precision.support import multiplied_as
from ..workload.graph import OpClass
from .constants import constants
from .job import JobGroup, Stack

_WIDTHS = (4.0, 2.0, 1.0, 0.5)
"""Bytes of the types of matrix units, in the order of the table `sustained`: TF32, 16, 8, 4 bits."""
_LAST_ATTENTION = "flash3"
_LEAST_SHARE = 1e-4
_TIMED = (
    "op_class",
    "dtype",
    "m",
    "n",
    "k",
    "count",
    "m_scales",
    "k_scales",
    "count_scales",
    "flops",
    "bytes_per_sample",
    "bytes_fixed",
    "launches",
)
"""Columns of a kernel that its time depends on."""
_IS_WIDE = np.array([dtype in (DType.FP32, DType.FP64) for dtype in DTYPES]).astype(np.intp)
_ATTENTION = OP_CLASSES.index(OpClass.ATTENTION)
_DEPTHWISE = OP_CLASSES.index(OpClass.DEPTHWISE_CONV)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelModel:
    """Calibrated utilizations; arrays are indexed by the position of the class in OpClass."""

    compute: Floats
    """Share of the dense peak that large products reach, shape (classes, 2): in types of matrix units,
    and in fp32 and fp64. Above 1 where an algorithm saves multiplications (Winograd)."""
    memory: Floats
    """Share of the memory bandwidth, shape (classes,)."""
    latency_s: float
    """Start of one kernel on the device that the kernel before does not hide."""
    k_half: float
    """Inner dimension at which a product reaches half its rate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRates:
    """Rates of C devices as columns, so that they broadcast against kernels."""

    peak: Floats
    """FLOP/s per dtype, shape (C, dtypes)."""
    bandwidth: Floats
    """Bytes/s, shape (C, 1)."""
    units: Floats
    """Blocks that run side by side, shape (C, 1)."""


def peak_flops_per_s(device: Device, dtype: DType) -> float:
    """Dense peak of `dtype` on `device`; without hardware for it, of the type it runs as."""
    word: DType | None = multiplied_as(dtype, device.arch)
    while word is not None:
        if word.value in device.peak_flops_per_s:
            return device.peak_flops_per_s[word.value]
        word = word.runs_as
    if dtype is DType.FP64:
        return device.peak_flops_per_s["fp32"] * float(constants("kernels")["fp64_share"])
    return max(device.peak_flops_per_s.values())


def rates_of(devices: Sequence[Device]) -> DeviceRates:
    """Rates of the devices, one row each; peaks as power and clocks sustain them."""
    return DeviceRates(
        peak=np.array([[_sustained_flops_per_s(device, dtype) for dtype in DTYPES] for device in devices]),
        bandwidth=np.array([[device.memory_bandwidth_bytes_per_s] for device in devices]),
        units=np.array([[max(device.sm_count, 1.0)] for device in devices]),
    )


def _sustained_flops_per_s(device: Device, dtype: DType) -> float:
    """The peak at the clocks that the power limit allows under full load, by width of the type."""
    peak = peak_flops_per_s(device, dtype)
    dtype = multiplied_as(dtype, device.arch)
    if dtype in (DType.FP32, DType.FP64):
        return peak
    return peak * sustained_shares(device.arch)[_WIDTHS.index(max(dtype.num_bytes, 0.5))]


def product_flops_per_s(device: Device, dtype: DType) -> float:
    """Rate of large matrix products outside the layers, as in an optimizer."""
    return _sustained_flops_per_s(device, dtype) * float(constants("kernels")["compute"]["gemm"][0])


def sustained_shares(arch: str) -> tuple[float, ...]:
    """Share of the dense peak that an architecture sustains: TF32, 16, 8, 4 bits."""
    table = constants("kernels")["sustained"]
    return tuple(table.get(arch, table["other"]))


def kernel_seconds(
    step: LoweredStep, micro_batch_size: Floats, rates: DeviceRates, model: KernelModel
) -> Floats:
    """Seconds of each kernel for each configuration, all repeats and sequential steps included.

    Args:
        step: Typed kernels, N of them.
        micro_batch_size: Samples per forward pass, shape (C, 1).
        rates: Device rates, C rows (or one row for all).
        model: Calibrated utilizations.

    Returns:
        Seconds, shape (C, N).

    Assumes: kernels run one after another; caches keep nothing between kernels.
    Accuracy: docs/reference/accuracy.md, predictor "roofline".
    """
    kernels, which = _distinct(step)
    scaled = kernels.m_scales | kernels.k_scales | kernels.count_scales
    flops = kernels.flops * np.where(scaled, micro_batch_size, 1.0)
    moved = kernels.bytes_per_sample * micro_batch_size + kernels.bytes_fixed
    memory_s = moved / (rates.bandwidth * model.memory[kernels.op_class])
    compute_s = flops / (
        rates.peak[:, kernels.dtype]
        * model.compute[kernels.op_class, _IS_WIDE[kernels.dtype]]
        * _shape_share(kernels, micro_batch_size, rates, model)
    )
    once = np.cbrt(compute_s**3 + memory_s**3) + model.latency_s * kernels.launches
    seconds: Floats = once[:, which] * (step.sequential_steps * step.repeat)
    return seconds


@lru_cache(maxsize=512)
def _distinct(step: LoweredStep) -> tuple[LoweredStep, Indices]:
    """The kernels of a step that differ in what their time depends on, and which of them each one is."""
    table = np.stack([np.asarray(getattr(step, name), dtype=np.float64) for name in _TIMED], axis=1)
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    columns = {item.name: getattr(step, item.name)[first] for item in fields(LoweredStep)}
    return LoweredStep(**columns), which.reshape(-1)


def _shape_share(step: LoweredStep, batch: Floats, rates: DeviceRates, model: KernelModel) -> Floats:
    """Share of the class's rate that the shape of a product allows: tiles, waves, inner length."""
    shape = constants("kernels")["shape"]
    rows = np.flatnonzero(IS_PRODUCT[step.op_class] & (step.op_class != _DEPTHWISE) & (step.flops > 0.0))
    m = step.m[rows] * np.where(step.m_scales[rows], batch, 1.0)
    n = step.n[rows]
    k = step.k[rows] * np.where(step.k_scales[rows], batch, 1.0)
    count = step.count[rows] * np.where(step.count_scales[rows], batch, 1.0)
    tile_m, tile_n = (_tile(extent, shape["min_tile"], shape["tile"]) for extent in (m, n))
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n) * count
    split = np.clip(np.floor(rates.units / tiles), 1.0, np.maximum(k / shape["split_k"], 1.0))
    waves = tiles * split / rates.units
    wave_share = np.where(waves >= 1.0, waves / np.ceil(waves), waves)
    tile_share = (m / (np.ceil(m / tile_m) * tile_m)) * (n / (np.ceil(n / tile_n) * tile_n))
    tile_area = np.sqrt(tile_m * tile_n / shape["tile"] ** 2)
    filled = (
        np.maximum(tile_share * (0.5 + 0.5 * wave_share) * tile_area, _LEAST_SHARE)
        * k
        / (k + np.where(step.op_class[rows] == _ATTENTION, shape["attention_k_half"], model.k_half))
    )
    share = np.ones((len(batch), len(step.m)))
    share[:, rows] = np.where(waves < 1.0, filled * np.sqrt(np.maximum(waves, _LEAST_SHARE)), filled)
    return share


def _tile(extent: Floats, least: float, most: float) -> Floats:
    """Tile side that a library would pick: the largest power of two that the extent fills."""
    side: Floats = np.clip(2.0 ** np.floor(np.log2(np.maximum(extent, 1.0))), least, most)
    return side


@dataclass(frozen=True, kw_only=True, slots=True)
class CompilerRates:
    """What a compiler does to kernels."""

    fusion: float
    """Share of the traffic of memory-bound kernels that remains after fusion."""
    host: float
    """Host time per kernel launch relative to eager PyTorch."""


def compiler_rates(compiler: str) -> CompilerRates:
    """Rates of a compiler of `cost/data/kernels.toml`; one that is not listed counts as none.

    >>> compiler_rates("none")
    CompilerRates(fusion=1.0, host=9.0)
    """
    table = constants("kernels")["compilers"]
    entry = table.get(compiler, table["none"])
    return CompilerRates(fusion=entry["fusion"], host=entry["host"])


@lru_cache(maxsize=256)
def load_kernel_model(arch: str = "", attention: str = "") -> KernelModel:
    """The calibrated utilizations that ship with the package.

    Args:
        arch: Architecture word of the device: attention kernels differ by it.
        attention: Generation of the fused attention kernel; the last one when empty.
    """
    data = constants("kernels")
    compute = np.array([data["compute"].get(op_class.value, (1.0, 1.0)) for op_class in OP_CLASSES])
    shares = data["attention"].get(attention, data["attention"][_LAST_ATTENTION])
    compute[OP_CLASSES.index(OpClass.ATTENTION), 0] = shares.get(arch, shares["other"])
    return KernelModel(
        compute=compute,
        memory=np.array([data["memory"].get(op_class.value, 1.0) for op_class in OP_CLASSES]),
        latency_s=data["latency_s"],
        k_half=data["k_half"],
    )


def kernel_model_of(group: JobGroup) -> KernelModel:
    """Utilizations for the device and the software of a group of jobs."""
    return load_kernel_model(group.cluster.device.arch, attention_kernel(group.stack))


def attention_kernel(stack: Stack) -> str:
    """The fused attention kernel that a stack runs, as it says or by its year (`kernels.toml`)."""
    if stack.attention:
        return stack.attention
    if stack.tuned_attention:
        return _LAST_ATTENTION
    entries = constants("kernels")["attention_from"]
    return str(
        next((e["name"] for e in reversed(entries) if stack.framework_year >= e["year"]), entries[0]["name"])
    )
