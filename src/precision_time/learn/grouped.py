"""Step times of groups of jobs that differ in the micro batch alone: `serving.bounded_times` by arrays.

What `serving` does for a list of jobs, one object each, is done here for a job and an array of micro batches. The
figures are those of `serving` (tests/predict/test_sweep.py); a job of a sweep costs some tens of microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Indices
from ..cost.job import Job, group_key, group_of_jobs
from ..cost.step import StepCosts, price
from ..precision.lowering import lower
from .artifact import TrainedPredictor
from .serving import _FILL, _MEASURED, _fewer, _on_host, _smaller, _transferred, on_reference
from .stages import Corrected
from .table import JobTable, group_table

_PIECE = 2**17
"""Kernels times micro batches that are priced together: arrays of a megabyte."""
_ROWS = 4096
"""Rows whose features go through the trees together."""
_MOST_KNOWN = 1024
_KNOWN: dict[Hashable, tuple[Floats, Job, TrainedPredictor]] = {}
"""What was found of jobs on fewer devices; job and predictor are kept, as keys name them by where they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupTimes:
    """Predicted seconds of n jobs that differ in the micro batch alone, shape (n,) each."""

    step_time_s: Floats
    low_s: Floats
    high_s: Floats
    compute_s: Floats
    analytical_s: Floats
    novelty: Floats
    """Distance to the nearest measured run by kind, shape (n, kinds)."""
    terms: Mapping[str, Floats]
    """Of the cost model."""


class _Sizes(NamedTuple):
    """Micro batches and the smaller ones that bound them."""

    all: Floats
    """Each once, ascending, shape (m,)."""
    own: Indices
    """Where each job's own stands, shape (n,)."""
    chains: Indices
    """Where each job's own and smaller ones stand, job after job."""
    starts: Indices
    """Where each job begins in `chains`, shape (n,)."""

    def longest(self, seconds: Floats) -> Floats:
        """The longest of each job's, shape (n,)."""
        longest: Floats = np.maximum.reduceat(seconds[self.chains], self.starts)
        return longest


class _Priced(NamedTuple):
    """A job at all its sizes."""

    table: JobTable
    like: JobTable
    """The same as measured runs are."""
    terms: Mapping[str, Floats]


def grouped_times(
    groups: Sequence[tuple[Job, Floats]], predictor: TrainedPredictor, *, coverages: Sequence[float]
) -> list[GroupTimes]:
    """The step times of groups of jobs, as physics allows them; see `serving.bounded_times`.

    Args:
        groups: A job, and the micro batches that it is asked at.
        predictor: The trained predictor.
        coverages: Probability that the intervals of each group hold, 0..1.
    """
    sizes = [_sizes_of(micro) for _, micro in groups]
    priced = [_priced(job, each.all, predictor) for (job, _), each in zip(groups, sizes, strict=True)]
    corrected = _corrected(priced, predictor)
    new = [
        bool((found.novelty[each.own].max(axis=1) > _MEASURED).any())
        for found, each in zip(corrected, sizes, strict=True)
    ]
    references = [on_reference(job) for job, _ in groups]
    fewest = [_fewer(job) if is_new else [] for job, is_new in zip(references, new, strict=True)]
    hosts = [_on_host(job) if is_new else None for job, is_new in zip(references, new, strict=True)]
    known = _known(
        [
            (job, each)
            for jobs, host, each in zip(fewest, hosts, sizes, strict=True)
            for job in (*jobs, *((host,) if host is not None else ()))
        ],
        predictor,
    )
    times = []
    for index, (each, coverage) in enumerate(zip(sizes, coverages, strict=True)):
        below = [next(known) for _ in fewest[index]]
        host = None if hosts[index] is None else next(known)
        times.append(_bounded(priced[index], corrected[index], each, below, host, predictor, coverage))
    return times


def _bounded(
    priced: _Priced,
    corrected: Corrected,
    sizes: _Sizes,
    below: Sequence[Floats],
    host: Floats | None,
    predictor: TrainedPredictor,
    coverage: float,
) -> GroupTimes:
    own = sizes.own
    step_time_s, novelty = corrected.step_time_s[own], corrected.novelty[own]
    like, analytical_s = priced.like.take(own), priced.table.analytical_s[own]
    low, high = predictor.intervals.factors(like.features, novelty, coverage)
    new = novelty.max(axis=1, initial=0.0) > _MEASURED
    measured_s = step_time_s * like.analytical_s / analytical_s
    least_s = sizes.longest(corrected.step_time_s)
    fewer_s = np.where(new, _longest_of_fewer(below, like), 0.0)
    least_s = np.maximum(least_s, step_time_s * np.maximum(fewer_s / measured_s, 1.0))
    most_s = np.full(len(own), math.inf)
    if host is not None:
        seconds, host_s, filled, far = host
        longer = np.maximum(like.analytical_s / host_s, 1.0)
        known = new & (far <= _MEASURED) & (filled <= 1.0)
        most_s = np.where(known, seconds * longer, math.inf)
    raised_s = np.minimum(least_s, step_time_s * most_s / measured_s)
    factor = raised_s / step_time_s
    return GroupTimes(
        step_time_s=raised_s,
        low_s=step_time_s * low * factor,
        high_s=step_time_s * high * factor,
        compute_s=corrected.compute_s[own] * factor,
        analytical_s=analytical_s,
        novelty=novelty,
        terms={name: seconds[own] for name, seconds in priced.terms.items()},
    )


