"""Fit what kernels reach of a device's rates (`cost/data/factors.toml`) to measured steps.

    python data/calibrate_kernels.py [--without SOURCE ...] [--write | --add | --stacks]   # two minutes

One crossed model of all rows. A kernel of kind c in type w on architecture a takes

    t = (t_c^3 + t_m^3)^(1/3) + t_transposes + t_0
    t_c = flops / (peak * compute[c, w] * maker[m, w] * sustained[a, w] * sustained_conv[a, w]
                   * share of the shape)
    t_m = bytes / (bandwidth * memory[c] * bandwidth[a])

and the kernels of a step together times category[suite, trainer or script], shortfall[stack] and a factor of
the source within its stack. What the chip sustains and what the software leaves of it are fitted side by
side: an architecture that only slow software measured is not taken for slow where that software ran on other
architectures, too.

Stacks and chips are partly pooled: they deviate from their category and their maker as far as their rows say
so against SPREADS, and one that nobody measured has what those have in common. Once chips and kernels are
fitted, shortfalls are taken from what they leave: of the mean over its sources a stack keeps what so many
sources prove (`stack_shortfalls.py`), since a source alone says little of the next one. MLPerf's are its
submitters. --stacks does that alone, with the chips and kernels that ship.

The logarithms are found by Gauss-Newton steps on log(measured / modeled) with Huber's loss. PRIORS draw each
to its starting value as one row's noise allows: single timed products and convolutions reach 0.75 to 0.95
of the peak on the devices of deepbench, NeuSight and estimate-train-time, fp32 convolutions of 3 x 3 up to
twice the peak (Winograd). Caps are physical. The overall scale is set by the stacks themselves: the quartile
of the best ones has a shortfall of 1.

Rows: one device, or less than 15 % of the modeled step in messages; the host not above 1.2 times the kernels;
at most six rows of a source, stack, model, device and precision (two of a survey of one device). A cell
weighs the root of its rows, and no source more than the root of 200 cells.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.corpus.store import load_corpus
from precision_time.cost.compute import compute_costs
from precision_time.cost.constants import constants
from precision_time.cost.job import Job, Jobs, group_key
from precision_time.cost.roofline import (
    COLUMN,
    CONVOLUTIONS,
    KIND,
    KINDS,
    UNALIGNED,
    WIDTHS,
    chip_of,
    kernel_kinds,
    kernel_model_of,
    kernel_parts,
    makers_of,
    peak_flops_per_s,
    rates_of,
    stack_shortfall,
)
from precision_time.cost.stacks import category_of_stack, kernels_of_stack
from precision_time.cost.step import StepCosts, price
from precision_time.cost.terms import EXPOSED_TERMS
from precision_time.errors import PrecisionTimeError
from precision_time.precision.lowered import LoweredStep
from precision_time.precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES, lower
from precision_time.precision.support import computed_as
from precision_time.workload.graph import OpClass
from stack_shortfalls import HUBER, LEAST_ROWS, NOISE, STEPS, pooled

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

DATA = Path(__file__).resolve().parents[1] / "src" / "precision_time" / "cost" / "data" / "factors.toml"
COLUMNS = ("matrix", "fp32", "fp64")
PRIORS: Mapping[str, float] = {
    "compute": 0.8,
    "compute.gemm.matrix": 0.9,
    "compute.gemm.fp32": 0.9,
    "compute.attention.matrix": 1.0,
    "compute.attention.fp32": 0.5,
    "compute.conv_3x3.matrix": 0.9,
    "compute.conv_3x3.fp32": 1.5,
    f"compute.{UNALIGNED}.matrix": 0.1,
    "compute.depthwise_conv.matrix": 0.35,
    "compute.depthwise_conv.fp32": 0.35,
    "compute.depthwise_conv.fp64": 0.35,
    "maker": 0.75,
    "maker.fp32": 0.9,
    "maker.fp64": 0.9,
    "sustained": 1.0,
    "sustained_conv": 1.0,
    "bandwidth": 1.0,
    "memory": 0.8,
    "memory.depthwise_conv": 0.4,
    "memory.rnn": 2.5,
    "memory.softmax": 0.6,
    "memory.embedding": 0.6,
    "memory.pool": 0.3,
    "memory.gather": 0.16,
    "memory.dispatch": 0.3,
    "memory.unknown": 0.6,
    "transposed": 1.5,
    "category": 1.0,
    "shortfall": 1.0,
    "source": 1.0,
}
"""Starting values, by the longest beginning of a parameter's name."""
SPREADS: Mapping[str, float] = {
    "compute": 0.25,
    "maker": 0.2,
    "sustained": 0.2,
    "sustained_conv": 0.2,
    "memory": 0.25,
    "bandwidth": 0.1,
    "transposed": 0.3,
    "category": 0.3,
    "shortfall": 0.4,
    "source": 0.2,
}
"""Standard deviation of the logarithm around the starting value."""
CAPS: Mapping[str, float] = {
    "compute": 1.0,
    "compute.conv_3x3.fp32": 2.25,  # multiplications that F(2 x 2, 3 x 3) saves
    "compute.rnn.fp32": 1.5,
    "maker": 1.1,  # boards clock above the data sheet's boost; with `sustained`, too
    "sustained_conv": 1.5,
    "memory": 1.0,
    "memory.norm": 1.5,  # what the kernel before has left in the cache
    "memory.move": 1.5,
    "memory.rnn": 4.0,  # weights stay in the cache between time steps
    "bandwidth": 1.15,
    "transposed": 2.0,  # every operand is read and written once more
}
RATES = ("compute", "maker", "sustained", "conv")
"""Groups of parameters whose product is what kernels reach of the peak."""
ROUNDS = 5
GAUGE, QUARTILE = 25.0, 0.25
MAX_EXPOSED, MAX_HOST = 0.15, 1.2
MAX_ROWS, MAX_ROWS_SURVEY, SURVEY_ROWS = 6, 2, 4000
MAX_CELLS = 200.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """All kernels of all rows, K of them, at utilizations of 1."""

    row: Indices
    compute_s: Floats
    memory_s: Floats
    transpose_s: Floats
    latency_s: Floats
    times: Floats
    """How often a kernel runs in a step, fusion and recomputation included."""
    parameters: Mapping[str, Indices]
    """Index of the parameter of each group; -1 where none applies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """R rows."""

    measured_s: Floats
    busy_s: Floats
    """Kernels as chips and kernels ship, in a stack without shortfall."""
    host_s: Floats
    rest_s: Floats
    """What is neither kernels nor the wait for the host."""
    weight: Floats
    sources: NDArray[np.str_]
    row_ids: Indices
    """Numbers of the measurements."""
    parameters: Mapping[str, Indices]


def beginning(table: Mapping[str, float], name: str, default: float) -> float:
    """Value of the longest key that `name` begins with."""
    found = [key for key in table if name == key or name.startswith(f"{key}.")]
    parts = name.split(".")
    found += [key for key in table if key == f"{parts[0]}.{parts[-1]}"]
    return table[max(found, key=len)] if found else default


class Names:
    """Parameters as they turn up."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Index of a parameter, a new one if it is new."""
        return self.index.setdefault(name, len(self.index))


