"""The named terms that a step time is the sum of: one entry per term, read by all that list or show them.

A new term takes an entry here and the line of `compute`, `step` or `optimizer` that computes it. The
predictor then needs `precision-time train`, as the shares of the terms are features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..workload.graph import OpClass


class TermGroup(StrEnum):
    """What a term is the time of."""

    KERNELS = "kernels"
    HOST = "host"
    UPDATE = "update"
    EXPOSED = "exposed"
    """Communication that the computation does not hide, and waiting for other devices."""
    INPUT = "input"


class Pass(StrEnum):
    """Where in a step a term stands."""

    BOTH = "both"
    """In the forward and the backward pass by their shares of the kernels."""
    MIRRORED = "mirrored"
    """Half of it in the forward pass, half in the backward pass."""
    BACKWARD = "backward"
    END = "end"
    """After the last backward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTerm:
    """One term of a step time."""

    name: str
    title: str
    group: TermGroup
    op_classes: tuple[OpClass, ...] = ()
    """Kernels of these classes are counted in it."""
    stands: Pass = Pass.BOTH
    by_sharding: bool = False
    """Changes with the sharding stage, the number of micro batches or the pipeline schedule alone."""
    color: str = "#bab0ac"
    """In pictures of a step."""


def _kernels(name: str, title: str, *op_classes: OpClass) -> StepTerm:
    return StepTerm(name=name, title=title, group=TermGroup.KERNELS, op_classes=op_classes)


def _update(name: str, title: str, color: str = "#bab0ac") -> StepTerm:
    return StepTerm(
        name=name, title=title, group=TermGroup.UPDATE, stands=Pass.END, by_sharding=True, color=color
    )


def _exposed(
    name: str, title: str, color: str, stands: Pass = Pass.MIRRORED, *, by_sharding: bool = False
) -> StepTerm:
    return StepTerm(
        name=name, title=title, group=TermGroup.EXPOSED, stands=stands, by_sharding=by_sharding, color=color
    )


REST = "memory_bound_s"
"""Counts the kernels whose class no other term has."""
CASTS = "casts_s"
HOST_STALL = "host_stall_s"
TERMS = (
    _kernels("conv_s", "convolutions", OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV),
    _kernels("gemm_s", "matrix products", OpClass.GEMM),
    _kernels("rnn_s", "recurrent layers", OpClass.RNN),
    _kernels("attention_s", "attention", OpClass.ATTENTION, OpClass.BMM, OpClass.SOFTMAX),
    _kernels("norm_s", "norms", OpClass.NORM),
    _kernels("embedding_s", "embeddings and gathers", OpClass.EMBEDDING, OpClass.GATHER),
    _kernels(REST, "other memory-bound kernels"),
    _kernels(CASTS, "casts between types"),
    StepTerm(
        name="recompute_s",
        title="recomputation",
        group=TermGroup.KERNELS,
        stands=Pass.BACKWARD,
        color="#b6992d",
    ),
    StepTerm(
        name=HOST_STALL, title="waiting for the host", group=TermGroup.HOST, by_sharding=True, color="#79706e"
    ),
    _update("trainer_s", "the trainer's time per tensor"),
    _update("offload_s", "offloading"),
    _update("optimizer_s", "optimizer", "#edc948"),
    _update("unscale_s", "unscaling of gradients"),
    _update("host_sync_s", "overflow check"),
    _exposed("data_exposed_s", "data-parallel exchange", "#b07aa1", Pass.BOTH, by_sharding=True),
    _exposed("tensor_exposed_s", "tensor-parallel messages", "#e15759"),
    _exposed("pipeline_exposed_s", "pipeline messages", "#f28e2b", by_sharding=True),
    _exposed("context_exposed_s", "context-parallel messages", "#ff9d9a"),
    _exposed("expert_exposed_s", "expert all-to-all", "#d37295"),
    _exposed("pipeline_bubble_s", "pipeline bubble", "#e6e6e6", Pass.BOTH, by_sharding=True),
    _exposed("contention_s", "slowdown by hidden communication", "#86bcb6", Pass.BACKWARD, by_sharding=True),
    _exposed("straggler_s", "waiting for the slowest device", "#9d7660", Pass.END, by_sharding=True),
    StepTerm(name="data_stall_s", title="waiting for input data", group=TermGroup.INPUT, stands=Pass.END),
)
"""All terms, in the order in which they are summed and shown."""
TERM_OF_CLASS: Mapping[OpClass, str] = {op_class: term.name for term in TERMS for op_class in term.op_classes}


def names_of(*groups: TermGroup) -> tuple[str, ...]:
    """Names of the terms of some groups, in order."""
    return tuple(term.name for term in TERMS if term.group in groups)


KERNEL_TERMS = names_of(TermGroup.KERNELS)
COMPUTE_TERMS = names_of(TermGroup.KERNELS, TermGroup.HOST)
EXPOSED_TERMS = names_of(TermGroup.EXPOSED)
