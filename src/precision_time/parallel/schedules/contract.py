"""What every pipeline schedule offers: an order of tasks per stage, and the bubble by formula."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from ...arrays import Number
from ...records import dataclass


class Work(StrEnum):
    """Kinds of work on a micro batch; the backward pass may come in two halves."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Of inputs and weights together, or of the inputs alone where WEIGHT follows."""
    WEIGHT = "weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One piece of work of a stage."""

    work: Work
    micro_batch: int
    chunk: int = 0
    """Model chunk of the stage, 0 .. vpp - 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """Seconds of one micro batch on one stage, all chunks together."""

    forward_s: Number
    backward_s: Number
    """Of inputs and weights together."""
    weight_share: float = 0.5
    """Part of the backward pass that computes weight gradients, which zero-bubble schedules defer."""


class Schedule(Protocol):
    """A pipeline schedule."""

    searched: bool
    """Whether a search for layouts tries it unasked: not where another one is never worse."""

    def order(self, stage: int, pp: int, num_microbatches: int, vpp: int) -> tuple[Task, ...]:
        """Tasks of a stage, in the order in which it runs them."""

    def bubble_s(self, pp: int, vpp: int, num_microbatches: Number, times: StageTimes) -> Number:
        """Idle seconds of a stage per step by formula, equal stages, no communication."""

    def in_flight(self, stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
        """Micro batches whose activations a stage holds at its peak, in units of one full stage."""


def task_of(work: Work, micro_batch: int, chunk: int = 0) -> Task:
    """The task of that work, micro batch and chunk."""
    return Task(work=work, micro_batch=micro_batch, chunk=chunk)


def forwards(num_microbatches: int) -> list[Task]:
    """Forward passes of all micro batches, first to last, of a stage with one chunk."""
    return [task_of(Work.FORWARD, micro_batch) for micro_batch in range(num_microbatches)]


def backwards(num_microbatches: int) -> list[Task]:
    """Backward passes of all micro batches, first to last, of a stage with one chunk."""
    return [task_of(Work.BACKWARD, micro_batch) for micro_batch in range(num_microbatches)]


def warmed_up(warm_up: int, ahead: list[Task], back: list[Task]) -> list[Task]:
    """`warm_up` forward tasks, then one forward and one backward in turn, then the backwards left."""
    order = ahead[:warm_up]
    for forward, backward in zip(ahead[warm_up:], back, strict=False):
        order += (forward, backward)
    return order + back[len(ahead) - warm_up :]
