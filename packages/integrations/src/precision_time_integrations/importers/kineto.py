"""Traces of PyTorch's profiler (Kineto): Chrome trace JSON, also packed with gzip.

A step is from one `ProfilerStep#N` to the next, or from one optimizer step to the next where the profiler had
no schedule and so wrote none. The file is read as a stream: a gigabyte takes the memory of its spans alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from precision_time.cost.optimizer import canonical_optimizer
from precision_time.errors import PrecisionTimeError, printable

from .bounded import JsonStream, unpacked_head
from .contract import MOST_STEPS, ImportedRun, Importer, LoggedStep, unreadable
from .parameters import device_called
from .spans import (
    COPIES,
    EXPOSED,
    INPUT,
    KERNELS,
    UPDATE,
    Spans,
    mean_terms,
    shares_by_kind,
    steady_windows,
    step_windows,
)

_MICRO = 1e-6
_LATEST_US = 1e18
"""Time stamps behind this (31,000 years) are none."""
_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_OPTIMIZER = re.compile(r"^Optimizer\.step#(\w+)\.step$")
_LOADER = re.compile(r"^enumerate\(DataLoader\)|^(\[pl\])?.*(train_dataloader_next|_next_data|batch_fetch)")
_COMMUNICATION = re.compile(r"^(gloo|nccl|mpi|ucc|c10d)[:_]")
_COPY = ("gpu_memcpy", "gpu_memset")
_HOST_KERNELS = ("cpu_op",)
_ANNOTATIONS = ("user_annotation",)


@dataclass(kw_only=True)
class _Trace:
    """What is kept of a trace while it is read."""

    device: Spans = field(default_factory=Spans)
    host: Spans = field(default_factory=Spans)
    """The same groups on the host: all there is where no device was traced, else the waiting for input."""
    annotated: Spans = field(default_factory=Spans)
    """When the device ran the optimizer's kernels, where the trace says it."""
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Number to start and end [s]."""
    updates: list[tuple[float, float]] = field(default_factory=list)
    optimizer: str = ""
    names: list[str] = field(default_factory=list)
    """Of the devices of the machine."""
    world_size: int | None = None
    rank: int | None = None
    backend: str = ""
    events: int = 0
    origin: float | None = None
    """Time stamp of the first event [us]: without it little would be left of the digits of a double."""

    def head(self, key: str, value: Any) -> None:
        """Take what is said beside the events."""
        if key == "deviceProperties" and isinstance(value, list):
            names = (device.get("name") for device in value[:1024] if isinstance(device, Mapping))
            self.names = [str(name) for name in names if name]
        elif key == "distributedInfo" and isinstance(value, Mapping):
            self.world_size, self.rank = _count(value.get("world_size")), _count(value.get("rank"))
            self.backend = printable(str(value.get("backend") or ""), longest=40)

    def add(self, event: Any) -> None:
        """Take one event; those of other tools and shapes are passed over."""
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            return
        name, category = event.get("name"), str(event.get("cat") or "")
        at, lasts = _number(event.get("ts")), _number(event.get("dur", 0.0))
        if not isinstance(name, str) or at is None or lasts is None:
            return
        self.events += 1
        if self.origin is None:
            self.origin = at
        start_s = (at - self.origin) * _MICRO
        end_s = start_s + lasts * _MICRO
        kind = category.lower()
        if kind == "gpu_user_annotation":
            if _OPTIMIZER.match(name):
                self.annotated.add(UPDATE, start_s, end_s)
        elif kind == "kernel":
            self.device.add_kernel(name, start_s, end_s)
        elif kind in _COPY:
            self.device.add(COPIES, start_s, end_s, "copies")
        elif kind in _ANNOTATIONS or kind in _HOST_KERNELS or kind == "operator":
            self._add_host(name, kind, start_s, end_s)

    def _add_host(self, name: str, kind: str, start_s: float, end_s: float) -> None:
        if found := _STEP.match(name):
            if len(self.steps) < MOST_STEPS:
                self.steps.setdefault(int(found[1]), (start_s, end_s))
        elif found := _OPTIMIZER.match(name):
            self.optimizer = self.optimizer or found[1]
            self.host.add(UPDATE, start_s, end_s)
            if len(self.updates) < MOST_STEPS:
                self.updates.append((start_s, end_s))
        elif _LOADER.match(name):
            self.host.add(INPUT, start_s, end_s)
        elif _COMMUNICATION.match(name):
            self.host.add(EXPOSED, start_s, end_s)
        elif kind not in _ANNOTATIONS:
            self.host.add(KERNELS, start_s, end_s)

    def windows(self) -> tuple[list[tuple[int, float, float]], str]:
        """Step, start and end of each step, and what they are; a step ends where the next one starts."""
        if self.steps:
            ordered = sorted((number, *span) for number, span in self.steps.items())
            return step_windows(ordered), "a step is from one ProfilerStep to the next"
        ends = sorted(end for _, end in self.updates)
        found = [(number + 1, ends[number], ends[number + 1]) for number in range(len(ends) - 1)]
        return found, "a step is from one optimizer step to the next: the profiler had no schedule"


def _number(value: Any) -> float | None:
    """A finite number of an event; JSON's integers may be too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LATEST_US:
        return None
    return float(value)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 10_000_000 else None


