"""From jobs to predictions, a table of n rows; one job is n = 1.

Terms, learned correction, interval, memory and the run are columns, by arrays over all rows. The words of a
row, the runs nearest to it and its remedy are made when somebody reads them (`view.prediction_of`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arrays import Floats, Number
from ..cost.job import Job, Jobs
from ..cost.terms import DATA_STALL, EXPOSED_TERMS
from ..cost.utilization import most_utilization, peak_of_products, training_flops
from ..diagnostics import Diagnostic
from ..errors import ConfigError
from ..forks import cached_property
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor
from ..learn.calibration.calibration import WIDTH_COVERAGE, Calibration
from ..learn.predictor import Times
from ..learn.priced import PricedJobs, price_jobs
from ..records import dataclass
from ..request.batch import tokens_per_sample
from ..request.request import Request
from ..workload.method import Method
from .method import method_seconds, written_spread
from .remarks import Remark, remarks_on
from .scenarios import Scenarios, widened

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The answers to n jobs, as columns; equal only to itself."""

    jobs: Jobs
    lengths: Sequence[RunLength]
    """Of the run, by group of the jobs."""
    coverage: Floats
    """Of the intervals, shape (n,)."""
    predictor: TrainedPredictor
    columns: Mapping[str, Floats]
    """By the names of `Prediction`, in its units, shape (n,) each; NaN where there is nothing. Terms are
    `terms.NAME` and `memory_terms.NAME`."""
    times: Times
    """As the predictor says them, measured points included."""
    link_seconds: Mapping[str, Floats]
    requests: Sequence[Request] = ()
    """What was asked, by group; none where jobs were given."""
    said: tuple[Diagnostic, ...] = ()
    """Remarks before all others."""
    calibrated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """What measured points say of each row."""
    remedies: bool = False
    """Whether a job that does not fit says what to ask for instead."""
    scenarios: Scenarios | None = None
    """The ways in which what was left open may be filled in; None where nothing was, or jobs were given."""

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def remarked(self) -> Mapping[Remark, Any]:
        """The rows that each remark is about, shape (n,) each."""
        return remarks_on(self)

    def length(self, row: int) -> RunLength:
        """Of the run of one row."""
        return self.lengths[int(self.jobs.group[row])]

    def named(self, prefix: str, row: int) -> dict[str, float]:
        """The columns of a prefix at one row, without it."""
        return {
            name.removeprefix(prefix): float(values[row])
            for name, values in self.columns.items()
            if name.startswith(prefix)
        }


def answer(
    jobs: Jobs,
    predictor: TrainedPredictor,
    *,
    lengths: Sequence[RunLength] = (),
    coverage: float | Floats = 0.9,
    calibration: Calibration | None = None,
    requests: Sequence[Request] = (),
    said: Sequence[Diagnostic] = (),
    remedies: bool = False,
    want: frozenset[str] = ALL,
) -> Answers:
    """The answers to n jobs; what they share is priced once.

    Args:
        jobs: What is predicted.
        predictor: The trained predictor.
        lengths: Of the run, by group of the jobs; none for steps alone.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
        calibration: The caller's own measured points; None for the predictor as it ships.
        requests: What was asked, by group of the jobs.
        said: Remarks before all others.
        remedies: Say of a job that does not fit what to ask for instead, when that is read.
        want: The groups of columns.

    Raises:
        ConfigError: If measured points make a step shorter than the peak allows.
    """
    lengths = lengths or (RunLength(),) * len(jobs.shared)
    jobs = _fed(jobs, lengths)
    priced = price_jobs(jobs)
    if isinstance(coverage, float):
        coverage = np.full(len(jobs), coverage)
    times = shipped = priced.times(predictor, coverage=coverage)
    calibrated: dict[int, tuple[str, ...]] = {}
    if calibration is not None:
        # The answer must not depend on the coverage asked.
        is_usual = bool((coverage == WIDTH_COVERAGE).all())
        usual = shipped if is_usual else priced.times(predictor, coverage=WIDTH_COVERAGE)
        times = calibration.apply(shipped, usual)
        for row, group in enumerate(jobs.group):
            device = jobs.shared[group].cluster.device.name
            calibrated[row] = calibration.said(times.row(row), shipped.row(row), device)
    filled = None
    if requests and calibration is None:
        times, filled = widened(jobs, requests, times, predictor, coverage=coverage)
    facts = _Facts.of(jobs)
    batch = jobs.micro_batch_size * facts.replicas
    columns, beside = _time_columns(jobs, lengths, facts, batch, times)
    _widen_written(jobs, columns, coverage)
    if calibration is not None:
        _check_peak(jobs, facts, batch, columns["step_time_s"])
    link_seconds: dict[str, Floats] = {}
    if TERMS in want:
        own = _NamedRows.of([each.terms for each in priced.costs], priced)
        columns |= _term_columns(own, times, beside, columns["wait_s"])
        link_seconds = _NamedRows.of([each.link_seconds for each in priced.costs], priced).columns()
    if MEMORY in want:
        columns |= _memory_columns(
            _NamedRows.of([each.memory for each in priced.costs], priced, absent=np.nan), facts
        )
    if RUN in want:
        columns |= _run_columns(jobs, lengths, facts, batch, columns)
        measured = calibration is not None or predictor.measurements.own
        columns |= _run_interval(columns, coverage, 0.0 if measured else spread_of_runs())
    return Answers(
        jobs=jobs,
        lengths=lengths,
        coverage=coverage,
        predictor=predictor,
        columns=columns,
        times=times,
        link_seconds=link_seconds,
        requests=requests,
        said=tuple(said),
        calibrated=calibrated,
        remedies=remedies,
        scenarios=filled,
    )


