"""Anchors: a user's own measured steps of this job or of others near it, that an answer is conditioned on.

An anchor is the request with some fields changed and the step time that was measured:
`--anchor gpus=1,batch_size=64,step_time_s=0.21`. What it does not name is as in the request. Anchors are
refused where no device could be that fast, or where they contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cost.job import Job
from ..cost.roofline import peak_flops_per_s
from ..errors import ConfigError, PrecisionTimeError
from ..learn.artifact import TrainedPredictor
from ..learn.calibration.calibration import Calibration, places_of_times
from ..learn.intervals import WIDTH_COVERAGE
from ..learn.priced import predict_step_times
from ..precision.lowering import IS_PRODUCT, lower
from ..precision.policy import DType
from ..records import dataclass
from ..request.request import Request
from ..request.schema import ALIASES, ANCHOR_TIMES, SAMPLES_PER_S, STEP_TIME_S, over
from ..workload.graph import OpClass

_CLOCK = 1.1
"""Boards may clock above the boost of their data sheet, by which peaks are stated. Of 7,392 measured runs
(every fourth of the corpus) five are below the bound, by at most 12 %: four on Gaudi, one at fp32 on V100."""
_WINOGRAD = 2.25
"""Multiplications that fp32 convolutions of 3 x 3 may save by: F(2x2, 3x3) of Lavin and Gray, CVPR 2016."""
_REPEAT_SD = 0.05
"""Of log step time between repeats of one configuration (docs/reference/limits.md)."""
_SURE = 5.0
"""Standard deviations of the difference of two repeats from which on they contradict each other."""
_TOGETHER = {
    "batch_size": ("global_batch_size", "global_batch_tokens"),
    "global_batch_size": ("batch_size", "global_batch_tokens"),
    "global_batch_tokens": ("batch_size", "global_batch_size"),
    "gpus": ("nodes", "cluster"),
    "device": ("node_type", "intra_node", "inter_node", "network", "cluster"),
}
"""Fields that an anchor does not take over from the request where it names another."""
_SOFTWARE = frozenset({"stack", "framework"})
_ELSEWHERE = frozenset({"model", "device", "node_type", "cluster"})
"""Fields of an anchor with which its software may be another one."""
NOT_OF_A_STEP = (
    "anchors", "calibration", "predictor", "samples", "epochs", "steps", "tokens", "input_rate", "coverage",
)  # fmt: skip
"""Fields of a request that say nothing of its step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """One measured step."""

    said: str
    """As the user wrote it."""
    job: Job
    measured_s: float


def anchored(
    request: Request, predictor: TrainedPredictor, calibration: Calibration | None
) -> Calibration | None:
    """The points that a request brings, after those of its calibration; None without any.

    Raises:
        ConfigError: If an anchor is invalid, faster than its device, or contradicts another one; as
            `predict_time` otherwise.
    """
    if not request.anchors:
        return calibration
    own = points_of([_read(request, given) for given in request.anchors], predictor)
    return own if calibration is None else Calibration.together([calibration, own])


def points_of(anchors: Sequence[Anchor], predictor: TrainedPredictor) -> Calibration:
    """Measured steps as points.

    Raises:
        ConfigError: If one is faster than its device, or contradicts another one.
    """
    for anchor in anchors:
        if reason := too_fast(anchor.job, anchor.measured_s):
            raise ConfigError(f"anchor {anchor.said}: {reason}")
    _check_agreement(anchors)
    jobs = [anchor.job for anchor in anchors]
    times = predict_step_times(jobs, predictor, coverage=WIDTH_COVERAGE)
    measured_s = np.array([anchor.measured_s for anchor in anchors])
    return Calibration(
        places=places_of_times(times),
        log_ratios=np.log(measured_s / times.median_s),
        devices=frozenset(job.cluster.device.name for job in jobs),
        process=predictor.process,
    )


def check_precision_named(anchors: Sequence[Mapping[str, Any]]) -> None:
    """Anchors of a question for several precisions must each say which one was measured.

    Raises:
        ConfigError: If one does not.
    """
    for anchor in anchors:
        if "precision" not in anchor:
            raise ConfigError(
                f"The anchor {_said(anchor)} does not say at which precision it was measured, and several "
                "are asked. To fix: add precision=NAME to it."
            )