def _read(path: Path) -> list[ImportedRun]:
    trace = _Trace()
    for key, value in JsonStream(path).entries("traceEvents"):
        if key is None:
            trace.add(value)
        else:
            trace.head(key, value)
    windows, meaning = trace.windows()
    if not windows:
        raise unreadable(
            path,
            f"holds no step: {trace.events:,} events without ProfilerStep and fewer than two optimizer steps",
            "profile with a schedule, and call prof.step() after every step of the loop",
        )
    fields: dict[str, Any] = {}
    notes = [meaning]
    if trace.names and (device := device_called(trace.names[0])):
        fields |= {"device": device, "gpus": trace.world_size or 1}
    elif trace.names:
        notes.append(f"device {printable(trace.names[0], longest=60)!r} is in no catalog")
    if trace.world_size:
        fields["gpus"] = trace.world_size
    if trace.optimizer:
        try:
            fields["optimizer"] = canonical_optimizer(trace.optimizer)
        except PrecisionTimeError:
            notes.append(f"optimizer {trace.optimizer[:40]!r} is not known and was left out")
    if trace.world_size and trace.world_size > 1:
        notes.append(f"rank {trace.rank} of {trace.world_size}, {trace.backend or 'backend not said'}")
    steps = tuple(LoggedStep(step=number, step_time_s=end - start, steps=1) for number, start, end in windows)
    run = ImportedRun(
        name=_name(path), origin=path.name, importer="pytorch-profiler", fields=fields, steps=steps
    )
    traced = trace.device if trace.device.count else trace.host
    if trace.device.count:
        trace.device.take(INPUT, trace.host)
        trace.device.move(KERNELS, UPDATE, trace.annotated.merged(UPDATE))
        notes.append(f"busy time of the device by kind: {shares_by_kind(trace.device.kinds)}")
    else:
        notes.append("no device was traced: terms are those of the host")
    if traced.count >= traced.most:
        notes.append(f"only the first {traced.most:,} spans were read")
    notes.append("the profiler itself slows the host down: compare the terms, time the run without it")
    terms_s = mean_terms(traced, steady_windows(windows, run))
    return [replace(run, notes=tuple(notes), terms_s=terms_s)]


def _name(path: Path) -> str:
    name = path.name
    for ending in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name or path.name


def _matches(path: Path, head: bytes) -> bool:
    if not path.name.endswith((".json", ".json.gz")):
        return False
    start = unpacked_head(head).lstrip()
    if start.startswith(b"{"):
        return b'"traceEvents"' in start or (b'"schemaVersion"' in start and b'"deviceProperties"' in start)
    return start.startswith(b"[") and b'"ph"' in start[:4096] and b'"ts"' in start[:8192]


IMPORTERS = (
    Importer(
        name="pytorch-profiler",
        description="PyTorch profiler (Kineto): Chrome trace, .json or .json.gz",
        matches=_matches,
        read=_read,
    ),
)
