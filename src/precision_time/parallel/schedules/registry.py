"""Pipeline schedules by name."""

from __future__ import annotations

from ..layout import PipelineSchedule
from .contract import Schedule
from .gpipe import GPipe
from .interleaved import Interleaved
from .one_f_one_b import OneForwardOneBackward
from .zero_bubble import ZeroBubble

_SCHEDULES: dict[PipelineSchedule, Schedule] = {
    PipelineSchedule.GPIPE: GPipe(),
    PipelineSchedule.ONE_F_ONE_B: OneForwardOneBackward(),
    PipelineSchedule.INTERLEAVED: Interleaved(),
    PipelineSchedule.ZERO_BUBBLE: ZeroBubble(),
}


def searched_schedules() -> tuple[PipelineSchedule, ...]:
    """The schedules that a search for layouts tries unasked."""
    return tuple(name for name, schedule in _SCHEDULES.items() if schedule.searched)


def schedule_of(name: PipelineSchedule) -> Schedule:
    """The schedule of that name.

    >>> schedule_of(PipelineSchedule.GPIPE).in_flight(0, pp=4, num_microbatches=8, vpp=1)
    8.0
    """
    return _SCHEDULES[name]
