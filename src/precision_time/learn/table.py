"""The table that predictors learn from: one row per measured job, features and analytical seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Indices, Ints, Number
from ..cache import memo
from ..cost.job import Job, Jobs, group_key
from ..cost.memory import memory_of_each
from ..cost.step import StepCosts, Work, costs_of, work_of, work_of_both
from ..errors import NotFittedError
from ..executor import in_chunks
from ..precision.support import as_bf16
from ..records import dataclass
from .features import INDICATORS, features_of

Floats = NDArray[np.float64]

JOB_ARRAYS = ("features", "analytical_s", "compute_s", "exposed_s", "least_s")
"""Fields of a JobTable with one row per job."""
_DIGITS = 9
_GROUPS = 256
"""Groups that are priced together: what is kept of them until then stays small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTable:
    """Features and analytical seconds of n jobs; arrays are in the order of the jobs given."""

    features: Floats
    """Shape (n, n_features), columns in the order of `names`; of a job on hardware that nobody measured,
    those of its proxy (`proxy_of`)."""
    names: tuple[str, ...]
    analytical_s: Floats
    """Step time of the cost model, shape (n,)."""
    compute_s: Floats
    """Its compute part (kernels, host, optimizer)."""
    exposed_s: Floats
    """Its communication part; compute_s + exposed_s = analytical_s."""
    least_s: Floats
    """Seconds below which the device's peak allows no step."""
    smaller: JobTable | None = None
    """The same jobs with a half, a quarter ... of the micro batch where those are not among the n, m rows;
    None where nobody asks."""
    halves: Ints | None = None
    """Of each job: its smaller ones, rows of `opened`, -1 for none, shape (n, most of them)."""
    every: JobTable | None = None
    """`opened`, where the rows lie in memory like that already."""

    def __len__(self) -> int:
        return len(self.analytical_s)

    def take(self, rows: Ints | slice) -> JobTable:
        """The table of some of the rows, with what is smaller of them."""
        arrays = {name: getattr(self, name)[rows] for name in JOB_ARRAYS}
        if self.smaller is None or self.halves is None:
            return replace(self, **arrays, every=None)
        count, chosen = len(self), np.arange(len(self))[rows]
        place = np.full(count + len(self.smaller) + 1, -1, dtype=np.intp)
        place[chosen] = np.arange(len(chosen))
        asked = np.flatnonzero(np.bincount(self.halves[chosen].ravel() + 1)[1:])  # np.unique loads numpy.ma
        left = asked[place[asked] < 0]
        place[left] = len(chosen) + np.arange(len(left))
        smaller = self.smaller.take(left[left >= count] - count)
        if len(own := left[left < count]):
            smaller = JobTable.together([self.alone().take(own), smaller])
        return replace(self, **arrays, smaller=smaller, halves=place[self.halves[chosen]], every=None)

    def alone(self) -> JobTable:
        """The table without what is smaller of its jobs."""
        return replace(self, smaller=None, halves=None, every=None)

    def twins(self) -> NDArray[np.int64]:
        """The first job with the same features, of each job, shape (n,): no predictor can tell them apart."""
        first: dict[bytes, int] = {}
        rows = np.ascontiguousarray(self.features)
        return np.array(
            [first.setdefault(row.tobytes(), place) for place, row in enumerate(rows)], dtype=np.int64
        )

    @classmethod
    def together(cls, tables: Sequence[JobTable]) -> JobTable:
        """Tables one after the other."""
        if len(tables) == 1:
            return tables[0]
        if not tables:
            none = np.zeros(0)
            seconds: dict[str, Any] = dict.fromkeys(JOB_ARRAYS[1:], none)
            return cls(features=np.zeros((0, 0)), names=(), **seconds)
        smaller = [table.smaller for table in tables if table.smaller is not None]
        parts = [*tables, *smaller]
        joined: Any = {name: np.concatenate([getattr(part, name) for part in parts]) for name in JOB_ARRAYS}
        every = cls(names=tables[0].names, **joined)
        if not smaller:
            return every
        width = max(0 if table.halves is None else table.halves.shape[1] for table in tables)
        halves = np.full((sum(map(len, tables)), width), -1, dtype=np.intp)
        start, first = 0, len(halves)
        for table in tables:
            if table.smaller is not None and table.halves is not None:
                rows = table.halves
                moved = np.where(rows < len(table), rows + start, rows - len(table) + first)
                halves[start : start + len(table), : rows.shape[1]] = np.where(rows >= 0, moved, -1)
                first += len(table.smaller)
            start += len(table)
        return every.with_smaller(halves)

    def with_smaller(self, halves: Ints) -> JobTable:
        """The first rows as jobs, with the others as what is smaller of them."""
        if not halves.shape[1]:
            return self
        own, rest = self.take(slice(len(halves))), self.take(slice(len(halves), None))
        return replace(own, smaller=rest, halves=halves, every=self)

    def select(self, names: tuple[str, ...]) -> JobTable:
        """The table with the columns that a predictor was trained with, by name and in its order.

        An indicator column that training never saw (a new stack, vendor, framework, compiler ...) is dropped:
        a job that has it is left with zeros in all columns of that kind, which is what trees make of an
        unknown one.

        Args:
            names: Columns of the trained predictor.

        Raises:
            NotFittedError: If a column is missing, or one that is not an indicator was not trained with.
        """
        if names == self.names:
            return self
        smaller = None if self.smaller is None else self.smaller.select(names)
        if not len(self.features):
            return replace(self, features=np.zeros((0, len(names))), names=names, smaller=smaller)
        columns = np.ascontiguousarray(self.features[:, _positions(self.names, names)])
        return replace(self, features=columns, names=names, smaller=smaller, every=None)

    def opened(self) -> JobTable:
        """The jobs, and after them the smaller ones, as rows of one table."""
        if self.smaller is None:
            return self
        return self.every or JobTable.together([self.alone(), self.smaller])

    def folded(self, step_time_s: Floats) -> Floats:
        """Step times of the jobs, none shorter than those of the smaller ones, shape (n,).

        Args:
            step_time_s: Of the rows of `opened`, shape (n + m,).
        """
        own = step_time_s[: len(self)]
        if self.halves is None:
            return own
        longest: Floats = np.maximum(own, np.append(step_time_s, 0.0)[self.halves].max(axis=1, initial=0.0))
        return longest

    def of_halves(self, values: Floats) -> Floats:
        """What is known of the jobs and does not depend on the batch, for the rows of `opened`."""
        if self.halves is None or self.smaller is None:
            return values
        whose = np.zeros(len(self.smaller), dtype=np.intp)
        rows, places = np.nonzero(self.halves >= len(self))
        whose[self.halves[rows, places] - len(self)] = rows
        return np.concatenate([values, values[whose]])


