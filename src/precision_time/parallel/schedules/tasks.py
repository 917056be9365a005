"""Tasks by what they are: every stage of a pipeline runs the same ones, so each is made once."""

from __future__ import annotations

from functools import lru_cache

from .contract import Task, Work

_TASKS_KEPT = 2**17


@lru_cache(maxsize=_TASKS_KEPT)
def task_of(work: Work, micro_batch: int, chunk: int = 0) -> Task:
    """The task of that work, micro batch and chunk."""
    return Task(work=work, micro_batch=micro_batch, chunk=chunk)


def forwards(num_micro_batches: int) -> list[Task]:
    """Forward passes of all micro batches, first to last, of a stage with one chunk."""
    return [task_of(Work.FORWARD, micro_batch) for micro_batch in range(num_micro_batches)]


def backwards(num_micro_batches: int) -> list[Task]:
    """Backward passes of all micro batches, first to last, of a stage with one chunk."""
    return [task_of(Work.BACKWARD, micro_batch) for micro_batch in range(num_micro_batches)]


def warmed_up(warm_up: int, ahead: list[Task], back: list[Task]) -> list[Task]:
    """`warm_up` forward tasks, then one forward and one backward in turn, then the backwards left."""
    order = ahead[:warm_up]
    for forward, backward in zip(ahead[warm_up:], back, strict=False):
        order += (forward, backward)
    return order + back[len(ahead) - warm_up :]
