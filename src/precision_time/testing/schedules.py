"""Pipeline schedules: the order of the tasks, the formula of the bubble and the memory say the same.

A schedule states one thing three times: the order in which a stage runs its tasks, its idle seconds by
formula (what predictions use) and the micro batches it holds (what the memory uses). The suite derives the
second and the third from the first: it simulates the step and counts the activations along the order.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import product

import numpy as np

from ..errors import LayoutError
from ..parallel import schedules
from ..parallel.layout import Layout, PipelineSchedule
from ..parallel.schedules.contract import StageTimes, Work
from ..parallel.schedules.registry import schedule_of, searched_schedules
from ..timeline.simulate import orders_of, simulate

_YEAR = re.compile(r"\b(19|20)\d\d\b")
_METHODS = ("order", "bubble_s", "in_flight")
_LEAST_PIPELINES = 10


def unregistered_schedules() -> set[str]:
    """Classes in `parallel/schedules/` that are a schedule and have no name in the registry."""
    registered = {type(schedule_of(name)).__name__ for name in PipelineSchedule}
    found = set()
    for module in pkgutil.iter_modules(schedules.__path__):
        home = import_module(f"{schedules.__name__}.{module.name}")
        for name, kind in inspect.getmembers(home, inspect.isclass):
            if kind.__module__ == home.__name__ and module.name != "contract":
                found |= {name} if all(hasattr(kind, method) for method in _METHODS) else set()
    return found - registered


def pipelines(schedule: PipelineSchedule) -> Iterator[Layout]:
    """Pipelines of 2 to 8 stages that a schedule can run: those that it refuses are left out."""
    for pp, num_microbatches, vpp in product((2, 3, 4, 8), (1, 3, 4, 8, 12, 24), (1, 2, 3)):
        layout = Layout(pp=pp, num_microbatches=num_microbatches, vpp=vpp, schedule=schedule)
        try:
            orders = orders_of(layout)
        except LayoutError as error:
            assert "To fix" in str(error)
            continue
        if vpp == 1 or any(task.chunk for task in orders[0]):
            yield layout


def stage_times(seed: int, count: int) -> list[StageTimes]:
    """Made-up seconds of stages: forward, backward, and the share of the weight gradients."""
    draw = np.random.default_rng(seed)
    return [
        StageTimes(
            forward_s=draw.uniform(0.1, 3.0),
            backward_s=draw.uniform(0.1, 6.0),
            weight_share=draw.uniform(0.0, 1.0),
        )
        for _ in range(count)
    ]


class ScheduleSuite:
    """Properties of one schedule; `schedule` is its name in `PipelineSchedule`."""

    def test_is_registered_with_a_citation(self, schedule: PipelineSchedule) -> None:
        """The registry has it, says whether searches try it, and its file names where it was published."""
        found = schedule_of(schedule)
        assert isinstance(found.searched, bool)
        assert (schedule in searched_schedules()) is found.searched
        text = inspect.getdoc(inspect.getmodule(type(found))) or ""
        assert _YEAR.search(text), f"The file of {schedule} does not say where it was published."

    def test_runs_usual_pipelines(self, schedule: PipelineSchedule) -> None:
        """A schedule may refuse some counts of micro batches, but not most of them."""
        assert sum(1 for _ in pipelines(schedule)) >= _LEAST_PIPELINES

    def test_every_stage_runs_every_task_once(self, schedule: PipelineSchedule) -> None:
        """Forward and backward pass of every micro batch and chunk; weight gradients of all or of none."""
        for layout in pipelines(schedule):
            parts = set(product(range(layout.num_microbatches), range(layout.vpp)))
            for order in orders_of(layout):
                works = {Work.FORWARD, Work.BACKWARD} | {task.work for task in order}
                done = [(task.work, (task.micro_batch, task.chunk)) for task in order]
                assert len(done) == len(set(done))
                assert set(done) == set(product(works, parts)), layout

    def test_the_bubble_formula_is_what_the_simulation_gives(self, schedule: PipelineSchedule) -> None:
        """Equal stages without messages; the formula is never negative, and nothing for one stage."""
        for seed, layout in enumerate(pipelines(schedule)):
            [times] = stage_times(seed, 1)
            bubble_s = _bubble_s(schedule, layout, times)
            busy_s = layout.num_microbatches * (times.forward_s + times.backward_s)
            timeline = simulate(layout, times)
            assert bubble_s >= 0.0
            np.testing.assert_allclose(timeline.step_s, busy_s + bubble_s, rtol=1e-9, err_msg=str(layout))
            np.testing.assert_allclose(timeline.idle_s, bubble_s, rtol=1e-6, atol=1e-9)
        one_stage = Layout(num_microbatches=5, schedule=schedule)
        assert _bubble_s(schedule, one_stage, times) == 0.0

    def test_in_flight_is_what_the_order_holds(self, schedule: PipelineSchedule) -> None:
        """Activations of a chunk live from its forward pass until its backward pass, both halves, is done."""
        for layout in pipelines(schedule):
            for stage, order in enumerate(orders_of(layout)):
                last = Work.WEIGHT if any(task.work is Work.WEIGHT for task in order) else Work.BACKWARD
                change = [(task.work is Work.FORWARD) - (task.work is last) for task in order]
                held = np.cumsum(change)
                assert held[-1] == 0
                found = schedule_of(schedule).in_flight(stage, layout.pp, layout.num_microbatches, layout.vpp)
                np.testing.assert_allclose(found, held.max() / layout.vpp, err_msg=str(layout))

    def test_tasks_wait_for_what_they_need(self, schedule: PipelineSchedule) -> None:
        """Unequal stages and messages: nothing overlaps on a stage, and every input has arrived."""
        for seed, layout in enumerate(pipelines(schedule)):
            times, message_s = stage_times(seed, layout.pp), 0.1 * (seed % 5)
            timeline = simulate(layout, times, message_s=message_s)
            last = layout.pp * layout.vpp - 1
            ends = {
                (span.task.work, span.task.chunk * layout.pp + span.stage, span.task.micro_batch): span.end_s
                for span in timeline.spans
            }
            clock = dict.fromkeys(range(layout.pp), 0.0)
            for span in timeline.spans:
                part, micro_batch = span.task.chunk * layout.pp + span.stage, span.task.micro_batch
                needed = [clock[span.stage]]
                if span.task.work is Work.FORWARD and part > 0:
                    needed.append(ends[Work.FORWARD, part - 1, micro_batch] + message_s)
                if span.task.work is Work.BACKWARD:
                    needed.append(ends[Work.FORWARD, part, micro_batch])
                    if part < last:
                        needed.append(ends[Work.BACKWARD, part + 1, micro_batch] + message_s)
                assert span.start_s >= max(needed) - 1e-9
                clock[span.stage] = span.end_s
            assert min(timeline.idle_s) >= -1e-9
            assert timeline.step_s >= simulate(layout, times).step_s - 1e-9

    def test_is_searched_unless_another_is_never_worse(self, schedule: PipelineSchedule) -> None:
        """A search may leave a schedule out where a searched one has no more bubble and no more memory."""
        if schedule in searched_schedules():
            return
        layouts = [layout for layout in pipelines(schedule) if layout.vpp == 1]
        assert any(
            all(
                _bubble_s(other, layout, times) <= _bubble_s(schedule, layout, times)
                and _held(other, layout) <= _held(schedule, layout)
                for layout, times in zip(layouts, stage_times(0, len(layouts)), strict=True)
            )
            for other in searched_schedules()
        ), f"No searched schedule is always at least as good as {schedule}."


def _bubble_s(schedule: PipelineSchedule, layout: Layout, times: StageTimes) -> float:
    formula = schedule_of(schedule).bubble_s
    return float(formula(layout.pp, layout.vpp, layout.num_microbatches, times))


def _held(schedule: PipelineSchedule, layout: Layout) -> float:
    return float(schedule_of(schedule).in_flight(0, layout.pp, layout.num_microbatches, 1))
