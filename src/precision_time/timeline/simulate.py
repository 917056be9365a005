"""Event simulation of a pipeline: every stage runs its order, each task once its inputs are there."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LayoutError
from ..parallel.layout import Layout
from ..parallel.schedules.contract import StageTimes, Task, Work
from ..parallel.schedules.registry import schedule_of
from ..records import dataclass

_Step = tuple[int, int, float, float]
"""Number of the task it waits for and its own (-1: none), its seconds, seconds of the message before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One task of one stage, and when it runs."""

    stage: int
    task: Task
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """When every stage runs what, from the start of the step."""

    spans: tuple[Span, ...]
    """Stage by stage, each in its order."""
    step_s: float
    """From the first task to the end of the last, over all stages."""
    busy_s: tuple[float, ...]
    """Per stage."""

    @property
    def idle_s(self) -> tuple[float, ...]:
        """Seconds of the step in which a stage does nothing, per stage."""
        return tuple(self.step_s - busy for busy in self.busy_s)


def simulate(layout: Layout, times: StageTimes | Sequence[StageTimes], *, message_s: float = 0.0) -> Timeline:
    """The pipeline of a layout: its schedule, stages, chunks and micro batches.

    Args:
        layout: `schedule`, `pp`, `vpp` and `num_microbatches` count.
        times: Of every stage, or one for each, first to last.
        message_s: Seconds for activations or their gradients between neighboring stages; the sender
            does not wait for them.

    Returns:
        When every task runs.

    Raises:
        LayoutError: If the interleaved schedule is given micro batches that it cannot group, or the
            times are not one per stage.
    """
    orders = orders_of(layout)
    plans = _plans(orders, layout, times, message_s)
    ends = _run(plans)
    spans = tuple(
        Span(stage=stage, task=task, start_s=end - step[2], end_s=end)
        for stage, order in enumerate(orders)
        for task, step, end in zip(order, plans[stage], ends[stage], strict=True)
    )
    return Timeline(
        spans=spans,
        step_s=max(stage[-1] for stage in ends),
        busy_s=tuple(sum(step[2] for step in plan) for plan in plans),
    )


def orders_of(layout: Layout) -> tuple[tuple[Task, ...], ...]:
    """The order of every stage of a layout, first to last.

    Raises:
        LayoutError: If the interleaved schedule is given micro batches that it cannot group.
    """
    schedule = schedule_of(layout.schedule)
    return tuple(
        schedule.order(stage, layout.pp, layout.num_microbatches, layout.vpp) for stage in range(layout.pp)
    )


def _plans(
    orders: Sequence[Sequence[Task]],
    layout: Layout,
    times: StageTimes | Sequence[StageTimes],
    message_s: float,
) -> list[list[_Step]]:
    per_stage = [times] * layout.pp if isinstance(times, StageTimes) else list(times)
    if len(per_stage) != layout.pp:
        raise LayoutError(
            f"{len(per_stage)} stage times for pp={layout.pp} stages. To fix: give one StageTimes for all, "
            f"or {layout.pp}."
        )
    return [
        _plan(order, stage, layout, per_stage[stage], message_s if layout.pp > 1 else 0.0)
        for stage, order in enumerate(orders)
    ]


def _plan(
    order: Sequence[Task], stage: int, layout: Layout, times: StageTimes, message_s: float
) -> list[_Step]:
    """What each task of a stage waits for: chunk c of stage i holds part c · pp + i of the model.

    A forward pass waits for that of the part before, a backward pass for that of the part after (which
    waited for its own forward pass), weight gradients for the gradients of the inputs.
    """
    micro_batches = layout.num_microbatches
    last_part = layout.pp * layout.vpp - 1
    backward_from = (last_part + 1) * micro_batches
    seconds = _seconds(order, times, layout.vpp)
    plan: list[_Step] = []
    for task in order:
        work, part = task.work, task.chunk * layout.pp + stage
        forward = part * micro_batches + task.micro_batch
        backward = backward_from + forward
        if work is Work.FORWARD:
            wait, own, delay = (forward - micro_batches, forward, message_s) if part else (-1, forward, 0.0)
        elif work is Work.WEIGHT:
            wait, own, delay = backward, -1, 0.0
        elif part == last_part:
            wait, own, delay = forward, backward, 0.0
        else:
            wait, own, delay = backward + micro_batches, backward, message_s
        plan.append((wait, own, seconds[work], delay))
    return plan


def _seconds(order: Sequence[Task], times: StageTimes, vpp: int) -> dict[Work, float]:
    """Of one task of each kind: the backward pass comes in two halves where the order has both."""
    split = any(task.work is Work.WEIGHT for task in order)
    backward_s = float(times.backward_s) / vpp
    weight_s = backward_s * times.weight_share if split else 0.0
    return {
        Work.FORWARD: float(times.forward_s) / vpp,
        Work.BACKWARD: backward_s - weight_s,
        Work.WEIGHT: weight_s,
    }


def _run(plans: Sequence[Sequence[_Step]]) -> list[list[float]]:
    """When each step of each plan ends [s]: a stage runs until it has to wait, and goes on when it may."""
    ended: dict[int, float] = {}
    ends: list[list[float]] = [[] for _ in plans]
    waiting: dict[int, int] = {}
    ready = list(range(len(plans)))
    while ready:
        stage = ready.pop()
        plan, mine = plans[stage], ends[stage]
        clock = mine[-1] if mine else 0.0
        for index in range(len(mine), len(plan)):
            wait, own, seconds, delay = plan[index]
            if wait >= 0:
                if wait not in ended:
                    waiting[wait] = stage
                    break
                clock = max(clock, ended[wait] + delay)
            clock += seconds
            mine.append(clock)
            if own >= 0:
                ended[own] = clock
                if own in waiting:
                    ready.append(waiting.pop(own))
    return ends
