"""Pipeline schedules: published figures, unequal stages, refusals. Rules for all: tests/contract."""

from __future__ import annotations

import pytest

from precision_time.errors import LayoutError
from precision_time.parallel.layout import Layout, PipelineSchedule
from precision_time.parallel.schedules.contract import StageTimes
from precision_time.parallel.schedules.registry import schedule_of
from precision_time.timeline.simulate import orders_of, simulate

GPIPE, ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B
INTERLEAVED, ZERO_BUBBLE = PipelineSchedule.INTERLEAVED, PipelineSchedule.ZERO_BUBBLE


@pytest.mark.parametrize(
    ("schedule", "vpp", "bubble", "in_flight"),
    [
        # Four stages, eight micro batches, F = 1 and B = W = 1: the figures of the papers in units of F.
        (GPIPE, 1, 9.0, [8, 8, 8, 8]),
        (ONE_F_ONE_B, 1, 9.0, [4, 3, 2, 1]),  # Narayanan et al., figure 4, top
        (INTERLEAVED, 2, 4.5, [5.5, 4.5, 3.5, 2.5]),  # the same, bottom; 4 (1 + 3/8) micro batches
        (ZERO_BUBBLE, 1, 3.0, [4, 4, 4, 4]),  # Qi et al., figure 3: a third of 1F1B's
    ],
)
def test_published_bubbles(
    schedule: PipelineSchedule, vpp: int, bubble: float, in_flight: list[float]
) -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    layout = Layout(pp=4, num_microbatches=8, vpp=vpp, schedule=schedule)
    assert simulate(layout, times).idle_s == pytest.approx([bubble] * 4)
    held = [schedule_of(schedule).in_flight(stage, 4, 8, vpp) for stage in range(4)]
    assert held == in_flight


def test_a_slow_last_stage_sets_the_pace() -> None:
    """The stage with the loss runs without a gap: its work, and one pass of the others before and after."""
    quick, slow = StageTimes(forward_s=1.0, backward_s=2.0), StageTimes(forward_s=1.5, backward_s=3.0)
    layout = Layout(pp=4, num_microbatches=16)
    assert simulate(layout, [quick, quick, quick, slow]).step_s == pytest.approx(16 * 4.5 + 3 * 3.0)


def test_messages_show_while_the_pipeline_fills_and_drains() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    layout = Layout(pp=4, num_microbatches=1)
    assert simulate(layout, times, message_s=0.25).step_s == pytest.approx(4 * 3.0 + 6 * 0.25)


def test_one_stage_has_no_bubble() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    for schedule in PipelineSchedule:
        vpp = 2 if schedule is INTERLEAVED else 1
        layout = Layout(num_microbatches=5, vpp=vpp, schedule=schedule)
        assert simulate(layout, times, message_s=9.0).step_s == pytest.approx(15.0)


def test_interleaving_needs_groups_of_micro_batches() -> None:
    layout = Layout(pp=4, vpp=2, num_microbatches=6, schedule=INTERLEAVED)
    with pytest.raises(LayoutError, match=r"num_microbatches\(6\) % pp\(4\) = 2\. To fix: 8 micro batches"):
        orders_of(layout)


def test_times_are_one_per_stage() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    with pytest.raises(LayoutError, match="3 stage times for pp=4 stages"):
        simulate(Layout(pp=4), [times] * 3)


def test_a_large_pipeline() -> None:
    """Sixty-five thousand tasks."""
    layout = Layout(pp=64, vpp=4, num_microbatches=128, schedule=INTERLEAVED)
    timeline = simulate(layout, StageTimes(forward_s=1.0, backward_s=2.0))
    assert len(timeline.spans) == 64 * 128 * 4 * 2
    assert timeline.step_s == pytest.approx(128 * 3.0 + 63 * 3.0 / 4)
