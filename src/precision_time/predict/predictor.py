"""From a Job to a Prediction: analytical terms, learned correction, interval, nearest measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..corpus.measurement import Measurement
from ..corpus.store import corpus_store
from ..cost.input import feed_of
from ..cost.job import Job
from ..cost.stacks import kind_of_stack
from ..cost.step import StepCosts
from ..cost.terms import DATA_STALL, EXPOSED_TERMS, HOST_STALL
from ..cost.utilization import most_utilization, peak_of_products, training_flops
from ..diagnostics import Diagnostics
from ..errors import ConfigError
from ..hardware.device_table import catalog_name
from ..learn.artifact import TrainedPredictor
from ..learn.calibration.calibration import WIDTH_COVERAGE, Calibration
from ..learn.novelty import new_kinds
from ..learn.predictor import Times
from ..learn.priced import price_jobs
from ..learn.table import JobTable
from ..request.batch import tokens_per_sample
from ..workload.method import Method
from .method import method_seconds
from .plausible import implausible
from .prediction import Interval, NearestMeasurement, Prediction
from .remedies import holds, memory_of_job, shortfall, tightness

_SHOWN = 3
_BOUND_SHARE = 0.15
"""Share of a step from which what the device waits for is named as the bound."""
_LEAST_SIMILARITY = 0.05
_SECONDS_PER_HOUR = 3600.0


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


def predict_job(
    job: Job,
    predictor: TrainedPredictor,
    *,
    length: RunLength,
    coverage: float = 0.9,
    calibration: Calibration | None = None,
) -> Prediction:
    """The whole answer for one job: `predict_jobs` for one."""
    [answer] = predict_jobs([job], predictor, lengths=[length], coverages=[coverage], calibration=calibration)
    return answer


def predict_jobs(
    jobs: Sequence[Job],
    predictor: TrainedPredictor,
    *,
    lengths: Sequence[RunLength],
    coverages: Sequence[float],
    calibration: Calibration | None = None,
) -> list[Prediction]:
    """The whole answers for n jobs; what they share is priced and looked up once.

    Args:
        jobs: What is predicted; at least one.
        predictor: The trained predictor.
        lengths: Dataset, epochs or steps of each run.
        coverages: Probability that each interval holds, 0..1.
        calibration: The caller's own measured points; None for the predictor as it ships.
    """
    jobs = [  # a known rate takes the place of the modeled feed
        job if length.input_samples_per_s is None else replace(job, stack=replace(job.stack, loader=""))
        for job, length in zip(jobs, lengths, strict=True)
    ]
    priced = price_jobs(jobs)
    times = shipped = priced.times(predictor, coverage=np.array(coverages))
    if calibration is not None:
        # The answer must not depend on the coverage asked.
        is_usual = all(coverage == WIDTH_COVERAGE for coverage in coverages)
        usual = shipped if is_usual else priced.times(predictor, coverage=WIDTH_COVERAGE)
        times = calibration.apply(shipped, usual)
    nearest = nearest_measurements(times.jobs, predictor)
    answers = []
    for index, (job, length, coverage) in enumerate(zip(jobs, lengths, coverages, strict=True)):
        found = Diagnostics([*job.diagnostics])
        own = times.row(index)
        if calibration is not None:
            said = calibration.said(own, shipped.row(index), job.cluster.device.name)
            found.assume("calibration", *said)
        costs = priced.costs_of(index)
        answers.append(_answer(job, costs, own, predictor, nearest[index], length, coverage, found))
    return answers


def _answer(
    job: Job,
    costs: StepCosts,
    times: Times,
    predictor: TrainedPredictor,
    nearest: tuple[NearestMeasurement, ...],
    length: RunLength,
    coverage: float,
    found: Diagnostics,
) -> Prediction:
    """One answer from the priced and predicted job, arrays of shape (1,)."""
    fed_s = input_time_s(job, length)
    update_s = float(times.step_time_s[0])
    method_terms = method_seconds(job, update_s / float(times.jobs.analytical_s[0]))
    busy_s = update_s + math.fsum(method_terms.values())
    wait_s = max(fed_s - busy_s, 0.0)
    step_time_s = busy_s + wait_s
    memory = memory_of_job(job)
    needed = sum(memory.values())
    interval = Interval(
        # The parts of a method are taken to be as uncertain as the update; rounding leaves the time inside.
        low_s=min(max(float(times.low_s[0]) * busy_s / update_s, fed_s), step_time_s),
        high_s=max(float(times.high_s[0]) * busy_s / update_s, step_time_s),
        coverage=coverage,
    )
    run = run_times(job, length, step_time_s)
    _report_run(run, length, found)
    terms = corrected_terms(costs, times) | method_terms | ({DATA_STALL: wait_s} if wait_s else {})
    _name_bound(job, terms, step_time_s, found)
    _warn_of_weak_answer(job, new_kinds(times.distance[0]), predictor, found)
    fits = holds(job, memory)
    for code, text in implausible(job, step_time_s, run.epoch_time_s):
        found.warn(code, text)
    if needed > job.cluster.device.memory_bytes:
        found.warn("memory", tightness(job, memory) if fits else shortfall(job))
    workload, layout, device = job.workload, job.layout, job.cluster.device
    [mfu] = shown_utilization(job, np.array([step_time_s])).tolist()
    return Prediction(
        model=workload.name,
        device=device.name,
        gpus=job.cluster.num_devices,
        nodes=job.cluster.num_nodes,
        precision=job.precision.name,
        stack=job.stack.profile,
        batch_size=layout.micro_batch_size / workload.rows_per_sample,
        global_batch_size=layout.global_batch_size / workload.rows_per_sample,
        step_time_s=step_time_s,
        terms=terms,
        interval=interval,
        throughput=layout.global_batch_size * workload.units_per_sample / step_time_s,
        throughput_unit=workload.throughput_unit,
        mfu=None if math.isnan(mfu) else mfu,
        memory_bytes_per_device=needed,
        memory_terms=memory,
        fits=fits,
        device_memory_bytes=device.memory_bytes,
        link_seconds={axis: float(s[0]) for axis, s in costs.link_seconds.items() if s[0] > 0.0},
        analytical_step_time_s=float(times.jobs.analytical_s[0]),
        nearest_measurements=nearest,
        diagnostics=tuple(dict.fromkeys(found.items)),
        steps_per_epoch=run.steps_per_epoch,
        epoch_time_s=run.epoch_time_s,
        total_steps=run.total_steps,
        total_time_s=run.total_time_s,
        total_interval=None if run.total_steps is None else run_interval(interval, run.total_steps),
        device_hours=None
        if run.total_time_s is None
        else run.total_time_s * job.cluster.num_devices / _SECONDS_PER_HOUR,
        total_time_missing=run.missing,
        params=float(workload.graph.params),
    )


_ROUNDING = 1e-12
"""Share of a step below which a term is none, and of a utilization above 1 that is none."""


def corrected_terms(costs: StepCosts, times: Times) -> dict[str, float]:
    """The analytical terms after the correction of their stage and the points; they add up to the step."""
    factors = times.term_factors
    moved = {
        name: float(seconds[0]) * (float(factors[name][0]) if name in factors else 1.0)
        for name, seconds in costs.terms.items()
    }
    exposed_s = math.fsum(seconds for name, seconds in moved.items() if name in EXPOSED_TERMS)
    compute_s = math.fsum(seconds for name, seconds in moved.items() if name not in EXPOSED_TERMS)
    compute_factor = float(times.compute_s[0]) / max(compute_s, 1e-12)
    exposed_factor = float(times.exposed_s[0]) / exposed_s if exposed_s > 0.0 else 0.0
    terms = {
        name: seconds * (exposed_factor if name in EXPOSED_TERMS else compute_factor)
        for name, seconds in moved.items()
        if seconds > 0.0
    }
    # What is left of a difference of equal sums is rounding, which depends on the version of numpy.
    least_s = _ROUNDING * float(times.step_time_s[0])
    terms = {name: seconds for name, seconds in terms.items() if seconds > least_s}
    largest = max(terms, key=lambda name: terms[name])
    terms[largest] += float(times.step_time_s[0]) - math.fsum(terms.values())
    return terms


def _name_bound(job: Job, terms: Mapping[str, float], step_time_s: float, found: Diagnostics) -> None:
    """Warn where the device is not what the step waits for."""
    if terms.get(DATA_STALL, 0.0) > _BOUND_SHARE * step_time_s:
        found.warn("input-bound", _input_bound(job))
    elif terms.get(HOST_STALL, 0.0) > _BOUND_SHARE * step_time_s:
        found.warn(
            "host-bound",
            "Host-bound: starting the kernels takes longer than running them; a faster device will hardly "
            "help. To fix: a larger batch, or compiler=inductor or cudagraphs.",
        )


def _input_bound(job: Job) -> str:
    feed = feed_of(job.workload, job.cluster, job.stack)
    if feed.core_s == 0.0:
        return "Input-bound: the step waits for its input; a faster device will not help."
    return (
        f"Input-bound: {feed.loader} on {feed.cores:g} cores delivers about {feed.samples_per_s:,.0f} "
        f"{job.workload.sample_unit}s/s ({feed.kind}); a faster device will not help. To fix: more cores "
        "(cpus=, per host) or a loader that leaves less to them (loader=dali)."
    )


def model_flops_utilization(job: Job, step_time_s: float) -> float | None:
    """Useful FLOPs (forward and backward once) over the dense peak of the fastest type of products, 0..1.

    Beside narrow products some stay in the type of activations, which is the faster one where a device has
    few units for the narrow type (int8 on B300). None where the matmul type has no peak of its own on the
    device. Reference: PaLM, appendix B (three times the forward pass); gradients by frozen weights are not
    computed and not counted.
    """
    peak, sample_flops = peak_of_products(job.runs, job.cluster.device), training_flops(job.workload.graph)
    if peak is None or sample_flops == 0.0:
        return None
    sample_flops += _flops_beside(job.workload.method)
    useful = sample_flops * job.workload.real_share * job.layout.global_batch_size
    return useful / (step_time_s * job.cluster.num_devices * peak)


def shown_utilization(job: Job, step_time_s: Floats, batches: Floats | float = 1.0) -> Floats:
    """MFU of steps, shape (n,); NaN where there is none, or where saved multiplications put it above 1.

    Args:
        job: One of them.
        step_time_s: Of each, shape (n,).
        batches: Their global batches over that of `job`.

    Raises:
        ConfigError: If a step is shorter than the peak allows. The predictor's own are not
            (`Predictor.times`), so that measured steps were given.
    """
    alone = model_flops_utilization(job, 1.0)
    if alone is None:
        return np.full(len(step_time_s), np.nan)
    mfu: Floats = alone * batches / step_time_s
    device = job.cluster.device
    above = mfu > most_utilization(job.workload.graph, job.runs, device) * (1.0 + _ROUNDING)
    if above.any():
        raise ConfigError(
            f"A step of {step_time_s[above][0]:.3g} s would be {mfu[above][0]:.0%} of the peak of "
            f"{device.name}: the measured steps given here cannot be of this job. To fix: check their times, "
            "devices and batches."
        )
    return np.where(mfu > 1.0 + _ROUNDING, np.nan, np.minimum(mfu, 1.0))


def _flops_beside(method: Method | None) -> float:
    """Of what a method does beside the update, per row; FLOPs of generation are few in a long time."""
    if method is None:
        return 0.0
    beside = math.fsum(training_flops(graph) for _, graph in (*method.forward, *method.trained))
    answers = method.generation
    if answers is None:
        return beside
    prompt = training_flops(answers.prompt) / answers.answers_per_prompt
    return beside + prompt + training_flops(answers.token) * answers.tokens


def nearest_measurements(
    table: JobTable, predictor: TrainedPredictor
) -> list[tuple[NearestMeasurement, ...]]:
    """The measured runs of the corpus nearest to each job of `table`, best first."""
    found = predictor.measurements.runs.nearest(table, _SHOWN * 4)
    return [_nearest_of(rows, similarity, predictor) for rows, similarity in zip(*found, strict=True)]


def _nearest_of(
    rows: NDArray[np.intp], similarity: NDArray[np.float64], predictor: TrainedPredictor
) -> tuple[NearestMeasurement, ...]:
    index = predictor.measurements
    shown: dict[tuple[object, ...], NearestMeasurement] = {}
    for row, alike in zip(rows, similarity, strict=True):
        if alike < _LEAST_SIMILARITY or len(shown) == _SHOWN:
            break
        identity = int(index.measurement_ids[row])
        run = index.own.get(identity) or _measured_run(identity)
        key = (
            run.model,
            run.device,
            run.num_devices,
            run.precision,
            run.global_batch_size,
            run.stack.profile,
        )
        if key in shown:
            continue
        shown[key] = NearestMeasurement(
            model=run.model,
            device=run.device,
            gpus=run.num_devices,
            precision=run.precision,
            global_batch_size=float(run.global_batch_size or 0.0),
            stack=run.stack.profile,
            measured_step_time_s=run.step_time_s,
            predicted_step_time_s=float(index.predicted_s[row]),
            similarity=float(alike),
            source=run.source,
            source_ref=run.source_ref,
            precision_inferred=run.precision_inferred,
        )
    return tuple(shown.values())


@lru_cache(maxsize=4096)
def _measured_run(row_id: int) -> Measurement:
    return corpus_store().get(row_id)


def _warn_of_weak_answer(
    job: Job, new: tuple[str, ...], predictor: TrainedPredictor, found: Diagnostics
) -> None:
    """Warn of what makes this answer weaker than usual."""
    if new:
        found.warn(
            "extrapolation",
            f"Outside the training data: the nearest measured run differs in its {' and '.join(new)} "
            "(interval widened).",
        )
    device = catalog_name(job.cluster.device) or job.cluster.device.name
    if device not in frozenset(predictor.model_card["devices"]):
        found.warn("unmeasured-device", f"No measured run on {device}: predicted from its data sheet alone.")
    stack, kind = job.stack.profile, kind_of_stack(job.stack.profile)
    if not predictor.has_seen(f"stack.{kind}"):
        found.warn(
            "unmeasured-stack", f"No measured run on the stack {stack}: predicted from its description alone."
        )
    elif stack != kind and not predictor.has_seen(f"suite.{stack}"):
        found.assume(
            "unmeasured-stack", f"No measured run on the stack {stack}: its kind, {kind}, answers for it."
        )
    unpriced = job.workload.graph.unpriced
    if unpriced:
        counted = ", ".join(f"{name} x{count}" for name, count in sorted(unpriced.items()))
        found.warn(
            "unpriced-operators", f"Operators without a cost formula, priced by memory traffic: {counted}."
        )


def input_time_s(job: Job, length: RunLength) -> float:
    """Seconds in which the input pipeline delivers one global batch; 0 where no rate was given.

    Loading runs beside the step, so that a step takes the longer of the two.
    """
    if length.input_samples_per_s is None:
        return 0.0
    return job.layout.global_batch_size / length.input_samples_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTimes:
    """Steps and seconds of an epoch and of the run; None where the length is unknown."""

    steps_per_epoch: int | None
    epoch_time_s: float | None
    total_steps: int | None
    total_time_s: float | None
    missing: str = ""
    """Why there is no time of the run, and what to give; empty where there is one."""


def run_times(job: Job, length: RunLength, step_time_s: float) -> RunTimes:
    """From a step to an epoch and to the run: steps of equal length, the last batch counted as full.

    Evaluation, checkpoints and start-up are not in it.
    """
    samples = length.dataset_samples or job.workload.dataset_samples
    rows_per_sample = job.workload.rows_per_sample / job.workload.samples_per_row
    batch, tokens = job.layout.global_batch_size, tokens_per_sample(job.workload)
    steps_per_epoch = math.ceil(samples * rows_per_sample / batch) if samples else None
    total_steps = length.steps
    if length.tokens is not None and tokens is not None:
        total_steps = math.ceil(length.tokens / (batch * tokens))
    elif total_steps is None and steps_per_epoch is not None:
        total_steps = math.ceil((length.epochs or 1.0) * steps_per_epoch)
    return RunTimes(
        steps_per_epoch=steps_per_epoch,
        epoch_time_s=None if steps_per_epoch is None else steps_per_epoch * step_time_s,
        total_steps=total_steps,
        total_time_s=None if total_steps is None else total_steps * step_time_s,
        missing=_missing_length(length, tokens is not None) if total_steps is None else "",
    )


def _missing_length(length: RunLength, has_tokens: bool) -> str:
    """Why a run has no time."""
    others = "tokens= or steps=" if has_tokens else "steps="
    if length.dataset is not None:
        asked = f"How many samples per epoch? The dataset {length.dataset!r} is not known."
    elif length.epochs is not None:
        asked = "How many samples per epoch? Neither they nor a known dataset are given."
    else:
        return f"No time of the run: its length is not given. To fix: give {others}, or samples= per epoch."
    return f"No time of the run. {asked} To fix: give samples= per epoch, or instead of epochs {others}."


def _report_run(run: RunTimes, length: RunLength, found: Diagnostics) -> None:
    """What the time of the run leaves out, or why there is none."""
    if run.total_steps is not None:
        found.assume(
            "run-time",
            f"The run is {run.total_steps:,} steps; evaluation, checkpoints and start-up are not included.",
        )
        if length.dataset is not None and run.steps_per_epoch is None:
            found.warn(
                "run-time",
                f"No time of an epoch: the dataset {length.dataset!r} is not known. To fix: give samples=.",
            )
    elif length.dataset is not None or length.epochs is not None:
        found.warn("run-time", run.missing)
    else:
        found.assume("run-time", run.missing)


def run_interval(interval: Interval, steps: int) -> Interval:
    """The interval of a run of so many steps: that of a step times their number.

    The interval of a step is of the mean step of a run, not of a single one: the measured times that it was
    fitted to are means over a run's steps already, so that the scatter from step to step is not in it. What
    is in it, the error of the model and how runs of one configuration differ (other hosts, other days),
    stays the same in all steps of a run and does not average out.
    """
    return Interval(low_s=interval.low_s * steps, high_s=interval.high_s * steps, coverage=interval.coverage)
