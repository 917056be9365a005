r"""Seconds of every kernel of a lowered step: a roofline with tiles, waves and start-up latency.

$t = \left(t_c^3 + t_m^3\right)^{1/3} + t_0 \cdot launches$, with
$t_c = flops / (peak_{dtype} \cdot u_{class} \cdot u_{tile} \cdot u_{wave} \cdot u_k)$ and
$t_m = bytes / (bandwidth \cdot v_{class})$.

At the ridge a kernel takes 1.26 times either bound. The factors u and v of the classes are calibrated on the
corpus (`cost/data/factors.toml`). Arrays broadcast: configurations along axis 0, kernels along axis 1.

References: Williams et al., CACM 52(4), 2009, for the roofline; tile and wave quantization after
NVIDIA's matrix multiplication guide and NeuSight (ASPLOS 2025).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ..arrays import Bools, Floats, Indices
from ..cache import data, derived
from ..hardware.device import Device
from ..hardware.device_table import known_devices
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES
from ..precision.policy import DType
from ..precision.support import computed_as, multiplied_as
from ..records import dataclass
from ..workload.graph import OpClass
from .constants import constants, measured
from .job import Jobs
from .stacks import Stack, category_of_stack, kernels_of_stack, kind_of_stack

CONVOLUTIONS = ("conv_1x1", "conv_3x3", "conv_other")
UNALIGNED = "grouped_conv_unaligned"
KINDS = (*(op_class.value for op_class in OP_CLASSES), *CONVOLUTIONS, UNALIGNED)
"""Rows of `KernelModel.compute`: the operator classes, and what convolutions differ by."""
HALF = "-half"
"""Ending of an architecture whose matrix units add up in fp32 at half their rate (GeForce)."""
_CUT = 0.35
"""Of the best part's rate per watt. Parts of 4 nm sustain about (TFLOP/s per watt)^-0.34 of their peak:
H20 and RTX 5090 at 0.37 all of it, H100 at 1.4 three quarters, B200 at 2.25 six tenths."""
_HALF_FROM = 3.5
WIDTHS = ("fp32", "fp64", "tf32", "16", "8", "4")
"""Columns of the tables `sustained_factor` and `conv_factor`."""
KIND = {
    DType.FP32: "fp32",
    DType.FP64: "fp64",
    DType.TF32: "tf32",
    DType.FP16: "16",
    DType.BF16: "16",
    DType.FP8: "8",
    DType.INT8: "8",
    DType.FP4: "4",
}
COLUMN = {dtype: {"fp32": 1, "fp64": 2}.get(kind, 0) for dtype, kind in KIND.items()}
_GROUP_WIDTHS = (4.0, 8.0, 16.0, 32.0)
_GROUP_CHANNELS = 128.0
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
    "kernel",
    "stride",
)
"""Columns of a kernel that its time depends on."""
_CONV = OP_CLASSES.index(OpClass.CONV)
_GROUPED = OP_CLASSES.index(OpClass.GROUPED_CONV)
_ATTENTION = OP_CLASSES.index(OpClass.ATTENTION)
_DEPTHWISE = OP_CLASSES.index(OpClass.DEPTHWISE_CONV)
_FAMILY = np.zeros(len(OP_CLASSES), dtype=np.intp)
_FAMILY[[_CONV, _GROUPED, _ATTENTION, _DEPTHWISE]] = [1, 1, 2, 3]
"""Products, convolutions, attention, vector units."""
_NARROW = np.array([COLUMN[dtype] == 0 for dtype in DTYPES])
_FP32, _TF32, _FP64 = (DTYPES.index(dtype) for dtype in (DType.FP32, DType.TF32, DType.FP64))
_TRANSPOSES = np.zeros((len(OP_CLASSES), len(DTYPES)))
_TRANSPOSES[np.ix_([_CONV, _GROUPED, _DEPTHWISE], [DTYPES.index(DType.FP16), DTYPES.index(DType.BF16)])] = 1.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KernelModel:
    """Calibrated factors; arrays are indexed by the position of the class in OpClass or in KINDS.

    Equal only to itself, as a key of caches; so are the rates of devices.
    """

    compute: Floats
    """Counted FLOP/s of large products over the sustained rate, shape (kinds, 3): in types of matrix units,
    in fp32, in fp64. Above 1 where an algorithm saves multiplications (Winograd)."""
    memory: Floats
    """Counted bytes/s over the memory bandwidth, shape (classes,). Above 1 where some stay in the cache."""
    latency_s: float
    """Start of one kernel on the device that the kernel before does not hide."""
    k_half: float
    """Inner dimension at which a product reaches half its rate."""
    tile: float
    """Largest side of the block of a product that one unit computes."""
    min_tile: float
    channels_last: bool = False
    """Activations lie as matrix units read them; otherwise convolutions in 16 bits transpose them."""
    transposed: float = 0.0
    """Passes over its operands that the transposes of such a convolution take."""
    keys: float = 1.0
    """Length of the sequences that the shares of fused attention are of."""
    keys_half: float = 0.0
    """Keys at which fused attention has half the rate of endless sequences; 0: length says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DeviceRates:
    """Rates of C devices as columns, so that they broadcast against kernels."""

    peak: Floats
    """FLOP/s that kernels of each family sustain per dtype, shape (C, families, dtypes)."""
    column: Indices
    """Column of `KernelModel.compute` for each dtype, shape (C, dtypes)."""
    bandwidth: Floats
    """Bytes/s that streaming kernels sustain, shape (C, 1)."""
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


