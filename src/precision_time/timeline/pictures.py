"""A step as files: its timeline and its memory as pictures (.svg), pages (.html) or figures (.json)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ..cost.terms import TERMS
from ..io import check_suffix, write_atomically
from ..planning.layouts.result import layout_name
from ..render.blocks import Block, Drawing, Text, warnings
from ..render.html import page_of_blocks
from ..render.table import Table
from ..units import format_bytes, format_duration
from .memory import MemoryTimeline
from .step import Bar, StepTimeline, Stream, tasks_of, words
from .svg import Colors, areas, lanes

_KINDS = Colors(
    of={
        "forward": "#4e79a7",
        "backward": "#59a14f",
        "weight": "#8cd17d",
        "overlapped": "#d4a6c8",
        "bubble": "#e6e6e6",
        **{term.name.removesuffix("_s"): term.color for term in TERMS},
    },
    named=lambda kind: f"{words(kind)} communication" if kind.endswith("_exposed") else words(kind),
)
_MEMORY = Colors(
    of={
        "parameters": "#4e79a7",
        "expert_parameters": "#a0cbe8",
        "cast_weights": "#86bcb6",
        "master_weights": "#499894",
        "optimizer_states": "#b6992d",
        "gradients": "#f28e2b",
        "gradient_buckets": "#ffbe7d",
        "other_models": "#d37295",
        "framework": "#9d9da1",
        "fragmentation": "#d7d5d6",
        "gathered": "#76b7b2",
        "generation": "#fabfd2",
        "activations": "#59a14f",
        "logits": "#e15759",
        "temporary": "#ff9d9a",
    }
)
"""Of each term, from the bottom to the top: what stays below what comes and goes."""
_MOST_LANES = 32
"""Stages drawn; of more, evenly chosen ones with the first and the last."""


def check_picture_path(path: Path) -> None:
    """Refuse a file that would be no picture of a timeline, before anything is computed for it.

    Raises:
        ConfigError: If its name ends in neither .svg nor .html.
    """
    check_suffix("--timeline", path, (".html", ".svg"))


def check_memory_path(path: Path) -> None:
    """The same for the memory over a step.

    Raises:
        ConfigError: If its name ends in none of .svg, .html and .json.
    """
    check_suffix("--memory-timeline", path, (".html", ".svg", ".json"))


def write_picture(step: StepTimeline, path: Path, memory: MemoryTimeline | None = None) -> None:
    """Draw a step to an .svg or .html file; a page also shows the memory over the step.

    Raises:
        ConfigError: If the name ends in neither, or the file cannot be written.
    """
    check_picture_path(path)
    write_atomically(path, step_svg(step) if path.suffix.lower() == ".svg" else step_page(step, memory))


def write_memory(memory: MemoryTimeline, path: Path) -> None:
    """Write the memory over a step: a picture (.svg), a page with its terms (.html), or all figures (.json).

    Raises:
        ConfigError: If the name ends otherwise, or the file cannot be written.
    """
    check_memory_path(path)
    kind = path.suffix.lower()
    if kind == ".json":
        write_atomically(path, json.dumps(memory.to_dict(), allow_nan=False) + "\n")
    else:
        write_atomically(path, memory_svg(memory) if kind == ".svg" else memory_page(memory))


def step_svg(step: StepTimeline) -> str:
    """The step of one device over its streams, and below it the pipeline over its stages."""
    streams = {stream.value: [bar for bar in step.device if bar.stream is stream] for stream in Stream}
    charts: list[tuple[str, Mapping[str, Sequence[Bar]]]] = [
        (f"One device of the first stage: {step.name}", streams)
    ]
    stages = _chosen([list(tasks_of(bars)) for _, bars in groupby(step.pipeline, key=lambda bar: bar.stage)])
    if len(stages) > 1:
        shown = "" if len(stages) == step.layout.pp else f", {len(stages)} of {step.layout.pp} shown"
        by_stage = {f"stage {bars[0].stage}": bars for bars in stages}
        charts.append((f"Pipeline over its stages{shown}", by_stage))
    return lanes(charts, _KINDS, end_s=step.step_time_s, title=_headline(step))


def step_page(step: StepTimeline, memory: MemoryTimeline | None = None) -> str:
    """A page that needs nothing else: the picture, the terms, the memory and, where given, its course."""
    return page_of_blocks(_headline(step), _step_blocks(step, memory))


def _step_blocks(step: StepTimeline, memory: MemoryTimeline | None) -> Iterator[Block]:
    found = step.prediction
    interval = found.interval
    yield Text(
        f"Layout: {step.name}. Step {format_duration(step.step_time_s)}, {interval.coverage:.0%} interval "
        f"{format_duration(interval.low_s)} to {format_duration(interval.high_s)}; "
        f"{found.throughput:,.0f} {found.throughput_unit}"
        + ("" if found.mfu is None else f"; MFU {found.mfu:.1%}")
        + f"; {format_bytes(found.memory_bytes_per_device)} per device."
    )
    yield Drawing(step_svg(step))
    if memory is not None:
        yield Drawing(memory_svg(memory))
    yield _shares("Where the time goes", found.terms, format_duration, "step")
    yield _shares("Memory per device", found.memory_terms, format_bytes)
    yield from (Text(f"Assumed: {line}") for line in found.assumptions)
    yield from warnings(found.warnings)


def memory_svg(memory: MemoryTimeline) -> str:
    """The bytes of the fullest device over the step."""
    capacity = memory.prediction.device_memory_bytes
    return areas(
        memory.times_s,
        memory.held,
        _MEMORY,
        limit=capacity,
        limit_text=f"the device has {format_bytes(capacity)}",
        heading=f"{_heading(memory)}: {layout_name(memory.layout)}",
        title=_heading(memory),
    )


def memory_page(memory: MemoryTimeline) -> str:
    """A page that needs nothing else: the picture, the terms at the peak, the peaks of the stages."""
    return page_of_blocks(_heading(memory), _memory_blocks(memory))


def _memory_blocks(memory: MemoryTimeline) -> Iterator[Block]:
    capacity = memory.prediction.device_memory_bytes
    fits = "fits" if memory.peak_bytes <= capacity else "does not fit"
    yield Text(
        f"Layout: {layout_name(memory.layout)}. At most {format_bytes(memory.peak_bytes)} of "
        f"{format_bytes(capacity)}: it {fits}."
    )
    yield Drawing(memory_svg(memory))
    peak = {name: float(held[memory.peak_interval]) for name, held in memory.held.items()}
    yield _shares("At the peak", peak, format_bytes, "peak")
    if len(memory.stage_peaks) > 1:
        rows = (
            (f"stage {index}", format_bytes(size), f"{size / memory.peak_bytes:.1%}")
            for index, size in enumerate(memory.stage_peaks)
        )
        yield Table(title="Peak of each pipeline stage", columns=_SHARES, rows=tuple(rows), headless=True)


_SHARES = ("", ">", ">")


def _shares(title: str, values: Mapping[str, float], form: Callable[[float], str], total: str = "") -> Table:
    """Terms, what they take and their shares, the largest first, and where it has a name, their sum."""
    whole = math.fsum(values.values())
    largest = sorted(values.items(), key=lambda item: -item[1])
    rows = [
        (words(name.removesuffix("_s")), form(value), f"{value / whole:.1%}")
        for name, value in largest
        if value
    ]
    sums = [(total, form(whole), "100.0%")] if total else []
    return Table(title=title, columns=_SHARES, rows=(*rows, *sums), headless=True)


def _headline(step: StepTimeline) -> str:
    found = step.prediction
    return f"{found.model} on {found.gpus} x {found.device}, {found.precision}"


def _heading(memory: MemoryTimeline) -> str:
    found = memory.prediction
    stage = f" of stage {memory.stage}" if len(memory.stage_peaks) > 1 else ""
    return f"Memory of one device{stage}, {found.model} on {found.gpus} x {found.device}, {found.precision}"


def _chosen(stages: Sequence[list[Bar]]) -> list[list[Bar]]:
    """All stages, or `_MOST_LANES` of them."""
    if len(stages) <= _MOST_LANES:
        return list(stages)
    last = len(stages) - 1
    return [stages[round(place * last / (_MOST_LANES - 1))] for place in range(_MOST_LANES)]