def _positions(found: tuple[str, ...], trained: tuple[str, ...]) -> NDArray[np.intp]:
    """Where the trained columns are among those found."""
    at, known = {name: place for place, name in enumerate(found)}, set(trained)
    missing = [name for name in trained if name not in at]
    unknown = [name for name in found if name not in known and not name.startswith(INDICATORS)]
    if missing or unknown:
        differences = [f"{len(missing)} missing ({', '.join(missing[:5])})"] * bool(missing)
        differences += [f"{len(unknown)} unknown ({', '.join(unknown[:5])})"] * bool(unknown)
        raise NotFittedError(
            f"The predictor was trained with other feature columns than this version computes: "
            f"{'; '.join(differences)}. Only indicators ({', '.join(INDICATORS)}) may be new. "
            "To fix: run `precision-time train`."
        )
    return np.array([at[name] for name in trained], dtype=np.intp)


def job_table(jobs: Sequence[Job], progress: Callable[[int], None] | None = None) -> JobTable:
    """Features and analytical seconds of `jobs`; those that differ in the micro batch only go together.

    Args:
        jobs: Any jobs.
        progress: Called with the number of jobs done after some groups.
    """
    groups = groups_of(jobs)
    tables: list[JobTable] = []
    for some in in_chunks(groups, _GROUPS):
        tables.append(priced_groups([Jobs.alike([jobs[index] for index in group]) for group in some])[1])
        if progress:
            progress(len(tables[-1]))
    if not tables:
        return JobTable.together(tables)
    return JobTable.together(tables).take(np.argsort(np.concatenate(groups)))


