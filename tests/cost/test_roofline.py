"""The roofline of a kernel: what bounds it, and that better hardware never makes it slower."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time import cost
from precision_time.cost.constants import constants
from precision_time.cost.roofline import (
    KINDS,
    WIDTHS,
    _shape_share,
    _tile,
    accumulates_at_half,
    chip_of,
    compiler_rates,
    is_limited,
    kernel_seconds,
    load_kernel_model,
    makers_of,
    matrix_rate,
    peak_flops_per_s,
    rates_of,
    stack_shortfall,
)
from precision_time.cost.stacks import category_of_stack, kind_of_stack, stack_names
from precision_time.hardware.catalog import get_device, known_device_names
from precision_time.precision.catalog import get_policy
from precision_time.precision.lowering import DTYPES, OP_CLASSES, lower
from precision_time.precision.policy import DType
from precision_time.workload.graph import PRODUCT_CLASSES, OpClass
from precision_time.workload.resolve import load_workload

_MIN_TILE, _TILE = (constants("kernels")["shape"][name] for name in ("min_tile", "tile"))
A100 = get_device("A100-SXM4-80GB")
MODELS = ("resnet50", "mobilenetv2_100", "bert-base-uncased", "gpt2")
POLICIES = ("fp32", "tf32", "fp16-mixed", "bf16")
STEPS = {
    (model, policy): lower(load_workload(model).graph, get_policy(policy))
    for model in MODELS
    for policy in POLICIES
}
any_step = st.sampled_from(sorted(STEPS))
batches = st.integers(1, 512)
ratios = st.floats(1.0, 16.0)


def seconds(step, batch, device=A100, model=None):
    return kernel_seconds(step, np.array([[float(batch)]]), rates_of(device), model or load_kernel_model())[0]


def faster(device, *, peak=1.0, bandwidth=1.0):
    peaks = {word: value * peak for word, value in device.peak_flops_per_s.items()}
    return replace(
        device,
        peak_flops_per_s=peaks,
        memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s * bandwidth,
    )


@given(any_step, batches, ratios, ratios)
def test_no_kernel_is_slower_on_a_better_device(key, batch, peak, bandwidth):
    step = STEPS[key]
    before = seconds(step, batch)
    assert (seconds(step, batch, faster(A100, peak=peak)) <= before * (1 + 1e-12)).all()
    assert (seconds(step, batch, faster(A100, bandwidth=bandwidth)) <= before * (1 + 1e-12)).all()


@given(any_step, batches, st.integers(2, 8))
def test_fewer_samples_never_take_longer(key, batch, times):
    step = STEPS[key]
    assert seconds(step, batch).sum() <= seconds(step, batch * times).sum()


@given(any_step, batches)
def test_a_kernel_takes_at_least_its_start_and_its_traffic(key, batch):
    step = STEPS[key]
    model = load_kernel_model()
    found = seconds(step, batch)
    runs = step.sequential_steps * step.repeat
    moved = (step.bytes_per_sample * batch + step.bytes_fixed) * runs
    traffic_s = moved / (A100.memory_bandwidth_bytes_per_s * model.memory[step.op_class])
    start_s = model.latency_s * step.launches * runs
    assert (found >= start_s).all()
    assert (found >= (traffic_s + start_s) * (1 - 1e-9)).all()


def test_a_small_kernel_is_its_latency():
    step = STEPS["resnet50", "fp16-mixed"]
    model = load_kernel_model()
    infinite = faster(A100, peak=1e9, bandwidth=1e9)
    starts = model.latency_s * step.launches * step.sequential_steps * step.repeat
    assert seconds(step, 1, infinite) == pytest.approx(starts, rel=1e-3)
    unstarted = replace(model, latency_s=0.0)
    assert seconds(step, 1, infinite, unstarted).max() < 1e-9


@given(any_step, batches, st.sampled_from(["V100-SXM2-16GB", "A100-SXM4-80GB", "H100-SXM5-80GB"]))
def test_shares_of_the_rate_lie_in_0_to_1(key, batch, name):
    step = STEPS[key]
    share = _shape_share(step, np.array([[float(batch)]]), rates_of(get_device(name)), load_kernel_model())
    assert (share > 0.0).all()
    assert (share <= 1.0).all()


def test_what_is_no_product_pays_for_no_tiles():
    step = STEPS["resnet50", "fp16-mixed"]
    share = _shape_share(step, np.array([[64.0]]), rates_of(A100), load_kernel_model())[0]
    plain = ~np.isin(step.op_class, [OP_CLASSES.index(item) for item in PRODUCT_CLASSES])
    assert plain.any()
    assert share[plain] == pytest.approx(1.0, rel=1e-6)


@given(st.floats(1.0, 1e6))
def test_a_tile_is_a_power_of_two_that_the_extent_fills(extent):
    side = float(_tile(np.array(extent), _MIN_TILE, _TILE))
    assert _MIN_TILE <= side <= _TILE
    assert np.log2(side) == int(np.log2(side))
    assert side <= max(extent, _MIN_TILE)
    assert side == _TILE or 2 * side > extent


def test_half_the_last_wave_costs_part_of_a_wave():
    step = STEPS["gpt2", "bf16"]
    products = np.flatnonzero(step.m_scales & (step.flops > 0) & (step.m >= 1024) & (step.n >= 1024))
    assert len(products)
    rates = replace(rates_of(A100), units=np.array([[1.0]]))
    one = _shape_share(step, np.array([[1.0]]), rates, load_kernel_model())[0, products[0]]
    tiles = np.ceil(step.m[products[0]] / _TILE) * np.ceil(step.n[products[0]] / _TILE)
    almost = replace(rates, units=np.array([[tiles - 1.0]]))
    two = _shape_share(step, np.array([[1.0]]), almost, load_kernel_model())[0, products[0]]
    assert 0.7 * one < two < 0.8 * one  # 1 of tiles - 1 units works in the second wave: half of it is lost


def test_types_without_hardware_run_as_their_wider_neighbor():
    v100, p100 = get_device("V100-SXM2-16GB"), get_device("P100-SXM2-16GB")
    assert peak_flops_per_s(v100, DType.TF32) == v100.peak_flops_per_s["fp32"]
    assert peak_flops_per_s(v100, DType.BF16) == v100.peak_flops_per_s["fp32"]
    assert peak_flops_per_s(A100, DType.FP8) == A100.peak_flops_per_s["bf16"]
    assert peak_flops_per_s(A100, DType.TF32) == A100.peak_flops_per_s["tf32"]
    assert peak_flops_per_s(p100, DType.FP64) == p100.peak_flops_per_s["fp64"]
    bare = replace(v100, peak_flops_per_s={"fp32": 15e12})
    assert peak_flops_per_s(bare, DType.FP64) == 15e12 / 32


def test_every_device_has_a_rate_for_every_type():
    for name in known_device_names():
        rates = rates_of(get_device(name))
        assert rates.peak.shape == (1, 4, len(DTYPES))
        assert (rates.peak > 0).all(), name
        assert (rates.bandwidth > 0).all(), name
        assert (rates.units >= 1).all(), name


@pytest.mark.parametrize(
    ("model", "policy", "batch", "gflops_per_sample"),
    [
        # Forward GFLOPs (2 per multiply-add) of the papers; a step is three times those.
        ("resnet50", "fp32", 64, 8.2),  # He et al. 2016, 4.1 GMACs (v1.5)
        ("resnet50", "fp16-mixed", 256, 8.2),
        ("vgg16", "fp32", 64, 31.0),  # Simonyan and Zisserman 2015, 15.5 GMACs
        ("gpt2", "bf16", 8, 2 * 1024 * 124e-3 * 1.2),  # 2 * tokens * parameters, and attention
    ],
)
def test_a_step_takes_a_few_times_its_flops_at_peak(model, policy, batch, gflops_per_sample):
    precision = get_policy(policy)
    step = lower(load_workload(model).graph, precision)
    at_peak = 3 * gflops_per_sample * 1e9 * batch / peak_flops_per_s(A100, precision.matmul)
    ratio = seconds(step, batch).sum() / at_peak
    # fp32 convolutions may pass the peak (Winograd); norms, activations and transposes add their traffic.
    assert 0.7 < ratio < 10.0


def test_memory_bound_training_is_bound_by_memory():
    # ResNet-50 at fp16-mixed and batch 256 moves more bytes than the matrix units have work for.
    step = STEPS["resnet50", "fp16-mixed"]
    base = seconds(step, 256).sum()
    assert seconds(step, 256, faster(A100, bandwidth=2.0)).sum() < 0.75 * base
    assert seconds(step, 256, faster(A100, peak=2.0)).sum() > 0.75 * base


def _numbers(table: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of tables with the names above them."""
    if isinstance(table, Mapping):
        for key, value in table.items():
            yield from _numbers(value, f"{name}.{key}")
    elif isinstance(table, list):
        for value in table:
            yield from _numbers(value, name)
    elif isinstance(table, int | float) and not isinstance(table, bool):
        yield name, float(table)


