"""A Job = Workload x Cluster x Precision x Layout x Stack: everything a step time depends on.

Jobs that differ in how their batch is cut up only are priced together, as a `JobGroup`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter

import numpy as np

from ..arrays import Floats, Number
from ..diagnostics import Diagnostic
from ..errors import LayoutError
from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from ..precision.support import on_device
from ..workload.workload import Workload

_SHARED_LAYOUT = attrgetter(*(item.name for item in fields(Layout) if item.name != "micro_batch_size"))


class TimingScope(StrEnum):
    """What a step time includes. A user who asks for a duration means `full-step`."""

    FULL_STEP = "full-step"  # forward, backward, optimizer; data already on the device or hidden
    WITH_INPUT = "with-input"  # plus the real input pipeline where it does not hide
    NO_OPTIMIZER = "no-optimizer"  # forward and backward only
    WITH_EVAL = "with-eval"  # evaluation spread over the steps
    EPOCH_AVERAGE = "epoch-average"  # epoch time / steps: start-up, stragglers, last batch
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """The software that runs the mathematics."""

    profile: str = "pytorch-eager"
    """Name of a profile in cost/data/stacks.toml."""
    framework: str = "pytorch"
    framework_year: float = 2022.0
    """When the framework version came out: kernels get faster with the years."""
    compiler: str = "none"
    """none, inductor, xla, cudagraphs, torchscript, graph (static-graph frameworks)."""
    channels_last: bool = False
    fused_optimizer: bool = False
    fused_attention: bool = True
    tuned_attention: bool = False
    """Fused attention written for the architecture (FlashAttention-3, cuDNN) instead of the portable one."""
    attention: str = ""
    """Kernel of fused attention (an entry of cost/data/kernels.toml) where it is known; else by the year."""
    unpadded_sequences: bool = False
    """Variable-length kernels skip padding tokens (MLPerf BERT)."""
    device_containers: bool = False
    """Every device is in a container of its own: collectives keep one TCP stream to a neighbor."""
    overlap_gradients: bool = True
    """Gradients are reduced during the backward pass, not after it."""
    overlap_parameters: bool = False
    """ZeRO 1 and 2: new parameters are gathered during the next forward pass."""
    overlap_tensor: bool = False
    """Messages of tensor parallelism are cut up and hidden behind the products (user buffers, async TP)."""
    overlap_experts: bool = False
    """Interleaved pipelines hide messages of the experts behind another micro batch (combined 1F1B)."""
    real_input: bool = False
    """A real input pipeline feeds the step, rather than tensors already in memory."""
    loader: str = ""
    """What decodes and augments the samples (cost/data/input.toml); empty where they are in memory."""
    loader_cores: float = 0.0
    """Cores of a node that do it; 0 for those of the node type."""
    fused_kernels: bool = False
    """Hand-written kernels join what stands between products: bias with GELU, dropout with the residual sum,
    norms with casts (Megatron, Transformer Engine)."""
    host_per_layer_s: float = 0.0
    """Host time per repeated layer and pass through it (forward, backward, recomputation) besides the
    kernels' launches: modules, hooks, views, random states."""
    host_per_tensor_s: float = 0.0
    """Host time per parameter tensor and step that the trainer adds and no kernel hides: hooks,
    statistics of gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One training configuration whose step time is wanted or was measured."""

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy
    """As asked; `runs` is what the device makes of it."""
    layout: Layout
    stack: Stack
    scope: TimingScope = TimingScope.FULL_STEP
    stragglers: bool = True
    """Allow for the slowest of many devices; off for what perfect machines would do."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was filled in because the request does not say it, and what to know of the job."""

    def __post_init__(self) -> None:
        if self.layout.world_size != self.cluster.num_devices:
            lay = self.layout
            raise LayoutError(
                f"Invalid layout: dp({lay.dp}) * tp({lay.tp}) * pp({lay.pp}) * cp({lay.cp}) = "
                f"{lay.world_size}, but the cluster has {self.cluster.num_devices} devices. "
                "To fix: make the product equal the number of devices."
            )

    @property
    def runs(self) -> PrecisionPolicy:
        """The precision that the device runs (`on_device`): what is priced, learned from and compared."""
        return on_device(self.precision, self.cluster.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobGroup:
    """C jobs that are equal but for their micro batches."""

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy
    """As the device runs it (`Job.runs`)."""
    layout: Layout
    """Of every job of the group; its micro batches are the first job's."""
    stack: Stack
    scope: TimingScope
    stragglers: bool = True
    micro_batch_size: Floats
    """Samples per forward pass and replica, shape (C,)."""
    counts: Floats | None = None
    """Micro batches of each job's step, shape (C,); None: as many as the layout says."""

    def __len__(self) -> int:
        return len(self.micro_batch_size)

    @property
    def num_micro_batches(self) -> Number:
        """Forward passes per optimizer step and replica, () or (C,)."""
        return self.layout.num_micro_batches if self.counts is None else self.counts


def group_of_jobs(jobs: Sequence[Job]) -> JobGroup:
    """The group of jobs with one `group_key`; the first one speaks for all."""
    first = jobs[0]
    return JobGroup(
        workload=first.workload,
        cluster=first.cluster,
        precision=first.runs,
        layout=first.layout,
        stack=first.stack,
        scope=first.scope,
        stragglers=first.stragglers,
        micro_batch_size=np.array([job.layout.micro_batch_size for job in jobs], dtype=np.float64),
    )


def group_key(job: Job) -> Hashable:
    """Equal for jobs that may share a group; graphs and clusters are equal when they are the same object."""
    return (
        id(job.workload.graph),
        id(job.workload.largest),
        job.workload.method,
        job.workload.optimizer,
        id(job.cluster),
        job.runs,
        _SHARED_LAYOUT(job.layout),
        job.stack,
        job.scope,
        job.stragglers,
    )