@derived
def rates_of(device: Device) -> DeviceRates:
    """Rates of a device, one row, as power and clocks sustain them."""
    return DeviceRates(
        peak=np.array([_sustained(device)]),
        column=np.array([[COLUMN[computed_as(device, dtype)] for dtype in DTYPES]]),
        bandwidth=np.array([[device.memory_bandwidth_bytes_per_s * _factor("bandwidth_factor", device)]]),
        units=np.array([[max(device.sm_count, 1.0)]]),
    )


def _sustained(device: Device) -> Floats:
    """FLOP/s by family and dtype, shape (families, dtypes).

    A type without hardware runs at the rate, and with the factor, of the type it runs as. Attention's table
    is of shares of the dense peak; depthwise convolutions have no use for matrix units and run on vector
    units.
    """
    types = [computed_as(device, dtype) for dtype in DTYPES]
    dense = np.array([peak_flops_per_s(device, dtype) for dtype in types])
    columns = [WIDTHS.index(KIND[dtype]) for dtype in types]
    products = dense * np.array(_factor("sustained_factor", device))[columns]
    convolutions = products * np.array(_factor("conv_factor", device))[columns]
    vector = products[DTYPES.index(DType.FP32)]
    return np.stack([products, convolutions, dense, np.full(len(DTYPES), vector)])


def accumulates_at_half(device: Device) -> bool:
    """Whether matrix units add up in fp32 at half their rate (GeForce): int8 is 4 times 16 bits, not 2."""
    peaks = device.peak_flops_per_s
    return peaks.get("int8", 0.0) > _HALF_FROM * peaks.get("fp16", np.inf)


def is_limited(device: Device) -> bool:
    """Whether matrix units are held back below what power allows, so that more of their rate is sustained.

    They add up at half their rate (GeForce), or the part was cut (H20, A10G): less than _CUT of the 16-bit
    rate per watt of the best part of its architecture. What a part was sold as does not change with the
    figures that a user gives for it, so that a higher peak is never slower.
    """
    sold = {part.name: part for part in known_devices()}.get(device.base or device.name, device)
    return accumulates_at_half(device) or _rate_per_watt(sold) < _CUT * _best_rate_per_watt(device.arch)


def _rate_per_watt(device: Device) -> float:
    """Infinite where the power is not known."""
    return device.peak_flops_per_s.get("fp16", np.inf) / device.tdp_w if device.tdp_w else np.inf


@data
def _best_rate_per_watt(arch: str) -> float:
    """Of the devices of an architecture in the catalog; 0 where none states both."""
    rates = (_rate_per_watt(part) for part in known_devices() if part.arch == arch)
    return max((rate for rate in rates if np.isfinite(rate)), default=0.0)