def test_what_is_called_a_share_is_one():
    """In (0, 1], in all data of the cost model; what was fitted to be more is a factor, and says of what."""
    seen = 0
    for path in sorted((Path(cost.__file__).parent / "data").glob("*.toml")):
        content = path.read_text(encoding="utf-8")
        title = path.stem if re.search("share|efficien", path.stem) else ""
        for name, value in _numbers(tomllib.loads(content), title):
            if re.search("share|efficien", name):
                seen += 1
                assert 0.0 < value <= 1.0, (path.name, name, value)
    assert seen > 50
    factors = constants("factors")
    tables = {name: table for name, table in factors.items() if isinstance(table, Mapping)}
    most = {name: max(value for _, value in _numbers(table)) for name, table in tables.items()}
    above = {name for name in most if most[name] > 1.0} - {"shortfall"}
    assert above and all(table.endswith("_factor") for table in above)


def test_factors_stay_within_what_explains_them():
    model = load_kernel_model()
    winograd = KINDS.index("conv_3x3")
    assert (model.compute > 0).all()
    assert (np.delete(model.compute, winograd, axis=0) <= 1.5).all()
    assert model.compute[winograd, 0] <= 1.1 and model.compute[winograd, 1] <= 2.25
    assert (model.memory > 0).all()
    above = {OP_CLASSES[index].value for index in np.flatnonzero(model.memory > 1.2)}
    assert above <= {"rnn", "norm", "move"}  # operands that stay in the cache