def publisher(row: Measurement) -> str:
    """Who ran it: the submitter of a row of MLPerf (`run_id` is round/submitter/system), else the source."""
    name = source_name(row)
    parts = (row.run_id or "").split("/")
    return f"{name}/{parts[1]}" if name.startswith("mlperf") and len(parts) > 1 else name


def chosen(rows: Sequence[Measurement]) -> list[tuple[Measurement, Job]]:
    """Priced rows, so many of each cell; the same at every call."""
    cells: Counter[tuple[str, ...]] = Counter()
    survey = {source for source, count in Counter(row.source for row in rows).items() if count > SURVEY_ROWS}
    one_device = {source: len({row.device for row in rows if row.source == source}) == 1 for source in survey}
    found = []
    for index in np.random.default_rng(0).permutation(len(rows)):
        row = rows[index]
        cell = (row.source, row.stack.profile, row.model, row.device, row.precision)
        most = MAX_ROWS_SURVEY if one_device.get(row.source) else MAX_ROWS
        if cells[cell] >= most:
            continue
        try:
            found.append((row, job_of(row)))
        except (UnsupportedRow, PrecisionTimeError):
            continue
        cells[cell] += 1
    return found


def collected(pairs: Sequence[tuple[Measurement, Job]]) -> tuple[Kernels, Rows, Names]:
    """The table of the fit."""
    names = Names()
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for index, (_, job) in enumerate(pairs):
        groups[group_key(job)].append(index)
    kernels: defaultdict[str, list[NDArray[np.generic]]] = defaultdict(list)
    kept: list[tuple[int, float, float, float]] = []
    for indices in groups.values():
        group = Jobs.alike([pairs[index][1] for index in indices])
        priced = _priced(group)
        for position, index in enumerate(indices):
            if found := _one(group, priced, position, names, kernels, len(kept)):
                kept.append((index, *found))
    measured = [pairs[index][0] for index, *_ in kept]
    busy_s, host_s, rest_s = np.array([seconds for _, *seconds in kept]).reshape(-1, 3).T
    stacks = [
        kernels_of_stack(row.stack.profile, pairs[at][1].cluster.device.vendor)
        for row, (at, *_) in zip(measured, kept, strict=True)
    ]
    cells = Counter((row.source, row.stack.profile, row.model, row.device, row.precision) for row in measured)
    weight = np.array(
        [
            cells[row.source, row.stack.profile, row.model, row.device, row.precision] ** -0.5
            for row in measured
        ]
    )
    sources = np.array([row.source for row in measured])
    total = {source: weight[sources == source].sum() for source in set(sources)}
    weight *= np.array([min(1.0, MAX_CELLS / total[source]) ** 0.5 for source in sources])
    whole = {name: np.concatenate(parts) for name, parts in kernels.items()}
    return (
        Kernels(
            **{
                name: whole[name]
                for name in ("row", "compute_s", "memory_s", "transpose_s", "latency_s", "times")
            },
            parameters={
                name: whole[name]
                for name in ("compute", "maker", "sustained", "conv", "memory", "bandwidth", "turn")
            },
        ),
        Rows(
            measured_s=np.array([row.step_time_s for row in measured]),
            busy_s=busy_s,
            host_s=host_s,
            rest_s=rest_s,
            weight=weight,
            sources=sources,
            row_ids=np.array([row.row_id for row in measured], dtype=np.intp),
            parameters={
                "chip": np.array(
                    [names.of(f"bandwidth.{chip_of(pairs[at][1].cluster.device)}") for at, *_ in kept]
                ),
                "category": np.array([names.of(f"category.{category_of_stack(name)}") for name in stacks]),
                "shortfall": np.array([names.of(f"shortfall.{name}") for name in stacks]),
                "source": np.array(
                    [
                        names.of(f"source.{publisher(row)}/{name}")
                        for row, name in zip(measured, stacks, strict=True)
                    ]
                ),
            },
        ),
        names,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """Kernels of a group of C jobs at utilizations of 1, and what the package prices them at."""

    step: LoweredStep
    parts: Mapping[str, Floats]
    """Seconds by what bounds a kernel, shape (C, N) each."""
    times: Floats
    """Shape (C, N)."""
    busy_s: Floats
    host_s: Floats
    costs: StepCosts


def _one(
    group: Jobs,
    priced: Priced,
    position: int,
    names: Names,
    kernels: defaultdict[str, list[NDArray[np.generic]]],
    row: int,
) -> tuple[float, float, float] | None:
    """Adds the kernels of one job; seconds of `Rows`, None where messages or the host rule."""
    step, parts, times, costs = priced.step, priced.parts, priced.times, priced.costs
    busy, host, total = (
        float(priced.busy_s[position]),
        float(priced.host_s[position]),
        float(costs.step_time_s[position]),
    )
    exposed = sum(float(costs.terms[name][position]) for name in EXPOSED_TERMS if name in costs.terms)
    if host > MAX_HOST * busy or (group.cluster.num_devices > 1 and exposed > MAX_EXPOSED * total):
        return None
    device, here = group.cluster.device, np.flatnonzero(times[position] > 0.0)
    chip = chip_of(device)
    kind, family = (values[here] for values in kernel_kinds(step, group.stack.channels_last))
    types = [computed_as(device, dtype) for dtype in DTYPES]
    for name, values in parts.items():
        kernels[name].append(values[position][here])
    kernels["times"].append(times[position][here])
    kernels["row"].append(np.full(len(here), row, dtype=np.intp))
    product = IS_PRODUCT[step.op_class[here]] & (parts["compute_s"][position][here] > 0.0)
    compute, maker, sustained, conv = (np.full(len(here), -1, dtype=np.intp) for _ in range(4))
    for k, f, d in {*zip(kind[product], family[product], step.dtype[here][product], strict=True)}:
        mask = product & (kind == k) & (step.dtype[here] == d)
        compute[mask] = names.of(f"compute.{KINDS[k]}.{COLUMNS[COLUMN[types[d]]]}")
        width = "fp32" if f == 3 else KIND[types[d]]  # noqa: PLR2004
        if f != 2:  # noqa: PLR2004
            maker[mask] = names.of(f"maker.{makers_of(device)}.{width}")
            sustained[mask] = names.of(f"sustained.{chip}.{width}")
        if f == 1:
            conv[mask] = names.of(f"sustained_conv.{chip}.{width}")
    memory = np.full(len(here), -1, dtype=np.intp)
    for op_class in set(step.op_class[here]):
        memory[step.op_class[here] == op_class] = names.of(f"memory.{OP_CLASSES[op_class].value}")
    kernels["compute"].append(compute)
    kernels["maker"].append(maker)
    kernels["sustained"].append(sustained)
    kernels["conv"].append(conv)
    kernels["memory"].append(memory)
    kernels["bandwidth"].append(np.full(len(here), names.of(f"bandwidth.{chip}"), dtype=np.intp))
    turned = parts["transpose_s"][position][here] > 0.0
    kernels["turn"].append(np.where(turned, names.of("transposed"), -1))
    unhindered = busy / stack_shortfall(group.stack.profile, device)
    return unhindered, host, total - float(np.cbrt(busy**3 + host**3))


def _priced(group: Jobs) -> Priced:
    """Kernels of a group at utilizations of 1, and its costs as the package prices them."""
    device, model = group.cluster.device, kernel_model_of(group)
    lowered = lower(group.workload.graph, group.precision, device.arch)
    compute, costs = compute_costs(lowered, group, model), price(group)
    step = compute.step
    repeats = group.layout.num_microbatches
    samples = group.micro_batch_size[:, None] * _kept_share(group)
    rates = rates_of(device)
    table = np.ones_like(model.compute)
    attention = OP_CLASSES.index(OpClass.ATTENTION)
    table[attention, 0] = model.compute[attention, 0] / _attention_factor()
    dense = np.array([peak_flops_per_s(device, computed_as(device, dtype)) for dtype in DTYPES])
    vector = np.full(len(DTYPES), device.peak_flops_per_s["fp32"])
    unit_rates = replace(
        rates,
        peak=np.stack([dense, dense, dense, vector])[None],
        bandwidth=np.array([[device.memory_bandwidth_bytes_per_s]]),
    )
    unit = replace(
        model,
        compute=table,
        memory=np.ones_like(model.memory),
        transposed=0.0 if model.channels_last else 1.0,
    )
    shipped = kernel_parts(step, samples, rates, model).seconds
    shipped = shipped * stack_shortfall(group.stack.profile, device)
    parts = kernel_parts(step, samples, unit_rates, unit)
    again = compute.recompute_s > 0.0
    scale = compute.kernels_s / np.maximum(shipped, 1e-30) * repeats
    repeated = (step.phase == 0) * (compute.recompute_s / np.maximum(compute.forward_s, 1e-30))[:, None]
    times = scale * (1.0 + np.where(again[:, None], repeated, 0.0))
    seconds = {
        name: np.broadcast_to(getattr(parts, name), times.shape)
        for name in ("compute_s", "memory_s", "transpose_s", "latency_s")
    }
    return Priced(
        step=step,
        parts=seconds,
        times=times,
        busy_s=compute.busy_s * repeats,
        host_s=compute.host_s * repeats,
        costs=costs,
    )


def _attention_factor() -> float:
    return float(constants("factors")["compute_factor"]["attention"][0])


def _kept_share(group: Jobs) -> float:
    unpadded = float(constants("memory")["unpadded_share"]) if group.stack.unpadded_sequences else 1.0
    return unpadded / group.layout.cp


class Fit:
    """Logarithms of all parameters."""

    def __init__(self, kernels: Kernels, rows: Rows, names: Names) -> None:
        self.kernels, self.rows, self.names = kernels, rows, tuple(names.index)
        self.start = np.log([beginning(PRIORS, name, 1.0) for name in self.names])
        self.spread = np.array([beginning(SPREADS, name, 0.2) for name in self.names])
        self.cap = np.log([beginning(CAPS, name, np.inf) for name in self.names])
        self.gauge = np.array([name.startswith(("compute.", "memory.")) for name in self.names])
        self.x = self.start.copy()
        by = kernels.parameters
        pairs = np.unique(np.stack([by["sustained"], by["maker"]])[:, by["sustained"] >= 0], axis=1)
        self.chips, self.makers = pairs
        """Parameters of chips, and of the makers that they deviate from."""

    def _of(self, *groups: Indices) -> Floats:
        total = np.zeros(len(groups[0]))
        for group in groups:
            total += np.where(group >= 0, self.x[group], 0.0)
        return total

    def kernels_s(self) -> tuple[Floats, Floats, Floats]:
        """Seconds of every kernel: its arithmetic, its traffic, its transposes."""
        kernels, by = self.kernels, self.kernels.parameters
        return (
            kernels.compute_s * np.exp(-self._of(*(by[name] for name in RATES))),
            kernels.memory_s * np.exp(-self._of(by["memory"], by["bandwidth"])),
            kernels.transpose_s * np.exp(self._of(by["turn"]) - self._of(by["bandwidth"])),
        )

    def busy_s(self) -> Floats:
        """Seconds of the kernels of every row in a stack without shortfall."""
        compute, memory, turned = self.kernels_s()
        each = self.kernels.times * (np.cbrt(compute**3 + memory**3) + turned + self.kernels.latency_s)
        total: Floats = np.bincount(self.kernels.row, each, len(self.rows.measured_s)).astype(np.float64)
        return total

    def modeled(self) -> tuple[Floats, Floats]:
        """Seconds of every row, and the derivative of their logarithm by every parameter."""
        kernels, rows, by = self.kernels, self.rows, self.kernels.parameters
        size, count = len(rows.measured_s), len(self.names)
        compute, memory, turned = self.kernels_s()
        cubes = np.maximum(compute**3 + memory**3, 1e-90)
        bound = np.cbrt(cubes)
        short = np.exp(self._of(*rows.parameters.values()))
        busy = np.bincount(kernels.row, kernels.times * (bound + turned + kernels.latency_s), size) * short
        both = np.cbrt(busy**3 + rows.host_s**3)
        total = both + rows.rest_s
        slopes = np.zeros((size, count))
        by_compute = -kernels.times * bound * compute**3 / cubes
        by_memory = -kernels.times * bound * memory**3 / cubes
        by_turn = kernels.times * turned
        for group, values in (
            *((by[name], by_compute) for name in RATES),
            (by["memory"], by_memory),
            (by["bandwidth"], by_memory - by_turn),
            (by["turn"], by_turn),
        ):
            used = group >= 0
            place = kernels.row[used] * count + group[used]
            slopes += np.bincount(place, values[used], size * count).reshape(size, count)
        outer = (busy / both) ** 2 / total
        slopes *= (outer * short)[:, None]
        for group in rows.parameters.values():
            slopes[np.arange(size), group] += outer * busy
        return total, slopes

    def run(self, scale: float) -> None:
        """Gauss-Newton steps; caps of compute and memory hold at the scale of the best software."""
        cap = self.cap + np.where(self.gauge, np.log(scale), 0.0)
        for _ in range(STEPS):
            total, slopes = self.modeled()
            error = np.log(self.rows.measured_s / total)
            weight = self.rows.weight * np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9))
            stiff = NOISE / self.spread**2
            free = (self.x < cap - 1e-9) | (slopes.T @ (weight * error) + stiff * (self.start - self.x) < 0.0)
            matrix = slopes.T @ (slopes * weight[:, None]) + np.diag(stiff)
            right = slopes.T @ (weight * error) + stiff * (self.start - self.x)
            move = np.zeros(len(self.x))
            move[free] = np.linalg.solve(matrix[np.ix_(free, free)], right[free])
            self.x = np.minimum(self.x + np.clip(move, -0.5, 0.5), cap)
            self.x[self.chips] = np.minimum(self.x[self.chips], cap[self.makers] - self.x[self.makers])

    def reached(self) -> dict[str, tuple[float, int]]:
        """What the better sources of each stack reach, their weighted lower quartile, and its rows."""
        category, stacks, sources = (
            self.rows.parameters[name] for name in ("category", "shortfall", "source")
        )
        found = {}
        for stack in set(stacks.tolist()):
            here = stacks == stack
            each = self.x[stack] + self.x[category[here][0]] + self.x[sources[here]]
            order = np.argsort(each)
            below = np.cumsum(self.rows.weight[here][order])
            better = each[order][np.searchsorted(below, below[-1] * QUARTILE)]
            found[self.names[stack].split(".", 1)[1]] = float(np.exp(better)), int(here.sum())
        return found

    def scale(self) -> float:
        """Shortfall of the best quartile of stacks."""
        return float(np.percentile([x for x, n in self.reached().values() if n >= LEAST_ROWS], GAUGE))


