"""`predict_run`: one call from a request to the time of a whole training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Number
from ...cost.job import Job
from ...cost.terms import DATA_STALL
from ...diagnostics import Diagnostics
from ...errors import ConfigError
from ...predict.api import predict_each
from ...predict.headline import Interval
from ...predict.prediction import Prediction
from ...request.request import Request
from ...request.schema import RUN_LENGTHS
from ...request.signature import as_request, takes_request_fields
from ...units import GIGA, format_duration
from .duration import Work, expected_failures
from .outlay import outlay_of
from .phases import Phase, phases_of
from .prediction import RunPhase, RunPrediction, TimeToTarget
from .schema import RunOptions
from .settings import (
    RunSettings,
    checkpoint_bytes,
    compilation_s,
    default_settings,
    forward_share,
    published_mtbf_s,
    relative_samples,
    relative_steps,
)
from .simulation import simulated_s

_SECONDS_PER_HOUR = 3600.0
_MOST_INTERRUPTED = 0.99
"""Share of a run that failures may take: above, they come so fast that no figure would mean anything."""
_BATCHES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Relative to the run's own, in the table of a critical batch size."""


@takes_request_fields(also=RunOptions.model_fields)
def predict_run(
    model: Any, *, phases: Sequence[Mapping[str, Any]] | None = None, **options: Any
) -> RunPrediction:
    """How long a whole training takes, from the start of the job to its end.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        phases: Parts of the run, each a mapping of the fields that differ and of its length: steps, epochs,
            tokens, samples, or share of the total. None for one phase.
        options: Fields of `Request`, which say how long the run is, and of `RunOptions`: start_up, mtbf,
            checkpoint_interval, spot ...; all optional.

    Returns:
        Expected seconds as a sum of named terms, an interval by simulation, goodput and device-hours.

    Raises:
        ConfigError: If the length is not given, or phases or options contradict each other.
        PrecisionTimeError: As `predict_time`.
    """
    own = {name: options.pop(name) for name in RunOptions.model_fields if name in options}
    return run_of(as_request(model, options), RunOptions.of(own), phases)


def run_of(
    request: Request, options: RunOptions, phases: Sequence[Mapping[str, Any]] | None = None
) -> RunPrediction:
    """The whole run of a request."""
    found = Diagnostics()
    parts = phases_of(request, phases)
    if options.critical_batch is not None:
        parts, targets = _to_target(parts, options, found)
    else:
        targets = ()
    jobs = [_job(part) for part in parts]
    answers = _answers([part.request for part in parts])
    measured = is_measured(request)
    works = [
        work_of(answer, part.request, job, options, first=number == 0, compiles=part.compiles)
        for number, (part, job, answer) in enumerate(zip(parts, jobs, answers, strict=True))
    ]
    done = [_phase(*item) for item in zip(parts, answers, works, strict=True)]
    terms = {name: math.fsum(phase.terms[name] for phase in done) for name in done[0].terms}
    total_s = math.fsum(terms.values())
    interrupted_s = terms["lost_work"] + terms["restarts"]
    if not (math.isfinite(total_s) and interrupted_s <= _MOST_INTERRUPTED * total_s):
        raise ConfigError(_never_ends(works))
    simulated = simulated_s(works)
    low_s, p10_s, p50_s, p90_s, high_s = (
        float(np.quantile(simulated, share))
        for share in ((1 - request.coverage) / 2, 0.1, 0.5, 0.9, (1 + request.coverage) / 2)
    )
    first = answers[0]
    rate = float(works[0].segments().failures_per_s)
    waiting_s = math.fsum(phase.steps * phase.prediction.terms.get(DATA_STALL, 0.0) for phase in done)
    _report(options, works, waiting_s / terms["steps"], found, measured=measured)
    checkpoint = max(float(work.checkpoint_bytes) for work in works)
    outlay = outlay_of(done, jobs[0].cluster.device, checkpoint, options, found)
    said = tuple(dict.fromkeys(item for answer in answers for item in answer.diagnostics))
    return RunPrediction(
        model=first.model,
        device=first.device,
        gpus=first.gpus,
        nodes=first.nodes,
        phases=tuple(done),
        terms=terms,
        total_s=total_s,
        interval=Interval(low_s=min(low_s, total_s), high_s=max(high_s, total_s), coverage=request.coverage),
        p10_s=p10_s,
        p50_s=p50_s,
        p90_s=p90_s,
        quantiles_s=tuple(np.quantile(simulated, np.linspace(0.0, 1.0, 101)).tolist()),
        goodput=terms["steps"] / total_s,
        failures=math.fsum(phase.failures for phase in done),
        mtbf_s=1.0 / rate if rate > 0.0 else None,
        checkpoint_bytes=checkpoint,
        device_hours=total_s * first.gpus / _SECONDS_PER_HOUR,
        fits=all(answer.fits for answer in answers),
        cost_terms_usd=outlay.cost_terms_usd,
        energy_terms_j=outlay.energy_terms_j,
        carbon_terms_g=outlay.carbon_terms_g,
        energy_log_spread=outlay.energy_log_spread,
        codecarbon=outlay.codecarbon,
        targets=targets,
        request=request.to_dict(),
        diagnostics=(*found.items, *(item for item in said if item.code != "run-time")),
    )


