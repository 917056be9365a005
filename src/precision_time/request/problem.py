"""What a search keeps fixed while it varies the layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from uuid import uuid4

import numpy as np

from ..cost.job import Job, Jobs
from ..cost.memory import memory_of, needed_bytes
from ..cost.stacks import Stack, policy_under
from ..diagnostics import Diagnostic
from ..hardware.device import Cluster
from ..parallel.layout import Layout, Offload
from ..precision.policy import PrecisionPolicy
from ..workload.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Problem:
    """Workload, devices, precision, software and batch that a layout is sought for.

    Equal to its copies in other processes, which have its `token`.
    """

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy
    """Without sharding."""
    stack: Stack
    global_batch_size: int
    """Samples per optimizer step over all devices."""
    stragglers: bool = True
    """Allow for the slowest of many devices."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was filled in, and what to act on whatever the layout."""
    token: str = field(default_factory=lambda: uuid4().hex, repr=False)
    """Identifies the problem and its copies."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and other.token == self.token

    def __hash__(self) -> int:
        return hash(self.token)

    def here(self) -> Problem:
        """The first copy of this problem in this process.

        Every task in another process brings a new copy; what is cached for the first one serves all of them.
        """
        return _first_copy(self)

    def precision_under(self, layout: Layout) -> PrecisionPolicy:
        """The policy with the weights as the code holds them under the ZeRO stage of a layout."""
        return policy_under(self.precision, self.stack.profile, 0, layout.zero_stage)

    def job(self, layout: Layout) -> Job:
        """The job under one layout; all share their workload and cluster."""
        return Job(
            workload=self.workload,
            cluster=self.cluster,
            precision=self.precision_under(layout),
            layout=layout,
            stack=self.stack,
            stragglers=self.stragglers,
            diagnostics=self.diagnostics,
        )

    def group(self, layout: Layout, batches: Sequence[float] = ()) -> Jobs:
        """The same as a group.

        Args:
            layout: What all of the group have in common.
            batches: Micro batches of the group; that of the layout alone when there are none.
        """
        return Jobs.at(self.job(layout), batches)

    def needed_bytes(self, layout: Layout, batches: Sequence[float] = ()) -> tuple[float, ...]:
        """Bytes on the fullest device for each micro batch, as of `group`."""
        return tuple(needed_bytes(self.group(layout, batches)).tolist())

    def host_bytes(self, layout: Layout) -> float:
        """Bytes per device that a layout keeps in host memory: what it takes off the device."""
        held = memory_of(self.group(replace(layout, offload=Offload.NONE)))
        left = memory_of(self.group(layout))
        return sum(float(np.max(held[name]) - np.max(left[name])) for name in _ON_HOST)


_ON_HOST = ("parameters", "expert_parameters", "gradients", "master_weights", "optimizer_states")
"""Terms of memory that offloading moves to the host."""


@lru_cache(maxsize=8)
def _first_copy(problem: Problem) -> Problem:
    return problem
