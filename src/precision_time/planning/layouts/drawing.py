"""A predicted step over time for a page to draw: segments of a device and of every stage, and its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...cost.job import Job
from ...parallel.schedules.contract import Work
from ...predict.prediction import Prediction
from ...request.request import Request
from .memory_timeline import MemoryTimeline, memory_of_step
from .result import layout_name
from .timeline import Bar, Stream, step_timeline, summed_bars

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


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDrawing:
    """What is drawn of a step."""

    prediction: Prediction
    layout: str
    """In a few words."""
    schedule: str
    stages: int
    micro_batches: int
    simulated: bool
    """Whether the passes stand one by one; else each kind of segment is a sum, and there are no stages."""
    device: tuple[Bar, ...]
    """Of a device of the first stage: compute and exposed communication add up to the step, term by term."""
    pipeline: tuple[Bar, ...]
    """Of every stage, each from 0 to the end of the step."""
    memory: MemoryTimeline | None
    """Of the fullest stage, where the passes stand one by one."""

    @property
    def meaning(self) -> str:
        """What of it is simulated, and what is a sum."""
        passes = 2 * self.stages * self.micro_batches
        return _ONE_BY_ONE if self.simulated else _IN_SUM.format(passes=passes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; seconds from the start of the step."""
        found = self.prediction
        stages = [
            [bar for bar in self.pipeline if bar.stage == stage]
            for stage in sorted({bar.stage for bar in self.pipeline})
        ]
        return {
            "model": found.model,
            "device": found.device,
            "gpus": found.gpus,
            "precision": found.precision,
            "layout": self.layout,
            "schedule": self.schedule,
            "pipeline_stages": self.stages,
            "micro_batches": self.micro_batches,
            "step_time_s": found.step_time_s,
            "interval": asdict(found.interval),
            "terms": dict(found.terms),
            "simulated": self.simulated,
            "meaning": self.meaning,
            "segments": [_segment(bar) for bar in self.device],
            "seconds_by_kind": seconds_by_kind(self.device),
            "stages": [
                {"stage": bars[0].stage, "segments": [_segment(bar) for bar in bars]} for bars in stages
            ],
            "memory": None if self.memory is None else thinned(self.memory, _MOST_INTERVALS),
        }


def draw_step(job: Job, answer: Prediction) -> StepDrawing:
    """The drawing of an answered job.

    Args:
        job: The job.
        answer: What is predicted of it.
    """
    layout = job.layout
    passes = len(Work) * layout.pp * layout.virtual_pp * layout.num_micro_batches
    common: dict[str, Any] = {
        "prediction": answer,
        "layout": layout_name(layout),
        "schedule": layout.schedule.value if layout.pp > 1 else "none",
        "stages": layout.pp,
        "micro_batches": layout.num_micro_batches,
    }
    if passes > MOST_PASSES:
        return StepDrawing(
            **common, simulated=False, device=summed_bars(job, answer), pipeline=(), memory=None
        )
    step = step_timeline(job, answer)
    return StepDrawing(
        **common,
        simulated=True,
        device=step.device,
        pipeline=step.pipeline,
        memory=memory_of_step(job, step),
    )


def drawing_of(request: Request) -> StepDrawing:
    """The drawing of a request's step.

    Raises:
        PrecisionTimeError: As `predict_time`.
    """
    from ...predict.api import predict

    return draw_step(request.resolve(), predict(request))


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