def test_compilers_fuse_and_launch_less():
    eager = compiler_rates("none")
    assert eager.fusion == 1.0
    for name in ("inductor", "xla", "cudagraphs", "torchscript", "graph"):
        rates = compiler_rates(name)
        assert 0 < rates.fusion < 1.0
        assert 0 < rates.host < eager.host
    assert compiler_rates("a-compiler-nobody-knows") == eager


@pytest.mark.parametrize(
    ("dtype", "peak", "column"),
    [(DType.FP32, 19.5e12, 0), (DType.TF32, 156e12, 2), (DType.FP16, 312e12, 3), (DType.BF16, 312e12, 3)],
)
def test_power_limits_lower_the_peak_of_every_type(dtype, peak, column):
    """A100: data-sheet peaks times the factor of factors.toml."""
    share = constants("factors")["sustained_factor"]["ampere"][column]
    assert share < 1.0
    assert rates_of(A100).peak[0, 0, DTYPES.index(dtype)] == pytest.approx(peak * share)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("V100-SXM2-16GB", DType.BF16), ("V100-SXM2-16GB", DType.TF32), ("GTX1080Ti", DType.FP16)],
)
def test_a_type_without_hardware_runs_at_the_full_rate_of_fp32(name, dtype):
    rates = rates_of(get_device(name))
    one, other = DTYPES.index(dtype), DTYPES.index(DType.FP32)
    assert (rates.peak[0, :, one] == rates.peak[0, :, other]).all()
    assert rates.column[0, one] == rates.column[0, other]


def test_geforce_accumulates_at_half_the_rate_of_its_professional_sibling():
    halves = {name for name in known_device_names() if accumulates_at_half(get_device(name))}
    assert {"RTX2080Ti", "RTX3090", "RTX4090", "RTX5090"} <= halves
    assert not halves & {"TitanRTX", "T4", "A6000", "A100-SXM4-80GB", "RTX6000Ada", "H100-SXM5-80GB"}
    assert not any(name.startswith(("MI", "Gaudi", "TPU")) for name in halves)


def test_depthwise_convolutions_have_no_use_for_matrix_units():
    step = STEPS["mobilenetv2_100", "fp16-mixed"]
    depthwise = step.op_class == OP_CLASSES.index(OpClass.DEPTHWISE_CONV)
    matrix = {word: value * 8.0 for word, value in A100.peak_flops_per_s.items() if word != "fp32"}
    better = replace(A100, peak_flops_per_s={**A100.peak_flops_per_s, **matrix})
    assert (seconds(step, 64, better)[depthwise] == seconds(step, 64)[depthwise]).all()
    assert seconds(step, 64, better).sum() < seconds(step, 64).sum()


def test_what_channels_last_does_to_convolutions():
    """timm, RTX 3090: a quarter off for plain and ResNeXt's convolutions, 2 to 3 times for RegNet's."""
    first, last = load_kernel_model(), load_kernel_model(channels_last=True)
    for model, gain in (("resnet50", True), ("resnext50_32x4d", True), ("regnety_120", False)):
        step = lower(load_workload(model).graph, get_policy("fp16-mixed"))
        before, after = (seconds(step, 64, get_device("RTX3090"), each).sum() for each in (first, last))
        assert (after < 0.95 * before) if gain else (after > 1.5 * before)
    wide = STEPS["resnet50", "fp32"]
    assert seconds(wide, 64, model=first).sum() == seconds(wide, 64, model=last).sum()


