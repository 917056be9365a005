"""Candidates priced in chunks, here or in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost.group import group_of_jobs
from ..cost.step import StepCosts, price
from ..cost.terms import TERMS
from ..executor import Executor, in_chunks
from ..learn.serving import on_reference
from ..learn.table import JobTable, group_table
from ..parallel.layout import Layout
from .problem import Problem

Floats = NDArray[np.float64]
_CHUNK = 32
"""Layouts per task: a tenth of a second."""
_OWN_TERMS = frozenset(term.name for term in TERMS if term.by_sharding)
"""Terms that change with the sharding or the schedule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """Analytical times of n layouts."""

    table: JobTable
    reference: JobTable | None
    """The same as measured runs are (`on_reference`), where they are not."""
    shared_s: Floats
    """What all sharding stages and schedules of a layout have in common: its kernels, and what its tensor,
    context and expert ranks exchange; shape (n,)."""
    bubble_s: Floats
    """Idle time of their pipelines."""


def price_layouts(problem: Problem, layouts: Sequence[Layout]) -> Priced:
    """Analytical times and features of some layouts, one after the other."""
    problem = problem.here()
    tables: list[JobTable] = []
    references: list[JobTable] = []
    shared: list[float] = []
    bubbles: list[float] = []
    for layout in layouts:
        group = problem.group(layout)
        costs = price(group)
        tables.append(group_table(group, costs))
        shared.append(_shared_s(costs))
        bubbles.append(float(costs.terms["pipeline_bubble_s"][0]))
        job = problem.job(layout)
        reference = on_reference(job)
        if reference is not job:
            group = group_of_jobs([reference])
            references.append(group_table(group, price(group)))
    return Priced(
        table=joined_tables(tables),
        reference=joined_tables(references) if references else None,
        shared_s=np.array(shared),
        bubble_s=np.array(bubbles),
    )


def _shared_s(costs: StepCosts) -> float:
    return float(sum(seconds[0] for name, seconds in costs.terms.items() if name not in _OWN_TERMS))


def priced_by(
    problem: Problem, layouts: Sequence[Layout], over: Executor, progress: Callable[[int], None]
) -> Priced:
    """Analytical times of layouts, chunk by chunk.

    Args:
        problem: What the layouts are for.
        layouts: At least one.
        over: What runs the chunks.
        progress: Called with the number of layouts done after every chunk.
    """
    found: list[Priced] = []
    done = 0
    for part in over(partial(price_layouts, problem), in_chunks(layouts, _CHUNK)):
        found.append(part)
        done += len(part.shared_s)
        progress(done)
    return joined(found)


def joined(parts: Sequence[Priced]) -> Priced:
    """All parts as one, in their order."""
    references = [part.reference for part in parts if part.reference is not None]
    return Priced(
        table=joined_tables([part.table for part in parts]),
        reference=joined_tables(references) if references else None,
        shared_s=np.concatenate([part.shared_s for part in parts]),
        bubble_s=np.concatenate([part.bubble_s for part in parts]),
    )


def joined_tables(tables: Sequence[JobTable]) -> JobTable:
    """Tables with the same columns below each other."""
    columns: dict[str, Any] = {"names": tables[0].names}
    for item in fields(JobTable):
        values = [getattr(table, item.name) for table in tables]
        if item.name != "names":
            columns[item.name] = np.concatenate(values)
    return JobTable(**columns)
