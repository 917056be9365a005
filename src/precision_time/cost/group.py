"""Jobs that differ in their micro batch only: what is priced in one go."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from ..workload.workload import Workload
from .job import Job, Stack, TimingScope

Floats = NDArray[np.float64]


_SHARED_LAYOUT = attrgetter(*(item.name for item in fields(Layout) if item.name != "micro_batch_size"))


@dataclass(frozen=True, kw_only=True, slots=True)
class JobGroup:
    """C jobs that are equal but for the micro batch."""

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy
    layout: Layout
    """Of every job of the group; its micro batch is the first job's."""
    stack: Stack
    scope: TimingScope
    stragglers: bool = True
    micro_batch_size: Floats
    """Samples per forward pass and replica, shape (C,)."""

    def __len__(self) -> int:
        return len(self.micro_batch_size)


def group_of_jobs(jobs: Sequence[Job]) -> JobGroup:
    """The group of jobs with one `group_key`; the first one speaks for all."""
    first = jobs[0]
    return JobGroup(
        workload=first.workload,
        cluster=first.cluster,
        precision=first.precision,
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
        job.workload.optimizer,
        id(job.cluster),
        job.precision,
        _SHARED_LAYOUT(job.layout),
        job.stack,
        job.scope,
        job.stragglers,
    )
