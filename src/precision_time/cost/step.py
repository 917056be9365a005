"""The analytical step time: compute, optimizer and communication terms, assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Number, Same
from ..cache import derived, memo
from ..hardware.device import Device
from ..parallel.layout import Layout, Offload
from ..parallel.schedules.contract import StageTimes
from ..parallel.schedules.registry import schedule_of
from ..precision.catalog import get_policy
from ..precision.lowered import LoweredStep
from ..precision.lowering import IS_PRODUCT, lower
from ..precision.policy import PrecisionPolicy
from ..precision.quantization import amax_exchange, gathered_bytes
from ..precision.rules import columns_under
from ..records import dataclass
from ..workload.graph import OpGraph
from .axes import PassTimes, StepContext, as_seen, group_of, lines_of
from .collectives import all_reduce_lines, min_time_s
from .communication import AXES, MODEL_AXES, communication, model_communication
from .compute import ComputeCosts, compute_costs, first_slowest, in_turn_on, longer_of
from .constants import constants
from .data_axis import ParameterPart
from .input import input_s
from .job import Job, Jobs, TimingScope, of_groups
from .memory import framework_memory, frozen_bytes, memory_of, total_bytes
from .optimizer import MatrixWeights, OptimizerForm, offload_s, optimizer_terms, optimizer_work
from .overlap import GradientSchedule, fully_exposed, gradient_schedule
from .roofline import kernel_model_of, product_flops_per_s
from .sharding import StageShares
from .stacks import Stack
from .stragglers import straggler_share
from .terms import DATA_STALL, EXPOSED_TERMS, HOST_STALL, KERNEL_TERMS, TERMS
from .traffic import traffic_of
from .utilization import least_step_s

_TINY_S = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCosts:
    """Analytical seconds of C jobs; every array has shape (C,)."""

    terms: Mapping[str, Floats]
    """Named seconds that add up to the step time, in the order of `terms.TERMS`."""
    step_time_s: Floats
    """Their sum."""
    compute_s: Floats
    """The sum of those that are not exposed communication."""
    link_seconds: Mapping[str, Floats]
    """Communication on the wire by parallel axis (`communication.AXES`), hidden or not: at least the exposed
    seconds of the axis."""
    facts: Mapping[str, Floats]
    """Work, traffic and shares that features are made of."""
    least_s: Floats
    """Seconds below which no step is (`utilization.least_step_s`)."""
    memory: tuple[Mapping[str, Number], ...]
    """Named bytes on the fullest device, of each group (`memory.memory_of`)."""

    @property
    def link_s(self) -> Floats:
        """Communication on the wire over all axes."""
        return reduce(np.add, self.link_seconds.values())


def price(group: Jobs, memory: Mapping[str, Number] | None = None) -> StepCosts:
    """Analytical costs of the jobs of a group, of which `memory_of` may be known already."""
    return costs_of(group, [work_of(group, memory)])


class Work(NamedTuple):
    """What the jobs of a group do beside their update, which loss scaling does not change.

    Fields as of `StepCosts`.
    """

    terms: Mapping[str, Floats]
    """Of the kernels and of transfers to the host."""
    exposed: Mapping[str, Floats]
    link_seconds: Mapping[str, Floats]
    facts: Mapping[str, Floats]
    memory: Mapping[str, Number]
    parameters: LocalParameters


def work_of(group: Jobs, memory: Mapping[str, Number] | None = None) -> Work:
    """The work of a group, of which `memory_of` may be known already."""
    compute = compute_costs(_lowered(group), group, kernel_model_of(group))
    parameters = local_parameters(compute)
    exposed, link_seconds = _communication_terms(group, compute, parameters)
    memory = memory_of(group) if memory is None else memory
    filled = np.zeros(len(group)) + total_bytes(memory) / group.cluster.device.memory_bytes
    facts = {**compute.facts, "memory_fill": filled}
    terms = {**compute.terms, "offload_s": np.full(len(group), _offload_s(group, parameters))}
    return Work(terms, exposed, link_seconds, facts, memory, parameters)


def work_of_both(group: Jobs, other: Jobs, memory: Mapping[str, Number] | None = None) -> tuple[Work, Work]:
    """That of two groups that differ in bf16 for fp16 and its scaling; the same work is priced once."""
    work = work_of(group, memory)
    # Casts before a softmax are inside of it in fp16 alone; stacks that sum gradients in fp32 hold those of
    # the two types elsewhere.
    policy, graph = group.precision, group.workload.graph
    casts = (policy.autocast or policy.ruled) and columns_under(graph, policy).casts_inside.any()
    is_same = not (casts or framework_memory(group.stack).fp32_gradients)
    return work, work if is_same else work_of(other)


def _lowered(group: Jobs) -> LoweredStep:
    return lower(group.workload.graph, group.precision, group.cluster.device.arch)


def costs_of(jobs: Jobs, works: Sequence[Work]) -> StepCosts:
    """The costs of jobs, shape (n,), from the work of each of their groups."""
    named = ("terms", "exposed", "link_seconds", "facts")
    terms, exposed, links, facts = (_together([getattr(each, name) for each in works]) for name in named)
    # While the device waits for the network the host catches up: the step is the longer of the two.
    rounds = jobs.num_microbatches
    waits_s = reduce(np.add, exposed.values()) - exposed["pipeline_bubble_s"]
    busy_s, host_s = facts["kernels_s"] * rounds + waits_s, facts["host_s"] * rounds
    in_turn, straggling, moving, fixed = of_groups(jobs, _figures)
    stall_s = np.where(in_turn, busy_s + host_s, longer_of(busy_s, host_s)) - busy_s
    found = {**terms, HOST_STALL: stall_s, **_optimizer_terms(jobs, works), **exposed}
    terms = {term.name: found.pop(term.name) for term in TERMS if term.name in found}
    assert not found, f"terms that cost/terms.py does not list: {sorted(found)}"
    least_s = least_step_s(jobs)
    even_s = _kept_to_peak(least_s, terms)
    terms["straggler_s"] = straggling * even_s
    step_s: Floats = even_s + terms["straggler_s"]
    terms[DATA_STALL] = longer_of(step_s, input_s(jobs)) - step_s
    facts["bandwidth_saving"] = 1.0 - facts["bytes"] / (moving * jobs.micro_batch_size + fixed + 1.0)
    return StepCosts(
        terms=terms,
        step_time_s=step_s + terms[DATA_STALL],
        compute_s=reduce(np.add, (s for name, s in terms.items() if name not in EXPOSED_TERMS)),
        link_seconds=links,
        facts=facts,
        least_s=least_s,
        memory=tuple(each.memory for each in works),
    )


def _together(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Columns of groups, one after the other."""
    if len(parts) == 1:
        return {**parts[0]}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _figures(job: Job) -> tuple[float, ...]:
    """Whether host and kernels work in turn, the share of waiting for others, and `_wide_bytes`."""
    waits = job.stragglers and job.layout.data_parallel_engine != "none"
    share = straggler_share(job.cluster.num_devices, job.cluster.num_nodes) if waits else 0.0
    return in_turn_on(job.cluster.device.arch), share, *_wide_bytes(job.workload.graph)


