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
from .stacks import Stack

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