def _fed(jobs: Jobs, lengths: Sequence[RunLength]) -> Jobs:
    """The jobs, where a known rate takes the place of the modeled feed."""
    if all(length.input_samples_per_s is None for length in lengths):
        return jobs
    shared = (
        job if length.input_samples_per_s is None else replace(job, stack=replace(job.stack, loader=""))
        for job, length in zip(jobs.shared, lengths, strict=True)
    )
    return replace(jobs, shared=tuple(shared))


@dataclass(frozen=True, kw_only=True, slots=True)
class _NamedRows:
    """Named values of every row."""

    names: tuple[str, ...]
    values: Floats
    """Shape (names, n)."""

    @classmethod
    def of(
        cls, parts: Sequence[Mapping[str, Number]], priced: PricedJobs, *, absent: float = 0.0
    ) -> _NamedRows:
        """Values by name of each group of priced jobs; `absent` where a group has none of a name."""
        names = tuple(dict.fromkeys(name for part in parts for name in part))
        found = np.full((len(names), sum(priced.counts)), absent)
        start = 0
        for part, count in zip(parts, priced.counts, strict=True):
            for place, name in enumerate(names):
                if name in part:
                    values = part[name]
                    if isinstance(values, np.ndarray) and values.ndim:
                        values = values[:count]  # those of smaller jobs come after them
                    found[place, start : start + count] = values
            start += count
        return cls(names=names, values=found[:, priced.rows])

    def columns(self, prefix: str = "") -> dict[str, Floats]:
        """By name."""
        return {f"{prefix}{name}": values for name, values in zip(self.names, self.values, strict=True)}


def _total(values: Floats) -> Floats:
    """The sum over the first axis, one by one: the same to the bit however many rows there are."""
    found: Floats = np.add.accumulate(values, axis=0)[-1]
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What the columns need of the groups, at every row, shape (n,) each."""

    replicas: Floats
    """Micro batches of a step over all replicas."""
    rows_per_sample: Floats
    samples_per_row: Floats
    units_per_sample: Floats
    tokens_per_sample: Floats
    """NaN of a model that takes none."""
    devices: Floats
    memory_bytes: Floats
    utilization: Floats
    """MFU of a sample in a second."""

    @classmethod
    def of(cls, jobs: Jobs) -> _Facts:
        """By row."""
        columns = np.array([_facts(job) for job in jobs.shared], dtype=np.float64)[jobs.group].T
        columns[0] *= jobs.num_microbatches
        return cls(**dict(zip(cls.__dataclass_fields__, columns, strict=True)))


def _facts(job: Job) -> tuple[float, ...]:
    """The fields of `_Facts` of a group, with one micro batch a step."""
    workload, tokens = job.workload, tokens_per_sample(job.workload)
    return (
        job.layout.dp,
        workload.rows_per_sample,
        workload.samples_per_row,
        workload.units_per_sample,
        math.nan if tokens is None else tokens,
        job.cluster.num_devices,
        job.cluster.device.usable_bytes,
        _utilization(job),
    )


def _time_columns(
    jobs: Jobs, lengths: Sequence[RunLength], facts: _Facts, batch: Floats, times: Times
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Of the step, and the terms of what a method does beside the update."""
    update_s, analytical_s = times.step_time_s, times.analytical_s
    beside = _beside(jobs, update_s, analytical_s)
    busy_s = reduce(np.add, beside.values(), update_s)
    rates = [length.input_samples_per_s or math.inf for length in lengths]
    fed_s = batch / np.array(rates)[jobs.group]
    wait_s = np.maximum(fed_s - busy_s, 0.0)
    step_s = busy_s + wait_s
    mfu = facts.utilization * batch / step_s
    return {
        "batch_size": jobs.micro_batch_size / facts.rows_per_sample,
        "global_batch_size": batch / facts.rows_per_sample,
        "step_time_s": step_s,
        # The parts of a method are taken to be as uncertain as the update; rounding leaves the time inside.
        "interval_low_s": np.minimum(np.maximum(times.low_s * busy_s / update_s, fed_s), step_s),
        "interval_high_s": np.maximum(times.high_s * busy_s / update_s, step_s),
        "throughput": batch * facts.units_per_sample / step_s,
        # Above 1 where multiplications are saved: none is shown.
        "mfu": np.where(mfu > 1.0 + _ROUNDING, np.nan, np.minimum(mfu, 1.0)),
        "analytical_step_time_s": analytical_s,
        "wait_s": wait_s,
    }, beside