def _kept_to_peak(least_s: Floats, terms: dict[str, Floats]) -> Floats:
    """The sum of the terms, of which the kernels are lengthened where a step would do more than the peak.

    What stacks and chips reach is fitted to steps of many kinds: a stack whose short kernels are as quick as
    that has no faster matrix units.
    """
    total_s: Floats = reduce(np.add, terms.values())
    if ((short_s := least_s - total_s) > 0.0).any():
        kernels_s = reduce(np.add, (terms[name] for name in KERNEL_TERMS))
        factor = 1.0 + np.maximum(short_s, 0.0) / kernels_s
        terms |= {name: terms[name] * factor for name in KERNEL_TERMS}
        total_s = reduce(np.add, terms.values())
    return total_s


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LocalParameters:
    """Trainable elements on one device: its tensor, expert and pipeline share. Equal only to itself."""

    dense: float
    experts: float
    dense_total: float
    """Of all stages, with the same tensor share."""
    experts_total: float
    tensor_share: float
    """Share of the model's parameter tensors."""
    matrices: MatrixWeights
    """Weights of two dimensions outside embeddings and head."""


def local_parameters(compute: ComputeCosts) -> LocalParameters:
    """Parameters of the stage that holds most of them, read off the kernels that make their gradients."""
    return _local_parameters(compute.step, compute.shares)


