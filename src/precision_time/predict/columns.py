"""From priced jobs to the columns of their answers, by arrays over all rows: step, terms, memory and run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from statistics import NormalDist

import numpy as np

from ..arrays import Floats, Number, sum_in_order
from ..cost.job import Jobs, of_groups
from ..cost.terms import DATA_STALL, EXPOSED_TERMS
from ..cost.utilization import most_utilization, utilization_of_sample
from ..errors import ConfigError
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor
from ..learn.calibration.calibration import Calibration
from ..learn.intervals import WIDTH_COVERAGE
from ..learn.predictor import Times
from ..learn.priced import PricedJobs
from ..records import dataclass
from ..request.batch import tokens_per_sample
from ..request.request import Request
from .method import seconds_beside, written_spread

TIME, TERMS, MEMORY, RUN = "time", "terms", "memory", "run"
ALL = frozenset({TIME, TERMS, MEMORY, RUN})
"""Groups of columns; time is always there."""
CHANGED = frozenset({TIME, MEMORY})
"""Of jobs that are compared with the same job unchanged."""
_ROUNDING = 1e-12
"""Share of a step below which a term is none, and of a utilization above 1 that is none."""
_SECONDS_PER_HOUR = 3600.0
_LAST = 1.0 - 1e-12
"""Of shares of a distribution, the last that doubles tell from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLength:
    """How long the run is, in what the caller knows."""

    dataset: str | None = None
    """As the request names it."""
    dataset_samples: int | None = None
    epochs: float | None = None
    steps: int | None = None
    tokens: int | None = None
    input_samples_per_s: float | None = None
    """What the input pipeline delivers over all devices; None where it keeps up."""

    @classmethod
    def of(cls, request: Request) -> RunLength:
        """That of a request."""
        return cls(
            dataset=request.dataset,
            dataset_samples=request.samples,
            epochs=request.epochs,
            steps=request.steps,
            tokens=request.tokens,
            input_samples_per_s=request.input_rate,
        )


def fed(jobs: Jobs, lengths: Sequence[RunLength]) -> Jobs:
    """The jobs, where a known rate takes the place of the modeled feed."""
    if all(length.input_samples_per_s is None for length in lengths):
        return jobs
    shared = (
        job if length.input_samples_per_s is None else replace(job, stack=replace(job.stack, loader=""))
        for job, length in zip(jobs.shared, lengths, strict=True)
    )
    return replace(jobs, shared=tuple(shared))


def calibrated_times(
    priced: PricedJobs, predictor: TrainedPredictor, coverage: Floats, calibration: Calibration | None
) -> tuple[Times, Times]:
    """Step times after measured points, and before."""
    shipped = priced.times(predictor, coverage=coverage)
    if calibration is None:
        return shipped, shipped
    # The answer must not depend on the coverage asked.
    is_usual = bool((coverage == WIDTH_COVERAGE).all())
    usual = shipped if is_usual else priced.times(predictor, coverage=WIDTH_COVERAGE)
    return calibration.apply(shipped, usual), shipped


def columns_of(
    jobs: Jobs,
    lengths: Sequence[RunLength],
    priced: PricedJobs,
    times: Times,
    *,
    coverage: Floats,
    want: frozenset[str] = ALL,
    measured: bool = False,
) -> dict[str, Floats]:
    """The columns of answers, by the names of `Predictions.figures`, shape (n,) each.

    Args:
        jobs: n jobs (`fed`).
        lengths: Of the run, by group of the jobs.
        priced: The jobs, priced.
        times: What is said of their steps.
        coverage: Probability that each interval holds, 0..1, shape (n,).
        want: The groups of columns.
        measured: Whether steps of the jobs themselves were: whole runs differ by nothing more then.
    """
    batch = jobs.micro_batch_size * jobs.num_microbatches * of_groups(jobs, lambda job: job.layout.dp)
    columns, beside = _time_columns(jobs, lengths, batch, times)
    _widen_written(jobs, columns, coverage)
    if TERMS in want:
        rows = priced.places[priced.rows]
        terms = {name: seconds[rows] for name, seconds in priced.costs.terms.items()}
        columns |= _term_columns(terms, times, beside, columns["wait_s"])
        links = priced.costs.link_seconds.items()
        columns |= {f"link_seconds.{axis}": seconds[rows] for axis, seconds in links}
    if MEMORY in want:
        held = _held(priced)
        columns |= {f"memory_terms.{name}": values for name, values in held.items()}
        filled = {name: np.where(np.isnan(values), 0.0, values) for name, values in held.items()}
        needed = columns["memory_bytes_per_device"] = sum_in_order(np.array([*filled.values()]), axis=0)
        # What the caching allocator cannot hand out is not counted (`remedies.holds`).
        needed = needed - filled.get("fragmentation", 0.0)
        most = of_groups(jobs, lambda job: job.cluster.device.usable_bytes)
        columns["fits"] = (needed <= most).astype(np.float64)
    if RUN in want:
        columns |= _run_columns(jobs, lengths, batch, columns["step_time_s"])
        # As wide as that of the step, and what whole runs differ by beyond it. The measured times that
        # intervals of steps were fitted to are means over a run's steps already: the error of the model stays
        # the same in all steps and does not average out. `predict_run` takes the same.
        below, above = _farther(columns, coverage, 0.0 if measured else spread_of_runs())
        total_s = columns["total_time_s"]
        columns |= {"total_low_s": total_s * below, "total_high_s": total_s * above}
    return columns


