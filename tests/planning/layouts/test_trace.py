"""The predicted step as a Chrome trace: what Perfetto requires of each event, lanes that last the step.

The rules are those of Perfetto's importer of the Trace Event Format: a phase that it knows, times in
microseconds that are never negative, slices of a lane that do not partly overlap, counters with numbers
alone, lanes that are named.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from precision_time.cost.job import Jobs
from precision_time.cost.search import under
from precision_time.errors import ConfigError
from precision_time.learn.artifact import shipped_predictor
from precision_time.predict.answer import answer
from precision_time.timeline.memory import MemoryTimeline, memory_of_step
from precision_time.timeline.step import StepTimeline, step_timeline
from precision_time.timeline.trace import trace_document, write_trace

from .conftest import Question
from .test_timeline import LAYOUTS

KNOWN_PHASES = {"X", "M", "C"}
NAMES_OF_METADATA = {"process_name", "thread_name", "thread_sort_index"}
NS = 1e-9


@pytest.fixture(scope="module", params=LAYOUTS)
def traced(
    request: pytest.FixtureRequest, small: Question
) -> tuple[StepTimeline, MemoryTimeline, list[dict[str, Any]]]:
    job = under(small.job, LAYOUTS[request.param])
    step = step_timeline(job, answer(Jobs.of([job]), shipped_predictor())[0])
    memory = memory_of_step(job, step)
    return step, memory, json.loads(json.dumps(trace_document(step, memory), allow_nan=False))["traceEvents"]


def lanes_of(events: list[dict[str, Any]]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Slices by stage and name of the lane."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    lanes: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return lanes


def test_every_event_is_one_that_perfetto_reads(traced: tuple[Any, Any, list[dict[str, Any]]]) -> None:
    _, _, events = traced
    assert {event["ph"] for event in events} == KNOWN_PHASES
    for event in events:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in NAMES_OF_METADATA
            assert set(event["args"]) <= {"name", "sort_index"}
            continue
        assert event["ts"] >= 0.0
        assert event["ts"] * 1e3 == pytest.approx(round(event["ts"] * 1e3), abs=1e-4), "whole nanoseconds"
        if event["ph"] == "X":
            assert event["dur"] > 0.0
            assert isinstance(event["cat"], str)
        else:
            assert all(isinstance(value, float) and value >= 0.0 for value in event["args"].values())
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)


def test_slices_of_a_lane_do_not_overlap(traced: tuple[Any, Any, list[dict[str, Any]]]) -> None:
    for slices in lanes_of(traced[2]).values():
        # The computation hides what it hides behind kernels, never behind what shows of the same axis.
        for before, after in pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-4


def test_the_lanes_of_a_stage_last_the_step(traced: tuple[StepTimeline, Any, list[dict[str, Any]]]) -> None:
    step, _, events = traced
    lanes = lanes_of(events)
    assert {stage for stage, _ in lanes} == set(range(step.layout.pp))
    for stage in range(step.layout.pp):
        own = {name: slices for (pid, name), slices in lanes.items() if pid == stage}
        schedule = own.pop("schedule")
        count = sum(map(len, own.values()))
        assert sum(e["dur"] for e in schedule) * 1e-6 == pytest.approx(step.step_time_s, abs=count * NS)
        shown = sum(e["dur"] for slices in own.values() for e in slices if e["cat"] != "overlapped")
        assert shown * 1e-6 == pytest.approx(step.step_time_s, abs=count * NS)
        assert schedule[-1]["ts"] + schedule[-1]["dur"] == pytest.approx(step.step_time_s * 1e6)


@pytest.mark.parametrize("traced", ["replicated", "sharded", "tensor"], indirect=True)
def test_lanes_hold_what_the_terms_say(traced: tuple[StepTimeline, Any, list[dict[str, Any]]]) -> None:
    """Of the first stage of jobs without a pipeline, whose bars are not stretched."""
    step, _, events = traced
    terms = step.prediction.terms
    lanes = {name: slices for (_, name), slices in lanes_of(events).items()}
    kernels: dict[str, float] = defaultdict(float)
    for event in lanes["kernels and waits"]:
        kernels[event["name"]] += event["dur"] * 1e-6
    rounding = len(events) * NS
    assert kernels["matrix products"] == pytest.approx(terms["gemm_s"], abs=rounding)
    assert kernels["attention"] == pytest.approx(terms["attention_s"], abs=rounding)
    for axis in ("data", "tensor"):
        slices = lanes.get(f"communication: {axis}", [])
        exposed = sum(e["dur"] for e in slices if e["cat"] == "exposed") * 1e-6
        hidden = sum(e["dur"] for e in slices if e["cat"] == "overlapped") * 1e-6
        assert exposed == pytest.approx(terms.get(f"{axis}_exposed_s", 0.0), abs=rounding)
        assert hidden <= step.overlapped_s.get(axis, 0.0) + rounding


def test_the_counter_is_the_memory(
    traced: tuple[StepTimeline, MemoryTimeline, list[dict[str, Any]]],
) -> None:
    step, memory, events = traced
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"memory [bytes]"}
    assert {event["pid"] for event in counters} == {memory.stage}
    assert counters[0]["ts"] == 0.0
    assert counters[-1]["ts"] == pytest.approx(step.step_time_s * 1e6)
    most = max(sum(event["args"].values()) for event in counters)
    assert most == pytest.approx(step.prediction.memory_bytes_per_device)


def test_what_cannot_be_written_is_said(
    traced: tuple[StepTimeline, MemoryTimeline, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_trace(traced[0], tmp_path / "none" / "step.json", traced[1])
