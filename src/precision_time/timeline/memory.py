"""What a device holds over one predicted step: its bytes by term, from the first micro batch to the update.

When a stage works on which micro batch comes from the step's timeline; how much it holds then from the memory
model, whose terms are the fullest moment of this. Activations come layer by layer in a forward pass and go
layer by layer in the backward pass (where weight gradients are deferred: with these).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Floats
from ..cost.job import Job, Jobs
from ..cost.memory import memory_of_stages, total_bytes
from ..parallel.layout import Layout
from ..parallel.schedules.contract import Task, Work
from ..predict.prediction import Prediction
from ..records import dataclass
from .simulate import orders_of
from .step import Bar, StepTimeline, tasks_of

_OF_METHOD = ("other_models", "generation")
"""Terms of a training method, which are there beside the update."""
_ROUNDING = 1e-12
"""Of the step: what is nearer than that is at the same time."""
_MOST_LAYERS = 256
"""Steps in which the activations of a pass come or go, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryTimeline:
    """Bytes on one device of the fullest pipeline stage over a predicted step."""

    prediction: Prediction
    layout: Layout
    stage: int
    times_s: Floats
    """Ends of the intervals, from 0 to the step time; shape (n + 1,)."""
    held: Mapping[str, Floats]
    """Bytes in each interval by term, each of shape (n,); the terms are those of the peak."""
    stage_peaks: tuple[float, ...]
    """Bytes of every stage at its own peak, first to last."""

    @property
    def total(self) -> Floats:
        """Bytes in each interval; shape (n,)."""
        found: Floats = np.sum(list(self.held.values()), axis=0)
        return found

    @property
    def peak_interval(self) -> int:
        """The first interval in which most is held."""
        total = self.total
        return int(np.argmax(total >= total.max() * (1.0 - 1e-12)))

    @property
    def peak_bytes(self) -> float:
        """Most bytes at a time: the memory per device of the prediction."""
        return float(self.total.max())

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready fields."""
        peak = self.peak_interval
        found = self.prediction
        return {
            "model": found.model,
            "device": found.device,
            "precision": found.precision,
            "stage": self.stage,
            "step_time_s": found.step_time_s,
            "device_memory_bytes": found.device_memory_bytes,
            "peak_bytes": self.peak_bytes,
            "peak_from_s": float(self.times_s[peak]),
            "peak_terms_bytes": {name: float(held[peak]) for name, held in self.held.items()},
            "stage_peaks_bytes": list(self.stage_peaks),
            "times_s": self.times_s.tolist(),
            "held_bytes": {name: held.tolist() for name, held in self.held.items()},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """An interval, and what comes and goes: shares of a micro batch's activations, and which peaks it has."""

    start_s: float
    end_s: float
    held: float
    """Activations, in micro batches of the whole stage."""
    logits: bool = False
    layer: bool = False
    update: bool = False


def memory_of_step(job: Job, step: StepTimeline) -> MemoryTimeline:
    """What the fullest stage of a job holds over its step."""
    stages = memory_of_stages(Jobs.at(job))
    peaks = [float(np.max(total_bytes(stage.terms()))) for stage in stages]
    fullest = int(np.argmax(peaks))
    stage = stages[fullest]
    bars = [bar for bar in step.pipeline if bar.stage == fullest]
    pieces = list(_pieces(bars, job.layout, fullest, _first(stage.layers), step.step_time_s))
    until_s = max((bar.end_s for bar in bars if bar.micro_batch is not None), default=0.0)
    most = max((piece.held for piece in pieces), default=0.0) or 1.0
    moving = {
        "activations": [piece.held / most * _first(stage.activations) for piece in pieces],
        "logits": [_first(stage.logits) * piece.logits for piece in pieces],
        "temporary": [
            _first(stage.layer) * piece.layer + _first(stage.update) * piece.update for piece in pieces
        ],
    }
    at_work = np.array([piece.start_s < until_s - _ROUNDING * step.step_time_s for piece in pieces])
    held = {
        name: _first(size) * (at_work if name in stage.passing else np.ones(len(pieces)))
        for name, size in stage.states.items()
    }
    held |= {name: np.array(sizes) for name, sizes in moving.items()}
    held |= {
        name: np.full(len(pieces), _first(size))
        for name, size in (("fragmentation", stage.fragmentation), ("framework", stage.framework))
    }
    beside = {name: step.prediction.memory_terms.get(name, 0.0) for name in _OF_METHOD}
    held |= {name: np.full(len(pieces), size) for name, size in beside.items()}
    return MemoryTimeline(
        prediction=step.prediction,
        layout=job.layout,
        stage=fullest,
        times_s=np.array([*(piece.start_s for piece in pieces), step.step_time_s]),
        held={name: sizes for name, sizes in held.items() if sizes.any()},
        stage_peaks=tuple(peaks),
    )


def _first(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _pieces(
    bars: Sequence[Bar], layout: Layout, stage: int, of_stage: float, step_s: float
) -> Iterator[_Piece]:
    """The step of a stage in pieces, without gaps, from 0 to its end."""
    order = orders_of(layout)[stage]
    deferred = any(task.work is Work.WEIGHT for task in order)
    chunks = layout.vpp
    layers = min(max(round(of_stage / chunks), 1), _MOST_LAYERS)
    clock = held = 0.0
    works = iter(order)
    updated = False
    for bar in tasks_of(bars):
        if bar.start_s > clock + _ROUNDING * step_s:
            yield _Piece(start_s=clock, end_s=bar.start_s, held=held)
        if bar.micro_batch is None:
            update = bar.kind == "optimizer"
            updated |= update
            yield _Piece(start_s=bar.start_s, end_s=bar.end_s, held=held, update=update)
        else:
            task = next(works)
            head = stage == layout.pp - 1 and task.chunk == chunks - 1
            yield from _task_pieces(task, bar, layers, held, 1.0 / chunks, head=head, deferred=deferred)
            held += _change(task, deferred) / chunks
        clock = bar.end_s
    if clock < (1.0 - _ROUNDING) * step_s or not updated:
        yield _Piece(start_s=clock, end_s=step_s, held=held, update=not updated)


def _task_pieces(
    task: Task, bar: Bar, layers: int, before: float, chunk: float, *, head: bool, deferred: bool
) -> Iterator[_Piece]:
    """A pass in pieces of equal length: its layers, and head and loss where the stage has them.

    Args:
        task: What is done.
        bar: When.
        layers: Layers of the chunk.
        before: Activations held when it starts.
        chunk: Activations of a micro batch in it.
        head: The chunk ends in head and loss.
        deferred: Weight gradients are tasks of their own, which free the activations.
    """
    forward, weight = task.work is Work.FORWARD, task.work is Work.WEIGHT
    with_head = head and not weight
    count = layers + with_head
    ends = np.linspace(bar.start_s, bar.end_s, count + 1).tolist()
    for number, (start_s, end_s) in enumerate(pairwise(ends)):
        at_head = with_head and number == (layers if forward else 0)
        layer = number if forward else number - with_head
        if forward:
            held = before + chunk * min(layer + 1, layers) / layers
        elif deferred and not weight:
            held = before
        else:
            held = before - chunk * max(layer, 0) / layers
        yield _Piece(
            start_s=start_s,
            end_s=end_s,
            held=held,
            logits=at_head,
            layer=task.work is Work.BACKWARD and not at_head,
        )


def _change(task: Task, deferred: bool) -> float:
    """Micro batches whose activations are held after a task and were not before it."""
    if task.work is Work.FORWARD:
        return 1.0
    return -1.0 if task.work is Work.WEIGHT or not deferred else 0.0
