"""A step as a picture: SVG by itself, or a page with the picture and the table of terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ...cost.terms import OTHER_COLOR, TERMS
from ...io import check_suffix, write_atomically
from ...units import format_bytes, format_duration
from .memory_picture import memory_svg
from .memory_timeline import MemoryTimeline
from .svg import GAP, LEFT, RIGHT, TITLE, WIDTH, legend, page, svg_document, table, text_at, time_axis
from .timeline import Bar, StepTimeline, Stream, tasks_of, words

COLORS: Mapping[str, str] = {
    "forward": "#4e79a7",
    "backward": "#59a14f",
    "weight": "#8cd17d",
    "overlapped": "#d4a6c8",
    "bubble": "#e6e6e6",
    **{term.name.removesuffix("_s"): term.color for term in TERMS},
}
"""Of each kind of bar."""
_LANE = 22
"""Height of a lane [pixels]."""
_MOST_LANES = 32
"""Stages drawn; of more, evenly chosen ones with the first and the last."""
_NARROW = 0.8
"""Mean width of a bar below which a lane is drawn by what fills each pixel [pixels]."""
_STEPS = 4
"""Steps to which the shares of a pixel are rounded."""
_KINDS_OF_FILE = (".html", ".svg")
_Shares = tuple[tuple[str, int], ...]
"""Kinds of bars, and how many of _STEPS steps of a pixel each fills."""


def check_picture_path(path: Path) -> None:
    """Refuse a file that would be no picture, before anything is computed for it.

    Raises:
        ConfigError: If its name ends in neither .svg nor .html.
    """
    check_suffix("--timeline", path, _KINDS_OF_FILE)


def write_picture(step: StepTimeline, path: Path, memory: MemoryTimeline | None = None) -> None:
    """Draw a step to an .svg or .html file; a page also shows the memory over the step.

    Raises:
        ConfigError: If the name ends in neither, or the file cannot be written.
    """
    check_picture_path(path)
    write_atomically(path, to_svg(step) if path.suffix.lower() == ".svg" else to_html(step, memory))


def to_svg(step: StepTimeline) -> str:
    """The step of one device over its streams, and below it the pipeline over its stages."""
    streams = {stream.value: [bar for bar in step.device if bar.stream is stream] for stream in Stream}
    charts = [(f"One device of the first stage: {step.name}", streams)]
    stages = _chosen([list(tasks_of(bars)) for _, bars in groupby(step.pipeline, key=lambda bar: bar.stage)])
    if len(stages) > 1:
        shown = "" if len(stages) == step.layout.pp else f", {len(stages)} of {step.layout.pp} shown"
        by_stage = {f"stage {bars[0].stage}": bars for bars in stages}
        charts.append((f"Pipeline over its stages{shown}", by_stage))
    parts: list[str] = []
    top = 0
    for heading, lanes in charts:
        parts.append(text_at(LEFT, top + 22, heading, "heading"))
        top += TITLE
        for label, bars in lanes.items():
            if bars:
                parts += _lane(label, bars, top, step.step_time_s)
                top += _LANE + GAP
        parts += time_axis(top, step.step_time_s)
        top += TITLE
    used = {bar.kind for bar in (*step.device, *step.pipeline)}
    shown_kinds = [kind for kind in (*COLORS, *sorted(used - COLORS.keys())) if kind in used]
    keys, height = legend(shown_kinds, top, COLORS)
    return svg_document([*parts, *keys], height, _headline(step))


def to_html(step: StepTimeline, memory: MemoryTimeline | None = None) -> str:
    """A page that needs nothing else: the picture, the terms, the memory and, where given, its course."""
    prediction = step.prediction
    terms = sorted(prediction.terms.items(), key=lambda item: -item[1])
    time_rows = [
        (words(name.removesuffix("_s")), format_duration(seconds), f"{seconds / step.step_time_s:.1%}")
        for name, seconds in terms
    ]
    memory_rows = [
        (words(name), format_bytes(value), f"{value / prediction.memory_bytes_per_device:.1%}")
        for name, value in sorted(prediction.memory_terms.items(), key=lambda item: -item[1])
        if value
    ]
    interval = prediction.interval
    facts = (
        f"Step {format_duration(step.step_time_s)}, {interval.coverage:.0%} interval "
        f"{format_duration(interval.low_s)} to {format_duration(interval.high_s)}; "
        f"{prediction.throughput:,.0f} {prediction.throughput_unit}"
        + ("" if prediction.mfu is None else f"; MFU {prediction.mfu:.1%}")
        + f"; {format_bytes(prediction.memory_bytes_per_device)} per device."
    )
    notes = "".join(f"<li>{escape(line)}</li>" for line in (*prediction.assumptions, *prediction.warnings))
    course = "" if memory is None else f'<div class="picture">\n{memory_svg(memory)}</div>\n'
    return page(
        _headline(step),
        f"<p>Layout: {escape(step.name)}. {escape(facts)}</p>\n"
        f'<div class="picture">\n{to_svg(step)}</div>\n{course}'
        f'<div class="tables">\n{table("Where the time goes", (*time_rows, _total(step)))}\n'
        f"{table('Memory per device', memory_rows)}\n</div>\n"
        + (f"<h2>Assumed</h2>\n<ul>{notes}</ul>\n" if notes else ""),
    )


def _headline(step: StepTimeline) -> str:
    found = step.prediction
    return f"{found.model} on {found.gpus} x {found.device}, {found.precision}"


def _total(step: StepTimeline) -> tuple[str, str, str]:
    return ("step", format_duration(step.step_time_s), "100.0%")


def _chosen(stages: Sequence[list[Bar]]) -> list[list[Bar]]:
    """All stages, or `_MOST_LANES` of them."""
    if len(stages) <= _MOST_LANES:
        return list(stages)
    last = len(stages) - 1
    return [stages[round(place * last / (_MOST_LANES - 1))] for place in range(_MOST_LANES)]


def _lane(label: str, bars: Sequence[Bar], top: float, step_s: float) -> Iterator[str]:
    """One row of bars with its label."""
    scale = (WIDTH - LEFT - RIGHT) / step_s
    yield text_at(LEFT - 8, top + _LANE - 7, label, "label")
    crowded = sum(bar.seconds for bar in bars) * scale < _NARROW * len(bars)
    if crowded:
        for start, width, shares in _by_pixel(bars, scale):
            title = escape(", ".join(f"{words(kind)} {steps / _STEPS:.0%}" for kind, steps in shares))
            yield _rectangle(LEFT + start, top, width, _mixed_color(shares), title)
        return
    for bar in bars:
        title = escape(f"{bar.name}: {format_duration(bar.seconds)} from {format_duration(bar.start_s)}")
        x = LEFT + bar.start_s * scale
        yield _rectangle(x, top, bar.seconds * scale, COLORS.get(bar.kind, OTHER_COLOR), title)


def _rectangle(x: float, top: float, width: float, color: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{_LANE}" fill="{color}">'
        f"<title>{title}</title></rect>"
    )


def _by_pixel(bars: Sequence[Bar], scale: float) -> Iterator[tuple[int, int, _Shares]]:
    """First pixel, number of pixels and shares of the kinds of bars, by stretches of equal shares."""
    pixels: dict[int, dict[str, float]] = {}
    for bar in bars:
        for pixel in range(math.floor(bar.start_s * scale), math.ceil(bar.end_s * scale)):
            inside = min(bar.end_s * scale, pixel + 1.0) - max(bar.start_s * scale, float(pixel))
            filled = pixels.setdefault(pixel, {})
            filled[bar.kind] = filled.get(bar.kind, 0.0) + inside
    mixed = [(pixel, _shares(filled)) for pixel, filled in sorted(pixels.items())]
    for (_, shares), run in groupby(enumerate(mixed), key=lambda item: (item[1][0] - item[0], item[1][1])):
        pixel, *others = (pixel for _, (pixel, _) in run)
        yield pixel, len(others) + 1, shares


def _mixed_color(shares: _Shares) -> str:
    """The colors of the kinds mixed by their shares, with white where nothing is."""
    total = max(sum(steps for _, steps in shares), _STEPS)
    mixed = [255.0, 255.0, 255.0]
    for kind, steps in shares:
        code = COLORS.get(kind, OTHER_COLOR)
        for channel in range(3):
            mixed[channel] -= (255 - int(code[2 * channel + 1 : 2 * channel + 3], 16)) * steps / total
    return "#" + "".join(f"{round(value):02x}" for value in mixed)


def _shares(filled: Mapping[str, float]) -> _Shares:
    """Parts of a pixel in coarse steps, so that stretches that look the same are one."""
    steps = {kind: round(_STEPS * part) for kind, part in filled.items()}
    found = tuple(sorted((kind, count) for kind, count in steps.items() if count))
    return found or ((max(filled, key=lambda kind: filled[kind]), 1),)
