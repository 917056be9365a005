"""The analytical step time: compute, optimizer and communication terms, assembled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from ..parallel.layout import Offload
from ..precision.catalog import get_policy
from ..precision.lowered import LoweredStep
from ..precision.lowering import lower
from ..precision.quantization import amax_exchange, gathered_bytes
from .axes import group_of, lines_of
from .collectives import all_reduce_lines, fastest_s
from .communication import MODEL_AXES, ParameterPart, StepTimes, communication
from .compute import ComputeCosts, compute_costs
from .group import JobGroup
from .held import HeldParameters, held_parameters
from .job import Stack, TimingScope
from .memory import memory_of, total_bytes
from .offload import offload_s
from .optimizer import OptimizerForm, optimizer_terms, optimizer_work
from .overlap import GradientSchedule, gradient_schedule
from .pipeline import pipeline_bubble_s
from .roofline import kernel_model_of
from .stragglers import straggler_share
from .traffic import traffic_of

Floats = NDArray[np.float64]

EXPOSED = (
    "data_exposed",
    "tensor_exposed",
    "pipeline_exposed",
    "context_exposed",
    "expert_exposed",
    "pipeline_bubble",
    "contention",
)
"""Communication terms: what each parallel axis adds to a step."""
_FOREACH_YEAR = 2022.5
"""PyTorch 1.12 made the multi-tensor form of its optimizers the default on GPUs."""
_TINY_S = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCosts:
    """Analytical seconds of C jobs; every array has shape (C,)."""

    terms: Mapping[str, Floats]
    """Named seconds that add up to the step time."""
    exposed_names: frozenset[str]
    """Terms that are communication the computation does not hide."""
    link_s: Floats
    """Communication on the wire, hidden or not."""
    facts: Mapping[str, Floats]
    """Work, traffic and shares that the learned stages read."""

    @property
    def step_time_s(self) -> Floats:
        """Sum of the terms."""
        return reduce(np.add, self.terms.values())

    @property
    def compute_s(self) -> Floats:
        """Sum of the terms that are not exposed communication."""
        return reduce(np.add, (s for name, s in self.terms.items() if name not in self.exposed_names))


def price(group: JobGroup) -> StepCosts:
    """Analytical costs of the jobs of a group."""
    step = lower(group.workload.graph, group.precision, group.cluster.device.arch)
    compute = compute_costs(step, group, kernel_model_of(group))
    held = held_parameters(compute)
    exposed, link_s = _communication_terms(group, compute, held)
    # While the device waits for the network the host catches up: a step is max(host, kernels + exposed).
    waits_s = reduce(np.add, exposed.values()) - exposed["pipeline_bubble_s"]
    stall_s = np.maximum(compute.terms["host_stall_s"] - waits_s, 0.0)
    terms = {**compute.terms, "host_stall_s": stall_s, **_optimizer_terms(group, held), **exposed}
    terms["straggler_s"] = _straggler_s(group, terms)
    return StepCosts(
        terms=terms,
        exposed_names=frozenset({*exposed, "straggler_s"}),
        link_s=link_s,
        facts={**compute.facts, **_more_facts(group, compute)},
    )


def _straggler_s(group: JobGroup, terms: Mapping[str, Floats]) -> Floats:
    """What the slowest of many devices costs those that wait for it."""
    layout, cluster = group.layout, group.cluster
    if not group.stragglers or layout.data_parallel_engine == "none":
        return np.zeros(len(group))
    share = straggler_share(cluster.num_devices, cluster.num_nodes)
    total: Floats = reduce(np.add, terms.values())
    return share * total


def _optimizer_terms(group: JobGroup, held: HeldParameters) -> dict[str, Floats]:
    """Update, unscale pass, host synchronisation, transfers to the host, the trainer's time per tensor."""
    layout, device, graph = group.layout, group.cluster.device, group.workload.graph
    tensors = graph.param_tensors * held.tensor_share
    sharded = layout.zero_stage > 0
    local = held.dense / (layout.shard_ranks if sharded else 1)
    local += held.experts / (layout.expert_data_ranks if sharded else 1)
    counted = 0.0 if group.scope is TimingScope.NO_OPTIMIZER else 1.0
    trainer_s = group.stack.host_per_tensor_s * tensors
    named = {"trainer_s": trainer_s, "offload_s": 0.0}
    if layout.offload is Offload.NONE:
        work = optimizer_work(
            group.workload.optimizer,
            group.precision,
            params=local,
            tensors=tensors,
            form=_optimizer_form(group.stack),
        )
        seconds = optimizer_terms(
            work,
            memory_bytes_per_s=device.memory_bandwidth_bytes_per_s,
            launch_s=device.launch_overhead_s,
        )
        named |= {f"{name}_s": float(value) * counted for name, value in seconds.items()}
    else:
        named |= {"optimizer_s": 0.0, "unscale_s": 0.0, "host_sync_s": 0.0}
        named["offload_s"] = offload_s(layout, device, group.precision, params=local) * counted
    return {name: np.full(len(group), value) for name, value in named.items()}


