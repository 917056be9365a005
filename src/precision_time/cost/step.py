"""The analytical step time: compute, optimizer and communication terms, assembled."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..precision.catalog import get_policy
from ..precision.lowering import lower
from ..precision.policy import PrecisionPolicy
from ..workload.workload import Workload
from .columns import JobColumns, columns_of
from .communication import CommunicationInputs, communication_terms
from .compute import ComputeCosts, compute_costs
from .job import Job
from .memory import memory_bytes, total_bytes
from .optimizer import OptimizerForm, optimizer_terms, optimizer_work
from .roofline import load_kernel_model

Floats = NDArray[np.float64]


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


def price(jobs: Sequence[Job]) -> tuple[JobColumns, StepCosts]:
    """Analytical costs of jobs that share one workload and one precision policy.

    Args:
        jobs: At least one; the first one's workload and policy are taken for all.
    """
    columns = columns_of(jobs)
    return columns, price_columns(jobs[0].workload, jobs[0].precision, columns)


def price_columns(workload: Workload, policy: PrecisionPolicy, columns: JobColumns) -> StepCosts:
    """Analytical costs of C configurations of one workload under one policy."""
    step = lower(workload.graph, policy)
    compute = compute_costs(step, columns, load_kernel_model())
    inputs = CommunicationInputs(workload=workload, policy=policy, step=step, compute=compute)
    exposed, link_s = communication_terms(inputs, columns)
    return StepCosts(
        terms={**compute.terms, **_optimizer_terms(workload, policy, columns), **exposed},
        exposed_names=frozenset(exposed),
        link_s=link_s,
        facts={**compute.facts, **_more_facts(workload, policy, columns, compute)},
    )


def pricing_key(job: Job) -> Hashable:
    """Equal for jobs that `price` may take together."""
    return (id(job.workload.graph), job.workload.optimizer, job.precision)


def _optimizer_terms(workload: Workload, policy: PrecisionPolicy, columns: JobColumns) -> dict[str, Floats]:
    """Update, unscale pass and host synchronisation, by the form of each configuration's optimizer."""
    graph = workload.graph
    parts = (columns.tp * columns.pp)[:, 0]
    fused = columns.fused_optimizer[:, 0] > 0
    named: dict[str, Floats] = {}
    for form, chosen in ((OptimizerForm.FUSED, fused), (OptimizerForm.FOREACH, ~fused)):
        work = optimizer_work(
            workload.optimizer,
            policy,
            params=graph.trainable_params / parts,
            tensors=graph.param_tensors / parts,
            form=form,
            shards=np.where(columns.zero_stage[:, 0] > 0, columns.dp[:, 0], 1.0),
        )
        seconds = optimizer_terms(
            work,
            memory_bytes_per_s=columns.rates.bandwidth[:, 0],
            launch_s=columns.launch_overhead_s[:, 0],
        )
        counted = chosen & (columns.with_optimizer[:, 0] > 0)
        for name, value in seconds.items():
            named[f"{name}_s"] = np.where(counted, value, named.get(f"{name}_s", np.zeros(len(columns))))
    return named


def _more_facts(
    workload: Workload, policy: PrecisionPolicy, columns: JobColumns, compute: ComputeCosts
) -> dict[str, Floats]:
    """Facts that need more than the kernels of one policy."""
    wide = lower(workload.graph, get_policy("fp32"))
    repeats = wide.repeat * wide.sequential_steps
    samples = columns.micro_batch_size[:, 0]
    wide_bytes = (wide.bytes_per_sample * repeats).sum() * samples + (wide.bytes_fixed * repeats).sum()
    needed = total_bytes(memory_bytes(workload, policy, columns))
    return {
        "kernels_s": compute.forward_s + compute.backward_s,
        "bandwidth_saving": 1.0 - compute.facts["bytes"] / np.maximum(wide_bytes, 1.0),
        "memory_fill": np.broadcast_to(needed / columns.memory_bytes[:, 0], (len(columns),)),
    }
