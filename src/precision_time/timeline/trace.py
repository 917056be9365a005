"""A predicted step as a Chrome trace (.json), which Perfetto and chrome://tracing open.

Format: "Trace Event Format", Google 2016. Times are whole nanoseconds: viewers read them as integers, and
bars that touch would otherwise overlap by a rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ..cost.terms import EXPOSED_TERMS, TERMS
from ..io import check_suffix, write_atomically
from .memory import MemoryTimeline
from .step import KERNELS, Bar, StepTimeline, overlapped, tasks_of, words

SCHEDULE, DEVICE = "schedule", "kernels and waits"
"""Lanes of every stage: its tasks in order, and what they consist of."""
_NS = 1e9
_NS_PER_US = 1e3
_TITLES = {term.name.removesuffix("_s"): term.title for term in TERMS}
_SHOWN = "exposed"


def check_trace_path(path: Path) -> None:
    """Refuse a file that a viewer would not take for a trace, before anything is computed for it.

    Raises:
        ConfigError: If its name does not end in .json.
    """
    check_suffix("--trace", path, (".json",))


def write_trace(step: StepTimeline, path: Path, memory: MemoryTimeline | None = None) -> None:
    """Write the trace to a file.

    Raises:
        ConfigError: If the name does not end in .json, or the file cannot be written.
    """
    check_trace_path(path)
    write_atomically(path, json.dumps(trace_document(step, memory), allow_nan=False) + "\n")


def trace_document(step: StepTimeline, memory: MemoryTimeline | None = None) -> dict[str, Any]:
    """A step as a JSON-ready dictionary.

    A process is a pipeline stage. Its lanes: the schedule (passes, bubbles, the update), what those consist
    of (kernels by kind, waits), and for each parallel axis its communication, both what shows and what the
    computation hides. The schedule lasts the step, and so do the other lanes together without what is hidden.
    The memory of the fullest stage is a counter, in bytes by term.
    """
    found = step.prediction
    by_stage = [list(bars) for _, bars in groupby(step.pipeline, key=lambda bar: bar.stage)]
    events = [
        *(event for bars in by_stage for event in _stage_events(step, bars)),
        *(() if memory is None else _counters(memory)),
    ]
    return {
        "traceEvents": [
            *(event for event in events if event["ph"] == "M"),
            *sorted((event for event in events if event["ph"] != "M"), key=lambda event: event["ts"]),
        ],
        "displayTimeUnit": "ms",
        "otherData": {
            "model": found.model,
            "device": found.device,
            "layout": step.name,
            "precision": found.precision,
            "step_time_s": step.step_time_s,
            "terms": dict(found.terms),
        },
    }


def _stage_events(step: StepTimeline, bars: Sequence[Bar]) -> Iterator[dict[str, Any]]:
    """The lanes of one stage."""
    stage = bars[0].stage
    axes = dict.fromkeys(
        [
            *(_axis(bar.kind) for bar in bars if _is_communication(bar.kind)),
            *step.overlapped_s,
        ]
    )
    lanes = {name: number for number, name in enumerate((SCHEDULE, DEVICE, *axes))}
    yield _named("process_name", stage, 0, f"stage {stage}")
    for name, number in lanes.items():
        title = f"communication: {name}" if name in axes else name
        yield _named("thread_name", stage, number, title)
        yield {
            **{"ph": "M", "name": "thread_sort_index", "pid": stage, "tid": number},
            "args": {"sort_index": number},
        }
    for bar in tasks_of(bars):
        yield from _slices(bar, {bar.name: 1.0}, bar.kind, lanes[SCHEDULE])
    kernels = {_TITLES[kind]: share for kind, share in step.kernels.items()}
    for bar in bars:
        if bar.kind in KERNELS:
            yield from _slices(bar, kernels, bar.kind, lanes[DEVICE])
        elif _is_communication(bar.kind):
            yield from _slices(bar, {words(bar.kind): 1.0}, _SHOWN, lanes[_axis(bar.kind)])
        else:
            yield from _slices(bar, {bar.name: 1.0}, bar.kind, lanes[DEVICE])
    for axis, seconds in step.overlapped_s.items():
        for bar in overlapped(bars, seconds):
            yield from _slices(bar, {axis: 1.0}, bar.kind, lanes[axis])


def _is_communication(kind: str) -> bool:
    return f"{kind}_s" in EXPOSED_TERMS and kind.endswith(f"_{_SHOWN}")


def _axis(kind: str) -> str:
    return kind.removesuffix(f"_{_SHOWN}")


def _slices(bar: Bar, parts: Mapping[str, float], category: str, lane: int) -> Iterator[dict[str, Any]]:
    """A bar as one event, or as one for each of its parts in proportion; none shorter than a nanosecond."""
    begin, done = round(bar.start_s * _NS), 0.0
    for name, share in parts.items():
        done += share
        end = round((bar.start_s + min(done, 1.0) * bar.seconds) * _NS)
        if end > begin:
            yield {
                **{"name": name, "cat": category, "ph": "X", "pid": bar.stage, "tid": lane},
                **{"ts": begin / _NS_PER_US, "dur": (end - begin) / _NS_PER_US},
                "args": {} if bar.micro_batch is None else {"micro_batch": bar.micro_batch},
            }
        begin = max(end, begin)


def _counters(memory: MemoryTimeline) -> Iterator[dict[str, Any]]:
    """The bytes by term, at the start of each interval; the last ones stand until the end of the step."""
    last = len(memory.times_s) - 2
    for number, start_s in enumerate(memory.times_s.tolist()):
        yield {
            **{"name": "memory [bytes]", "ph": "C", "pid": memory.stage, "tid": 0},
            "ts": round(start_s * _NS) / _NS_PER_US,
            "args": {words(name): float(held[min(number, last)]) for name, held in memory.held.items()},
        }


def _named(what: str, stage: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": stage, "tid": lane, "args": {"name": name}}
