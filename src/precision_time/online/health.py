"""Why a run is slower than its prediction, as far as it can be told."""

from __future__ import annotations

from ..cost.terms import DATA_STALL
from ..predict.prediction import Prediction
from ..units import format_duration
from .estimate import Level


def slow_run(prediction: Prediction, level: Level, waited_s: float | None) -> str:
    """What a user should read of a run that is slower than it should be.

    Args:
        prediction: Of its step.
        level: Of the steps it made.
        waited_s: Of a step, spent waiting for input; None where nobody measured it.
    """
    took_s, said = level.median_s, prediction
    excess_s = took_s - said.step_time_s
    text = (
        f"Steps take {format_duration(took_s)}, {took_s / said.step_time_s:.2f} x the predicted "
        f"{format_duration(said.step_time_s)} ({said.interval.coverage:.0%} interval up to "
        f"{format_duration(said.interval.high_s)})."
    )
    if waited_s is not None and waited_s - said.terms.get(DATA_STALL, 0.0) > 0.5 * excess_s:
        return (
            f"{text} {format_duration(waited_s)} of each step pass waiting for input. To fix: more loader "
            "workers, faster storage or decoding, or prefetching."
        )
    if level.recent_log_ratio > 0.1:
        text += (
            " They became slower while it ran: look at the device's clock and temperature, and at the jobs "
            "beside it."
        )
    biggest = max(said.terms, key=lambda name: said.terms[name])
    ratio = (said.terms[biggest] + excess_s) / said.terms[biggest]
    return (
        f"{text} If one term explains it, {biggest} takes {ratio:.2f} x its "
        f"{format_duration(said.terms[biggest])}."
    )