def tables(fit: Fit) -> dict[str, dict[str, object]]:
    """Values by table of the data file, at the scale at which the best stacks have no shortfall."""
    scale = fit.scale()
    value = dict(zip(fit.names, np.exp(fit.x - np.where(fit.gauge, np.log(scale), 0.0)), strict=True))

    def of(name: str) -> float:
        found = value.get(name)
        start = beginning(PRIORS, name, 1.0)
        return round(min(float(start if found is None else found), beginning(CAPS, name, np.inf)), 3)

    products = [kind for kind in KINDS if kind in CONVOLUTIONS or kind == UNALIGNED]
    products += [
        item.value for i, item in enumerate(OP_CLASSES) if IS_PRODUCT[i] and item is not OpClass.CONV
    ]
    chips = sorted({name.split(".")[1] for name in fit.names if name.startswith("bandwidth.")})
    chip_makers = dict(
        (fit.names[chip].split(".")[1], fit.names[maker].split(".")[1])
        for chip, maker in zip(fit.chips, fit.makers, strict=True)
    )
    makers = sorted(set(chip_makers.values()))

    def sustained(maker: str, width: str, chip: str = "") -> float:
        """Of a chip, of its maker's mean chip, or of all where none of the maker was seen at that width."""
        whole = value.get(f"maker.{maker}.{width}", middle[width])
        own = value.get(f"sustained.{chip}.{width}", 1.0)
        return round(float(min(whole * own, beginning(CAPS, f"maker.{maker}.{width}", np.inf))), 3)

    middle = {}
    for width in WIDTHS:
        seen = [value[f"maker.{maker}.{width}"] for maker in makers if f"maker.{maker}.{width}" in value]
        start = beginning(PRIORS, f"maker.x.{width}", 1.0)
        middle[width] = float(np.exp(np.mean(np.log(seen)))) if seen else start
    return {
        "compute_factor": {
            kind: [of(f"compute.{kind}.{column}") for column in COLUMNS] for kind in sorted(products)
        },
        "memory_factor": {item.value: of(f"memory.{item.value}") for item in OP_CLASSES},
        "sustained_factor": {
            "other": [round(middle[width], 3) for width in WIDTHS],
            **{maker: [sustained(maker, width) for width in WIDTHS] for maker in makers},
            **{
                chip: [sustained(chip_makers[chip], width, chip) for width in WIDTHS]
                for chip in chips
                if chip in chip_makers
            },
        },
        "conv_factor": {
            "other": [1.0] * len(WIDTHS),
            **{chip: [of(f"sustained_conv.{chip}.{width}") for width in WIDTHS] for chip in chips},
        },
        "bandwidth_factor": {"other": 1.0, **{chip: of(f"bandwidth.{chip}") for chip in chips}},
        "shortfall": pooled(fit.rows, fit.names, fit.busy_s() * scale),
        "": {"transposed": of("transposed")},
    }


