"""The utilization of a measured step: of which peak, with and without recomputation, and what is usual.

Reference: PaLM (Chowdhery et al., 2022), appendix B: model FLOPs are those of the forward and the backward
pass once; hardware FLOPs count what is computed again as well.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from precision_time.cost.job import Job
from precision_time.cost.recompute import recomputed_nodes
from precision_time.cost.utilization import model_flops_utilization, peak_of_products, training_flops
from precision_time.errors import ConfigError
from precision_time.io import packaged_toml
from precision_time.parallel.layout import Recompute
from precision_time.render.blocks import TEXT_WIDTH, Block, Text, Tone
from precision_time.render.result import Result
from precision_time.request.request import Request
from precision_time.units import format_duration, format_si

LEAST_RUNS = 8
"""Measured runs that a class needs to say what is usual."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usual:
    """The utilization of measured runs like the job, from the least to the most."""

    of: str
    """Which runs, in words."""
    runs: int
    sources: int
    quantiles: tuple[float, ...]
    """At 0, 10 ... 100 %."""

    def percentile(self, utilization: float) -> float:
        """The share of the runs that stay below, 0..1."""
        if utilization >= self.quantiles[-1]:
            return 1.0
        above = bisect_left(self.quantiles, utilization)
        if above == 0:
            return 0.0
        low, high = self.quantiles[above - 1 : above + 1]
        return (above - 1 + (utilization - low) / ((high - low) or 1.0)) / (len(self.quantiles) - 1)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Utilization(Result):
    """How much of the peak a measured step uses."""

    model: str
    device: str
    gpus: int
    precision: str
    global_batch_size: float
    measured_s: float
    """Seconds of a step."""
    mfu: float
    """Model FLOPs over the peak, 0..1."""
    hfu: float
    """The same with what recomputation computes again."""
    model_flops: float
    """Of a step, over all devices."""
    recomputed_flops: float
    peak_flops_per_s: float
    """Of a device: dense, of the fastest type that its products run in."""
    predicted_s: float
    predicted_mfu: float
    usual: Usual | None
    """None where too few runs like it were measured."""

    @property
    def percentile(self) -> float | None:
        """The share of measured runs like it that use less, 0..1."""
        return None if self.usual is None else self.usual.percentile(self.mfu)

    def in_one_line(self) -> str:
        """The utilization, and where it stands."""
        again = f", {self.hfu:.1%} with recomputation" if self.recomputed_flops else ""
        return (
            f"MFU {self.mfu:.1%}{again}: {self.model} on {self.gpus} x {self.device}, {self.precision}, "
            f"{format_duration(self.measured_s)} per step of {self.global_batch_size:,g} samples"
        )

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The figure, what it is of, and what is usual."""
        del width, why
        yield Text(f"{self.in_one_line()}.", Tone.LEAD)
        peak = format_si(self.peak_flops_per_s, "FLOP/s")
        yield Text(
            f"Of the dense peak of {self.precision} products on {self.device}: {peak} a device. A step is "
            f"{format_si(self.model_flops, 'FLOP')} of the model"
            + (
                f" and {format_si(self.recomputed_flops, 'FLOP')} computed again."
                if self.recomputed_flops
                else "."
            )
        )
        yield Text(f"Predicted: {format_duration(self.predicted_s)} per step, MFU {self.predicted_mfu:.1%}.")
        if self.usual is None:
            yield Text("Too few runs like it were measured to say what is usual.")
            return
        low, middle, high = (self.usual.quantiles[place] for place in (1, 5, 9))
        yield Text(
            f"Usual: {low:.0%} to {high:.0%}, half of the runs above {middle:.0%} ({self.usual.runs} "
            f"measured runs of {self.usual.of}, {self.usual.sources} sources); {self.percentile:.0%} of them "
            "use less."
        )


def utilization_of(request: Request, measured_s: float, predicted_s: float) -> Utilization:
    """The utilization of a step that was measured.

    Args:
        request: The job.
        measured_s: Seconds of a step.
        predicted_s: What is predicted of it.

    Raises:
        ConfigError: If the device has no peak for the precision, or the step is faster than it.
    """
    job = request.resolve()
    mfu, predicted = (model_flops_utilization(job, seconds) for seconds in (measured_s, predicted_s))
    peak = peak_of_products(job.runs, job.cluster.device)
    if mfu is None or predicted is None or peak is None:
        raise ConfigError(
            f"{job.cluster.device.name} has no peak of {job.precision.name} products. To fix: a precision "
            "that it computes in (precision-time list devices NAME)."
        )
    if mfu > 1.0:
        raise ConfigError(
            f"A step of {measured_s:.3g} s would use {mfu:.0%} of the peak. The rule: at most all of it. To "
            "fix: check time, devices, batch and precision."
        )
    peak_flops_s = peak * job.cluster.num_devices * measured_s
    again = recomputed_share(job)
    return Utilization(
        model=job.workload.name,
        device=job.cluster.device.name,
        gpus=job.cluster.num_devices,
        precision=job.precision.name,
        global_batch_size=job.layout.global_batch_size / job.workload.rows_per_sample,
        measured_s=measured_s,
        mfu=mfu,
        hfu=mfu * (1.0 + again),
        model_flops=mfu * peak_flops_s,
        recomputed_flops=mfu * peak_flops_s * again,
        peak_flops_per_s=peak,
        predicted_s=predicted_s,
        predicted_mfu=predicted,
        usual=usual_of(job),
    )


def recomputed_share(job: Job) -> float:
    """FLOPs that run again over those of the forward and the backward pass."""
    graph, layout = job.workload.graph, job.layout
    total = training_flops(graph) or 1.0
    if layout.recompute is Recompute.FULL:
        return (layout.recompute_layers or 1.0) * graph.forward_flops / total
    if layout.recompute is Recompute.SELECTIVE:
        names = layout.recompute_modules or ("core_attn",)
        return sum(graph.nodes[index].flops for index in recomputed_nodes(graph, names)) / total
    return 0.0


def kinds_of(job: Job) -> tuple[tuple[str, str], ...]:
    """The classes of runs that a job is compared with, the nearest first: key, and in words."""
    family, arch, product = job.workload.family, job.cluster.device.arch, job.runs.matmul.value
    scale = "one device" if job.cluster.num_devices == 1 else "several devices"
    return (
        (f"{family}/{arch}/{product}/{scale}", f"{family} on {arch}, {product} products, {scale}"),
        (f"{family}/{arch}/{product}", f"{family} on {arch}, {product} products"),
        (f"{family}/{product}", f"{family} on any device, {product} products"),
    )


def usual_of(job: Job) -> Usual | None:
    """What is usual of runs like a job; None where too few were measured."""
    table: Mapping[str, Mapping[str, Any]] = packaged_toml(__package__, "data/utilization.toml")["usual"]
    for key, words in kinds_of(job):
        row = table.get(key)
        if row is not None:
            return Usual(
                of=words, runs=row["runs"], sources=row["sources"], quantiles=tuple(row["quantiles"])
            )
    return None