def _longest_of_fewer(below: Sequence[Floats], like: JobTable) -> Floats:
    """The least that jobs take by what the same takes on fewer devices; see `serving`.

    Args:
        below: What is known of the jobs on fewer devices, ascending, shape (4, n) each.
        like: Table of the jobs.
    """
    fill = np.maximum(like.features[:, like.names.index(_FILL)], 1.0)
    longest, most = np.zeros(len(fill)), np.full(len(fill), math.inf)
    for seconds, analytical_s, filled, novelty in reversed(below):
        fits = filled <= fill
        bound = np.where(fits, seconds * np.minimum(like.analytical_s / analytical_s, 1.0), 0.0)
        bound = np.minimum(bound, most)
        most = np.where(fits & (novelty <= _MEASURED), np.minimum(most, bound), most)
        longest = np.maximum(longest, bound)
    return longest


class _Answers:
    """Hands out what is known, in the order asked."""

    def __init__(self, found: Sequence[Floats]) -> None:
        self._found = iter(found)

    def __next__(self) -> Floats:
        return next(self._found)


def _known(asked: Sequence[tuple[Job, _Sizes]], predictor: TrainedPredictor) -> _Answers:
    """Step time with the smaller batches in mind, analytical one, how full the memory is, novelty; (4, n) each."""
    keys = [(id(predictor), group_key(job), each.all.tobytes(), each.own.tobytes()) for job, each in asked]
    found = {key: _KNOWN[key][0] for key in keys if key in _KNOWN}
    new = {key: one for key, one in zip(keys, asked, strict=True) if key not in found}
    priced = [_priced(job, each.all, predictor) for job, each in new.values()]
    for (key, (job, each)), one, corrected in zip(
        new.items(), priced, _corrected(priced, predictor), strict=True
    ):
        table = one.table.take(each.own)
        far = corrected.novelty[each.own].max(axis=1, initial=0.0)
        fill = table.features[:, table.names.index(_FILL)]
        found[key] = np.stack([each.longest(corrected.step_time_s), table.analytical_s, fill, far])
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = (found[key], job, predictor)
    return _Answers([found[key] for key in keys])


def _sizes_of(micro: Floats) -> _Sizes:
    chains = [(size, *_smaller(size)) for size in micro.tolist()]
    lengths = [len(chain) for chain in chains]
    flat = np.array([size for chain in chains for size in chain])
    sizes, places = np.unique(flat, return_inverse=True)
    starts = np.cumsum([0, *lengths[:-1]])
    places = places.reshape(-1)
    return _Sizes(all=sizes, own=places[starts], chains=places, starts=starts)


def _priced(job: Job, sizes: Floats, predictor: TrainedPredictor) -> _Priced:
    names = predictor.correction.names
    table, terms = _table_of(job, sizes)
    reference = on_reference(job)
    like = table if reference is job else _table_of(reference, sizes)[0]
    return _Priced(table=table, like=like.select(names), terms=terms)


def _table_of(job: Job, sizes: Floats) -> tuple[JobTable, Mapping[str, Floats]]:
    """The priced job; the same sizes are always cut into the same pieces, so that no last digit differs."""
    kernels = len(lower(job.workload.graph, job.precision, job.cluster.device.arch).op_class)
    rows = max(_PIECE // max(kernels, 1), 16)
    tables: list[JobTable] = []
    costs: list[StepCosts] = []
    for start in range(0, len(sizes), rows):
        group = replace(group_of_jobs([job]), micro_batch_size=sizes[start : start + rows])
        costs.append(price(group))
        tables.append(group_table(group, costs[-1]))
    terms = {name: np.concatenate([each.terms[name] for each in costs]) for name in costs[0].terms}
    return JobTable.together(tables), terms


def _corrected(priced: Sequence[_Priced], predictor: TrainedPredictor) -> list[Corrected]:
    """What the learned stages make of priced jobs; rows that are alike stand together."""
    if not priced:
        return []
    like = JobTable.together([each.like for each in priced])
    rows = len(like.analytical_s)
    parts = [
        predictor.correction.correct(like.take(slice(start, start + _ROWS)))
        for start in range(0, rows, _ROWS)
    ]
    ends = np.cumsum([len(each.table.analytical_s) for each in priced])
    found = []
    for each, end in zip(priced, ends.tolist(), strict=True):
        own = _taken(parts, end - len(each.table.analytical_s), end)
        found.append(own if each.like is each.table else _transferred(own, each.like, each.table))
    return found


def _taken(parts: Sequence[Corrected], start: int, end: int) -> Corrected:
    """Rows of several parts."""
    pieces = [
        (part, slice(max(start - at, 0), end - at))
        for part, at in zip(parts, range(0, len(parts) * _ROWS, _ROWS), strict=True)
        if start < at + _ROWS and end > at
    ]

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(part, name)[rows] for part, rows in pieces])

    return Corrected(
        compute_s=joined("compute_s"),
        exposed_s=joined("exposed_s"),
        step_time_s=joined("step_time_s"),
        novelty=joined("novelty"),
    )
