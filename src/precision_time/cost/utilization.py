"""How much of a device's peak a step uses, and the least time that this leaves it.

Reference: PaLM (Chowdhery et al., 2022), appendix B: three times the forward pass; gradients by frozen
weights are not computed and not counted.
"""

from __future__ import annotations

import math

from ..arrays import Floats
from ..cache import derived
from ..hardware.device import Device
from ..precision.policy import NARROW, DType, PrecisionPolicy
from ..workload.graph import OpClass, OpGraph
from ..workload.method import Method
from .constants import constants
from .job import Job, Jobs, of_groups
from .roofline import peak_flops_per_s

_WINOGRAD = 2.25
"""FLOPs counted over those done, at most, where convolutions of 3 x 3 run in fp32: a utilization above 1 says
nothing there. Lavin and Gray, Fast algorithms for convolutional neural networks, CVPR 2016: F(2x2, 3x3)."""


@derived
def training_flops(graph: OpGraph) -> float:
    """FLOPs of the forward and the backward pass of a sample, each once."""
    return graph.training_flops


def peak_of_products(runs: PrecisionPolicy, device: Device) -> float | None:
    """Dense peak of the fastest type that products run in; None where the matmul type has none of its own.

    Beside narrow products some stay in the type of activations, which is the faster one where a device has
    few units for the narrow type (int8 on B300).
    """
    dtype = runs.matmul
    if dtype.value not in device.peak_flops_per_s:
        return None
    if not runs.layers and dtype not in NARROW:
        return peak_flops_per_s(device, dtype)
    types = {dtype, runs.activation} if dtype in NARROW else {dtype}
    of_layers = {rule.multiplied for rule in runs.layers}
    types |= {each for each in of_layers if each.value in device.peak_flops_per_s}
    return max(peak_flops_per_s(device, each) for each in types)


def model_flops_utilization(job: Job, step_time_s: float) -> float | None:
    """Useful FLOPs (forward and backward once) over the dense peak of the fastest type of products, 0..1.

    Beside narrow products some stay in the type of activations, which is the faster one where a device has
    few units for the narrow type (int8 on B300). None where the matmul type has no peak of its own on the
    device.
    """
    found = utilization_of_sample(job) * job.layout.global_batch_size / step_time_s
    return None if math.isnan(found) else found


def utilization_of_sample(job: Job) -> float:
    """MFU of one sample in a second; NaN where there is none."""
    peak, sample_flops = peak_of_products(job.runs, job.cluster.device), training_flops(job.workload.graph)
    if peak is None or sample_flops == 0.0:
        return math.nan
    useful = (sample_flops + _flops_beside(job.workload.method)) * job.workload.real_share
    return useful / (job.cluster.num_devices * peak)


def _flops_beside(method: Method | None) -> float:
    """Of what a method does beside the update, per row; FLOPs of generation are few in a long time."""
    if method is None:
        return 0.0
    beside = math.fsum(training_flops(graph) for _, graph in (*method.forward, *method.trained))
    answers = method.generation
    if answers is None:
        return beside
    prompt = training_flops(answers.prompt) / answers.answers_per_prompt
    return beside + prompt + training_flops(answers.first_token) * answers.mean_tokens


def most_utilization(graph: OpGraph, runs: PrecisionPolicy, device: Device) -> float:
    """The utilization that no step of a model exceeds: 1, more where convolutions may save multiplications.

    TF32 is allowed, not ordered: libraries keep to fp32 where that is faster (`roofline`).
    """
    if runs.conv not in (DType.FP32, DType.TF32):
        return 1.0
    share = _windowed_share(graph)
    least = (1.0 - share) + share / _WINOGRAD
    if runs.conv is DType.TF32:
        least *= (peak_of_products(runs, device) or 1.0) / peak_flops_per_s(device, DType.FP32)
    return 1.0 / min(least, 1.0)


@derived
def _windowed_share(graph: OpGraph) -> float:
    """Share of the FLOPs that convolutions of several positions do."""
    nodes = graph.nodes
    windowed = sum(node.flops for node in nodes if node.op_class is OpClass.CONV and node.kernel > 1)
    return windowed / (graph.forward_flops or 1.0)


def believed_flops_per_s(device: Device, peak: float) -> float:
    """What products reach at most on a device: on one that nobody measured, what its kind was seen to."""
    table = constants("unmeasured")
    if (device.base or device.name) not in table["devices"]:
        return peak
    kind = next((row for row in table["kind"] if device.arch.startswith(tuple(row["arch"]))), None)
    if kind is None:
        return peak
    narrower = max(peak / device.peak_flops_per_s.get("bf16", peak), 1.0)
    by_bandwidth = float(kind["flops_per_byte"]) * device.memory_bandwidth_bytes_per_s * narrower
    return min(float(kind["share"]) * peak, by_bandwidth)


def least_step_s(jobs: Jobs) -> Floats:
    """Seconds below which no step is, shape (n,); 0 where the peak is unknown.

    Of a device that nobody measured also what its kind reaches (data/unmeasured.toml).
    """
    flops, dp, most = of_groups(jobs, _flops_and_most)
    seconds: Floats = jobs.micro_batch_size * (flops * jobs.num_microbatches * dp / most)
    return seconds


def _flops_and_most(job: Job) -> tuple[float, float, float]:
    """FLOPs of a sample, data ranks, and the FLOP/s that no step exceeds."""
    graph, runs, device = job.workload.graph, job.runs, job.cluster.device
    flops, dp = training_flops(graph) * job.workload.real_share, job.layout.dp
    peak = peak_of_products(runs, device)
    if peak is None:
        return flops, dp, math.inf
    peak = min(peak, believed_flops_per_s(device, peak))
    return flops, dp, most_utilization(graph, runs, device) * peak * job.cluster.num_devices