def _beside(jobs: Jobs, update_s: Floats, analytical_s: Floats) -> dict[str, Floats]:
    """Seconds by term of what methods do beside the update; of plain training nothing."""
    if all(job.workload.method is None for job in jobs.shared):
        return {}
    found: dict[str, Floats] = {}
    for row, times in enumerate(zip(update_s.tolist(), analytical_s.tolist(), strict=True)):
        for name, seconds in method_seconds(jobs.row(row), *times).items():
            found.setdefault(name, np.zeros(len(jobs)))[row] = seconds
    return found


def _term_columns(
    priced: _NamedRows, times: Times, beside: Mapping[str, Floats], wait_s: Floats
) -> dict[str, Floats]:
    """The terms after the correction and the measured points; they add up to the step."""
    terms, factors = priced.values, times.term_factors
    if factors:
        terms = terms * np.array(
            [np.broadcast_to(factors.get(name, 1.0), wait_s.shape) for name in priced.names]
        )
    is_exposed = np.array([name in EXPOSED_TERMS for name in priced.names])
    exposed_s, compute_s = _total(terms[is_exposed]), _total(terms[~is_exposed])
    some = exposed_s > 0.0
    exposed = np.divide(times.exposed_s, exposed_s, out=np.zeros_like(exposed_s), where=some)
    compute = times.compute_s / np.maximum(compute_s, 1e-12)
    terms = terms * np.where(is_exposed[:, None], exposed, compute)
    # What is left of a difference of equal sums is rounding, which depends on the version of numpy.
    terms = np.where(terms > _ROUNDING * times.step_time_s, terms, 0.0)
    terms[terms.argmax(axis=0), np.arange(len(wait_s))] += times.step_time_s - _total(terms)
    found = _NamedRows(names=priced.names, values=terms).columns("terms.")
    found |= {f"terms.{name}": seconds for name, seconds in beside.items()}
    stalled = f"terms.{DATA_STALL}"
    return found | {stalled: np.where(wait_s > 0.0, wait_s, found[stalled])}


def _memory_columns(found: _NamedRows, facts: _Facts) -> dict[str, Floats]:
    held = np.where(np.isnan(found.values), 0.0, found.values)
    needed = _total(held)
    # What the caching allocator cannot hand out is not counted (`remedies.holds`).
    wasted = held[found.names.index("fragmentation")] if "fragmentation" in found.names else 0.0
    return found.columns("memory_terms.") | {
        "memory_bytes_per_device": needed,
        "fits": (needed - wasted <= facts.memory_bytes).astype(np.float64),
    }


