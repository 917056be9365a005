"""`schedule`: one call from a file of jobs and a cluster to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.arrays import Floats
from precision_time.errors import ConfigError
from precision_time.hardware.inventory import ClusterResources
from precision_time.learn.artifact import TrainedPredictor
from precision_time.predict.headline import Interval

from .choices import Choice, choices_of
from .devices import Placed, executed, place
from .jobs import Queue, queue_of
from .objectives import DEADLINES, MAKESPAN, Objective, objective_of
from .pools import Pool, pools_of
from .reasons import Remedy, reasons_of
from .result import Schedule, ScheduledJob
from .solver import Solution, solve

DRAWS = 2000
"""Executions that probabilities are counted over."""
_SEED = 0
_REMEDY_SHARE = 0.5
"""Of the time limit, for each search for what it takes to meet every deadline."""
_MOST_JOBS = 1000
_LOW, _HIGH = 0.05, 0.95
"""Of the intervals told."""


def schedule(
    jobs: str | Path | Sequence[Mapping[str, Any]],
    cluster: str | Path | ClusterResources,
    *,
    objective: str = MAKESPAN,
    quantile: float = 0.8,
    start: str | datetime | None = None,
    time_limit_s: float = 10.0,
    whole_nodes: bool = False,
    predictor: TrainedPredictor | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Schedule:
    """When each job of a queue starts, on which devices, in which precision.

    Args:
        jobs: A job file, or the fields of each job (`queue_of`).
        cluster: An inventory file or what was read of one; its hosts with like devices are pools, and a job
            runs within one pool.
        objective: What is to be small: `makespan`, `deadlines`, `fairness` or `mean-completion`.
        quantile: Planned durations are exceeded with probability 1 - quantile.
        start: When the plan starts; None is now, and matters only where jobs name dates.
        time_limit_s: Of the search; the plan says how far from the best it may be.
        whole_nodes: Whether a job shares its hosts with no other.
        predictor: The trained predictor; None for those that the jobs name, else the one that ships.
        progress: Called with what is being done.

    Raises:
        MissingExtraError: If OR-Tools is not installed.
        ConfigError: If a job or the cluster breaks a rule, or a job fits in no pool.
    """
    if not 0.0 < quantile < 1.0:
        raise ConfigError(f"quantile={quantile:g} must lie between 0 and 1. To fix: 0.5 plans with medians.")
    if not 0.0 < time_limit_s <= 86_400.0:
        raise ConfigError(f"time_limit_s={time_limit_s:g} must be above 0, at most a day. To fix: 10.")
    queue, pools = queue_of(jobs, start=start), pools_of(cluster)
    if len(queue.jobs) > _MOST_JOBS:
        raise ConfigError(
            f"{len(queue.jobs)} jobs are more than {_MOST_JOBS:,}, the most planned at once. To fix: split."
        )
    progress(f"predicting {len(queue.jobs)} jobs")
    every = choices_of(queue.jobs, pools, predictor=predictor)
    offered = [_undominated(own, quantile) for own in every]
    question = _Question(
        queue=queue,
        choices=offered,
        planned_s=[np.array([choice.quantile_s(quantile) for choice in own]) for own in offered],
        whole_nodes=whole_nodes,
    )
    figure = objective_of(objective, queue.jobs, pools, offered, question.planned_s)
    progress("searching a plan")
    solution = question.solve(pools, figure, time_limit_s)
    placed = question.place(pools, figure, solution)
    chosen = [own[k] for own, k in zip(offered, solution.chosen, strict=True)]
    ends_s = executed(pools, chosen, placed, figure.submit_s, _drawn(queue, chosen))
    remedies: tuple[Remedy, ...] = ()
    if figure.lateness_s(placed.end_s).max() > 0.0:
        progress("searching what would meet the deadlines")
        remedies = tuple(_remedies(question, pools, figure, time_limit_s * _REMEDY_SHARE))
    reasons = reasons_of(
        queue.jobs,
        pools,
        every,
        offered,
        solution.chosen,
        placed,
        figure,
        quantile,
        whole_nodes=whole_nodes,
    )
    value, last_s = figure.value(placed.end_s), ends_s.max(axis=1)
    return Schedule(
        objective=objective,
        value=value,
        bound=min(solution.bound, value),
        optimal=solution.optimal,
        quantile=quantile,
        start=queue.start,
        pools=pools,
        jobs=_jobs(queue, pools, chosen, placed, figure, ends_s, reasons),
        makespan_median_s=float(np.median(last_s)),
        makespan_low_s=float(np.quantile(last_s, _LOW)),
        makespan_high_s=float(np.quantile(last_s, _HIGH)),
        mean_completion_s=float((placed.end_s - figure.submit_s).mean()),
        all_on_time_probability=None
        if not np.isfinite(figure.deadline_s).any()
        else float((ends_s <= figure.deadline_s).all(axis=1).mean()),
        remedies=remedies,
        notes=queue.notes,
    )


def _jobs(
    queue: Queue,
    pools: Sequence[Pool],
    chosen: Sequence[Choice],
    placed: Placed,
    figure: Objective,
    ends_s: Floats,
    reasons: Sequence[str],
) -> tuple[ScheduledJob, ...]:
    """The jobs of a plan; `ends_s` of its executions has shape (draws, jobs)."""
    late_s, ratios = figure.lateness_s(placed.end_s), figure.finish_ratio(placed.end_s)
    return tuple(
        ScheduledJob(
            name=job.name,
            model=str(job.requests[0].to_dict()["model"]),
            tenant=job.tenant,
            weight=job.weight,
            device=pools[choice.pool].device,
            pool=pools[choice.pool].name,
            gpus=choice.devices,
            nodes=choice.nodes,
            slots=tuple(placed.slots[index].tolist()),
            precision=choice.precision,
            submit_s=job.submit_s,
            start_s=float(placed.start_s[index]),
            end_s=float(placed.end_s[index]),
            duration_s=choice.duration_s,
            planned_s=float(placed.end_s[index] - placed.start_s[index]),
            duration_interval=Interval(
                low_s=choice.quantile_s(_LOW), high_s=choice.quantile_s(_HIGH), coverage=_HIGH - _LOW
            ),
            end_median_s=float(np.median(ends_s[:, index])),
            end_low_s=float(np.quantile(ends_s[:, index], _LOW)),
            end_high_s=float(np.quantile(ends_s[:, index], _HIGH)),
            deadline_s=job.deadline_s,
            lateness_s=float(late_s[index]),
            on_time_probability=None
            if job.deadline_s is None
            else float((ends_s[:, index] <= job.deadline_s).mean()),
            finish_ratio=float(ratios[index]),
            reason=reason,
        )
        for index, (job, choice, reason) in enumerate(zip(queue.jobs, chosen, reasons, strict=True))
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    """What is planned, on whatever pools."""

    queue: Queue
    choices: Sequence[Sequence[Choice]]
    planned_s: Sequence[Floats]
    whole_nodes: bool

    def solve(self, pools: Sequence[Pool], figure: Objective, time_limit_s: float) -> Solution:
        """The best plan."""
        return solve(
            pools,
            self.choices,
            self.planned_s,
            figure,
            time_limit_s=time_limit_s,
            whole_nodes=self.whole_nodes,
        )

    def place(self, pools: Sequence[Pool], figure: Objective, solution: Solution) -> Placed:
        """The plan on devices: no job later than the solver has it, as its times are whole seconds."""
        chosen = [own[k] for own, k in zip(self.choices, solution.chosen, strict=True)]
        planned_s = [times[k] for times, k in zip(self.planned_s, solution.chosen, strict=True)]
        order = sorted(range(len(chosen)), key=lambda job: (solution.start_s[job], job))
        return place(
            pools,
            chosen,
            order,
            figure.submit_s,
            np.array(planned_s),
            hosts=solution.hosts,
            whole_nodes=self.whole_nodes,
        )

    def lateness(self, name: str, pools: Sequence[Pool], figure: Objective, time_limit_s: float) -> Remedy:
        """What a plan on other pools does to the lateness."""
        placed = self.place(pools, figure, self.solve(pools, figure, time_limit_s))
        late_s = figure.lateness_s(placed.end_s)
        return Remedy(
            one_more_host_of=name, late_jobs=int((late_s > 0.0).sum()), lateness_s=float(late_s.max())
        )


def _undominated(choices: Sequence[Choice], quantile: float) -> tuple[Choice, ...]:
    """Choices that no other beats in both time and devices of the same pool."""
    times = [choice.quantile_s(quantile) for choice in choices]
    order = sorted(range(len(choices)), key=lambda k: (times[k], choices[k].devices, k))
    kept: list[Choice] = []
    for k in order:
        own = choices[k]
        if not any(
            other.pool == own.pool and other.nodes <= own.nodes and other.per_node <= own.per_node
            for other in kept
        ):
            kept.append(own)
    return tuple(kept)


def _drawn(queue: Queue, chosen: Sequence[Choice]) -> Floats:
    """Durations of executions, shape (draws, jobs): jobs of one model err alike."""
    models = [str(job.requests[0].to_dict()["model"]) for job in queue.jobs]
    draw = np.random.default_rng(_SEED)
    shares = {model: draw.random(DRAWS) for model in dict.fromkeys(models)}
    return np.stack(
        [choice.durations_s(shares[model]) for choice, model in zip(chosen, models, strict=True)], axis=1
    )


def _remedies(
    question: _Question, pools: Sequence[Pool], figure: Objective, time_limit_s: float
) -> Iterator[Remedy]:
    """The lateness of a plan for the deadlines, and where it is above 0, with one more host of each pool."""
    for_deadlines = replace(figure, name=DEADLINES)
    if figure.name != DEADLINES:
        alone = question.lateness("", pools, for_deadlines, time_limit_s)
        yield alone
        if alone.late_jobs == 0:
            return
    for pool in pools:
        larger = [replace(each, nodes=each.nodes + (each is pool)) for each in pools]
        yield question.lateness(pool.name, larger, for_deadlines, time_limit_s)
