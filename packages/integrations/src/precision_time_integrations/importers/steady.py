"""The step time of steady training: without warm-up, compilation, evaluation, checkpoints and restarts.

Every report is an interval of training: so many steps in so many seconds, either logged as such or the
difference of two times. Of those the weighted median is taken after what is not steady is left out, so the
result is never outside what was logged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import ImportedRun, LoggedStep

_FEW = 4
"""Intervals below which none is left out as the first of all."""
_SLOWER = 1.5
"""A stall, or a step of another kind, takes more than this many medians."""
_MAD = 6.0
"""... and lies more than this many robust standard deviations above."""
_TO_SIGMA = 1.4826
_MOST_REPORTED = 0.5
_WINDOW = 20.0
"""Resolutions of the clock in a window: its time is known to 5 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Some consecutive steps."""

    step: int
    """Optimizer steps done at its end."""
    steps: int
    step_time_s: float
    global_batch_size: float | None = None
    first: bool = False
    """Whether it is the first after a start: of the run, after a restart, or of a compilation."""
    after_pause: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SteadySteps:
    """What a step takes once training is under way."""

    step_time_s: float
    """Median over the steps that were used."""
    low_s: float
    """5 % of the used steps are faster (in the mean of their report)."""
    high_s: float
    """5 % are slower."""
    steps_used: int
    steps_logged: int
    left_out: Mapping[str, int]
    """Why steps were left out, and how many."""
    global_batch_size: float | None = None
    """Samples of these steps, where the reports say it."""
    changed: bool = False
    """Whether the steps are of several kinds, such as growing batches, and only the last kind was used."""

    @property
    def spread(self) -> float:
        """Range of the middle 90 % relative to the median."""
        return (self.high_s - self.low_s) / self.step_time_s

    @property
    def text(self) -> str:
        """How many steps were used, and why not all."""
        why = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{self.steps_used} of {self.steps_logged} steps used" + (f" (left out: {why})" if why else "")


def intervals_of(run: ImportedRun) -> list[Interval]:
    """The reports of a run as intervals with a time; reports without one give none.

    A logged step time counts first, then the difference of two times, then a throughput. Times that are
    rounded are taken over windows in which that does not matter, where the run is long enough.
    """
    reports, windows = run.steps, False
    if run.clock_resolution_s > 0.0:
        coarse = _windows(run.steps, _WINDOW * run.clock_resolution_s)
        if len(coarse) > _FEW:
            reports, windows = coarse, True
    per_report = _steps_per_epoch(run) if run.reports_epochs else 1
    if per_report is None:
        return []
    found: list[Interval] = []
    before = None
    restarted = True
    for report in reports:
        if before is not None and report.step == before.step:
            continue
        backwards = before is not None and report.step < before.step
        restarted = restarted or backwards
        passed = 0 if before is None or backwards else report.step - before.step
        time_s, steps = (None if windows else report.step_time_s), report.steps or passed or 1
        if time_s is None and passed and before is not None and _later(report, before):
            time_s, steps = (report.at_s - before.at_s) / passed, passed  # type: ignore[operator]
        if time_s is None and not windows:
            time_s = _of_rate(run, report.samples_per_s, report.tokens_per_s, report.global_batch_size)
        if time_s is not None and math.isfinite(time_s) and time_s > 0.0:
            found.append(
                Interval(
                    step=report.step * per_report,
                    steps=steps * per_report,
                    step_time_s=time_s / per_report,
                    global_batch_size=report.global_batch_size,
                    first=restarted,
                    after_pause=report.after_pause,
                )
            )
            restarted = False
        before = report
    return found


def _windows(reports: Sequence[LoggedStep], least_s: float) -> list[LoggedStep]:
    """Reports that are at least so far apart; those where the clock just ticked are the exact ones."""
    kept: list[LoggedStep] = []
    before = None
    for report in reports:
        if report.at_s is None:
            return []
        ticked = before is None or report.at_s != before.at_s
        back = bool(kept) and (report.step <= kept[-1].step or report.at_s < (kept[-1].at_s or 0.0))
        if not kept or back or (ticked and report.at_s - (kept[-1].at_s or 0.0) >= least_s):
            kept.append(report)
        before = report
    return kept


def _steps_per_epoch(run: ImportedRun) -> int | None:
    """Optimizer steps of an epoch, where samples and batch are known."""
    samples, batch = _number(run.fields.get("samples")), _global_batch(run)
    return max(1, math.ceil(samples / batch)) if samples and batch else None


def _later(report: LoggedStep, before: LoggedStep) -> bool:
    return report.at_s is not None and before.at_s is not None and report.at_s > before.at_s


def _of_rate(
    run: ImportedRun, samples_per_s: float | None, tokens_per_s: float | None, batch: float | None
) -> float | None:
    """Step time out of a throughput, where the batch is known [s]."""
    samples = batch or _global_batch(run)
    if samples and samples_per_s:
        return samples / samples_per_s
    tokens = run.tokens_per_sample or _number(run.fields.get("seq_len"))
    if samples and tokens and tokens_per_s:
        return samples * tokens / tokens_per_s
    return None


def _global_batch(run: ImportedRun) -> float | None:
    """Samples of an optimizer step, as the fields of the run say."""
    stated = _number(run.fields.get("global_batch_size"))
    if stated is not None:
        return stated
    each, gpus = _number(run.fields.get("batch_size")), _number(run.fields.get("gpus"))
    ranks = math.prod(_number(run.fields.get(name)) or 1.0 for name in ("tp", "pp", "cp"))
    return (
        each * (_number(run.fields.get("num_microbatches")) or 1.0) * gpus / ranks if each and gpus else None
    )


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0.0 else None


def steady_steps(run: ImportedRun) -> SteadySteps | None:
    """The steady part of a run; None where no report has a time."""
    intervals = intervals_of(run)
    if not intervals:
        return None
    logged = sum(item.steps for item in intervals)
    left_out: Counter[str] = Counter()
    batches = Counter({item.global_batch_size: 0 for item in intervals if item.global_batch_size is not None})
    for item in intervals:
        if item.global_batch_size is not None:
            batches[item.global_batch_size] += item.steps
    batch = None
    if batches:
        batch = batches.most_common(1)[0][0]
        kept = [item for item in intervals if item.global_batch_size in (None, batch)]
        _count(left_out, intervals, kept, "of other batch sizes")
        intervals = kept
    kept = [item for item in intervals if not item.after_pause]
    if len(kept) >= _MOST_REPORTED * len(intervals) and kept:
        _count(left_out, intervals, kept, "with an evaluation or a checkpoint")
        intervals = kept
    kept = [item for item in intervals if not item.first]
    if len(intervals) >= _FEW and kept:
        _count(left_out, intervals, kept, "first after a start")
        intervals = kept
    middle_s = weighted_quantile(intervals, 0.5)
    scale_s = _TO_SIGMA * _deviation(intervals, middle_s)
    limit_s = max(_SLOWER * middle_s, middle_s + _MAD * scale_s)
    kept = _after_warm_up(intervals, middle_s, scale_s)
    _count(left_out, intervals, kept, "of warm-up")
    intervals = kept
    kept = [item for item in intervals if item.step_time_s <= limit_s] or intervals
    _count(left_out, intervals, kept, "slower than 1.5 medians (stalls)")
    return SteadySteps(
        step_time_s=weighted_quantile(kept, 0.5),
        low_s=weighted_quantile(kept, 0.05),
        high_s=weighted_quantile(kept, 0.95),
        steps_used=sum(item.steps for item in kept),
        steps_logged=logged,
        left_out=dict(left_out),
        global_batch_size=batch,
        changed=len(batches) > 1,
    )


def _after_warm_up(intervals: Sequence[Interval], middle_s: float, scale_s: float) -> list[Interval]:
    """Without the leading intervals that are clearly not like the median; half of them at most."""
    slow_s = middle_s + max(3.0 * scale_s, 0.1 * middle_s)
    start = 0
    while start < len(intervals) // 2 and not 0.5 * middle_s < intervals[start].step_time_s <= slow_s:
        start += 1
    return list(intervals[start:])


def _count(
    left_out: Counter[str], before: Sequence[Interval], after: Sequence[Interval], reason: str
) -> None:
    gone = sum(item.steps for item in before) - sum(item.steps for item in after)
    if gone:
        left_out[reason] += gone


def _deviation(intervals: Sequence[Interval], middle_s: float) -> float:
    """Weighted median of the absolute distances to the median [s]."""
    return _weighted([(abs(item.step_time_s - middle_s), item.steps) for item in intervals], 0.5)


def weighted_quantile(intervals: Sequence[Interval], share: float) -> float:
    """The step time that this share of the steps does not exceed: one of those given [s]."""
    return _weighted([(item.step_time_s, item.steps) for item in intervals], share)


def _weighted(pairs: Sequence[tuple[float, int]], share: float) -> float:
    ordered = sorted(pairs)
    goal = share * sum(weight for _, weight in ordered)
    passed = 0
    for value, weight in ordered:
        passed += weight
        if passed >= goal:
            return value
    return ordered[-1][0]