def chip_of(device: Device) -> str:
    """Architecture, and whether it is limited: what devices share that sustain the same part of the peak."""
    return device.arch + HALF * is_limited(device)


def makers_of(device: Device) -> str:
    """What unmeasured chips share: the maker, and whether they are limited. Processors are one kind."""
    maker = "CPU" if device.arch.startswith("cpu-") else device.vendor
    return maker + HALF * is_limited(device)


def _factor(table: str, device: Device) -> Any:
    """Entry of the device's architecture and accumulation rate in a table of factors.toml, else of its maker.

    All of a rate that was measured is sustained.
    """
    factors = constants("factors")[table]
    if measured(device.arch):
        return np.ones_like(factors["other"])
    return factors.get(chip_of(device), factors.get(makers_of(device), factors["other"]))


def product_flops_per_s(device: Device, dtype: DType) -> float:
    """Rate of large matrix products outside the layers, as in an optimizer."""
    rates, index = rates_of(device), DTYPES.index(dtype)
    efficiency = load_kernel_model(device.arch).compute[KINDS.index("gemm"), rates.column[0, index]]
    return float(rates.peak[0, 0, index] * efficiency)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelParts:
    """Seconds of every kernel, by what bounds it, of one repeat and time step; shape (C, N) each."""

    compute_s: Floats
    memory_s: Floats
    transpose_s: Floats
    latency_s: Floats

    @property
    def seconds(self) -> Floats:
        """With the smooth maximum of computing and moving."""
        bound: Floats = np.cbrt(self.compute_s**3 + self.memory_s**3)
        return bound + self.transpose_s + self.latency_s


def kernel_seconds(
    step: LoweredStep, micro_batch_size: Floats, rates: DeviceRates, model: KernelModel
) -> Floats:
    """Seconds of each kernel for each configuration, all repeats and sequential steps included.

    Args:
        step: Typed kernels, N of them.
        micro_batch_size: Samples per forward pass, shape (C, 1).
        rates: Device rates, C rows (or one row for all).
        model: Calibrated factors.

    Returns:
        Seconds, shape (C, N).

    Assumes: kernels run one after another; caches keep nothing between kernels.
    Accuracy: docs/reference/accuracy.md, predictor "roofline".
    """
    return kernel_seconds_once(step, micro_batch_size, rates, model) * (step.sequential_steps * step.repeat)


def kernel_seconds_once(
    step: LoweredStep, micro_batch_size: Floats, rates: DeviceRates, model: KernelModel
) -> Floats:
    """As `kernel_seconds`, of one repeat and time step."""
    kernels, which = _distinct(step)
    seconds: Floats = kernel_parts(kernels, micro_batch_size, rates, model).seconds[:, which]
    return seconds


