"""Pipeline schedules: every task once, formula and simulation agree, memory is what the order holds."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import LayoutError
from precision_time.parallel.layout import Layout, PipelineSchedule
from precision_time.parallel.schedules.contract import StageTimes, Work
from precision_time.parallel.schedules.registry import schedule_of, searched_schedules
from precision_time.parallel.schedules.simulate import orders_of, simulate

GPIPE, ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B
INTERLEAVED, ZERO_BUBBLE = PipelineSchedule.INTERLEAVED, PipelineSchedule.ZERO_BUBBLE


@st.composite
def pipelines(draw: st.DrawFn) -> Layout:
    """A pipeline that its schedule can run."""
    schedule = draw(st.sampled_from(PipelineSchedule))
    pp = draw(st.integers(2, 9))
    micro_batches = draw(st.integers(1, 24))
    if schedule is not INTERLEAVED:
        return Layout(pp=pp, num_micro_batches=micro_batches, schedule=schedule)
    groups = draw(st.integers(1, 4))
    virtual = draw(st.integers(2, 5))
    return Layout(pp=pp, num_micro_batches=groups * pp, virtual_pp=virtual, schedule=schedule)


stage_times = st.builds(
    StageTimes,
    forward_s=st.floats(0.1, 3.0),
    backward_s=st.floats(0.1, 6.0),
    weight_share=st.floats(0.0, 1.0),
)


@given(pipelines(), stage_times)
def test_formula_and_simulation_agree(layout: Layout, times: StageTimes) -> None:
    timeline = simulate(layout, times)
    bubble_s = schedule_of(layout.schedule).bubble_s(
        layout.pp, layout.virtual_pp, layout.num_micro_batches, times
    )
    busy_s = layout.num_micro_batches * (times.forward_s + times.backward_s)
    assert timeline.step_s == pytest.approx(busy_s + bubble_s, rel=1e-9)
    assert timeline.idle_s == pytest.approx([bubble_s] * layout.pp, rel=1e-6, abs=1e-9)


@given(pipelines())
def test_every_stage_runs_every_task_once(layout: Layout) -> None:
    works = {Work.FORWARD, Work.BACKWARD} | ({Work.WEIGHT} if layout.schedule is ZERO_BUBBLE else set())
    every = set(product(works, range(layout.num_micro_batches), range(layout.virtual_pp)))
    for order in orders_of(layout):
        assert len(order) == len(every)
        assert {(task.work, task.micro_batch, task.chunk) for task in order} == every


@given(pipelines())
def test_in_flight_is_what_the_order_holds(layout: Layout) -> None:
    """A chunk's activations live from its forward pass until its backward pass, both halves, is done."""
    last = Work.WEIGHT if layout.schedule is ZERO_BUBBLE else Work.BACKWARD
    for stage, order in enumerate(orders_of(layout)):
        held = peak = 0
        for task in order:
            held += (task.work is Work.FORWARD) - (task.work is last)
            peak = max(peak, held)
        assert held == 0
        in_flight = schedule_of(layout.schedule).in_flight(
            stage, layout.pp, layout.num_micro_batches, layout.virtual_pp
        )
        assert in_flight == pytest.approx(peak / layout.virtual_pp)


@given(pipelines(), st.data())
def test_stages_of_their_own_times_and_messages(layout: Layout, data: st.DataObject) -> None:
    """Nothing overlaps on a stage, what a task needs has arrived, and no step beats its fullest stage."""
    times = [data.draw(stage_times) for _ in range(layout.pp)]
    message_s = data.draw(st.floats(0.0, 0.5))
    timeline = simulate(layout, times, message_s=message_s)
    ends = {(span.task.work, span.task.chunk * layout.pp + span.stage, span.task.micro_batch): span.end_s
            for span in timeline.spans}  # fmt: skip
    last = layout.pp * layout.virtual_pp - 1
    clock = dict.fromkeys(range(layout.pp), 0.0)
    for span in timeline.spans:
        part, micro_batch = span.task.chunk * layout.pp + span.stage, span.task.micro_batch
        assert span.start_s >= clock[span.stage] - 1e-9
        clock[span.stage] = span.end_s
        if span.task.work is Work.FORWARD and part > 0:
            assert span.start_s >= ends[Work.FORWARD, part - 1, micro_batch] + message_s - 1e-9
        if span.task.work is Work.BACKWARD and part < last:
            assert span.start_s >= ends[Work.BACKWARD, part + 1, micro_batch] + message_s - 1e-9
        if span.task.work is Work.BACKWARD:
            assert span.start_s >= ends[Work.FORWARD, part, micro_batch] - 1e-9
    assert timeline.step_s >= max(timeline.busy_s) - 1e-9
    assert min(timeline.idle_s) >= -1e-9
    assert timeline.step_s >= simulate(layout, times).step_s - 1e-9