def _optimizer_form(stack: Stack) -> OptimizerForm:
    """How the stack runs the update: PyTorch went tensor by tensor until 1.12."""
    if stack.fused_optimizer:
        return OptimizerForm.FUSED
    if stack.framework == "pytorch" and stack.framework_year < _FOREACH_YEAR:
        return OptimizerForm.FOR_LOOP
    return OptimizerForm.FOREACH


def _communication_terms(
    group: JobGroup, compute: ComputeCosts, held: HeldParameters
) -> tuple[dict[str, Floats], Floats]:
    """Exposed seconds by axis, and seconds on the wire."""
    size, layout = len(group), group.layout
    if group.cluster.num_devices == 1:
        return {f"{name}_s": np.zeros(size) for name in EXPOSED}, np.zeros(size)
    found = communication(
        layout,
        group.cluster,
        group.precision,
        parts=_parts(group, compute.step, held),
        times=_step_times(compute),
        traffic=traffic_of(group.workload.graph),
        layers=float(compute.shares.layers.max()),
        micro_batch_size=group.micro_batch_size,
        stack=group.stack,
    )
    wide = {
        name: np.broadcast_to(np.asarray(value, dtype=np.float64), (size,)) for name, value in found.items()
    }
    amax_s = _amax_s(group, compute.step)
    wide |= {name: wide[name] + amax_s for name in ("data_link_s", "data_exposed_s")}
    sent_s = sum((wide[f"{axis}_exposed_s"] for axis in MODEL_AXES), np.zeros(size))
    sent_s = sent_s / layout.num_micro_batches
    wide["pipeline_bubble_s"] = pipeline_bubble_s(layout, compute, sent_s)
    exposed = {f"{name}_s": wide[f"{name}_s"] for name in EXPOSED}
    link_s: Floats = np.sum([value for name, value in wide.items() if name.endswith("_link_s")], axis=0)
    return exposed, link_s


def _amax_s(group: JobGroup, step: LoweredStep) -> float:
    """All-reduces of the maxima that narrow types are scaled by, over all ranks that share activations."""
    exchange = amax_exchange(step, group.precision)
    rounds = exchange.per_micro_batch * group.layout.num_micro_batches + exchange.per_step
    if not rounds:
        return 0.0
    cluster, layout = group.cluster, group.layout
    ranks = group_of(layout.tp * layout.cp * layout.dp, 1, cluster)
    once = fastest_s(lines_of(ranks, all_reduce_lines), exchange.bytes_each)
    return float(np.asarray(once)) * rounds


def _step_times(compute: ComputeCosts) -> StepTimes:
    """One micro batch, the recomputation spread evenly over the backward pass."""
    backward_s = compute.backward_s + compute.recompute_s
    kernels_s = compute.kernels_s[:, compute.step.phase == 1]
    stretch = backward_s / np.maximum(compute.backward_s, _TINY_S)
    return StepTimes(
        forward_s=compute.forward_s,
        backward_s=backward_s,
        backward_kernel_s=kernels_s * stretch[:, None],
    )


def _parts(group: JobGroup, step: LoweredStep, held: HeldParameters) -> tuple[ParameterPart, ...]:
    """Parameters by the ranks that average them: the experts apart where they have ranks of their own."""
    layout, policy = group.layout, group.precision
    sizes = {"dense": (held.dense, held.dense_total), "experts": (held.experts, held.experts_total)}
    if not held.experts or layout.expert_data_ranks == layout.data_ranks:
        sizes = {"all": (held.dense + held.experts, held.dense_total + held.experts_total)}
    whole = held.dense_total * layout.tp
    whole += held.experts_total * layout.ep * layout.tensor_degree_of_experts
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


def _more_facts(group: JobGroup, compute: ComputeCosts) -> dict[str, Floats]:
    """Facts that need more than the kernels of one policy."""
    wide = lower(group.workload.graph, get_policy("fp32"))
    repeats = wide.repeat * wide.sequential_steps
    moving, fixed = (wide.bytes_per_sample * repeats).sum(), (wide.bytes_fixed * repeats).sum()
    needed = total_bytes(memory_of(group))
    return {
        "kernels_s": compute.busy_s,
        "bandwidth_saving": 1.0 - compute.facts["bytes"] / (moving * group.micro_batch_size + fixed + 1.0),
        "memory_fill": np.broadcast_to(needed / group.cluster.device.memory_bytes, (len(group),)),
    }


@lru_cache(maxsize=512)
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