@derived
def _local_parameters(step: LoweredStep, shares: StageShares) -> LocalParameters:
    elements = step.param_elems * step.repeat
    dense, experts = elements * ~step.expert, elements * step.expert
    by_stage = shares.kernels @ (dense + experts)
    fullest = int(by_stage.argmax())
    has = (step.param_elems > 0) * step.repeat
    return LocalParameters(
        dense=float(shares.kernels[fullest] @ dense),
        experts=float(shares.kernels[fullest] @ experts),
        dense_total=float(dense.sum()),
        experts_total=float(experts.sum()),
        tensor_share=float(shares.kernels[fullest] @ has) / max(float(has.sum()), 1.0),
        matrices=_matrices(step, elements * shares.kernels[fullest]),
    )


def _matrices(step: LoweredStep, elements: Floats) -> MatrixWeights:
    """Weights of two dimensions, read off the products that make their gradients."""
    products = IS_PRODUCT[step.op_class] & (elements > 0.0) & ~step.vocabulary
    m, n = step.m[products], step.n[products]
    return MatrixWeights(
        rows=np.minimum(m, n), columns=np.maximum(m, n), count=elements[products] / np.maximum(m * n, 1.0)
    )


def _optimizer_terms(jobs: Jobs, works: Sequence[Work]) -> dict[str, Floats]:
    """Update, unscale pass, host synchronization, the trainer's time per tensor."""
    each = [_update_terms(job, work.parameters) for job, work in zip(jobs.shared, works, strict=True)]
    columns = np.array([[*terms.values()] for terms in each]).T[:, jobs.group]
    return dict(zip(each[0], columns, strict=True))


def _update_terms(job: Job, local: LocalParameters) -> dict[str, float]:
    """The same of one job."""
    tensors = job.workload.graph.param_tensors * local.tensor_share
    named = {"trainer_s": job.stack.host_per_tensor_s * tensors}
    if job.layout.offload is not Offload.NONE or job.scope is TimingScope.NO_OPTIMIZER:
        return named | dict.fromkeys(("optimizer_s", "unscale_s", "host_sync_s"), 0.0)
    device, params = job.cluster.device, _updated(job.layout, local)
    form = _optimizer_form(job.stack, device)
    return named | _update_s(job.workload.optimizer, job.runs, form, local, Same(device), params, tensors)


def _offload_s(group: Jobs, local: LocalParameters) -> Number:
    """Transfers to the host and its update."""
    layout = group.layout
    if layout.offload is Offload.NONE or group.scope is TimingScope.NO_OPTIMIZER:
        return 0.0
    return offload_s(
        *(layout, group.cluster.device, group.precision),
        params=_updated(layout, local),
        frozen_bytes=frozen_bytes(group),
        rounds=group.num_microbatches,
    )


def _updated(layout: Layout, local: LocalParameters) -> float:
    """Elements that a device updates."""
    sharded = layout.zero_stage > 0
    params = local.dense / (layout.shard_ranks if sharded else 1)
    return params + local.experts / (layout.expert_data_ranks if sharded else 1)


@memo(512)
def _update_s(
    optimizer: str,
    policy: PrecisionPolicy,
    form: OptimizerForm,
    local: LocalParameters,
    device_key: Same,
    params: float,
    tensors: float,
) -> dict[str, float]:
    """Seconds of an update of `params` elements in so many tensors, by term."""
    device: Device = device_key.value
    work = optimizer_work(
        optimizer,
        policy,
        params=params,
        tensors=tensors,
        form=form,
        matrices=local.matrices.scaled(params / max(local.dense + local.experts, 1.0)),
    )
    seconds = optimizer_terms(
        work,
        memory_bytes_per_s=device.memory_bandwidth_bytes_per_s,
        launch_s=device.launch_overhead_s,
        flops_per_s=product_flops_per_s(device, work.product_dtype),
    )
    return {f"{name}_s": float(value) for name, value in seconds.items()}