def groups_of(jobs: Sequence[Job]) -> list[list[int]]:
    """Positions of the jobs that are priced together; groups that share a graph follow each other.

    What is worked out for a graph, and for it in one precision and on one device, is kept only so long.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        groups[group_key(job)].append(index)
    seen: dict[Hashable, int] = {}

    def place(members: list[int]) -> tuple[int, ...]:
        job = jobs[members[0]]
        keys = (id(job.workload.graph), job.precision, id(job.cluster.device), job.stack)
        return tuple(seen.setdefault(key, len(seen)) for key in keys)

    return sorted(groups.values(), key=place)


def priced_groups(groups: Sequence[Jobs]) -> tuple[StepCosts, JobTable, Indices]:
    """Costs of groups, their table, and which rows of the costs are those of the table.

    The one place where features are made. After the costs of a group's jobs come the smaller ones'.

    Args:
        groups: Each of jobs that differ in how their batch is cut up alone.
    """
    opened = [_with_smaller(group) for group in groups]
    every = [group for group, _ in opened]
    memory = memory_of_each(every)
    shared, works, known = zip(*map(_worked, every, memory), strict=True)
    jobs = Jobs.together(every)
    costs = costs_of(jobs, works)
    learned = costs
    if any(one is not other for one, other in zip(shared, jobs.shared, strict=True)):
        jobs = replace(jobs, shared=shared)
        learned = costs_of(jobs, known)
    names, features = features_of(jobs, learned)
    # The jobs, and after them the smaller ones.
    smaller = [np.arange(len(each)) >= len(group) for group, each in zip(groups, every, strict=True)]
    order = np.argsort(np.concatenate(smaller), kind="stable")
    table = JobTable(
        names=names,
        features=features[order].round(_DIGITS),  # trees may split at the last digits
        analytical_s=costs.step_time_s[order],
        compute_s=costs.compute_s[order],
        exposed_s=(costs.step_time_s - costs.compute_s)[order],
        least_s=costs.least_s[order],
    )
    own = order[: sum(map(len, groups))]
    halves = np.full((len(own), max(its.shape[1] for _, its in opened)), -1, dtype=np.intp)
    row = start = 0
    for group, (each, its) in zip(groups, opened, strict=True):
        halves[row : row + len(group), : its.shape[1]] = np.where(its >= 0, its + start, -1)
        row, start = row + len(group), start + len(each)
    return costs, table.with_smaller(np.append(np.argsort(order), -1)[halves]), own


def _with_smaller(group: Jobs) -> tuple[Jobs, Ints]:
    """A group with the smaller ones of its jobs after them, and where those are (`with_halves`)."""
    given = zip(group.micro_batch_size.tolist(), group.num_microbatches.tolist(), strict=True)
    batches, halves = with_halves(tuple(given))
    if len(batches) == len(group):
        return group, halves
    return Jobs.at(group.shared[0], *zip(*batches, strict=True)), halves


def _worked(group: Jobs, memory: Mapping[str, Number]) -> tuple[Job, Work, Work]:
    """The job that answers for a group (`proxy_of`), the group's work, and that job's."""
    [job] = group.shared
    # The features of fp16 are those of bf16 where a device multiplies both at one rate: loss scaling and
    # casts are priced, and trees have no more to say of them.
    proxy = proxy_of(job)
    if (precision := as_bf16(proxy.precision, proxy.cluster.device)) != proxy.precision:
        proxy = replace(proxy, precision=precision)
    if proxy is job:
        work = work_of(group, memory)
        return job, work, work
    learned = replace(group, shared=(proxy,))
    if proxy.cluster is job.cluster:
        return proxy, *work_of_both(group, learned, memory)
    return proxy, work_of(group, memory), work_of(learned)


def proxy_of(job: Job) -> Job:
    """The job that answers for one on hardware that nobody measured: on the device most like its own.

    With stragglers, as measured runs have them. Itself where it is so already.

    What was learned is read off the proxy; the seconds that it corrects are the job's own, so that physics
    alone decides what a faster link or memory is worth.
    """
    cluster = job.cluster.reference
    if cluster is None:
        return job if job.stragglers else replace(job, stragglers=True)
    return replace(job, cluster=cluster, stragglers=True)


@memo(1024)
def with_halves(batches: tuple[tuple[float, float], ...]) -> tuple[tuple[tuple[float, float], ...], Ints]:
    """Micro batches followed by smaller ones that are not among them, each once.

    Halves, quarters ... as long as those are whole, and 1, 2, 3, 4, 6, 8, 12 ... below it: without these most
    batches would be a multiple of none. Each with the number of micro batches of a step, which they have too.

    Returns:
        All of them; and of each given one its smaller ones among all, -1 where there are no more, shape
        (n, most of them).

    >>> batches, halves = with_halves(((12.0, 1), (2.0, 1)))
    >>> [size for size, _ in batches], halves.tolist()
    ([12.0, 2.0, 8.0, 6.0, 4.0, 3.0, 1.0], [[2, 3, 4, 5, 1, 6], [6, -1, -1, -1, -1, -1]])
    """
    chains: list[list[tuple[float, float]]] = []
    for size, count in batches:
        smaller: set[float] = set()
        half, power = size / 2.0, 1.0
        while half >= 1.0 and half.is_integer():
            smaller.add(half)
            half /= 2.0
        while power < size:
            smaller |= {power, 1.5 * power} if power > 1.0 else {power}
            power *= 2.0
        chains.append([(part, count) for part in sorted(smaller, reverse=True) if part < size])
    every = dict.fromkeys(batches)
    rest = dict.fromkeys(pair for each in chains for pair in each if pair not in every)
    places = {pair: len(batches) + place for place, pair in enumerate(rest)}
    places |= {pair: place for place, pair in enumerate(batches)}
    halves = np.full((len(batches), max(map(len, chains), default=0)), -1, dtype=np.intp)
    for row, chain in enumerate(chains):
        halves[row, : len(chain)] = [places[pair] for pair in chain]
    return (*batches, *rest), halves
