"""A Job = Workload x Cluster x Precision x Layout x Stack: everything a step time depends on.

n jobs are a table, `Jobs`: those that differ only in how their batch is cut up are a group, priced together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import Literal

import numpy as np

from ..arrays import Floats, Indices
from ..diagnostics import FIELDS, Diagnostic, Severity
from ..errors import LayoutError
from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..parallel.space import VARIED
from ..precision.policy import PrecisionPolicy
from ..precision.support import on_device
from ..records import dataclass
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


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a field comes from."""

    kind: Literal["given", "assumed", "derived"]
    """Derived: follows from the others, or is what the field declares."""
    text: str = ""
    """What was assumed, and why; of a value that is given how it was read."""


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
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The fields of the request that were given."""

    def __post_init__(self) -> None:
        if self.layout.world_size != self.training_devices:
            lay = self.layout
            raise LayoutError(
                f"Invalid layout: dp({lay.dp}) * tp({lay.tp}) * pp({lay.pp}) * cp({lay.cp}) = "
                f"{lay.world_size}, but the cluster has {self.training_devices} devices"
                f"{' that train' * (self.training_devices < self.cluster.num_devices)}. "
                "To fix: make the product equal the number of devices."
            )

    @property
    def origin(self) -> Mapping[str, Origin]:
        """Where each field comes from, by name; and what was assumed of `layout`, `cluster`, `inventory` ...

        A layout that was chosen is the origin of every searched field that was not given.
        """
        found = defaultdict(lambda: Origin("derived"), {name: Origin("given") for name in self.given})
        for item in self.diagnostics:
            if item.severity is Severity.ASSUMPTION:
                names = [FIELDS.get(item.code, item.code)]
                if names == ["layout"]:
                    names += [name for name in (*sorted(VARIED), "batch_size") if name not in found]
                for name in names:
                    known = found.get(name, Origin("assumed"))
                    found[name] = Origin(known.kind, f"{known.text} {item.text}".strip())
        return found

    @property
    def layout_chosen(self) -> bool:
        """Whether the layout was searched, as the request leaves it open."""
        return "layout" in self.origin

    @property
    def training_devices(self) -> int:
        """Devices of the layout: all but those that only generate answers."""
        return self.cluster.num_devices - self.workload.generating_devices

    @property
    def training_cluster(self) -> Cluster:
        """The cluster without the devices that only generate answers."""
        cluster, devices = self.cluster, self.training_devices
        if devices == cluster.num_devices:
            return cluster
        return cluster.resized(num_nodes=-(-devices // int(cluster.devices_per_node)), num_devices=devices)

    @property
    def runs(self) -> PrecisionPolicy:
        """The precision that the device runs (`on_device`): what is priced, learned from and compared."""
        return on_device(self.precision, self.cluster.device)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Jobs:
    """n jobs as a table: what they share by group, the micro batches by row.

    The cost model prices tables of one group (`groups`), whose shared parts have the names of `Job`.
    """

    shared: tuple[Job, ...]
    """One job of each group, which speaks for all of it but the micro batches."""
    group: Indices
    """The group of each row, shape (n,)."""
    micro_batch_size: Floats
    """Samples per forward pass and replica, shape (n,)."""
    num_microbatches: Floats
    """Forward passes per optimizer step and replica, shape (n,)."""
    precision: PrecisionPolicy = field(init=False)
    """Of a table of one group, as the device runs it (`Job.runs`)."""

    def __post_init__(self) -> None:
        if self.shared:
            object.__setattr__(self, "precision", self.shared[0].runs)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Jobs:
        """Jobs in their order, a group each."""
        return cls(
            shared=tuple(jobs),
            group=np.arange(len(jobs)),
            micro_batch_size=np.array([job.layout.micro_batch_size for job in jobs], dtype=np.float64),
            num_microbatches=np.array([job.layout.num_microbatches for job in jobs], dtype=np.float64),
        )

    @classmethod
    def at(
        cls,
        job: Job,
        micro_batch_size: Sequence[float] | Floats = (),
        num_microbatches: Sequence[float] | Floats = (),
    ) -> Jobs:
        """One group: a job at n micro batches, its own where none are given, and as many of each a step.

        Args:
            job: Speaks for all of them.
            micro_batch_size: n sizes.
            num_microbatches: n numbers; the job's for all where none are given.
        """
        sizes = micro_batch_size if len(micro_batch_size) else (job.layout.micro_batch_size,)
        batches = np.array(sizes, dtype=np.float64)
        counts = num_microbatches if len(num_microbatches) else job.layout.num_microbatches
        return cls(
            shared=(job,),
            group=np.zeros(len(batches), dtype=np.intp),
            micro_batch_size=batches,
            num_microbatches=np.full(len(batches), counts, dtype=np.float64),
        )

    @classmethod
    def alike(cls, jobs: Sequence[Job]) -> Jobs:
        """One group: jobs with one `group_key`, of which the first speaks for all."""
        return cls.at(jobs[0], [job.layout.micro_batch_size for job in jobs])

    @classmethod
    def together(cls, tables: Sequence[Jobs]) -> Jobs:
        """Tables one after the other, each group its own."""
        if len(tables) == 1:
            return tables[0]
        starts = accumulate((len(table.shared) for table in tables), initial=0)
        groups = [table.group + start for table, start in zip(tables, starts, strict=False)]
        return cls(
            shared=tuple(job for table in tables for job in table.shared),
            group=np.concatenate([np.zeros(0, dtype=np.intp), *groups]),
            micro_batch_size=np.concatenate([np.zeros(0), *(table.micro_batch_size for table in tables)]),
            num_microbatches=np.concatenate([np.zeros(0), *(table.num_microbatches for table in tables)]),
        )

    def __len__(self) -> int:
        return len(self.micro_batch_size)

    def distinct(self) -> tuple[Jobs, Indices]:
        """Every job once, those of one `group_key` in one group; and where each row is among them."""
        if len(self) == 1:
            return self, self.group
        keys: dict[Hashable, int] = {}
        group_of = [keys.setdefault(group_key(job), len(keys)) for job in self.shared]
        if len(keys) == len(self.shared) and self._is_distinct():
            return self, np.arange(len(self))
        shared: dict[int, Job] = {}
        for number, job in zip(group_of, self.shared, strict=True):
            shared.setdefault(number, job)
        asked = np.array(group_of, dtype=np.intp)[self.group]
        seen: list[dict[tuple[float, float], int]] = [{} for _ in shared]
        batches = zip(self.micro_batch_size.tolist(), self.num_microbatches.tolist(), strict=True)
        pairs = zip(asked.tolist(), batches, strict=True)
        places = np.array([seen[number].setdefault(batch, len(seen[number])) for number, batch in pairs])
        starts = np.array([0, *accumulate(map(len, seen))][:-1], dtype=np.intp)
        columns = np.array([batch for batches in seen for batch in batches], dtype=np.float64).reshape(-1, 2)
        once = Jobs(
            shared=tuple(shared.values()),
            group=np.repeat(np.arange(len(seen)), [*map(len, seen)]),
            micro_batch_size=columns[:, 0].copy(),
            num_microbatches=columns[:, 1].copy(),
        )
        return once, starts[asked] + places

    def _is_distinct(self) -> bool:
        """Whether groups lie one after the other and none holds a batch twice."""
        order = np.lexsort((self.num_microbatches, self.micro_batch_size, self.group))
        columns = np.stack((self.group, self.micro_batch_size, self.num_microbatches))[:, order]
        twice = (columns[:, 1:] == columns[:, :-1]).all(axis=0).any()
        return bool((self.group[1:] >= self.group[:-1]).all() and not twice)

    def slices(self) -> list[slice]:
        """The rows of each group, of a table whose groups lie one after the other."""
        ends = np.cumsum(np.bincount(self.group, minlength=len(self.shared))).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def groups(self) -> Iterator[Jobs]:
        """The groups, each as a table, of a table whose groups lie one after the other."""
        for job, rows in zip(self.shared, self.slices(), strict=True):
            yield Jobs.at(job, self.micro_batch_size[rows], self.num_microbatches[rows])

    def row(self, index: int) -> Job:
        """One of the jobs."""
        job, size = self.shared[int(self.group[index])], float(self.micro_batch_size[index])
        count = int(self.num_microbatches[index])
        if (job.layout.micro_batch_size, job.layout.num_microbatches) == (size, count):
            return job
        layout = replace(job.layout, micro_batch_size=size, num_microbatches=count)
        return replace(job, layout=layout)

    @property
    def workload(self) -> Workload:
        """Of a table of one group, as what follows and `precision`."""
        return self.shared[0].workload

    @property
    def cluster(self) -> Cluster:
        """The devices."""
        return self.shared[0].cluster

    @property
    def layout(self) -> Layout:
        """Its micro batches are those of the job that speaks for all."""
        return self.shared[0].layout

    @property
    def stack(self) -> Stack:
        """The software."""
        return self.shared[0].stack

    @property
    def scope(self) -> TimingScope:
        """What a step includes."""
        return self.shared[0].scope

    @property
    def stragglers(self) -> bool:
        """Whether the slowest of many devices is allowed for."""
        return self.shared[0].stragglers


def of_groups(jobs: Jobs, value: Callable[[Job], float | tuple[float, ...]]) -> Floats:
    """A figure of what jobs share, at every row, shape (n,); of several a row each, shape (figures, n)."""
    return np.array([value(job) for job in jobs.shared], dtype=np.float64).T[..., jobs.group]


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