def _optimizer_form(stack: Stack, device: Device) -> OptimizerForm:
    """How the stack runs the update: PyTorch goes tensor by tensor until 1.12 and on some devices still."""
    if stack.fused_optimizer:
        return OptimizerForm.FUSED
    table = constants("optimizers")
    alone = stack.framework_year < table["foreach_from"] or device.arch in table["without_foreach"]
    return OptimizerForm.FOR_LOOP if stack.framework == "pytorch" and alone else OptimizerForm.FOREACH


def _communication_terms(
    group: Jobs, compute: ComputeCosts, local: LocalParameters
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Exposed seconds by term, and link seconds by axis."""
    size = len(group)
    if group.cluster.num_devices == 1:
        idle = (name for name in EXPOSED_TERMS if name != "straggler_s")
        return {name: np.zeros(size) for name in idle}, {axis: np.zeros(size) for axis in AXES}

    def column(seconds: Number) -> Floats:
        whole = isinstance(seconds, np.ndarray) and seconds.shape == (size,)
        return np.asarray(seconds) if whole else np.full(size, seconds)

    axes = communication(_step_context(group, compute), _parts(group, compute.step, local))
    amax_s = _amax_s(group, compute.step)
    if amax_s is not None:
        axes["data"] = axes["data"] + fully_exposed(amax_s)
    exposed = {f"{axis}_exposed_s": column(found.exposed_s) for axis, found in axes.items()}
    sent_s = sum((exposed[f"{axis}_exposed_s"] for axis in MODEL_AXES), np.zeros(size))
    exposed["pipeline_bubble_s"] = pipeline_bubble_s(group, compute, sent_s / group.num_microbatches)
    exposed["contention_s"] = sum((column(found.slowdown_s) for found in axes.values()), np.zeros(size))
    exposed = {name: exposed[name] for name in EXPOSED_TERMS if name in exposed}
    return exposed, {axis: column(found.link_s) for axis, found in axes.items()}


def _step_context(group: Jobs, compute: ComputeCosts) -> StepContext:
    return StepContext(
        layout=group.layout,
        cluster=as_seen(group.cluster, group.stack),
        policy=group.precision,
        times=_pass_times(compute),
        traffic=traffic_of(group.workload.graph),
        micro_batch_size=group.micro_batch_size,
        rounds=group.num_microbatches,
        stage_layers=float(compute.shares.layers.max()),
        stack=group.stack,
    )


def shared_and_bubble_s(group: Jobs) -> tuple[Floats, Floats]:
    """Of the terms of `price`, a part that takes little work; shape (C,) each.

    Returns:
        Seconds of the kernels and of what tensor, context and expert ranks exchange, which no sharding or
        schedule changes; and the pipeline's bubble.
    """
    compute = compute_costs(_lowered(group), group, kernel_model_of(group))
    sent_s = np.zeros(len(group))
    if group.cluster.num_devices > 1:
        for found in model_communication(_step_context(group, compute)).values():
            sent_s = sent_s + found.exposed_s
    kernels_s = reduce(np.add, (compute.terms[name] for name in KERNEL_TERMS))
    bubble_s = pipeline_bubble_s(group, compute, sent_s / group.num_microbatches)
    return kernels_s + sent_s, bubble_s


def pipeline_bubble_s(group: Jobs, compute: ComputeCosts, sent_s: Floats) -> Floats:
    """Idle seconds of the slowest stage per optimizer step, shape (C,).

    The slowest stage works its micro batches and waits while one passes through the others: the bubble
    of the schedule's formula, at the mean time of the other stages.

    References: Narayanan et al., SC 2021 (1F1B, interleaved); Huang et al., GPipe, NeurIPS 2019; Qi et al.,
    Zero Bubble Pipeline Parallelism, ICLR 2024.

    Args:
        group: C jobs: stages, chunks, schedule, micro batches.
        compute: Stage times of one micro batch.
        sent_s: Exposed messages of one micro batch on the stage with the most layers, shape (C,).
    """
    layout = group.layout
    if layout.pp == 1:
        return np.zeros(len(sent_s))
    shares = compute.shares
    sent = sent_s[:, None] * shares.layers / max(float(shares.layers.max()), 1.0)
    stage_s = compute.stage_forward_s + compute.stage_backward_s + sent
    slowest = first_slowest(stage_s)
    others: Floats = stage_s @ shares.stages - stage_s[np.arange(len(sent_s)), slowest]
    backward = (compute.stage_backward_s @ shares.stages) / (
        (compute.stage_forward_s + compute.stage_backward_s) @ shares.stages
    )
    other_s = others / (layout.pp - 1)
    times = StageTimes(forward_s=other_s * (1.0 - backward), backward_s=other_s * backward)
    schedule = schedule_of(layout.schedule)
    return np.maximum(schedule.bubble_s(layout.pp, layout.vpp, group.num_microbatches, times), 0.0)


def _amax_s(group: Jobs, step: LoweredStep) -> Number | None:
    """All-reduces of the maxima that narrow types are scaled by, over all ranks that share activations."""
    exchange = amax_exchange(step, group.precision)
    if not (exchange.per_micro_batch or exchange.per_step):
        return None
    rounds = exchange.per_micro_batch * group.num_microbatches + exchange.per_step
    cluster, layout = group.cluster, group.layout
    ranks = group_of(layout.tp * layout.cp * layout.dp, 1, cluster)
    once = min_time_s(lines_of(ranks, all_reduce_lines), exchange.bytes_each)
    return float(np.asarray(once)) * rounds


def _pass_times(compute: ComputeCosts) -> PassTimes:
    """One micro batch, the recomputation spread evenly over the backward pass."""
    backward_s = compute.backward_s + compute.recompute_s
    kernels_s = compute.kernels_s[:, int(np.searchsorted(compute.step.phase, 1)) :]
    stretch = backward_s / np.maximum(compute.backward_s, _TINY_S)
    return PassTimes(
        forward_s=compute.forward_s,
        backward_s=backward_s,
        backward_kernel_s=kernels_s * stretch[:, None],
    )


def _parts(group: Jobs, step: LoweredStep, local: LocalParameters) -> tuple[ParameterPart, ...]:
    """Parameters by the ranks that average them: the experts apart where they have ranks of their own."""
    layout, policy = group.layout, group.precision
    sizes = {"dense": (local.dense, local.dense_total), "experts": (local.experts, local.experts_total)}
    if not local.experts or layout.expert_data_ranks == layout.data_ranks:
        sizes = {"all": (local.dense + local.experts, local.dense_total + local.experts_total)}
    whole = local.dense_total * layout.tp
    whole += local.experts_total * layout.ep * layout.tensor_degree_of_experts
    # Frozen parameters are gathered too, though they have no gradients.
    per_elem = gathered_bytes(group.workload.graph, policy) / max(whole, 1.0)
    return tuple(
        ParameterPart(
            params=elements,
            gathered_bytes=elements * per_elem,
            schedule=_schedule(step, policy.reduce.num_bytes, layout.bucket_bytes, name),
            share=elements / max(total, 1.0),
        )
        for name, (elements, total) in sizes.items()
    )


@derived
def _wide_bytes(graph: OpGraph) -> tuple[float, float]:
    """Bytes that a micro batch moves in fp32, per sample and in all."""
    wide = lower(graph, get_policy("fp32"))
    repeats = wide.repeat * wide.sequential_steps
    return float((wide.bytes_per_sample * repeats).sum()), float((wide.bytes_fixed * repeats).sum())


@derived
def _schedule(step: LoweredStep, bytes_per_elem: float, bucket_bytes: float, part: str) -> GradientSchedule:
    """Gradient buckets of a device's kernels: of all of them, of the dense ones or of the experts."""
    backward = step.phase == 1
    wanted = {"all": np.ones_like(step.expert), "dense": ~step.expert, "experts": step.expert}[part]
    return gradient_schedule(
        (step.param_elems * wanted)[backward],
        step.repeat[backward],
        step.segment[backward],
        bytes_per_elem=bytes_per_elem,
        bucket_bytes=bucket_bytes,
    )