def test_attention_is_a_share_of_the_dense_peak():
    """The table of attention kernels stands for itself: what products sustain does not multiply it again."""
    for name in ("H100-SXM5-80GB", "B200-SXM-180GB"):
        device = get_device(name)
        rates = rates_of(device)
        assert rates.peak[0, 2, DTYPES.index(DType.BF16)] == device.peak_flops_per_s["bf16"]


def attention_share(name, kernel="flash2"):
    device = get_device(name)
    model = load_kernel_model(device.arch, kernel, False, matrix_rate(device))
    return float(model.compute[KINDS.index("attention"), 0])


def test_attention_of_long_sequences_reaches_more_where_it_was_measured():
    """Of 2,048 keys the share of the table, of endless ones (1 + 480 / 2048) times that: Dao 2023, A100."""

    def rate(device, length):
        step = lower(load_workload("llama2-7b", seq_len=length).graph, get_policy("bf16-mixed"))
        fused = step.op_class == OP_CLASSES.index(OpClass.ATTENTION)
        model = load_kernel_model(device.arch, "flash2", False, matrix_rate(device))
        return step.flops[fused].sum() / seconds(step, 1, device, model)[fused].sum()

    for length in (8192, 65536):
        gain = rate(A100, length) / rate(A100, 2048)
        assert gain == pytest.approx((1.0 + 480.0 / 2048.0) / (1.0 + 480.0 / length), rel=0.03)
    h100 = get_device("H100-SXM5-80GB")
    assert rate(h100, 65536) == pytest.approx(rate(h100, 8192), rel=0.03)


def test_attention_reaches_more_of_matrix_units_that_were_made_slower():
    published = {"A100-SXM4-80GB": 0.50, "H100-SXM5-80GB": 0.36}  # Dao 2023; Shah et al. 2024
    fitted = constants("factors")["compute_factor"]["attention"][0]
    for name, share in published.items():
        assert attention_share(name) == pytest.approx(fitted * share, rel=0.001)
    assert attention_share("RTX5090") > 0.8 * fitted > attention_share("B200-SXM-180GB")
    assert attention_share("H20-96GB") > 1.5 * attention_share("H100-SXM5-80GB")
    assert attention_share("MI300X") == pytest.approx(fitted * 0.50)  # a table of another maker's parts


@given(st.sampled_from(["H20-96GB", "A6000", "RTX5090", "L40S"]), ratios)
def test_attention_is_never_slower_on_faster_matrix_units(name, peak):
    device = get_device(name)
    better = faster(device, peak=peak)
    attention = KINDS.index("attention")
    models = [load_kernel_model(each.arch, "flash2", False, matrix_rate(each)) for each in (device, better)]
    rates = [float(rates_of(each).peak[0, 2, DTYPES.index(DType.BF16)]) for each in (device, better)]
    reached = [rate * model.compute[attention, 0] for rate, model in zip(rates, models, strict=True)]
    assert reached[1] >= reached[0] * (1.0 - 1e-12)


def test_a_part_that_is_cut_sustains_more_of_its_peak():
    """H20 has the watts of an H100 for a seventh of its rate; L40S and B200 are not held back."""
    limited = {name for name in known_device_names() if is_limited(get_device(name))}
    assert {"H20-96GB", "L20", "A10G", "RTX5090"} <= limited
    assert not limited & {"H100-SXM5-80GB", "A100-SXM4-80GB", "B200-SXM-180GB", "L40S", "V100-SXM2-16GB"}
    h20, h100 = (get_device(name) for name in ("H20-96GB", "H100-SXM5-80GB"))
    shares = [
        rates_of(device).peak[0, 0, DTYPES.index(DType.BF16)] / device.peak_flops_per_s["bf16"]
        for device in (h20, h100)
    ]
    assert shares[0] > 1.2 * shares[1]


def test_a_chip_that_nobody_measured_has_the_share_of_its_maker():
    factors = constants("factors")["sustained_factor"]
    device = replace(get_device("H100-SXM5-80GB"), arch="nobody-knows")
    assert chip_of(device) not in factors and makers_of(device) == "NVIDIA"
    share = rates_of(device).peak[0, 0, DTYPES.index(DType.BF16)] / device.peak_flops_per_s["bf16"]
    assert share == pytest.approx(factors["NVIDIA"][WIDTHS.index("16")])


def test_a_stack_that_nobody_measured_has_the_shortfall_of_its_category():
    table = constants("factors")["shortfall"]
    assert {"suite", "trainer", "script"} <= table.keys()
    unmeasured = [name for name in stack_names() if name not in table and kind_of_stack(name) not in table]
    assert unmeasured
    for name in unmeasured:
        assert stack_shortfall(name) == table[category_of_stack(kind_of_stack(name))]
    assert table["suite"] < table["trainer"]