def settings_of(options: RunOptions, compiler: str, hosts: Number, step_s: Number) -> RunSettings:
    """The numbers of runs: what the options say, data for the rest."""
    usual = default_settings(spot=bool(options.spot or options.reclaim_rate))
    stated: dict[str, Any] = {
        "compilation_s": compilation_s(compiler) if options.compile_time is None else options.compile_time
    }
    if options.start_up is not None:
        stated |= {"start_up_s": options.start_up, "start_up_per_device_s": 0.0}
    if options.mtbf is not None:
        stated |= {"mtbf_device_s": options.mtbf, "mtbf_spread": 0.0}
    if options.failures is False:
        stated |= {"mtbf_device_s": math.inf, "mtbf_spread": 0.0, "reclaims_per_host_s": 0.0}
    if options.recovery is not None:
        stated |= {"detection_s": options.recovery, "replacement_s": options.recovery}
    if options.reclaim_rate is not None:
        stated["reclaims_per_host_s"] = options.reclaim_rate / _SECONDS_PER_HOUR
    if options.storage_rate is not None:
        rate = options.storage_rate * GIGA / hosts
        stated |= {"write_bytes_per_s_per_host": rate, "read_bytes_per_s_per_host": rate}
    if options.checkpoint_steps is not None:
        stated["checkpoint_interval_s"] = options.checkpoint_steps * step_s
    direct: dict[str, Any] = {
        "warm_up_steps": options.warm_up_steps,
        "checkpoint_interval_s": options.checkpoint_interval,
        "asynchronous": options.async_checkpoints,
    }
    return replace(usual, **{name: value for name, value in direct.items() if value is not None}, **stated)


def _job(part: Phase) -> Job:
    try:
        return part.request.resolve()
    except ConfigError as error:
        raise ConfigError(f"{part.name}: {error}" if part.name else str(error)) from None


def _answers(requests: Sequence[Request]) -> list[Prediction]:
    """The predictions of the phases; the first that has none says why."""
    found = predict_each(requests)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
        if answer.total_steps is None:
            raise ConfigError(answer.total_time_missing)
    return [answer for answer in found if isinstance(answer, Prediction)]


def work_of(
    answer: Prediction,
    request: Request,
    job: Job,
    options: RunOptions,
    *,
    steps: float | None = None,
    first: bool = True,
    compiles: bool = True,
) -> Work:
    """What the terms of a phase are made of.

    Args:
        answer: Of its step.
        request: Of its step; steps that were measured are as sure as they are said to be.
        job: What the request resolves to.
        options: What is known beside the steps.
        steps: Of the phase; None for those of the answer.
        first: Whether the job starts with it.
        compiles: Whether its step is compiled, and warms up.
    """
    count = float(answer.total_steps or 0) if steps is None else steps
    settings = settings_of(options, job.stack.compiler, answer.nodes, answer.step_time_s)
    if not compiles:
        settings = replace(settings, warm_up_steps=0.0)
    if is_measured(request):
        settings = replace(settings, step_spread=0.0)
    evaluation = 0.0
    if options.evaluation_every is not None and options.evaluation_samples is not None:
        batches = math.ceil(options.evaluation_samples / answer.global_batch_size)
        evaluation = count // options.evaluation_every * batches * forward_share()
    return Work(
        step_s=answer.step_time_s,
        low_s=answer.interval.low_s,
        high_s=answer.interval.high_s,
        coverage=answer.interval.coverage,
        steps=count,
        devices=answer.gpus,
        hosts=answer.nodes,
        checkpoint_bytes=options.checkpoint_bytes or checkpoint_bytes(job),
        evaluation_steps=evaluation,
        settings=settings,
        first=first,
        compiles=compiles,
    )


def is_measured(request: Request) -> bool:
    """Whether the asker gave measured steps: what published runs differ by is not added to them."""
    return bool(request.anchors) or request.calibration is not None


def _phase(part: Phase, answer: Prediction, work: Work) -> RunPhase:
    seconds = {name: float(each) for name, each in work.expected_s().items()}
    cut = work.segments()
    return RunPhase(
        name=part.name,
        prediction=answer,
        steps=int(float(work.steps)),
        terms=seconds,
        total_s=math.fsum(seconds.values()),
        checkpoints=int(cut.count),
        checkpoint_interval_s=float(cut.interval_s),
        failures=float(expected_failures(cut)),
    )