def kernel_parts(
    kernels: LoweredStep, micro_batch_size: Floats, rates: DeviceRates, model: KernelModel
) -> KernelParts:
    """What bounds each kernel; arguments as of `kernel_seconds`."""
    fixed = _fixed(kernels, rates, model)
    flops = kernels.flops * np.where(fixed.scaled, micro_batch_size, 1.0)
    moved_s = (kernels.bytes_per_sample * micro_batch_size + kernels.bytes_fixed) / rates.bandwidth
    shape = _shape_share(kernels, micro_batch_size, rates, model)
    return KernelParts(
        compute_s=flops / (fixed.rate * shape),
        memory_s=moved_s / fixed.memory,
        transpose_s=moved_s * fixed.transposes,
        latency_s=fixed.latency_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Fixed:
    """What does not change with the batch in the times of kernels: N kernels, R products of them."""

    scaled: Bools
    """FLOPs grow with the batch, shape (N,)."""
    rate: Floats
    """FLOP/s of a shape that fills the device, shape (C, N)."""
    memory: Floats
    """Counted bytes/s over the bandwidth, shape (N,)."""
    transposes: Floats
    """Passes over the operands, shape (N,)."""
    latency_s: Floats
    rows: Indices
    """The products, shape (R,); all that follow are of them."""
    m: Floats
    n: Floats
    k: Floats
    count: Floats
    m_scales: Bools
    k_scales: Bools
    count_scales: Bools
    tile_n: Floats
    tiles_n: Floats
    share_n: Floats
    """Share of the tiles' columns that is used."""
    k_half: Floats


@derived
def _fixed(kernels: LoweredStep, rates: DeviceRates, model: KernelModel) -> _Fixed:
    shape = constants("kernels")["shape"]
    kind, family = kernel_kinds(kernels, model.channels_last)
    rate, tf32 = _rate(rates, model, family, kind, kernels.dtype), kernels.dtype == _TF32
    if tf32.any():
        # TF32 is allowed, not ordered: libraries keep to fp32 where that is faster, as convolutions after
        # Winograd are on chips whose TF32 units are no faster than their fp32 ones.
        wide = np.full_like(kernels.dtype, _FP32)
        rate = np.where(tf32, np.maximum(rate, _rate(rates, model, family, kind, wide)), rate)
    fp64 = kernels.dtype == _FP64
    if fp64.any():
        # Of the same units: what was fitted to fp32 holds for twice the digits at most.
        narrower = np.full_like(kernels.dtype, _FP32)
        rate = np.where(fp64, np.minimum(rate, _rate(rates, model, family, kind, narrower)), rate)
    if model.keys_half:
        longer = np.maximum(np.where(kernels.op_class == _ATTENTION, kernels.n, 0.0), model.keys)
        rate = rate * (1.0 + model.keys_half / model.keys) / (1.0 + model.keys_half / longer)
    products = IS_PRODUCT[kernels.op_class] & (kernels.op_class != _DEPTHWISE) & (kernels.flops > 0.0)
    rows = np.flatnonzero(products)
    n = kernels.n[rows]
    # Columns are those of a weight; of scores they are as many as rows and grow with the sequence.
    tile_n, of_scores = _tile(n, model.min_tile, model.tile), kernels.count_scales[rows]
    tiles_n = np.ceil(n / tile_n)
    tile_n, tiles_n = (
        np.where(of_scores, side, usual)
        for side, usual in zip(_side(n, model), (tile_n, tiles_n), strict=True)
    )
    return _Fixed(
        scaled=kernels.m_scales | kernels.k_scales | kernels.count_scales,
        rate=rate,
        memory=model.memory[kernels.op_class],
        transposes=model.transposed * _TRANSPOSES[kernels.op_class, kernels.dtype],
        latency_s=model.latency_s * kernels.launches,
        rows=rows,
        m=kernels.m[rows],
        n=n,
        k=kernels.k[rows],
        count=kernels.count[rows],
        m_scales=kernels.m_scales[rows],
        k_scales=kernels.k_scales[rows],
        count_scales=kernels.count_scales[rows],
        tile_n=tile_n,
        tiles_n=tiles_n,
        share_n=n / (tiles_n * tile_n),
        k_half=np.where(kernels.op_class[rows] == _ATTENTION, shape["attention_k_half"], model.k_half),
    )


def _rate(rates: DeviceRates, model: KernelModel, family: Indices, kind: Indices, dtype: Indices) -> Floats:
    """FLOP/s that large products of each kernel reach in a type, shape (C, N)."""
    rate: Floats = rates.peak[:, family, dtype] * model.compute[kind, rates.column[:, dtype]]
    return rate


@derived
def kernel_kinds(step: LoweredStep, channels_last: bool) -> tuple[Indices, Indices]:
    """Row of `KernelModel.compute` and family of rates (`DeviceRates.peak`) of each kernel.

    Convolutions differ by window: one of a single position is a matrix product, one of 3 x 3 positions and
    stride 1 has Winograd's algorithm. With channels last, grouped convolutions of 16 bits have a kernel
    of their own for 4, 8, 16 or 32 channels per group and a multiple of 128 channels in all (read off
    the timm benchmark: ResNeXt gains a quarter, all other groups lose a factor of 2 to 3 per step).
    """
    window = np.where(step.kernel <= 1.0, 0, np.where((step.kernel == 9.0) & (step.stride <= 1.0), 1, 2))
    kind = step.op_class.astype(np.intp)
    kind = np.where(kind == _CONV, np.array([KINDS.index(name) for name in CONVOLUTIONS])[window], kind)
    if channels_last:
        channels = np.minimum(step.n, step.k)  # the other one counts window positions, or the batch, too
        aligned = np.isin(channels, _GROUP_WIDTHS) & (np.mod(step.count * channels, _GROUP_CHANNELS) == 0.0)
        unaligned = (kind == _GROUPED) & _NARROW[step.dtype] & ~aligned
        kind = np.where(unaligned, KINDS.index(UNALIGNED), kind)
    return kind, _FAMILY[step.op_class]


@derived
def _distinct(step: LoweredStep) -> tuple[LoweredStep, Indices]:
    """The kernels of a step that differ in what their time depends on, and which of them each one is."""
    table = np.stack([np.asarray(getattr(step, name), dtype=np.float64) for name in _TIMED], axis=1)
    rows: Any = table.view(np.dtype((np.void, table.itemsize * len(_TIMED)))).ravel()
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(row, len(seen)) for row in rows.tolist()], dtype=np.intp)
    first = np.empty(len(seen), dtype=np.intp)
    first[which[::-1]] = np.arange(len(which))[::-1]
    columns = {item.name: getattr(step, item.name)[first] for item in fields(LoweredStep)}
    return LoweredStep(**columns), which


