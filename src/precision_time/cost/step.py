"""The analytical step time: compute, optimizer and communication terms, assembled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..identity_cache import cache_by_identity
from ..precision.catalog import get_policy
from ..precision.lowered import LoweredStep
from ..precision.lowering import lower
from ..workload.graph import OpClass, OpGraph
from .collectives import Number
from .communication import StepTimes, communication
from .compute import ComputeCosts, compute_costs
from .group import JobGroup
from .job import Stack, TimingScope
from .memory import memory_terms, total_bytes
from .optimizer import OptimizerForm, optimizer_terms, optimizer_work
from .overlap import GradientSchedule, gradient_schedule
from .roofline import load_kernel_model
from .traffic import model_traffic

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
_SCORES = frozenset({OpClass.ATTENTION, OpClass.SOFTMAX, OpClass.BMM})


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
    step = lower(group.workload.graph, group.precision)
    compute = compute_costs(step, group, load_kernel_model())
    exposed, link_s = _communication_terms(group, step, compute)
    # While the device waits for the network the host catches up: a step is max(host, kernels + exposed).
    stall_s = np.maximum(compute.terms["host_stall_s"] - reduce(np.add, exposed.values()), 0.0)
    return StepCosts(
        terms={**compute.terms, "host_stall_s": stall_s, **_optimizer_terms(group), **exposed},
        exposed_names=frozenset(exposed),
        link_s=link_s,
        facts={**compute.facts, **_more_facts(group, compute)},
    )


def memory_of(group: JobGroup) -> dict[str, Number]:
    """Named bytes on the fullest device, for every job of the group."""
    graph, traffic = group.workload.graph, _traffic(group.workload.graph)
    return memory_terms(
        group.layout,
        group.precision,
        params=graph.params,
        trainable_params=graph.trainable_params,
        saved_elems=graph.saved_elems,
        optimizer=group.workload.optimizer,
        num_layers=float(traffic.num_layers),
        boundary_elems=float(traffic.boundary_elems),
        attention_saved_elems=_attention_saved_elems(graph),
        micro_batch_size=group.micro_batch_size,
    )


def _optimizer_terms(group: JobGroup) -> dict[str, Floats]:
    """Update, unscale pass, host synchronisation, and what the trainer does per tensor."""
    layout, device, graph = group.layout, group.cluster.device, group.workload.graph
    parts = layout.tp * layout.pp
    work = optimizer_work(
        group.workload.optimizer,
        group.precision,
        params=graph.trainable_params / parts,
        tensors=graph.param_tensors / parts,
        form=_optimizer_form(group.stack),
        shards=layout.dp if layout.zero_stage else 1,
    )
    seconds = optimizer_terms(
        work,
        memory_bytes_per_s=device.memory_bandwidth_bytes_per_s,
        launch_s=device.launch_overhead_s,
    )
    counted = 0.0 if group.scope is TimingScope.NO_OPTIMIZER else 1.0
    named = {f"{name}_s": np.full(len(group), float(value) * counted) for name, value in seconds.items()}
    trainer_s = group.stack.host_per_tensor_s * graph.param_tensors / parts
    return named | {"trainer_s": np.full(len(group), trainer_s)}


def _optimizer_form(stack: Stack) -> OptimizerForm:
    """How the stack runs the update: PyTorch went tensor by tensor until 1.12."""
    if stack.fused_optimizer:
        return OptimizerForm.FUSED
    if stack.framework == "pytorch" and stack.framework_year < _FOREACH_YEAR:
        return OptimizerForm.FOR_LOOP
    return OptimizerForm.FOREACH


def _communication_terms(
    group: JobGroup, step: LoweredStep, compute: ComputeCosts
) -> tuple[dict[str, Floats], Floats]:
    """Exposed seconds by axis, and seconds on the wire."""
    size = len(group)
    if group.cluster.num_devices == 1:
        return {f"{name}_s": np.zeros(size) for name in EXPOSED}, np.zeros(size)
    backward = step.phase == 1
    found = communication(
        group.layout,
        group.cluster,
        group.precision,
        params=group.workload.graph.trainable_params,
        schedule=_schedule(step, group.precision.reduce.num_bytes, group.layout.bucket_bytes),
        times=StepTimes(
            forward_s=compute.forward_s,
            backward_s=compute.backward_s,
            backward_kernel_s=compute.kernels_s[:, backward],
        ),
        traffic=_traffic(group.workload.graph),
        micro_batch_size=group.micro_batch_size,
    )
    wide = {
        name: np.broadcast_to(np.asarray(value, dtype=np.float64), (size,)) for name, value in found.items()
    }
    exposed = {f"{name}_s": wide[f"{name}_s"] for name in EXPOSED}
    link_s: Floats = np.sum([value for name, value in wide.items() if name.endswith("_link_s")], axis=0)
    return exposed, link_s


def _more_facts(group: JobGroup, compute: ComputeCosts) -> dict[str, Floats]:
    """Facts that need more than the kernels of one policy."""
    wide = lower(group.workload.graph, get_policy("fp32"))
    repeats = wide.repeat * wide.sequential_steps
    moving, fixed = (wide.bytes_per_sample * repeats).sum(), (wide.bytes_fixed * repeats).sum()
    needed = total_bytes(memory_of(group))
    return {
        "kernels_s": compute.forward_s + compute.backward_s,
        "bandwidth_saving": 1.0 - compute.facts["bytes"] / (moving * group.micro_batch_size + fixed + 1.0),
        "memory_fill": np.broadcast_to(needed / group.cluster.device.memory_bytes, (len(group),)),
    }


_traffic = cache_by_identity(model_traffic)


@cache_by_identity
def _attention_saved_elems(graph: OpGraph) -> float:
    """Saved elements that selective checkpointing recomputes, per sample."""
    return sum(node.saved_elems * node.repeat for node in graph.nodes if node.op_class in _SCORES)


@cache_by_identity
def _schedule(step: LoweredStep, bytes_per_elem: float, bucket_bytes: float) -> GradientSchedule:
    """Gradient buckets of a lowered step."""
    backward = step.phase == 1
    return gradient_schedule(
        step.param_elems[backward],
        step.repeat[backward],
        step.segment[backward],
        bytes_per_elem=bytes_per_elem,
        bucket_bytes=bucket_bytes,
    )