def _run_columns(
    jobs: Jobs, lengths: Sequence[RunLength], facts: _Facts, batch: Floats, columns: Mapping[str, Floats]
) -> dict[str, Floats]:
    """From a step to an epoch and to the run: steps of equal length, the last batch counted as full.

    Evaluation, checkpoints and start-up are not in it.
    """
    given = np.array(
        [
            (
                (length.dataset_samples or job.workload.dataset_samples) or math.nan,
                math.nan if length.steps is None else length.steps,
                math.nan if length.tokens is None else length.tokens,
                length.epochs or 1.0,
            )
            for job, length in zip(jobs.shared, lengths, strict=True)
        ],
        dtype=np.float64,
    )
    samples, stated, tokens, epochs = given[jobs.group].T
    answers = np.array([job.workload.answers_per_prompt or 1 for job in jobs.shared])[jobs.group]
    epoch = np.ceil(samples * answers * (facts.rows_per_sample / facts.samples_per_row) / batch)
    steps = np.ceil(tokens / (batch * facts.tokens_per_sample))
    for other in (stated, np.ceil(epochs * epoch)):
        steps = np.where(np.isnan(steps), other, steps)
    total_s = steps * columns["step_time_s"]
    return {
        "steps_per_epoch": epoch,
        "epoch_time_s": epoch * columns["step_time_s"],
        "total_steps": steps,
        "total_time_s": total_s,
        "device_hours": total_s * facts.devices / _SECONDS_PER_HOUR,
    }


def spread_of_runs() -> float:
    """What whole runs differ by beyond the interval of the step: standard deviation of the logarithm."""
    return float(packaged_toml(__package__, "data/whole_runs.toml")["spread"]["step_spread"])


def _widen_written(jobs: Jobs, columns: dict[str, Floats], coverage: Floats) -> None:
    """Widen intervals of steps that generate answers by what published ones differ from the cost model."""
    spreads = [
        0.0 if job.workload.method is None else written_spread(job.workload.method) for job in jobs.shared
    ]
    if not any(spreads):
        return
    below, above = _farther(columns, coverage, np.array(spreads)[jobs.group])
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


def _run_interval(columns: Mapping[str, Floats], coverage: Floats, spread: float) -> dict[str, Floats]:
    """The interval of a run: as wide as that of its step, and what whole runs differ by beyond it.

    The measured times that intervals of steps were fitted to are means over a run's steps already: the error
    of the model stays the same in all steps and does not average out. `predict_run` takes the same.

    Args:
        columns: Of steps and runs.
        coverage: Of the intervals, shape (n,).
        spread: 0 where steps of the job itself were measured.
    """
    below, above = _farther(columns, coverage, spread)
    total_s = columns["total_time_s"]
    return {"total_low_s": total_s * below, "total_high_s": total_s * above}


def model_flops_utilization(job: Job, step_time_s: float) -> float | None:
    """Useful FLOPs (forward and backward once) over the dense peak of the fastest type of products, 0..1.

    Beside narrow products some stay in the type of activations, which is the faster one where a device has
    few units for the narrow type (int8 on B300). None where the matmul type has no peak of its own on the
    device. Reference: PaLM, appendix B (three times the forward pass); gradients by frozen weights are not
    computed and not counted.
    """
    found = _utilization(job) * job.layout.global_batch_size / step_time_s
    return None if math.isnan(found) else found


def _utilization(job: Job) -> float:
    """MFU of one sample in a second; NaN where there is none."""
    peak, sample_flops = peak_of_products(job.runs, job.cluster.device), training_flops(job.workload.graph)
    if peak is None or sample_flops == 0.0:
        return math.nan
    useful = (sample_flops + _flops_beside(job.workload.method)) * job.workload.real_share
    return useful / (job.cluster.num_devices * peak)


def _flops_beside(method: Method | None) -> float:
    """Of what a method does beside the update, per row; FLOPs of generation are few in a long time."""
    if method is None:
        return 0.0
    beside = math.fsum(training_flops(graph) for _, graph in (*method.forward, *method.trained))
    answers = method.generation
    if answers is None:
        return beside
    prompt = training_flops(answers.prompt) / answers.answers_per_prompt
    return beside + prompt + training_flops(answers.first_token) * answers.mean_tokens


def _check_peak(jobs: Jobs, facts: _Facts, batch: Floats, step_s: Floats) -> None:
    """Refuse measured points by which a step does more than the peak allows.

    Steps of the predictor alone do not (`Predictor.times`).

    Raises:
        ConfigError: If one does.
    """
    mfu = facts.utilization * batch / step_s
    most = [most_utilization(job.workload.graph, job.runs, job.cluster.device) for job in jobs.shared]
    above = np.flatnonzero(mfu > np.array(most)[jobs.group] * (1.0 + _ROUNDING))
    if len(above):
        row = above[0]
        raise ConfigError(
            f"A step of {step_s[row]:.3g} s would be {mfu[row]:.0%} of the peak of "
            f"{jobs.row(row).cluster.device.name}: the measured steps given here cannot be of this job. To "
            "fix: check their times, devices and batches."
        )
