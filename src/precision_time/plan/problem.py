"""What a search keeps fixed while it varies the layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import numpy as np

from ..cost.group import JobGroup, group_of_jobs
from ..cost.job import Job, Stack
from ..cost.memory import memory_of, total_bytes
from ..diagnostics import Diagnostic
from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from ..workload.workload import Workload

_HERE: dict[str, Problem] = {}
"""The first copy of each problem in this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Workload, devices, precision, software and batch that a layout is sought for."""

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy
    stack: Stack
    global_batch_size: int
    """Samples per optimizer step over all devices."""
    stragglers: bool = True
    """Allow for the slowest of many devices."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was filled in, and what to act on whatever the layout."""
    token: str = field(default_factory=lambda: uuid4().hex, compare=False, repr=False)
    """Tells copies of one problem in other processes from other problems."""

    def here(self) -> Problem:
        """The one copy of this problem in this process.

        A task in another process brings a copy of its own each time; caches go by identity.
        """
        return _HERE.setdefault(self.token, self)

    def job(self, layout: Layout) -> Job:
        """The job under one layout; all share their workload and cluster."""
        return Job(
            workload=self.workload,
            cluster=self.cluster,
            precision=self.precision,
            layout=layout,
            stack=self.stack,
            stragglers=self.stragglers,
            diagnostics=self.diagnostics,
        )

    def group(self, layout: Layout, batches: Sequence[float] = ()) -> JobGroup:
        """The same as a group.

        Args:
            layout: What all of the group have in common.
            batches: Micro batches of the group; that of the layout alone when there are none.
        """
        group = group_of_jobs([self.job(layout)])
        return replace(group, micro_batch_size=np.array(batches, dtype=np.float64)) if batches else group

    def needed_bytes(self, layout: Layout, batches: Sequence[float] = ()) -> tuple[float, ...]:
        """Bytes on the fullest device for each micro batch, as of `group`."""
        needed = total_bytes(memory_of(self.group(layout, batches)))
        return tuple(np.broadcast_to(needed, (max(len(batches), 1),)).tolist())
