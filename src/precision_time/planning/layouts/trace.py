"""A step as a Chrome trace: what Perfetto and chrome://tracing read.

Format: "Trace Event Format", Google 2016: complete events (`ph` X) with `ts` and `dur` in microseconds,
`pid` the pipeline stage, `tid` the stream.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...io import write_atomically
from .timeline import Bar, StepTimeline, Stream

_STREAMS = tuple(Stream)
_US = 1e6


def trace_document(step: StepTimeline) -> dict[str, Any]:
    """The trace as a JSON-ready dictionary; compute and exposed communication of a stage cover the step."""
    prediction = step.prediction
    overlapped = (bar for bar in step.device if bar.stream is Stream.OVERLAPPED)
    stages = sorted({bar.stage for bar in step.pipeline})
    return {
        "traceEvents": [
            *(event for stage in stages for event in _names(stage)),
            *map(_event, step.pipeline),
            *map(_event, overlapped if len(stages) == 1 else ()),
        ],
        "displayTimeUnit": "ms",
        "otherData": {
            "model": prediction.model,
            "device": prediction.device,
            "layout": step.name,
            "precision": prediction.precision,
            "step_time_s": step.step_time_s,
            "terms": dict(prediction.terms),
        },
    }


def write_trace(step: StepTimeline, path: Path) -> None:
    """Write the trace to a file.

    Raises:
        OutputError: If the file cannot be written.
    """
    write_atomically(path, json.dumps(trace_document(step), allow_nan=False) + "\n")


def _names(stage: int) -> list[dict[str, Any]]:
    """What the viewer calls a stage and its streams."""
    process = {"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "args": {"name": f"stage {stage}"}}
    return [
        process,
        *(
            {"ph": "M", "name": "thread_name", "pid": stage, "tid": tid, "args": {"name": stream.value}}
            for tid, stream in enumerate(_STREAMS)
        ),
    ]


def _event(bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "cat": bar.kind,
        "ph": "X",
        "ts": bar.start_s * _US,
        "dur": bar.seconds * _US,
        "pid": bar.stage,
        "tid": _STREAMS.index(bar.stream),
        "args": {} if bar.micro_batch is None else {"micro_batch": bar.micro_batch},
    }