HEADER = """# Written by data/calibrate_kernels.py from the measured steps of the corpus; do not edit.
"""
TITLES = {
    "compute_factor": (
        "Rate at which counted FLOPs are worked off, over the sustained rate of the chip: types of matrix\n"
        "# units, fp32, fp64; large products. Above 1 where the algorithm multiplies less than is counted:\n"
        "# convolutions of 3 x 3 in fp32 (Winograd, at most 2.25), recurrent layers in fp32 (time steps\n"
        "# share kernels).\n"
        "# Attention in matrix units: times the numbers of [attention] in kernels.toml."
    ),
    "memory_factor": (
        "Rate at which counted bytes are worked off, over the bandwidth of the chip, by operator class.\n"
        "# Counted is what a kernel reads and writes once, as if all of it went to the device's memory.\n"
        "# Above 1 where some of it stays in the cache: weights between the time steps of recurrent layers,\n"
        "# what the kernel before norms and moves has left there."
    ),
    "sustained_factor": (
        "FLOP/s under load over the dense peak of the data sheet: fp32, fp64, TF32, 16, 8, 4 bits. Below\n"
        "# 1 where power limits the clocks; above 1 (at most 1.1) where boards clock above the boost that\n"
        "# the data sheet counts with.\n"
        "# `-half`: matrix units that add up in fp32 at half their rate, or are cut. Makers come first:\n"
        "# theirs is that of a chip that nobody measured."
    ),
    "conv_factor": "The same for convolutions, over that of the other products; same columns.",
    "bandwidth_factor": "Bytes/s over the data sheet's, over that of the mean chip ([memory_factor]).",
    "shortfall": (
        "How many times longer kernels take in a stack than in the best quartile of stacks, drawn to what\n"
        "# its category has in common the more, the fewer sources it was measured by. The categories\n"
        "# of stacks (stacks.toml) come first: theirs is that of a stack that nobody measured."
    ),
}


