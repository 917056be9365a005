"""`plan` against a loop over all its candidates, each timed alone: the same optimum, and what the loop costs.

`plan` times its candidates as arrays and picks by arrays. The loop asks `predict` for one combination after
the other, adds what a run costs beside its steps, pays for the hosts of every offer, drops what breaks a
limit and keeps the least.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision_time.hardware.prices.offer import Market
from precision_time.io import packaged_toml
from precision_time.planning.decision.api import plan
from precision_time.planning.decision.candidate import Candidate
from precision_time.planning.decision.limits import Limits
from precision_time.planning.decision.result import Plan
from precision_time.planning.run.duration import Work, total_s
from precision_time.planning.run.settings import checkpoint_bytes, compilation_s, default_settings
from precision_time.predict.api import predict
from precision_time.predict.prediction import Prediction
from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time.request.request import Request

AIMS = ("cheapest", "fastest")
_SAME = 1e-6
"""Relative difference of the optimum that is rounding."""
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """One candidate, timed alone."""

    time_s: float
    usd: float
    """Infinite without a price."""
    feasible: bool

    def value(self, aim: str) -> float:
        """What an aim minimizes; infinite for what breaks a limit."""
        return (self.usd if aim == "cheapest" else self.time_s) if self.feasible else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One space."""

    title: str
    asked: int
    candidates: int
    feasible: int
    feasible_alone: int
    same: Mapping[str, bool]
    """By aim: whether the choice of `plan` has the least value that the loop found."""
    plan_s: float
    """Processor seconds, as of the loop."""
    loop_s: float


def timed_alone(
    candidate: Candidate, limits: Limits, ask: Callable[[Request], Prediction], *, longer: float
) -> Alone:
    """One candidate from its request alone, by the functions that take one run.

    Args:
        candidate: Whose request, hosts and price are read.
        limits: That it may break.
        ask: Answers a request.
        longer: Times its predicted time, for being compared with near ties.
    """
    request = Request.of(candidate.request)
    answer = ask(request)
    assert answer.total_time_s is not None
    steps = round(answer.total_time_s / answer.step_time_s)
    market = Market(candidate.market) if candidate.market else Market.ON_DEMAND
    job = request.resolve()
    usual, interval = default_settings(spot=market is Market.SPOT), answer.interval
    work = Work(
        step_s=answer.step_time_s,
        low_s=interval.low_s,
        high_s=interval.high_s,
        coverage=interval.coverage,
        steps=steps,
        devices=candidate.gpus,
        checkpoint_bytes=checkpoint_bytes(job),
        hosts=candidate.instances,
        settings=replace(usual, compilation_s=compilation_s(job.stack.compiler)),
    )
    time_s = float(total_s(work.expected_s()))
    usd = math.inf if candidate.usd_per_hour is None else candidate.usd_per_hour * time_s / _SECONDS_PER_HOUR
    feasible = limits.budget_usd is None or usd <= limits.budget_usd
    if limits.deadline_s is not None:
        within_s = limits.deadline_s / longer
        feasible = feasible and float(work.probability_within(within_s)) >= limits.confidence
    return Alone(time_s=time_s, usd=usd, feasible=feasible)


def compared(title: str, options: Mapping[str, Any]) -> Compared:
    """One space, in this process alone.

    Raises:
        ConfigError: As `plan` does.
    """
    plan(**options, workers=1)  # what is read and kept at a first call is not timed
    started = time.process_time()
    found = plan(**options, workers=1)
    plan_s = time.process_time() - started
    assert found.judged is not None
    numbers = range(len(found.judged.outcomes))
    started = time.process_time()
    # Offers of one host share a combination: its step is timed once.
    answers: dict[str, Prediction] = {}

    def ask(request: Request) -> Prediction:
        key = repr(request)
        if key not in answers:
            answers[key] = predict(request)
        return answers[key]

    judged = found.judged
    longer = judged.rows.longer[judged.outcomes.row].tolist()
    alone = [timed_alone(judged.candidate(n), found.limits, ask, longer=longer[n]) for n in numbers]
    loop_s = time.process_time() - started
    return Compared(
        title=title,
        asked=found.counts.asked,
        candidates=len(alone),
        feasible=found.counts.feasible,
        feasible_alone=sum(item.feasible for item in alone),
        same={aim: is_least(found, alone, aim) for aim in AIMS},
        plan_s=plan_s,
        loop_s=loop_s,
    )


def is_least(found: Plan, alone: list[Alone], aim: str) -> bool:
    """Whether both find nothing, or the choice is worth as much as the least of the loop."""
    least = min(item.value(aim) for item in alone)
    choice = found.choice(aim)
    if choice is None:
        return math.isinf(least)
    value = choice.candidate.usd if aim == "cheapest" else choice.candidate.time_s
    return value is not None and abs(value / least - 1.0) <= _SAME


def section() -> Section:
    """The spaces of `data/planning.toml`."""
    spaces = packaged_toml(__package__, "data/planning.toml")["spaces"]
    found = [
        compared(space["title"], {name: value for name, value in space.items() if name != "title"})
        for space in spaces
    ]
    rows: list[tuple[CellValue, ...]] = [
        (
            *(item.title, item.asked, item.candidates, item.feasible, item.feasible_alone),
            *("yes" if item.same[aim] else "no" for aim in AIMS),
            *(f"{item.plan_s:.2f}", f"{item.loop_s / item.plan_s:.1f}"),
        )
        for item in found
    ]
    sizes = [item.candidates for item in found]
    agree = sum(all(item.same.values()) for item in found)
    return Section(
        key="exhaustive",
        title="The planner against every candidate timed alone",
        headline=f"`plan` finds the optimum of a loop over all candidates in {agree} of {len(found)} spaces "
        f"of {min(sizes)} to {max(sizes)} candidates.",
        tables=(
            Table(
                title="Small spaces",
                columns=columns_of(
                    "space | >combinations | >candidates | >feasible | >feasible by the loop | "
                    "same cheapest | same fastest | >plan [s] | >loop over plan"
                ),
                rows=tuple(rows),
                note="Combinations: devices, numbers, precisions, layouts. Candidates: those that fit, with "
                "every offer of a cloud. The loop times each combination by `predict` on its own. Processor "
                "seconds on the machine that wrote the page, after a first call; those of `plan` hold its "
                "what-ifs and sensitivities too.",
            ),
        ),
    )
