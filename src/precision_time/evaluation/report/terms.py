"""Change analytical terms of a priced table, and everything that is worked out from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...cost.terms import EXPOSED_TERMS, KERNEL_TERMS
from ...learn.table import JobTable, MeasuredTable

Floats = NDArray[np.float64]
Terms = dict[str, Floats]

__all__ = ["EXPOSED_TERMS", "KERNEL_TERMS", "column_of", "link_s", "terms_of", "with_terms", "without"]

_SHARE = "share."
_TINY_S = 1e-9


def terms_of(jobs: JobTable) -> Terms:
    """Analytical seconds by term, shape (n,) each."""
    return {
        name.removeprefix(_SHARE): jobs.features[:, index] * jobs.analytical_s
        for index, name in enumerate(jobs.names)
        if name.startswith(_SHARE)
    }


def with_terms(jobs: JobTable, terms: Mapping[str, Floats]) -> JobTable:
    """The table with other analytical terms: seconds, shares and ratios worked out again.

    Args:
        jobs: A priced table.
        terms: Seconds of every term that it has.
    """
    exposed_s = sum(
        (s for name, s in terms.items() if name in EXPOSED_TERMS), np.zeros(len(jobs.analytical_s))
    )
    compute_s = sum((s for name, s in terms.items() if name not in EXPOSED_TERMS), np.zeros_like(exposed_s))
    compute_s = np.maximum(compute_s, _TINY_S)
    total_s = compute_s + exposed_s
    columns = {f"{_SHARE}{name}": seconds / total_s for name, seconds in terms.items()}
    columns["log_analytical_s"] = np.log(total_s)
    columns["log_compute_s"] = np.log(compute_s)
    if "link_over_compute" in jobs.names:
        columns["link_over_compute"] = link_s(jobs) / compute_s
    features = jobs.features.copy()
    for name, column in columns.items():
        if name in jobs.names:
            features[:, jobs.names.index(name)] = column
    return replace(jobs, features=features, analytical_s=total_s, compute_s=compute_s, exposed_s=exposed_s)


def link_s(jobs: JobTable) -> Floats:
    """Seconds on the wire, hidden or not."""
    seconds: Floats = column_of(jobs, "link_over_compute") * np.maximum(jobs.compute_s, _TINY_S)
    return seconds


def column_of(jobs: JobTable, name: str) -> Floats:
    """One feature, shape (n,)."""
    column: Floats = jobs.features[:, jobs.names.index(name)]
    return column


def without(jobs: JobTable, dropped: Callable[[str], bool]) -> JobTable:
    """The table without some of its features; the analytical seconds stay."""
    kept = [index for index, name in enumerate(jobs.names) if not dropped(name)]
    return replace(jobs, features=jobs.features[:, kept], names=tuple(jobs.names[index] for index in kept))


def priced_as(table: MeasuredTable, jobs: JobTable) -> MeasuredTable:
    """The same measurements with other features and analytical seconds."""
    return replace(table, jobs=jobs)