def least_step_time_s(job: Job) -> float:
    """Seconds below which no step of a job can be: the roofline of its products.

    Their FLOPs at the peak of their types: forward once, in the backward pass once for the activations, and
    for the weights as far as they are trained. Their trained weights at the memory bandwidth: read in the
    forward and in the backward pass of every micro batch but for what the L2 cache holds. All else only adds.
    Reference: Williams, Waterman, Patterson, Roofline, CACM 52 (2009).
    """
    graph, cluster, precision, layout = job.workload.graph, job.cluster, job.runs, job.layout
    device = cluster.device
    trained = graph.trainable_params / max(graph.params, 1.0)
    forward = graph.forward_flops
    if precision.conv is DType.FP32:
        convolved = sum(node.flops for node in graph.nodes if node.op_class is OpClass.CONV)
        forward *= 1.0 - (1.0 - 1.0 / _WINOGRAD) * convolved / max(sum(n.flops for n in graph.nodes), 1.0)
    flops = (2.0 + trained) * forward * layout.global_batch_size
    peak = max(peak_flops_per_s(device, dtype) for dtype in (precision.matmul, precision.conv))
    step = lower(graph, precision, device.arch)
    weights = (step.param_elems * step.repeat)[IS_PRODUCT[step.op_class] & ~step.expert].sum()
    read_bytes = (
        float(weights)
        / (layout.tp * layout.pp)
        * min(precision.matmul.num_bytes, precision.activation.num_bytes)
    )
    passes = 2.0 * layout.num_microbatches
    memory_s = passes * max(read_bytes - device.l2_bytes, 0.0) / device.memory_bandwidth_bytes_per_s
    return max(flops / (peak * cluster.num_devices), memory_s) / _CLOCK


def _read(request: Request, given: Mapping[str, Any]) -> Anchor:
    fields = {ALIASES.get(name, name): value for name, value in given.items() if name not in ANCHOR_TIMES}
    dropped = {*NOT_OF_A_STEP, *(other for name in fields for other in _TOGETHER.get(name, ()))} - {*fields}
    kept = {name: value for name, value in request.given().items() if name not in dropped}
    try:
        job = Request.of(over(kept, fields)).resolve()
        if not _SOFTWARE & {*kept, *fields} and not _ELSEWHERE & {*fields}:
            stack = request.resolve().stack.profile
            if job.stack.profile != stack:  # what more devices usually run is not what was measured on few
                job = Request.of(over(kept, {**fields, "stack": stack})).resolve()
        return anchor_of(given, job)
    except PrecisionTimeError as error:
        raise ConfigError(f"anchor {_said(given)}: {error}") from error


def anchor_of(given: Mapping[str, Any], job: Job) -> Anchor:
    """The anchor that states a measured time of a job.

    Args:
        given: As the user wrote it, one of ANCHOR_TIMES in it.
        job: What it is of.
    """
    measured_s = given.get(STEP_TIME_S)
    if measured_s is None:
        measured_s = job.layout.global_batch_size / given[SAMPLES_PER_S]
    return Anchor(said=_said(given), job=job, measured_s=float(measured_s))


def _said(given: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in given.items())


def too_fast(job: Job, measured_s: float) -> str:
    """Why no step of the job can take `measured_s`; empty where one can."""
    bound_s = least_step_time_s(job)
    if measured_s >= bound_s:
        return ""
    return (
        f"a step of {measured_s:.4g} s is faster than the roofline: the "
        f"products of {job.layout.global_batch_size:g} samples take at least {bound_s:.4g} s on "
        f"{job.cluster.num_devices} x {job.cluster.device.name} at {job.precision.name}. "
        "To fix: check batch, devices and precision; a step is one optimizer step over all devices."
    )


def _check_agreement(anchors: Sequence[Anchor]) -> None:
    """The same job twice must take about as long, and more samples no less."""
    most = math.exp(_SURE * math.sqrt(2.0) * _REPEAT_SD)
    alike: dict[tuple[Any, ...], list[Anchor]] = {}
    for anchor in anchors:
        alike.setdefault(_but_for_the_batch(anchor.job), []).append(anchor)
    for group in alike.values():
        group.sort(key=lambda item: (item.job.layout.micro_batch_size, item.measured_s))
        fastest = slowest = group[0]  # of the same batch; of all up to it
        for large in group[1:]:
            if large.job.layout.micro_batch_size > fastest.job.layout.micro_batch_size:
                fastest = large
            for small in (slowest, fastest):
                _check_pair(small, large, most)
            slowest = max(slowest, large, key=lambda item: item.measured_s)


def _check_pair(small: Anchor, large: Anchor, most: float) -> None:
    samples = large.job.layout.micro_batch_size / small.job.layout.micro_batch_size
    ratio = large.measured_s / small.measured_s
    if ratio < 1.0 / most or (samples == 1.0 and ratio > most):
        what = "are of the same job" if samples == 1.0 else f"differ by {samples:g} x the batch alone"
        raise ConfigError(
            f"The anchors {small.said} and {large.said} {what}, but the second took {ratio:.3g} x as "
            f"long; repeats differ by at most {most:.3g} x. To fix: leave out the one that is wrong, "
            "or say what else differed."
        )


def _but_for_the_batch(job: Job) -> tuple[Any, ...]:
    """What two jobs have in common that differ in their batch alone."""
    names = type(job.layout).__dataclass_fields__
    layout = {**{name: getattr(job.layout, name) for name in names}, "micro_batch_size": None}
    return (
        job.workload.name, job.workload.graph.params, job.workload.graph.forward_flops,
        job.cluster.device.name, job.cluster.num_devices, job.cluster.num_nodes, job.precision.name,
        job.stack, job.scope, tuple(layout.items()),
    )  # fmt: skip
