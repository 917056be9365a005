"""A predicted step over time for a page to draw: segments of a device and of every stage, and its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np

from precision_time.cost.job import Job
from precision_time.parallel.schedules.contract import Work
from precision_time.planning.layouts.result import layout_name
from precision_time.predict.prediction import Prediction
from precision_time.timeline.memory import MemoryTimeline, memory_of_step
from precision_time.timeline.step import Bar, Stream, step_timeline, summed_bars

MOST_PASSES = 2000
"""Passes of micro batches, over all stages, that are drawn one by one; nobody sees more of them apart."""
_MOST_INTERVALS = 500
"""Of the memory over the step."""
_ONE_BY_ONE = (
    "Lengths are the terms of the prediction. When each stage runs which micro batch is a simulation of the "
    "schedule with equal stages; the order inside a pass (its kernels, then the communication that shows) is "
    "a convention. On the device the segments add up to the step term by term; on the stages each pass is "
    "stretched a little, so that every stage lasts the predicted step."
)
_IN_SUM = (
    "Lengths are the terms of the prediction, each the sum over the {passes:,} passes of the step, which are "
    "too many to draw: their order is not simulated here."
)


def step_drawing(job: Job, answer: Prediction) -> dict[str, Any]:
    """The drawing of an answered job as a JSON-ready dictionary; seconds from the start of the step.

    `device` (segments of the first stage) adds up to the step term by term; every one of `stages` goes from 0
    to the end of the step. With more than `MOST_PASSES` passes each kind of segment is a sum (`simulated` is
    false), and there are neither stages nor memory.

    Args:
        job: The job.
        answer: What is predicted of it.
    """
    layout = job.layout
    simulated = len(Work) * layout.pp * layout.vpp * layout.num_microbatches <= MOST_PASSES
    step = step_timeline(job, answer) if simulated else None
    device = summed_bars(job, answer) if step is None else step.device
    stages = [] if step is None else groupby(step.pipeline, key=lambda bar: bar.stage)
    drawn_passes = 2 * layout.pp * layout.num_microbatches
    return {
        "model": answer.model,
        "device": answer.device,
        "gpus": answer.gpus,
        "precision": answer.precision,
        "layout": layout_name(layout),
        "schedule": layout.schedule.value if layout.pp > 1 else "none",
        "pipeline_stages": layout.pp,
        "micro_batches": layout.num_microbatches,
        "step_time_s": answer.step_time_s,
        "interval": asdict(answer.interval),
        "terms": dict(answer.terms),
        "simulated": simulated,
        "meaning": _ONE_BY_ONE if simulated else _IN_SUM.format(passes=drawn_passes),
        "segments": [_segment(bar) for bar in device],
        "seconds_by_kind": seconds_by_kind(device),
        "stages": [{"stage": stage, "segments": [_segment(bar) for bar in bars]} for stage, bars in stages],
        "memory": None if step is None else thinned(memory_of_step(job, step), _MOST_INTERVALS),
    }


def seconds_by_kind(bars: Iterable[Bar]) -> dict[str, float]:
    """Seconds of the bars that follow each other, by kind; overlapped communication takes none."""
    found: dict[str, float] = {}
    for bar in bars:
        if bar.stream is not Stream.OVERLAPPED:
            found[bar.kind] = found.get(bar.kind, 0.0) + bar.seconds
    return found


def thinned(memory: MemoryTimeline, most: int) -> Mapping[str, Any]:
    """`to_dict` with at most so many intervals: of neighbors the one that holds the most stands for all.

    The peak and what it is made of stay.
    """
    found = memory.to_dict()
    count = len(memory.times_s) - 1
    if count <= most:
        return found
    starts = np.unique(np.linspace(0, count, most + 1).astype(int)[:-1])
    total = memory.total
    ends = [*starts[1:].tolist(), count]
    chosen = [start + int(np.argmax(total[start:end])) for start, end in zip(starts, ends, strict=True)]
    return {
        **found,
        "times_s": memory.times_s[[*starts, count]].tolist(),
        "held_bytes": {name: held[chosen].tolist() for name, held in memory.held.items()},
    }


def _segment(bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "kind": bar.kind,
        "stream": bar.stream.value,
        "start_s": bar.start_s,
        "end_s": bar.end_s,
        "micro_batch": bar.micro_batch,
    }
