"""Step times of groups of jobs that differ in the micro batch alone: `serving.bounded_times` by arrays.

What `serving` does for a list of jobs, one object each, is done here for a job and an array of micro batches. The
figures are those of `serving` (tests/predict/test_sweep.py); a job of a sweep costs some tens of microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..arrays import Bools, Floats, Indices
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
    if not groups:
        return []
    sizes = [_sizes_of(micro) for _, micro in groups]
    priced = [_priced(job, each.all, predictor) for (job, _), each in zip(groups, sizes, strict=True)]
    corrected = _corrected(priced, predictor)
    own = [_own(*each) for each in zip(priced, corrected, sizes, strict=True)]
    low, high = predictor.intervals.factors(
        np.concatenate([each.like.features for each in own]),
        np.concatenate([each.novelty for each in own]),
        np.repeat(np.array(coverages), [len(each.step_time_s) for each in own]),
    )
    bounding: list[list[Job]] = []
    hosts: list[bool] = []
    for (job, _), each in zip(groups, own, strict=True):
        reference = on_reference(job)
        host = _on_host(reference) if each.is_new.any() else None
        hosts.append(host is not None)
        fewer = _fewer(reference) if each.is_new.any() else []
        bounding.append(fewer if host is None else [*fewer, host])
    known = _known(
        [(job, each) for jobs, each in zip(bounding, sizes, strict=True) for job in jobs], predictor
    )
    times, start = [], 0
    for index, each in enumerate(own):
        end = start + len(each.step_time_s)
        found = [next(known) for _ in bounding[index]]
        of_host = found.pop() if hosts[index] else None
        longest_s = sizes[index].longest(corrected[index].step_time_s)
        factor = _bounds(each, longest_s, found, of_host) / each.step_time_s
        step_time_s = each.step_time_s * factor
        times.append(
            GroupTimes(
                step_time_s=step_time_s,
                low_s=each.step_time_s * low[start:end] * factor,
                high_s=each.step_time_s * high[start:end] * factor,
                compute_s=each.compute_s * factor,
                novelty=each.novelty,
                terms={name: seconds[sizes[index].own] for name, seconds in priced[index].terms.items()},
            )
        )
        start = end
    return times


class _Own(NamedTuple):
    """What is asked itself, without the smaller batches, shape (n,) each."""

    step_time_s: Floats
    compute_s: Floats
    novelty: Floats
    analytical_s: Floats
    like: JobTable
    is_new: Bools


def _own(priced: _Priced, corrected: Corrected, sizes: _Sizes) -> _Own:
    rows = sizes.own
    return _Own(
        step_time_s=corrected.step_time_s[rows],
        compute_s=corrected.compute_s[rows],
        novelty=corrected.novelty[rows],
        analytical_s=priced.table.analytical_s[rows],
        like=priced.like.take(rows),
        is_new=corrected.novelty[rows].max(axis=1, initial=0.0) > _MEASURED,
    )


def _bounds(own: _Own, longest_s: Floats, below: Sequence[Floats], host: Floats | None) -> Floats:
    """The step times as smaller batches, fewer devices and a measured host bound them."""
    measured_s = own.step_time_s * own.like.analytical_s / own.analytical_s
    fewer_s = np.where(own.is_new, _longest_of_fewer(below, own.like), 0.0)
    least_s = np.maximum(longest_s, own.step_time_s * np.maximum(fewer_s / measured_s, 1.0))
    if host is None:
        return least_s
    seconds, analytical_s, filled, far = host
    longer = np.maximum(own.like.analytical_s / analytical_s, 1.0)
    known = own.is_new & (far <= _MEASURED) & (filled <= 1.0)
    most_s = np.where(known, seconds * longer, math.inf)
    return np.asarray(np.minimum(least_s, own.step_time_s * most_s / measured_s))


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


def _known(asked: Sequence[tuple[Job, _Sizes]], predictor: TrainedPredictor) -> Iterator[Floats]:
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
    return iter([found[key] for key in keys])


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
