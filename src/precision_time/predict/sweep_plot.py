"""Time and throughput over the field that was swept, with intervals, as a picture; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..render.picture import check_picture, save
from .prediction import Prediction
from .predictions import Predictions

_AXES = ("gpus", "batch_size", "global_batch_size", "seq_len", "image_size", "nodes")
"""Fields that a plot goes along, those that most ask about first; then any other number."""
_UNITS = {"seq_len": "tokens per sample", "image_size": "side of the images [pixels]", "gpus": "devices",
          "batch_size": "samples per device", "global_batch_size": "samples per step"}  # fmt: skip
_MOST_LINES = 20
_LEAST_STEPS = 1.5
"""Where the largest value is more than so many times the smallest, the axis is logarithmic."""


def write_plot(found: Predictions, path: Path) -> None:
    """Draw the answers to a file, one line for each job and one point for each value of the field swept.

    Raises:
        ConfigError: If no field with numbers was swept, or there are too many lines.
        MissingExtraError: If matplotlib is not installed.
    """
    check_picture(path)
    axis = axis_of(found)
    lines = _lines(found, axis)
    if len(lines) > _MOST_LINES:
        raise ConfigError(
            f"--out {path}: {len(lines)} lines are too many to tell apart. To fix: name fewer values; at "
            f"most {_MOST_LINES} lines are drawn."
        )

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        units = " or ".join(sorted({answer.throughput_unit for answer in found.predictions}))
        for number, (label, line) in enumerate(lines.items()):
            _draw(panels, f"C{number % 10}", label, axis, line, dashed=number >= 10)  # noqa: PLR2004
        for panel, title in zip(panels, ("step time [s]", f"throughput [{units}]"), strict=True):
            _dress(panel, axis, found.predictions, title)
        coverage = found.predictions[0].interval.coverage
        notes = f"bands: {coverage:.0%} interval"
        if not all(answer.fits for answer in found.predictions):
            notes += "; hollow: does not fit in memory"
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, title=notes,
            title_fontsize="small",
        )  # fmt: skip

    save(draw, path, width=9.5, height=4.2)


def axis_of(found: Predictions) -> str:
    """The field with numbers that was swept.

    Raises:
        ConfigError: If there is none.
    """
    numbers = [
        name
        for name in found.varied
        if len({_value(answer, name) for answer in found.predictions}) > 1
        and all(isinstance(_value(answer, name), int | float) for answer in found.predictions)
    ]
    if not numbers:
        raise ConfigError(
            "A picture needs a field with numbers that was swept. To fix: such as --gpus 8..64 or "
            "--batch-size 16..256."
        )
    return min(numbers, key=lambda name: _AXES.index(name) if name in _AXES else len(_AXES))


def _value(answer: Prediction, name: str) -> Any:
    return getattr(answer, name, answer.request.get(name))


def _lines(found: Predictions, axis: str) -> dict[str, list[Prediction]]:
    """The answers that differ in the swept field alone, by what tells them from the others."""
    fields = [name for name in found.varied if name not in (axis, "nodes" if axis == "gpus" else "")]
    lines: dict[str, list[Prediction]] = {}
    for answer in found.predictions:
        words = []
        for name in fields:
            value = _value(answer, name)
            said = (
                f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
            )
            words.append(said if isinstance(value, str) else f"{name.replace('_', ' ')} {said}")
        lines.setdefault(", ".join(words) or answer.model, []).append(answer)
    return {label: sorted(line, key=lambda answer: _value(answer, axis)) for label, line in lines.items()}


def _draw(
    panels: Sequence[Any], color: str, label: str, axis: str, line: Sequence[Prediction], *, dashed: bool
) -> None:
    x = [_value(answer, axis) for answer in line]
    samples = [answer.throughput * answer.step_time_s for answer in line]
    seconds = [answer.step_time_s for answer in line]
    low, high = ([getattr(answer.interval, end) for answer in line] for end in ("low_s", "high_s"))
    rates = [[count / s for count, s in zip(samples, some, strict=True)] for some in (seconds, high, low)]
    faces = [color if answer.fits else "white" for answer in line]
    for panel, (middle, below, above) in zip(panels, ((seconds, low, high), rates), strict=True):
        panel.fill_between(x, below, above, color=color, alpha=0.12, linewidth=0)
        panel.plot(x, middle, color=color, linewidth=1.2, linestyle="--" if dashed else "-", label=label)
        panel.scatter(x, middle, s=16, c=faces, edgecolors=color, zorder=3)


def _dress(panel: Any, axis: str, answers: Sequence[Prediction], title: str) -> None:
    """Logarithmic axes where values spread, and ticks where there are points."""
    values = sorted({_value(answer, axis) for answer in answers})
    if values[-1] > values[0] * _LEAST_STEPS > 0:
        panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    every = max(len(values) // 8, 1)
    panel.set_xticks(values[::every], [f"{value:,g}" for value in values[::every]])
    panel.minorticks_off()
    panel.yaxis.set_major_locator(_ticks())
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")  # noqa: PLR2004
    panel.set_xlabel(_UNITS.get(axis, axis.replace("_", " ")))
    panel.set_ylabel(title)
    panel.grid(visible=True, axis="y", alpha=0.3)


def _ticks() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(base=10.0, subs=(1.0, 2.0, 5.0))