def written(found: Mapping[str, Mapping[str, object]]) -> str:
    """The data file."""
    lines = [HEADER.rstrip()]
    lines.append(
        "# Passes over the operands of a 16-bit convolution that its transposes take without channels last."
    )
    lines += [f"{name} = {value}" for name, value in found[""].items()]
    for table, title in TITLES.items():
        lines += ["", f"# {title}", f"[{table}]"]
        lines += [f"{name} = {value}" for name, value in found[table].items()]
    return "\n".join(lines) + "\n"


def added(fitted: dict[str, dict[str, object]], there: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """What the data file has, and what it lacks: answers of known chips and stacks stay as they were."""
    return {
        name: {**table, **(there.get(name, {}) if name else {key: there[key] for key in table})}
        for name, table in fitted.items()
    }


def main() -> None:
    """Price the rows, fit, report, write if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--without", action="append", default=[], metavar="SOURCE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--add", action="store_true", help="write what the file lacks, and leave what it has")
    parser.add_argument(
        "--stacks", action="store_true", help="write shortfalls, chips and kernels as they ship"
    )
    options = parser.parse_args()
    rows = [row for row in load_corpus() if row.usable and row.source not in options.without]
    kernels, table, names = collected(chosen(rows))
    print(f"{len(table.measured_s)} rows, {len(kernels.row)} kernels, {len(names.index)} parameters")
    if options.stacks:
        there = tomllib.loads(DATA.read_text(encoding="utf-8"))
        there["shortfall"] = pooled(table, tuple(names.index), table.busy_s)
        DATA.write_text(written({"": {"transposed": there["transposed"]}, **there}), encoding="utf-8")
        return
    fit = Fit(kernels, table, names)
    for _ in range(ROUNDS):
        fit.run(fit.scale())
    total, _ = fit.modeled()
    error = np.abs(np.log(table.measured_s / total))
    for source in ("all", *sorted(set(table.sources))):
        here = (table.sources == source) | (source == "all")
        mean = np.average(error[here], weights=table.weight[here])
        print(f"{source:28s} {here.sum():6d} mean |log| {mean:.3f}")
    fitted = tables(fit)
    if options.add:
        fitted = added(fitted, tomllib.loads(DATA.read_text(encoding="utf-8")))
    text = written(fitted)
    print(text)
    if options.write or options.add:
        DATA.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