def _shape_share(step: LoweredStep, batch: Floats, rates: DeviceRates, model: KernelModel) -> Floats:
    """Share of the class's rate that the shape of a product allows: tiles, waves, inner length."""
    shape, fixed = constants("kernels")["shape"], _fixed(step, rates, model)
    m = fixed.m * np.where(fixed.m_scales, batch, 1.0)
    k = fixed.k * np.where(fixed.k_scales, batch, 1.0)
    count = fixed.count * np.where(fixed.count_scales, batch, 1.0)
    tile_m, tiles_m = _side(m, model)
    tiles = tiles_m * fixed.tiles_n * count
    most_splits = np.maximum(k / shape["split_k"], 1.0)
    split = np.minimum(np.maximum(np.floor(rates.units / tiles), 1.0), most_splits)
    waves = tiles * split / rates.units
    last = tiles_m - np.floor(tiles_m)  # the smaller tile, and how many blocks have it
    columns = tiles - np.floor(tiles_m) * fixed.tiles_n * count
    small = np.where(last > 0.0, columns / np.where(last > 0.0, last, 1.0), 0.0)
    full_waves = np.ceil((tiles - columns) / rates.units)
    beyond = np.maximum(small - (full_waves * rates.units - (tiles - columns)), 0.0)
    all_waves = np.maximum(full_waves + last * np.ceil(beyond / rates.units), waves)
    wave_share = np.where(waves >= 1.0, waves / np.where(waves >= 1.0, all_waves, 1.0), waves)
    tile_share = (m / (tiles_m * tile_m)) * fixed.share_n
    tile_area = np.sqrt(tile_m * fixed.tile_n / model.tile**2)
    filled = (
        np.maximum(tile_share * (0.5 + 0.5 * wave_share) * tile_area, _LEAST_SHARE) * k / (k + fixed.k_half)
    )
    share = np.ones((len(batch), len(step.m)))
    share[:, fixed.rows] = np.where(waves < 1.0, filled * np.sqrt(np.maximum(waves, _LEAST_SHARE)), filled)
    return share


def _side(extent: Floats, model: KernelModel) -> tuple[Floats, Floats]:
    """Tile side, and how many of them, of an extent that grows with the batch or the sequence.

    Rows beyond the last full tile are a smaller one: libraries have kernels of many tiles, so that one row
    more adds `min_tile` rows at most. A whole tile would double the time from 128 rows to 129, and put 127
    above 128.
    """
    padded = np.ceil(extent / model.min_tile) * model.min_tile
    side = np.minimum(padded, model.tile)
    return side, padded / side


def _tile(extent: Floats, least: float, most: float) -> Floats:
    """Tile side that a library would pick: the largest power of two that the extent fills."""
    side: Floats = 2.0 ** np.floor(np.log2(np.maximum(extent, 1.0)))
    return np.minimum(np.maximum(side, least), most)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompilerRates:
    """What a compiler does to kernels."""

    fusion: float
    """Share of the traffic of memory-bound kernels that remains after fusion."""
    casts: float
    """What remains of that of casts of activations between 16 and 32 bits."""
    host: float
    """Host time per kernel launch relative to eager PyTorch."""


