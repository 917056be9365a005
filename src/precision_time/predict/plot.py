"""Predictions as bars of their terms, with intervals, in a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..cost.terms import OTHER_COLOR, TERMS
from ..errors import required_module
from ..rendering import in_words
from .page import headline, labels_of, shown_terms
from .prediction import Prediction

COLORS = {in_words(term.name): term.color for term in TERMS}
_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BAR_INCHES, _FRAME_INCHES, _WIDTH_INCHES = 0.5, 1.6, 8.0


def plot(predictions: Sequence[Prediction], *, axes: Any = None) -> Any:
    """One bar for each prediction: its terms add up to the step time, the black line is the interval.

    Args:
        predictions: At least one.
        axes: Where to draw; None for a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    pyplot = required_module("matplotlib.pyplot", package="matplotlib", extra="plots", purpose="draw plots")
    if axes is None:
        height = _FRAME_INCHES + _BAR_INCHES * len(predictions)
        _, axes = pyplot.subplots(figsize=(_WIDTH_INCHES, height), layout="constrained")
    longest_s = max(prediction.interval.high_s for prediction in predictions)
    unit_s, unit = next((step for step in _STEPS if longest_s >= step[0]), _STEPS[-1])
    places = range(len(predictions))[::-1]
    starts = [0.0] * len(predictions)
    for name, values in shown_terms(predictions).items():
        widths = [value / unit_s for value in values]
        axes.barh(places, widths, 0.6, left=starts, label=name, color=COLORS.get(name, OTHER_COLOR))
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    intervals = [each.interval for each in predictions]
    below = [
        (each.step_time_s - item.low_s) / unit_s for each, item in zip(predictions, intervals, strict=True)
    ]
    above = [
        (item.high_s - each.step_time_s) / unit_s for each, item in zip(predictions, intervals, strict=True)
    ]
    coverage = f"{intervals[0].coverage:.0%} interval"
    axes.errorbar(
        starts,
        places,
        xerr=[below, above],
        fmt="none",
        ecolor="black",
        capsize=4,
        linewidth=1,
        label=coverage,
    )
    axes.set_yticks(places, labels_of(predictions))
    axes.set_xlabel(f"step time [{unit}]")
    axes.set_xlim(left=0.0)
    axes.set_title(headline(predictions), fontsize="medium", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return axes
