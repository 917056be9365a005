"""A time limit out of the distribution of a run's length."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from precision_time.errors import ConfigError
from precision_time.planning.run.prediction import RunPrediction
from precision_time.units import format_duration

from ..estimate import JobEstimate
from .options import time_of, time_text

QUANTILE = 0.95
MARGIN = 0.1
MOST_MARGIN = 10.0
_MINUTE_S = 60.0
"""Slurm counts limits in minutes."""
_YEAR_S = 366 * 86_400.0
_ASK_S = 10.0
"""Longest that `sinfo` may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeLimit:
    """A time limit and what it rests on."""

    seconds: int | None
    """To set; None where nothing was predicted."""
    text: str
    """The same as Slurm writes it; empty where there is none."""
    why: str
    """One sentence: the prediction behind it, or why there is none and what to add."""
    quantile: float
    margin: float
    predicted_s: Mapping[str, float]
    """Of the run, at 10, 50, 90 and 95 %, and at the quantile; empty where nothing was predicted."""
    probability: float | None = None
    """That the run ends within it."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        return asdict(self)


def check_quantile(quantile: float, margin: float) -> None:
    """Refuse what is no probability, or no margin.

    Raises:
        ConfigError: If the quantile is not between 0 and 1, or the margin is negative or above 10.
    """
    if not 0.0 < quantile < 1.0:
        raise ConfigError(
            f"quantile={quantile:g} is no probability. The rule: between 0 and 1. To fix: such as 0.95, with "
            "which 95 runs of 100 end in time."
        )
    if not 0.0 <= margin <= MOST_MARGIN:
        raise ConfigError(
            f"margin={margin:g} is not between 0 and {MOST_MARGIN:g}. To fix: such as 0.1 for a tenth more."
        )


def time_limit(
    estimate: JobEstimate,
    *,
    quantile: float = QUANTILE,
    margin: float = MARGIN,
    longest_s: float | None = None,
    partition: str = "",
) -> TimeLimit:
    """The limit within which a job ends with a probability.

    Args:
        estimate: Of the job.
        quantile: Probability that the predicted run has ended by then.
        margin: Added share of that time, for what a script does beside its training.
        longest_s: MaxTime of the partition; None where there is none or it is not known.
        partition: Its name, for the words.

    Raises:
        ConfigError: If quantile or margin break their rules.
    """
    check_quantile(quantile, margin)
    run = estimate.run
    if run is None:
        return TimeLimit(
            seconds=None, text="", why=estimate.reason, quantile=quantile, margin=margin, predicted_s={}
        )
    predicted = {f"p{100 * share:g}": run_quantile(run, share) for share in (0.1, 0.5, 0.9, 0.95, quantile)}
    wanted_s = run_quantile(run, quantile) * (1.0 + margin)
    if not wanted_s < _YEAR_S:
        why = f"The run takes {format_duration(run.total_s)}: no time limit is that long."
        return TimeLimit(
            seconds=None, text="", why=why, quantile=quantile, margin=margin, predicted_s=predicted
        )
    seconds = max(math.ceil(wanted_s / _MINUTE_S), 1) * int(_MINUTE_S)
    warnings = []
    if longest_s is not None and seconds > longest_s:
        seconds = int(longest_s // _MINUTE_S * _MINUTE_S)
        share = run.probability_within(longest_s)
        warnings.append(
            f"The partition {partition or 'of the job'} allows {time_text(longest_s)} at most; the run ends "
            f"within that with a probability of {share:.0%}. Save checkpoints, or use another partition."
        )
    if not run.fits:
        warnings.append("The job does not fit in the memory of its devices by the prediction.")
    return TimeLimit(
        seconds=seconds,
        text=time_text(seconds),
        why=_why(estimate, run, quantile, margin, predicted),
        quantile=quantile,
        margin=margin,
        predicted_s=predicted,
        probability=run.probability_within(seconds),
        warnings=tuple(warnings),
    )


def run_quantile(run: RunPrediction, share: float) -> float:
    """Seconds within which the run ends with a probability."""
    place = share * (len(run.quantiles_s) - 1)
    low = math.floor(place)
    high = min(low + 1, len(run.quantiles_s) - 1)
    part = place - low
    return float(run.quantiles_s[low] * (1.0 - part) + run.quantiles_s[high] * part)


def _why(
    estimate: JobEstimate, run: RunPrediction, quantile: float, margin: float, predicted: Mapping[str, float]
) -> str:
    steps = sum(phase.steps for phase in run.phases)
    nodes = f" on {run.nodes} nodes" if run.nodes > 1 else ""
    step = "" if estimate.step is None else f" of {format_duration(estimate.step.step_time_s)}"
    more = f" and {margin:.0%} more" if margin else ""
    fits = "" if run.fits else "does not fit in memory; if it did, "
    return (
        f"{fits}{run.model}, {run.gpus} x {run.device}{nodes}: {steps:,} steps{step}, expected "
        f"{format_duration(run.total_s)}, {quantile:.3g} quantile "
        f"{format_duration(predicted[f'p{100 * quantile:g}'])}"
        f"{more}."
    )


def too_short(estimate: JobEstimate, given_s: float, *, quantile: float) -> str:
    """A word for a limit that somebody stated and that the run probably exceeds; empty where it does."""
    run = estimate.run
    if run is None or (share := run.probability_within(given_s)) >= quantile:
        return ""
    return (
        f"--time={time_text(given_s)} stays, and the run ends within it with a probability of {share:.0%} "
        f"({quantile:.3g} quantile: {format_duration(run_quantile(run, quantile))}). --replace-time sets the "
        "predicted limit instead."
    )


def partition_limit_s(partition: str, *, environment: Mapping[str, str] | None = None) -> float | None:
    """MaxTime of a partition, of the longest of several; None where Slurm does not say or has none.

    Args:
        partition: As `--partition` has it; empty for the default one.
        environment: For `sinfo`; None for that of this process.
    """
    try:
        found = subprocess.run(
            ["sinfo", "--noheader", "--format=%P|%l"],  # noqa: S607 - the user's own Slurm
            env=None if environment is None else dict(environment),
            capture_output=True, text=True, timeout=_ASK_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    wanted = {name for name in partition.split(",") if name}
    limits: list[float] = []
    for row in found.stdout.splitlines() if found.returncode == 0 else ():
        name, _, text = row.partition("|")
        if name.rstrip("*") in wanted or (not wanted and name.endswith("*")):
            try:
                limits.append(time_of(text))
            except ConfigError:
                return None
    longest = max(limits, default=math.inf)
    return None if math.isinf(longest) else longest