def compiler_rates(compiler: str) -> CompilerRates:
    """Rates of a compiler of `cost/data/kernels.toml`; one that is not listed counts as none.

    >>> compiler_rates("none")
    CompilerRates(fusion=1.0, casts=1.0, host=9.0)
    """
    table = constants("kernels")["compilers"]
    entry = table.get(compiler, table["none"])
    return CompilerRates(fusion=entry["fusion"], casts=entry["casts"], host=entry["host"])


@data
def load_kernel_model(
    arch: str = "", attention: str = "", channels_last: bool = False, matrix_rate: float = 1.0
) -> KernelModel:
    """The calibrated factors that ship with the package.

    Args:
        arch: Architecture word of the device: attention kernels differ by it.
        attention: Generation of the fused attention kernel; the last one when empty.
        channels_last: Activations lie as matrix units read them.
        matrix_rate: Of a clock and unit, over that of the part that attention's shares are of.
    """
    data, fitted = {**constants("kernels"), **constants("kernels")["shape"]}, constants("factors")
    data |= measured(arch)
    of_peak = {} if measured(arch) else fitted["compute_factor"]
    compute = np.array([of_peak.get(kind, (1.0, 1.0, 1.0)) for kind in KINDS])
    shares = data["attention"].get(attention, data["attention"][_LAST_ATTENTION])
    beside_products = 1.0 / shares.get(arch, shares["other"]) - 1.0
    compute[_ATTENTION, 0] /= 1.0 + beside_products * matrix_rate
    return KernelModel(
        compute=compute,
        memory=np.array([fitted["memory_factor"].get(op_class.value, 1.0) for op_class in OP_CLASSES]),
        latency_s=data["latency_s"],
        k_half=data["k_half"],
        tile=data["tile"],
        min_tile=data["min_tile"],
        channels_last=channels_last,
        transposed=0.0 if channels_last else float(fitted["transposed"]),
        keys=data["attention_length"]["keys"],
        keys_half=data["attention_length"]["half"].get(arch, 0.0),
    )


def kernel_model_of(group: Jobs) -> KernelModel:
    """Utilizations for the device and the software of a group of jobs."""
    stack, device = group.stack, group.cluster.device
    return load_kernel_model(device.arch, attention_kernel(stack), stack.channels_last, matrix_rate(device))


def matrix_rate(device: Device) -> float:
    """16-bit FLOPs of a clock and unit over those of the part that attention's shares are of; 1 at most.

    Softmax and loads of a fused kernel take the clocks that they take; where matrix units were made slower
    (GeForce, H20) its products take more of the time, so that it reaches more of their rate.
    """
    whole: float | None = constants("kernels")["attention_per_clock"].get(device.arch)
    if whole is None or not device.sm_count or not device.boost_hz:
        return 1.0
    return min(peak_flops_per_s(device, DType.FP16) / (device.sm_count * device.boost_hz * whole), 1.0)


def stack_shortfall(profile: str, device: Device | None = None) -> float:
    """How many times longer kernels take in a stack than the best software makes them.

    Args:
        profile: Name of the stack.
        device: That runs it; rates that were measured were so under a stack, and fall short of nothing.
    """
    if device is not None:
        if measured(device.arch):
            return 1.0
        profile = kernels_of_stack(profile, device.vendor)
    table = constants("factors")["shortfall"]
    kind = kind_of_stack(profile)
    return float(table.get(profile, table.get(kind, table[category_of_stack(kind)])))


def attention_kernel(stack: Stack) -> str:
    """The fused attention kernel that a stack runs, as it says or by its year (`kernels.toml`)."""
    if stack.attention:
        return stack.attention
    if stack.tuned_attention:
        return _LAST_ATTENTION
    return flash_of(stack.framework_year)


def flash_of(year: float) -> str:
    """FlashAttention as trainers of a year run it (`kernels.toml`)."""
    entries = constants("kernels")["attention_from"]
    return str(next((e["name"] for e in reversed(entries) if year >= e["year"]), entries[0]["name"]))