@pytest.mark.parametrize(
    ("schedule", "virtual_pp", "bubble", "in_flight"),
    [
        # Four stages, eight micro batches, F = 1 and B = W = 1: the figures of the papers in units of F.
        (GPIPE, 1, 9.0, [8, 8, 8, 8]),
        (ONE_F_ONE_B, 1, 9.0, [4, 3, 2, 1]),  # Narayanan et al., figure 4, top
        (INTERLEAVED, 2, 4.5, [5.5, 4.5, 3.5, 2.5]),  # the same, bottom; 4 (1 + 3/8) micro batches
        (ZERO_BUBBLE, 1, 3.0, [4, 4, 4, 4]),  # Qi et al., figure 3: a third of 1F1B's
    ],
)
def test_published_bubbles(
    schedule: PipelineSchedule, virtual_pp: int, bubble: float, in_flight: list[float]
) -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    layout = Layout(pp=4, num_micro_batches=8, virtual_pp=virtual_pp, schedule=schedule)
    assert simulate(layout, times).idle_s == pytest.approx([bubble] * 4)
    held = [schedule_of(schedule).in_flight(stage, 4, 8, virtual_pp) for stage in range(4)]
    assert held == in_flight


def test_a_slow_last_stage_sets_the_pace() -> None:
    """The stage with the loss runs without a gap: its work, and one pass of the others before and after."""
    quick, slow = StageTimes(forward_s=1.0, backward_s=2.0), StageTimes(forward_s=1.5, backward_s=3.0)
    layout = Layout(pp=4, num_micro_batches=16)
    assert simulate(layout, [quick, quick, quick, slow]).step_s == pytest.approx(16 * 4.5 + 3 * 3.0)


def test_messages_show_while_the_pipeline_fills_and_drains() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    layout = Layout(pp=4, num_micro_batches=1)
    assert simulate(layout, times, message_s=0.25).step_s == pytest.approx(4 * 3.0 + 6 * 0.25)


def test_one_stage_has_no_bubble() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    for schedule in PipelineSchedule:
        virtual_pp = 2 if schedule is INTERLEAVED else 1
        layout = Layout(num_micro_batches=5, virtual_pp=virtual_pp, schedule=schedule)
        assert simulate(layout, times, message_s=9.0).step_s == pytest.approx(15.0)


def test_interleaving_needs_groups_of_micro_batches() -> None:
    layout = Layout(pp=4, virtual_pp=2, num_micro_batches=6, schedule=INTERLEAVED)
    with pytest.raises(LayoutError, match=r"num_micro_batches\(6\) % pp\(4\) = 2\. To fix: 8 micro batches"):
        orders_of(layout)


def test_times_are_one_per_stage() -> None:
    times = StageTimes(forward_s=1.0, backward_s=2.0)
    with pytest.raises(LayoutError, match="3 stage times for pp=4 stages"):
        simulate(Layout(pp=4), [times] * 3)


def test_a_large_pipeline() -> None:
    """Sixty-five thousand tasks."""
    layout = Layout(pp=64, virtual_pp=4, num_micro_batches=128, schedule=INTERLEAVED)
    timeline = simulate(layout, StageTimes(forward_s=1.0, backward_s=2.0))
    assert len(timeline.spans) == 64 * 128 * 4 * 2
    assert timeline.step_s == pytest.approx(128 * 3.0 + 63 * 3.0 / 4)


@given(
    pp=st.integers(2, 16),
    count=st.integers(1, 64),
    times=st.builds(StageTimes, forward_s=st.floats(1e-3, 1.0), backward_s=st.floats(1e-3, 1.0)),
)
def test_a_schedule_that_is_not_searched_is_never_better(pp: int, count: int, times: StageTimes) -> None:
    searched = [schedule_of(ONE_F_ONE_B)]
    assert ONE_F_ONE_B in searched_schedules()
    for name in set(PipelineSchedule) - set(searched_schedules()):
        left_out = schedule_of(name)
        for other in searched:
            assert other.bubble_s(pp, 1, count, times) <= left_out.bubble_s(pp, 1, count, times)
            assert other.in_flight(0, pp, count, 1) <= left_out.in_flight(0, pp, count, 1)
