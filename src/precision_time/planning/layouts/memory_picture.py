"""Memory over a step as a picture: what one device holds by term, stacked over time, below what it has."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import numpy as np

from ...arrays import Floats
from ...io import check_suffix, write_atomically
from ...units import GIBI, format_bytes, format_duration
from .memory_timeline import MemoryTimeline
from .result import layout_name
from .svg import GAP, LEFT, RIGHT, TITLE, WIDTH, legend, page, svg_document, table, text_at, time_axis
from .timeline import words

COLORS: Mapping[str, str] = {
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
"""Of each term, from the bottom to the top: what stays below what comes and goes."""
_HEIGHT = 320
_LINES = 5
"""Lines across the picture, at round sizes."""
_OVER = "#c8102e"
_KINDS_OF_FILE = (".html", ".svg", ".json")


def check_memory_path(path: Path) -> None:
    """Refuse a file of another kind before anything is computed for it.

    Raises:
        ConfigError: If its name ends in none of .svg, .html and .json.
    """
    check_suffix("--memory-timeline", path, _KINDS_OF_FILE)


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


def memory_svg(memory: MemoryTimeline) -> str:
    """The bytes of the fullest device over the step."""
    capacity, step_s = memory.prediction.device_memory_bytes, memory.prediction.step_time_s
    high = 1.05 * max(memory.peak_bytes, capacity)
    bottom = TITLE + _HEIGHT
    scale = _HEIGHT / high
    parts = [text_at(LEFT, 22, f"{_heading(memory)}: {layout_name(memory.layout)}", "heading")]
    parts += _grid(high, bottom, scale)
    parts += _areas(memory, bottom, scale)
    from_s = float(memory.times_s[memory.peak_interval])
    at = LEFT + from_s / step_s * (WIDTH - LEFT - RIGHT)
    top = bottom - memory.peak_bytes * scale
    peak = f"peak {format_bytes(memory.peak_bytes)} from {format_duration(from_s)}"
    title = f"<title>{escape(peak)}</title>"
    parts.append(f'<circle cx="{at:.1f}" cy="{top:.1f}" r="4" fill="#222222">{title}</circle>')
    line = bottom - capacity * scale
    parts.append(
        f'<line x1="{LEFT}" y1="{line:.1f}" x2="{WIDTH - RIGHT}" y2="{line:.1f}" stroke="{_OVER}" '
        'stroke-dasharray="6 4"/>'
    )
    parts.append(text_at(LEFT + 6, line - 5, f"the device has {format_bytes(capacity)}", "key"))
    parts += time_axis(bottom + GAP, step_s)
    shown = [name for name in (*COLORS, *sorted(memory.held.keys() - COLORS.keys())) if name in memory.held]
    keys, height = legend([*shown], bottom + GAP + TITLE, COLORS)
    return svg_document([*parts, *keys], height, f"{_heading(memory)}, {peak}")


def memory_page(memory: MemoryTimeline) -> str:
    """A page that needs nothing else: the picture, the terms at the peak, the peaks of the stages."""
    peak = memory.peak_interval
    terms = {name: float(held[peak]) for name, held in memory.held.items()}
    rows = [
        (words(name), format_bytes(size), f"{size / memory.peak_bytes:.1%}")
        for name, size in sorted(terms.items(), key=lambda item: -item[1])
        if size
    ]
    total = ("peak", format_bytes(memory.peak_bytes), "100.0%")
    stages = [
        (f"stage {index}", format_bytes(size), f"{size / memory.peak_bytes:.1%}")
        for index, size in enumerate(memory.stage_peaks)
    ]
    fits = "fits" if memory.peak_bytes <= memory.prediction.device_memory_bytes else "does not fit"
    return page(
        _heading(memory),
        f"<p>Layout: {escape(layout_name(memory.layout))}. At most {format_bytes(memory.peak_bytes)} of "
        f"{format_bytes(memory.prediction.device_memory_bytes)}: it {fits}.</p>\n"
        f'<div class="picture">\n{memory_svg(memory)}</div>\n<div class="tables">\n'
        f"{table('At the peak', (*rows, total))}\n"
        + (f"{table('Peak of each pipeline stage', stages)}\n" if len(stages) > 1 else "")
        + "</div>\n",
    )


def _heading(memory: MemoryTimeline) -> str:
    found = memory.prediction
    stage = f" of stage {memory.stage}" if len(memory.stage_peaks) > 1 else ""
    return f"Memory of one device{stage}, {found.model} on {found.gpus} x {found.device}, {found.precision}"


def _grid(high: float, bottom: float, scale: float) -> Iterator[str]:
    """Lines at round sizes."""
    rough = high / GIBI / _LINES
    unit = 10.0 ** math.floor(math.log10(rough))
    distance = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    for number in range(math.floor(high / GIBI / distance) + 1):
        y = bottom - number * distance * GIBI * scale
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield text_at(LEFT - 8, y + 4, f"{number * distance:g} GiB", "label")


def _areas(memory: MemoryTimeline, bottom: float, scale: float) -> Iterator[str]:
    """One area per term, on top of those before it; of every pixel the fullest interval."""
    columns = _fullest_of_pixels(memory)
    width = (WIDTH - LEFT - RIGHT) / len(columns)
    floor: Floats = np.zeros(len(columns))
    for name in (*COLORS, *sorted(memory.held.keys() - COLORS.keys())):
        if name not in memory.held:
            continue
        ceiling = floor + memory.held[name][columns]
        upper, lower = _outline(ceiling, bottom, scale, width), _outline(floor, bottom, scale, width)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*upper, *reversed(lower)))
        most = format_bytes(float(memory.held[name].max()))
        yield (
            f'<polygon points="{points}" fill="{COLORS.get(name, "#bab0ac")}">'
            f"<title>{escape(words(name))}, at most {most}</title></polygon>"
        )
        floor = ceiling


def _fullest_of_pixels(memory: MemoryTimeline) -> np.ndarray:
    """For every pixel the interval in it that holds most."""
    count = WIDTH - LEFT - RIGHT
    edges = np.linspace(0.0, float(memory.times_s[-1]), count + 1)
    starts = np.clip(np.searchsorted(memory.times_s, edges[:-1], side="right") - 1, 0, len(memory.total) - 1)
    stops = np.clip(np.searchsorted(memory.times_s, edges[1:], side="left"), starts + 1, len(memory.total))
    total = memory.total
    return np.array(
        [start + int(np.argmax(total[start:stop])) for start, stop in zip(starts, stops, strict=True)]
    )


def _outline(sizes: Floats, bottom: float, scale: float, width: float) -> list[tuple[float, float]]:
    """Corners of steps from left to right, without those on a level line."""
    changes = np.flatnonzero(np.diff(sizes)) + 1
    starts = [0, *changes.tolist(), len(sizes)]
    corners: list[tuple[float, float]] = []
    for start, stop in zip(starts, starts[1:], strict=False):
        y = bottom - float(sizes[start]) * scale
        corners += [(LEFT + start * width, y), (LEFT + stop * width, y)]
    return corners
