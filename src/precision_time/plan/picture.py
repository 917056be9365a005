"""A step as a picture: SVG by itself, or a page with the picture and the table of terms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path

from ..cost.terms import OTHER_COLOR, TERMS
from ..errors import ConfigError
from ..io import write_atomically
from ..units import format_bytes, format_duration
from .timeline import KERNELS, Bar, StepTimeline, Stream, words

COLORS: Mapping[str, str] = {
    "forward": "#4e79a7",
    "backward": "#59a14f",
    "weight": "#8cd17d",
    "overlapped": "#d4a6c8",
    "bubble": "#e6e6e6",
    **{term.name.removesuffix("_s"): term.color for term in TERMS},
}
"""Of each kind of bar."""
_WIDTH, _LEFT, _RIGHT = 1200, 180, 20
_LANE, _GAP, _TITLE = 22, 6, 34
"""Heights of a lane, between lanes, and of a heading [pixels]."""
_MOST_LANES = 32
"""Stages drawn; of more, evenly chosen ones with the first and the last."""
_NARROW = 0.8
"""Mean width of a bar below which a lane is drawn by what fills each pixel [pixels]."""
_STEPS = 4
"""Steps to which the shares of a pixel are rounded."""
_TICKS = 8
_KINDS_OF_FILE = (".svg", ".html")
_Shares = tuple[tuple[str, int], ...]
"""Kinds of bars, and how many of _STEPS steps of a pixel each fills."""


def check_picture_path(path: Path) -> None:
    """Refuse a file that would be no picture, before anything is computed for it.

    Raises:
        ConfigError: If its name ends in neither .svg nor .html.
    """
    if path.suffix.lower() not in _KINDS_OF_FILE:
        raise ConfigError(
            f"--timeline {path} is neither an .svg nor an .html file. To fix: {path.with_suffix('.html')}."
        )


def write_picture(step: StepTimeline, path: Path) -> None:
    """Draw a step to an .svg or .html file.

    Raises:
        ConfigError: If the name ends in neither, or the file cannot be written.
    """
    check_picture_path(path)
    write_atomically(path, to_svg(step) if path.suffix.lower() == ".svg" else to_html(step))


def to_svg(step: StepTimeline) -> str:
    """The step of one device over its streams, and below it the pipeline over its stages."""
    streams = {stream.value: [bar for bar in step.device if bar.stream is stream] for stream in Stream}
    charts = [(f"One device of the first stage: {step.name}", streams)]
    stages = _chosen([list(_tasks(bars)) for _, bars in groupby(step.pipeline, key=lambda bar: bar.stage)])
    if len(stages) > 1:
        shown = "" if len(stages) == step.layout.pp else f", {len(stages)} of {step.layout.pp} shown"
        by_stage = {f"stage {bars[0].stage}": bars for bars in stages}
        charts.append((f"Pipeline over its stages{shown}", by_stage))
    parts: list[str] = []
    top = 0
    for heading, lanes in charts:
        parts.append(_text(_LEFT, top + 22, heading, "heading"))
        top += _TITLE
        for label, bars in lanes.items():
            if bars:
                parts += _lane(label, bars, top, step.step_time_s)
                top += _LANE + _GAP
        parts += _axis(top, step.step_time_s)
        top += _TITLE
    used = {bar.kind for bar in (*step.device, *step.pipeline)}
    legend, height = _legend([kind for kind in (*COLORS, *sorted(used - COLORS.keys())) if kind in used], top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">\n<title>{escape(_headline(step))}</title>\n'
        f"<style>{_SVG_STYLE}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join([*parts, *legend])
        + "\n</svg>\n"
    )


def to_html(step: StepTimeline) -> str:
    """A page that needs nothing else: the picture, the terms, the memory."""
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
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(_headline(step))}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(_headline(step))}</h1>\n<p>Layout: {escape(step.name)}. {escape(facts)}</p>\n"
        f'<div class="picture">\n{to_svg(step)}</div>\n'
        f'<div class="tables">\n{_table("Where the time goes", (*time_rows, _total(step)))}\n'
        f"{_table('Memory per device', memory_rows)}\n</div>\n"
        + (f"<h2>Assumed</h2>\n<ul>{notes}</ul>\n" if notes else "")
        + "</body>\n</html>\n"
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
    scale = (_WIDTH - _LEFT - _RIGHT) / step_s
    yield _text(_LEFT - 8, top + _LANE - 7, label, "label")
    crowded = sum(bar.seconds for bar in bars) * scale < _NARROW * len(bars)
    if crowded:
        for start, width, shares in _by_pixel(bars, scale):
            title = escape(", ".join(f"{words(kind)} {steps / _STEPS:.0%}" for kind, steps in shares))
            yield _rectangle(_LEFT + start, top, width, _mixed_color(shares), title)
        return
    for bar in bars:
        title = escape(f"{bar.name}: {format_duration(bar.seconds)} from {format_duration(bar.start_s)}")
        x = _LEFT + bar.start_s * scale
        yield _rectangle(x, top, bar.seconds * scale, COLORS.get(bar.kind, OTHER_COLOR), title)


def _rectangle(x: float, top: float, width: float, color: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{_LANE}" fill="{color}">'
        f"<title>{title}</title></rect>"
    )


def _tasks(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Each task as one bar, with the communication that shows in it."""
    whole: Bar | None = None
    for bar in bars:
        if whole is not None and bar.micro_batch is not None and bar.kind not in KERNELS:
            whole = replace(whole, end_s=bar.end_s)
            continue
        if whole is not None:
            yield whole
        whole = bar
    if whole is not None:
        yield whole


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


def _axis(top: float, step_s: float) -> Iterator[str]:
    """Ticks at round times."""
    scale = (_WIDTH - _LEFT - _RIGHT) / step_s
    rough = step_s / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    distance = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    for tick in range(math.floor(step_s / distance) + 1):
        x = _LEFT + tick * distance * scale
        yield f'<line x1="{x:.1f}" y1="{top - _GAP}" x2="{x:.1f}" y2="{top}" stroke="#666666"/>'
        yield _text(x, top + 12, format_duration(tick * distance) if tick else "0", "tick")


def _legend(kinds: Iterable[str], top: float) -> tuple[list[str], int]:
    """Color and name of each kind in rows, and where they end."""
    parts: list[str] = []
    x, y = float(_LEFT), top
    for kind in kinds:
        name = f"{words(kind)} communication" if kind.endswith("_exposed") else words(kind)
        width = 26.0 + 6.6 * len(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + 20
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{COLORS.get(kind, OTHER_COLOR)}"/>'
        )
        parts.append(_text(x + 16, y + 10, name, "key"))
        x += width
    return parts, int(y + 30)


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>'


def _table(title: str, rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(share)}</td></tr>"
        for name, value, share in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


_SVG_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#222222}"
    ".heading{font-size:14px;font-weight:600}.label{text-anchor:end}.tick{text-anchor:middle;fill:#666666}"
)
_PAGE_STYLE = (
    "body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:1240px;padding:0 1rem;color:#222;"
    "background:#fff}h1{font-size:1.4rem}.picture{overflow-x:auto}.tables{display:flex;flex-wrap:wrap;gap:3rem}"
    "table{border-collapse:collapse}caption{text-align:left;font-weight:600;padding:.5rem 0}"
    "th{text-align:left;font-weight:400}td{text-align:right;font-variant-numeric:tabular-nums}"
    "th,td{padding:.15rem .8rem .15rem 0;border-bottom:1px solid #ddd}"
)
