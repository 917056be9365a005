"""A search in words: why the best layout is faster than the next, and what to change when none fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...cost.job import Job
from ...cost.memory import memory_of
from ...cost.search import Nearest, fitting, group_under, space_of
from ...executor import in_chunks
from ...parallel.layout import EQUAL_WITHIN, Layout, Recompute
from ...parallel.space import Fixed
from ...units import format_duration
from .result import RankedLayout, Shortfall, layout_name

_DOUBLINGS = 8
_MOST_DEVICES = 2**17
_FRAMES = 256
"""Looked at together."""

_NAMED_TERMS = 2
"""Terms named on each side."""


def why_first(ranked: Sequence[RankedLayout]) -> str:
    """Why the first layout is faster than the second, in words; empty where there is no second."""
    if len(ranked) < 2:
        return ""
    best = ranked[0]
    fastest = min(ranked, key=lambda each: each.step_time_s)
    if fastest is not best:
        ahead = (best.step_time_s - fastest.step_time_s) / best.step_time_s
        return (
            f"{layout_name(best.layout)} is the simplest of the fastest: {layout_name(fastest.layout)} is "
            f"predicted {ahead:.1%} faster, which is equal within the interval ({EQUAL_WITHIN:.1%} is what "
            "repeats of one run differ by)."
        )
    other = ranked[1]
    gap_s = other.step_time_s - best.step_time_s
    old, new = other.prediction.terms, best.prediction.terms
    names = dict.fromkeys((*new, *old))
    said = {name: name.removesuffix("_s").replace("_", " ") for name in names}
    gains = [(said[name], old.get(name, 0.0) - new.get(name, 0.0)) for name in names]
    gains.sort(key=lambda item: -item[1])
    less = [f"{format_duration(gain)} less {name}" for name, gain in gains[:_NAMED_TERMS] if gain > 0]
    more = [f"{format_duration(-gain)} more {name}" for name, gain in gains[::-1][:_NAMED_TERMS] if gain < 0]
    equal = gap_s <= EQUAL_WITHIN * best.step_time_s
    verb = "is equal within the interval to" if equal else "beats"
    return (
        f"{layout_name(best.layout)} {verb} {layout_name(other.layout)}"
        f"{', faster' if equal else ''} by {format_duration(gap_s)} "
        f"({gap_s / other.step_time_s:.1%}): {', '.join(less) or 'no term differs'}"
        + (f", against {', '.join(more)}." if more else ".")
    )


def usual_beside(best: RankedLayout, usual: RankedLayout) -> str:
    """What people run, as `predict` assumes it, beside the first layout of a search; in words."""
    if usual.layout == best.layout:
        return "`predict` assumes it, too: people run it."
    said = f"`predict` assumes {layout_name(usual.layout)}, as people run it"
    if not usual.prediction.fits:
        return f"{said}, which does not fit."
    more = usual.step_time_s / best.step_time_s - 1.0
    than = "less" if more < 0.0 else "more"
    return f"{said}: {format_duration(usual.step_time_s)}, {abs(more):.0%} {than}."


def shortfall(job: Job, batch: int, nearest: Nearest, fixed: Fixed) -> Shortfall:
    """By how much the nearest layout misses, and what would fit."""
    memory = memory_of(group_under(job, nearest.layout))
    advice = [_more_devices(job, batch, fixed)]
    if fixed:
        advice.append("Fix fewer fields of the layout: " + ", ".join(fixed) + " were given.")
    return Shortfall(
        layout=nearest.layout,
        needed_bytes=nearest.needed_bytes,
        capacity_bytes=job.cluster.device.usable_bytes,
        memory_terms={name: float(np.max(value)) for name, value in memory.items()},
        advice=tuple(advice),
    )


def _more_devices(job: Job, batch: int, fixed: Fixed) -> str:
    """The fewest devices, doubling, on which a fully sharded or fully recomputing layout fits."""
    lean: Fixed = {"zero_stage": (1, 3), "recompute": (Recompute.FULL,), **fixed}
    cluster = job.cluster
    for _ in range(_DOUBLINGS):
        if cluster.num_devices * 2 > _MOST_DEVICES:
            break
        cluster = cluster.resized(num_nodes=cluster.num_nodes * 2, num_devices=cluster.num_devices * 2)
        rows = max(batch, cluster.num_devices)
        larger = replace(job, cluster=cluster, layout=Layout(dp=cluster.num_devices))
        frames = [*space_of(larger, rows, fixed=lean, beyond_domain=True).frames()]
        for some in in_chunks(frames, _FRAMES):
            fits = [layout for part in fitting(larger, some) for layout in part.layouts[:1]]
            if fits:
                return (
                    f"{cluster.num_devices} devices hold it: {layout_name(fits[0])}, {rows} samples per step."
                )
    return f"Not even {cluster.num_devices} devices of this memory hold it."
