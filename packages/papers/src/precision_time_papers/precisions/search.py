"""`search_precisions`: the precision schedule that takes least time under a budget of risk."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from precision_time.errors import ConfigError, UnknownNameError, shown
from precision_time.planning.precisions.risk import DEFAULT_BUDGET, NEAREST, risk_share
from precision_time.request.signature import as_request, takes_request_fields

from .knapsack import Choices, exhaustive, frontier
from .layer_risk import curve_words, share_of_gap
from .methods import METHODS, candidates, fastest
from .result import GroupChoice, PrecisionSearch, SchedulePhase
from .schedules import Picks, Progress, Schedules, schedules_of

DYNAMIC, EXHAUSTIVE = "dynamic-programming", "exhaustive"
_FEW = 512
"""Schedules that are all predicted where no method is named."""
_SLACK = 1e-9
_ADDS = "the risks of groups of layers add up; how they act together is not counted."


@takes_request_fields()
def search_precisions(
    model: Any,
    *,
    risk_budget: float | str = DEFAULT_BUDGET,
    method: str | None = None,
    types: str | Sequence[str] = (),
    recipe: str | None = None,
    evidence: str = NEAREST,
    layers: int = 1,
    phases: str | Sequence[float] = (),
    over_time: str = "published",
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> PrecisionSearch:
    """Which layers, and which part of a run, to train in which type.

    Args:
        model: As `predict_time` takes it, or a `Request`. Its precision is the reference that every group of
            layers keeps or leaves; without one, the usual precision of the device.
        risk_budget: Largest relative gap of the loss, such as 0.0025 or "0.25%". With 0 nothing changes.
        method: dynamic-programming, exhaustive or reinforcement (the extra `reinforcement`). None: exhaustive
            up to 512 schedules, dynamic programming beyond.
        types: Types beside the reference, such as "fp8" or "tf32,bf16"; those that the device multiplies
            faster where none is named.
        recipe: Of narrow products: current, delayed, blockwise, mxfp8 ...; current scaling by default, whose
            loss gap was measured by groups of layers.
        evidence: Which loss gaps count: measured (small trainings), published, or nearest: of the two the
            one whose model is nearer in size.
        layers: Ranges that a stack of equal blocks is divided into, its first and last block apart.
        phases: Shares of the run, in order, such as "80%,20%": each gets a schedule of its own.
        over_time: How the gap comes about over a run of several phases: published or uniform.
        seed: Of the agent.
        progress: Called with what is done.
        options: Fields of `Request`, all optional.

    Returns:
        The schedule with its predicted time and its risk; it can be written as a policy or a job file.

    Raises:
        ConfigError: A budget, a share or a type that cannot be, or too many schedules to try all.
        UnknownNameError: No such method.
        MissingExtraError: If reinforcement learning is asked for and not installed.
    """
    budget = risk_share("risk_budget", risk_budget)
    shares = _shares(phases)
    named = [word.strip() for word in types.split(",")] if isinstance(types, str) else [*types]
    if method is not None and method not in METHODS:
        raise UnknownNameError(
            kind="method", name=method, known=tuple(METHODS), hint=f"Methods: {', '.join(METHODS)}."
        )
    started_s = time.perf_counter()
    schedules = schedules_of(
        as_request(model, options),
        types=[word for word in named if word],
        recipe=recipe,
        evidence=evidence,
        bands=layers,
        progress=progress,
    )
    many = schedules.kinds ** len(schedules.groups)
    chosen = method or (EXHAUSTIVE if many <= _FEW else DYNAMIC)
    reference: Picks = (0,) * len(schedules.groups)
    assumptions = [_ADDS]
    weights = [1.0] * len(shares)
    if budget == 0.0:
        picks = [reference] * len(shares)
    elif len(shares) == 1:
        picks = [METHODS[chosen](schedules, budget, seed=seed)]
    else:
        edges = np.concatenate([[0.0], np.cumsum(shares)])
        weights = [share_of_gap(over_time, low, high) for low, high in pairwise(edges)]
        picks = _over_time(schedules, shares, weights, budget, chosen)
        assumptions += [
            f"over a run, {curve_words(over_time)}; a change of precision itself takes no time here."
        ]
    found = _phases(schedules, shares, weights, picks)
    answers = schedules.predictions([reference, *picks])
    return PrecisionSearch(
        model=answers[0].model,
        device=answers[0].device,
        gpus=answers[0].gpus,
        reference=schedules.reference_name,
        types=tuple(dtype.value for dtype in schedules.types),
        method=chosen,
        risk_budget=budget,
        risk=math.fsum(phase.risk for phase in found),
        reference_step_time_s=answers[0].step_time_s,
        step_time_s=math.fsum(phase.share * phase.step_time_s for phase in found),
        phases=found,
        memory_bytes_per_device=max(answer.memory_bytes_per_device for answer in answers[1:]),
        fits=all(answer.fits for answer in answers[1:]),
        schedules=many,
        evaluations=schedules.evaluations,
        search_s=time.perf_counter() - started_s,
        assumptions=tuple(assumptions),
        request=schedules.request,
    )


def _shares(given: str | Sequence[float]) -> list[float]:
    """Shares of a run, one for the whole of it where none are given.

    Raises:
        ConfigError: If they are not above 0, or are not a whole together.
    """
    words = given.split(",") if isinstance(given, str) else given
    found = [risk_share("phases", word) for word in words if str(word).strip()]
    if not found:
        return [1.0]
    if min(found) <= 0.0 or abs(math.fsum(found) - 1.0) > 1e-6:
        raise ConfigError(
            f"phases={shown(given)} add up to {math.fsum(found):.0%} of a run. The rule: shares above 0 that "
            "add up to all of it. To fix: such as 80%,20%."
        )
    return found


def _over_time(
    schedules: Schedules, shares: Sequence[float], weights: Sequence[float], budget: float, method: str
) -> list[Picks]:
    """A schedule for each phase: the same knapsack, with phases as groups and schedules as their types.

    Times of phases add up, so this one is exact for the schedules that it chooses from.
    """
    most = budget / max(min(weights), _SLACK)
    if method == DYNAMIC:
        offered = candidates(schedules, min(most, 1e3))
    elif method == EXHAUSTIVE:
        offered = [*exhaustive(schedules.choices, min(most, 1e3))]
    else:
        raise ConfigError(
            f"method={method} finds the schedule of one phase. To fix: {DYNAMIC} or {EXHAUSTIVE} for phases."
        )
    reference = fastest(schedules, [], budget)
    offered = [*dict.fromkeys([reference, *offered])]
    times, risks = schedules.times_s(offered), schedules.risks_of(offered)
    of_phases = Choices(
        seconds=np.outer(shares, times - times[0]),
        risk=np.outer(weights, risks),
        fixed_s=np.zeros(len(offered)),
    )
    return [offered[kind] for kind in frontier(of_phases, budget)[-1].tolist()]


def _phases(
    schedules: Schedules, shares: Sequence[float], weights: Sequence[float], picks: Sequence[Picks]
) -> tuple[SchedulePhase, ...]:
    """The phases, neighbors with one schedule put together."""
    found: list[SchedulePhase] = []
    for share, weight, own in zip(shares, weights, picks, strict=True):
        phase = _phase(schedules, share, weight, own)
        if found and found[-1].dtypes == phase.dtypes:
            before = found.pop()
            phase = replace(phase, share=before.share + share, risk=before.risk + phase.risk)
        found.append(phase)
    return tuple(found)


def _phase(schedules: Schedules, share: float, weight: float, picks: Picks) -> SchedulePhase:
    choices = schedules.choices
    reference_s, step_s = schedules.times_s([(0,) * len(picks), picks])
    alone = choices.seconds + np.where(np.arange(schedules.kinds) > 0, choices.fixed_s, 0.0)
    return SchedulePhase(
        share=share,
        policy=schedules.policy(picks),
        step_time_s=float(step_s),
        additive_step_time_s=float(reference_s + choices.seconds_of(np.array([picks]))[0]),
        risk=weight * float(schedules.risks_of([picks])[0]),
        choices=tuple(
            GroupChoice(
                group=group,
                dtype=schedules.types[kind - 1].value if kind else schedules.reference_name,
                alone_s=float(alone[place, kind]),
                risk=schedules.risks[place][kind - 1] if kind else None,
            )
            for place, (group, kind) in enumerate(zip(schedules.groups, picks, strict=True))
        ),
    )