def _held(priced: PricedJobs) -> dict[str, Floats]:
    """Bytes of every row by name; NaN where a group has none of that name."""
    parts = priced.costs.memory
    names = tuple(dict.fromkeys(name for part in parts for name in part))
    found = np.full((len(names), sum(priced.counts)), np.nan)
    start = 0
    for part, count in zip(parts, priced.counts, strict=True):
        for place, name in enumerate(names):
            if name in part:
                values = part[name]
                if isinstance(values, np.ndarray) and values.ndim:
                    values = values[:count]  # those of smaller jobs come after them
                found[place, start : start + count] = values
        start += count
    return dict(zip(names, found[:, priced.rows], strict=True))


def _time_columns(
    jobs: Jobs, lengths: Sequence[RunLength], batch: Floats, times: Times
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Of the step, and the terms of what a method does beside the update."""
    update_s, analytical_s = times.step_time_s, times.analytical_s
    beside = seconds_beside(jobs, update_s, analytical_s)
    busy_s = reduce(np.add, beside.values(), update_s)
    rates = [length.input_samples_per_s or math.inf for length in lengths]
    fed_s = batch / np.array(rates)[jobs.group]
    wait_s = np.maximum(fed_s - busy_s, 0.0)
    step_s = busy_s + wait_s
    mfu = of_groups(jobs, utilization_of_sample) * batch / step_s
    rows = of_groups(jobs, lambda job: job.workload.rows_per_sample)
    return {
        "batch_size": jobs.micro_batch_size / rows,
        "global_batch_size": batch / rows,
        "step_time_s": step_s,
        # The parts of a method are taken to be as uncertain as the update; rounding leaves the time inside.
        "interval_low_s": np.minimum(np.maximum(times.low_s * busy_s / update_s, fed_s), step_s),
        "interval_high_s": np.maximum(times.high_s * busy_s / update_s, step_s),
        "throughput": batch * of_groups(jobs, lambda job: job.workload.units_per_sample) / step_s,
        # Above 1 where multiplications are saved: none is shown.
        "mfu": np.where(mfu > 1.0 + _ROUNDING, np.nan, np.minimum(mfu, 1.0)),
        "analytical_step_time_s": analytical_s,
        "wait_s": wait_s,
    }, beside


def _term_columns(
    priced: Mapping[str, Floats], times: Times, beside: Mapping[str, Floats], wait_s: Floats
) -> dict[str, Floats]:
    """The terms after the correction and the measured points; they add up to the step."""
    terms = np.array([values * times.term_factors.get(name, 1.0) for name, values in priced.items()])
    is_exposed = np.array([name in EXPOSED_TERMS for name in priced])
    exposed_s, compute_s = sum_in_order(terms[is_exposed], axis=0), sum_in_order(terms[~is_exposed], axis=0)
    some = exposed_s > 0.0
    exposed = np.divide(times.exposed_s, exposed_s, out=np.zeros_like(exposed_s), where=some)
    compute = times.compute_s / np.maximum(compute_s, 1e-12)
    terms = terms * np.where(is_exposed[:, None], exposed, compute)
    # What is left of a difference of equal sums is rounding, which depends on the version of numpy.
    terms = np.where(terms > _ROUNDING * times.step_time_s, terms, 0.0)
    terms[terms.argmax(axis=0), np.arange(len(wait_s))] += times.step_time_s - sum_in_order(terms, axis=0)
    found = {f"terms.{name}": seconds for name, seconds in zip(priced, terms, strict=True)}
    found |= {f"terms.{name}": seconds for name, seconds in beside.items()}
    stalled = f"terms.{DATA_STALL}"
    return found | {stalled: np.where(wait_s > 0.0, wait_s, found[stalled])}


def _run_columns(
    jobs: Jobs, lengths: Sequence[RunLength], batch: Floats, step_s: Floats
) -> dict[str, Floats]:
    """From a step to an epoch and to the run: steps of equal length, the last batch counted as full.

    Evaluation, checkpoints and start-up are not in it.
    """
    given = [
        (
            (length.dataset_samples or job.workload.dataset_samples) or None,
            *(length.steps, length.tokens, length.epochs or 1.0),
        )
        for job, length in zip(jobs.shared, lengths, strict=True)
    ]
    samples, stated, tokens, epochs = np.array(given, dtype=np.float64)[jobs.group].T  # None is NaN there
    answers = of_groups(jobs, lambda job: job.workload.answers_per_prompt or 1)
    packed = of_groups(jobs, lambda job: job.workload.rows_per_sample / job.workload.samples_per_row)
    epoch = np.ceil(samples * answers * packed / batch)
    steps = np.ceil(tokens / (batch * of_groups(jobs, lambda job: tokens_per_sample(job.workload) or np.nan)))
    for other in (stated, np.ceil(epochs * epoch)):
        steps = np.where(np.isnan(steps), other, steps)
    total_s = steps * step_s
    return {
        "steps_per_epoch": epoch,
        "epoch_time_s": epoch * step_s,
        "total_steps": steps,
        "total_time_s": total_s,
        "device_hours": total_s * of_groups(jobs, lambda job: job.cluster.num_devices) / _SECONDS_PER_HOUR,
    }


def spread_of_runs() -> float:
    """What whole runs differ by beyond the interval of the step: standard deviation of the logarithm."""
    return float(packaged_toml(__package__, "data/whole_runs.toml")["spread"]["step_spread"])


def _widen_written(jobs: Jobs, columns: dict[str, Floats], coverage: Floats) -> None:
    """Widen intervals of steps that generate answers by what published ones differ from the cost model."""
    spreads = of_groups(jobs, lambda job: written_spread(job.workload.method))
    if not spreads.any():
        return
    below, above = _farther(columns, coverage, spreads)
    step_s = columns["step_time_s"]
    columns |= {"interval_low_s": step_s * below, "interval_high_s": step_s * above}


def _farther(columns: Mapping[str, Floats], coverage: Floats, spread: Number) -> tuple[Floats, Floats]:
    """Low and high ends over the middle that also hold a deviation of the logarithm beside a step's."""
    known = {share: NormalDist().inv_cdf((1.0 + min(share, _LAST)) / 2.0) for share in set(coverage.tolist())}
    beyond = spread * np.array([known[share] for share in coverage.tolist()])
    step_s = columns["step_time_s"]
    below = np.hypot(np.log(step_s / columns["interval_low_s"]), beyond)
    above = np.hypot(np.log(columns["interval_high_s"] / step_s), beyond)
    return np.exp(-below), np.exp(above)


def check_peak(jobs: Jobs, step_s: Floats) -> None:
    """Refuse measured points by which a step does more than the peak allows.

    Steps of the predictor alone do not (`Predictor.times`).

    Raises:
        ConfigError: If one does.
    """
    batch = jobs.micro_batch_size * jobs.num_microbatches * of_groups(jobs, lambda job: job.layout.dp)
    mfu = of_groups(jobs, utilization_of_sample) * batch / step_s
    most = of_groups(jobs, lambda job: most_utilization(job.workload.graph, job.runs, job.cluster.device))
    above = np.flatnonzero(mfu > most * (1.0 + _ROUNDING))
    if len(above):
        row = above[0]
        raise ConfigError(
            f"A step of {step_s[row]:.3g} s would be {mfu[row]:.0%} of the peak of "
            f"{jobs.row(row).cluster.device.name}: the measured steps given here cannot be of this job. To "
            "fix: check their times, devices and batches."
        )