def _never_ends(works: Sequence[Work]) -> str:
    cuts = [work.segments() for work in works]
    cut = max(cuts, key=lambda one: float(one.failures_per_s * one.length_s))
    return (
        "The run would hardly ever end: the job fails every "
        f"{format_duration(1.0 / float(cut.failures_per_s))}, restarts in "
        f"{format_duration(float(cut.restart_s))}, and saves after "
        f"{format_duration(float(cut.length_s))}. To fix: checkpoints that are faster or more frequent "
        "(storage_rate, checkpoint_interval), or fewer devices."
    )


def _to_target(
    parts: tuple[Phase, ...], options: RunOptions, found: Diagnostics
) -> tuple[tuple[Phase, ...], tuple[TimeToTarget, ...]]:
    """The run as long as its batch needs it by the critical batch size, and other batches beside it.

    Raises:
        ConfigError: If there are phases.
    """
    if len(parts) > 1 or parts[0].name:
        raise ConfigError(
            "critical_batch and phases cannot be combined: the model is of one batch over the whole run. To "
            "fix: leave out one of them."
        )
    critical = float(options.critical_batch or 0.0)
    [part] = parts
    [given] = _answers([part.request])
    own = given.global_batch_size
    reference = options.reference_batch or own
    batches = sorted({max(own * times, 1.0) for times in _BATCHES})
    others = [_with_batch(part.request, batch) if batch != own else part.request for batch in batches]
    targets, changed = [], part.request
    for batch, request, answer in zip(batches, others, predict_each(others), strict=True):
        if not isinstance(answer, Prediction) or not answer.fits:
            continue
        # The length is of the reference batch; steps of it do not depend on this one's.
        steps_there = _steps_at(given, reference, part.request)
        steps = math.ceil(steps_there * float(relative_steps(batch, reference, critical)))
        targets.append(
            TimeToTarget(
                global_batch_size=batch,
                steps=steps,
                samples=steps * batch,
                step_time_s=answer.step_time_s,
                steps_s=steps * answer.step_time_s,
            )
        )
        if batch == own:
            changed = request.with_(steps=steps)
    times = float(relative_samples(own, reference, critical))
    found.assume(
        "convergence",
        f"Batch: critical batch size {critical:g}, length given for batch {reference:g}: at {own:g} the same "
        f"loss takes {times:.3g} times the samples (McCandlish et al. 2018; a model, not a promise).",
    )
    return (replace(part, request=changed),), tuple(targets)


def _steps_at(given: Prediction, reference: float, request: Request) -> float:
    """Steps of the length that is given, at the reference batch."""
    steps = float(given.total_steps or 0)
    return steps if request.steps is not None else steps * given.global_batch_size / reference


def _with_batch(request: Request, batch: float) -> Request:
    """The same at another global batch; what holds the batch per device follows."""
    given = {
        name: value
        for name, value in request.given().items()
        if name not in ("batch_size", "num_microbatches")
    }
    given = {name: value for name, value in given.items() if name not in RUN_LENGTHS}
    return Request.of(given).with_(global_batch_size=batch, steps=1)


def _report(
    options: RunOptions, works: Sequence[Work], waits: float, found: Diagnostics, *, measured: bool
) -> None:
    """What the terms rest on; `waits` is the share of the steps that waits for input."""
    settings = works[0].settings
    hours = float(settings.mtbf_device_s) / _SECONDS_PER_HOUR
    if options.failures is False:
        found.assume("failures", "Failures are not counted.")
    else:
        runs = "" if options.mtbf is not None else f" (mean of {len(published_mtbf_s())} published runs)"
        found.assume(
            "failures",
            f"Failures: one in {hours:,.0f} h of a device{runs}, "
            f"{format_duration(float(settings.detection_s))} until healthy hosts are found.",
        )
    if settings.reclaims_per_host_s:
        hourly = float(settings.reclaims_per_host_s) * _SECONDS_PER_HOUR
        traces = " (published traces)" if options.reclaim_rate is None else ""
        found.assume("spot", f"Spot: {hourly:.3g} reclaims per host and hour{traces}.")
    if not works[0].evaluation_steps:
        found.assume(
            "evaluation", "Evaluation is not counted; evaluation_every and evaluation_samples add it."
        )
    found.assume("data", f"Data loading is inside the step: {waits:.1%} of the steps wait for input.")
    if not measured:
        found.assume(
            "spread",
            f"Whole runs differ by {math.expm1(settings.step_spread):.0%} beyond the interval of the step "
            "(fitted on published runs): it is in the interval of the total.",
        )
