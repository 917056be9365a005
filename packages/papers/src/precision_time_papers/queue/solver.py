"""The best plan of a queue by constraint programming: OR-Tools' CP-SAT.

Every job has an optional interval for each of its choices, and takes exactly one. The devices of a pool are a
cumulative resource. Where jobs of different widths share hosts, so that free devices could lie scattered,
each host is a cumulative resource as well. Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from precision_time.arrays import Floats
from precision_time.errors import ConfigError, required_module

from .choices import Choice
from .objectives import DEADLINES, FAIRNESS, MAKESPAN, Objective
from .pools import Pool

_RATIO = 10_000
"""Finish-time ratios are whole numbers of this part."""
_WEIGHT = 1000
_MOST_PLACES = 200_000
"""Of jobs on hosts: more fill the memory before the solver starts."""
_TIE_BREAK_SHARE = 0.5
"""Of the time limit, for the best of the plans with the same objective."""
_LATE = 10
"""How much a second of lateness counts there, against one of completion time."""
_SEED = 1
_WORKERS = 8
"""Searches side by side, whatever the machine."""
_EASY, _TIE_BREAK = 0.1, 0.3
"""Most work of the first search and of the last one, which are one thread and so find the same plan each time
[CP-SAT's deterministic time, about three seconds each]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """A plan as the solver found it."""

    chosen: tuple[int, ...]
    """Place of each job's choice among its own."""
    start_s: tuple[float, ...]
    hosts: tuple[tuple[int, ...] | None, ...]
    """Of each job within its pool; None where any will do."""
    bound: float
    """No plan has a smaller objective."""
    optimal: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Model:
    """The variables of CP-SAT."""

    model: Any
    starts: list[Any]
    ends: list[Any]
    taken: list[list[Any]]
    """Whether a job takes a choice."""
    hosts: dict[tuple[int, int], list[Any]]
    """Whether a job's choice is on each host of its pool, by job and choice."""
    energy: list[Any]
    """Device-seconds taken of each pool."""
    capacity: list[int]
    """Devices of each pool."""
    horizon: int


def solve(
    pools: Sequence[Pool],
    choices: Sequence[Sequence[Choice]],
    planned_s: Sequence[Floats],
    objective: Objective,
    *,
    time_limit_s: float,
    whole_nodes: bool = False,
) -> Solution:
    """The plan with the smallest objective; of equal ones, that with little lateness and completion time.

    Args:
        pools: Of the cluster.
        choices: Of each job.
        planned_s: Planned durations of each job's choices.
        objective: What is to be small.
        time_limit_s: Of the search.
        whole_nodes: Whether a job shares its hosts with no other.

    Raises:
        MissingExtraError: If OR-Tools is not installed.
        ConfigError: If the queue is too large to plan at once, or no plan was found in time.
    """
    cp = required_module(
        "ortools.sat.python.cp_model",
        package="ortools",
        extra="precision-time-papers[schedule]",
        purpose="plan a queue",
    )
    built = _build(cp, pools, choices, planned_s, objective, whole_nodes)
    model, weight = built.model, np.maximum(np.rint(objective.weight * _WEIGHT), 1).astype(int)
    submits = [ceil(each) for each in objective.submit_s]
    completion = sum(int(w) * (end - s) for w, end, s in zip(weight, built.ends, submits, strict=True))
    lateness = _lateness(built, objective, weight)
    primary = _primary(built, objective, completion, lateness)
    first_s = time_limit_s * (1.0 - _TIE_BREAK_SHARE)
    model.minimize(primary)
    solver = _solver(cp, first_s, most_work=_EASY)
    status = solver.solve(model)
    if status != cp.OPTIMAL:
        if status == cp.FEASIBLE:
            _hint(built, solver)
        solver = _solver(cp, first_s if primary is not completion else time_limit_s)
        status = solver.solve(model)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        raise ConfigError(
            f"No plan was found in {time_limit_s:g} s. To fix: a longer --time-limit, or fewer jobs."
        )
    best, bound, optimal = solver.objective_value, solver.best_objective_bound, status == cp.OPTIMAL
    if primary is not completion:
        model.add(primary <= round(best))
        _hint(built, solver)
        model.minimize(completion + _LATE * lateness)
        again = _solver(cp, time_limit_s * _TIE_BREAK_SHARE, most_work=_TIE_BREAK)
        if again.solve(model) in (cp.OPTIMAL, cp.FEASIBLE):
            solver = again
    chosen = [next(k for k, x in enumerate(own) if solver.boolean_value(x)) for own in built.taken]
    scale = {MAKESPAN: 1.0, FAIRNESS: float(_RATIO)}.get(objective.name, float(weight.sum()))
    return Solution(
        chosen=tuple(chosen),
        start_s=tuple(float(solver.value(start)) for start in built.starts),
        hosts=tuple(_hosts(built, solver, job, k) for job, k in enumerate(chosen)),
        bound=max(bound, 0.0) / scale,
        optimal=optimal,
    )


def _solver(cp: Any, time_limit_s: float, *, most_work: float | None = None) -> Any:
    """A solver with all its searches, or with one that ends after so much work."""
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.random_seed = _SEED
    solver.parameters.num_workers = _WORKERS if most_work is None else 1
    if most_work is not None:
        solver.parameters.max_deterministic_time = most_work
    return solver


def _build(
    cp: Any,
    pools: Sequence[Pool],
    choices: Sequence[Sequence[Choice]],
    planned_s: Sequence[Floats],
    objective: Objective,
    whole_nodes: bool,
) -> _Model:
    model = cp.CpModel()
    seconds = [np.ceil(times - 1e-6).astype(int) for times in planned_s]
    submits = [ceil(each) for each in objective.submit_s]
    horizon = max(submits) + int(sum(times.max() for times in seconds))
    starts, ends, taken = [], [], []
    demands: list[list[tuple[Any, int]]] = [[] for _ in pools]
    energy: list[Any] = [0 for _ in pools]
    on_hosts: dict[tuple[int, int], list[Any]] = {}
    by_host: list[list[list[tuple[Any, int]]]] = [
        [[] for _ in range(pool.nodes)] if _scatters(number, pool, choices, whole_nodes) else []
        for number, pool in enumerate(pools)
    ]
    places = sum(len(by_host[choice.pool]) for own in choices for choice in own)
    if places > _MOST_PLACES:
        raise ConfigError(
            f"{len(choices)} jobs with {places:,} places on hosts are too many to plan at once; at most "
            f"{_MOST_PLACES:,}. To fix: --whole-nodes, fewer counts (gpus), or plan in parts."
        )
    for job, own in enumerate(choices):
        start = model.new_int_var(submits[job], horizon, "")
        end = model.new_int_var(submits[job], horizon, "")
        flags = [model.new_bool_var("") for _ in own]
        model.add_exactly_one(flags)
        model.add(end == start + sum(int(s) * x for s, x in zip(seconds[job], flags, strict=True)))
        for k, (choice, flag) in enumerate(zip(own, flags, strict=True)):
            size, pool = int(seconds[job][k]), pools[choice.pool]
            wide = pool.devices_per_node if whole_nodes else choice.per_node
            interval = model.new_optional_fixed_size_interval_var(start, size, flag, "")
            demands[choice.pool].append((interval, wide * choice.nodes))
            energy[choice.pool] += wide * choice.nodes * size * flag
            if not by_host[choice.pool]:
                continue
            here = [model.new_bool_var("") for _ in range(pool.nodes)]
            model.add(sum(here) == choice.nodes * flag)
            on_hosts[job, k] = here
            for host, used in enumerate(here):
                on_host = model.new_optional_fixed_size_interval_var(start, size, used, "")
                by_host[choice.pool][host].append((on_host, wide))
        starts.append(start)
        ends.append(end)
        taken.append(flags)
    for pool, asked, hosts in zip(pools, demands, by_host, strict=True):
        model.add_cumulative([i for i, _ in asked], [d for _, d in asked], pool.devices)
        for some in hosts:
            model.add_cumulative([i for i, _ in some], [d for _, d in some], pool.devices_per_node)
    return _Model(
        model=model,
        starts=starts,
        ends=ends,
        taken=taken,
        hosts=on_hosts,
        energy=energy,
        capacity=[pool.devices for pool in pools],
        horizon=horizon,
    )


def _scatters(number: int, pool: Pool, choices: Sequence[Sequence[Choice]], whole_nodes: bool) -> bool:
    """Whether enough free devices of a pool can lie on too many hosts: not where all jobs are as wide."""
    widths = {choice.per_node for own in choices for choice in own if choice.pool == number}
    alike = len(widths) <= 1 and all(pool.devices_per_node % width == 0 for width in widths)
    several = any(choice.nodes > 1 for own in choices for choice in own if choice.pool == number)
    full = widths == {pool.devices_per_node}
    return not (whole_nodes or pool.nodes == 1 or full or (alike and not several))


def _lateness(built: _Model, objective: Objective, weight: Any) -> Any:
    """Weighted seconds after the deadlines, in sum; 0 where there are none."""
    late = []
    for end, deadline, w in zip(built.ends, objective.deadline_s, weight, strict=True):
        if np.isfinite(deadline):
            lateness = built.model.new_int_var(0, built.horizon, "")
            built.model.add(lateness >= end - int(deadline))
            late.append(int(w) * lateness)
    total = built.model.new_int_var(0, int(weight.sum()) * built.horizon, "")
    built.model.add(total == sum(late))
    return total


def _primary(built: _Model, objective: Objective, completion: Any, lateness: Any) -> Any:
    """The objective in whole numbers."""
    model = built.model
    if objective.name == MAKESPAN:
        last = model.new_int_var(0, built.horizon, "")
        model.add_max_equality(last, built.ends)
        # Implied by the cumulative resources, but of these the solver's linear relaxation sees little.
        for energy, capacity in zip(built.energy, built.capacity, strict=True):
            model.add(energy <= capacity * last)
        return last
    if objective.name == FAIRNESS:
        shares = np.maximum(np.rint(objective.share_s), 1).astype(int)
        worst = model.new_int_var(0, built.horizon * _RATIO, "")
        for end, submit, share in zip(built.ends, objective.submit_s, shares, strict=True):
            model.add(worst * int(share) >= (end - ceil(submit)) * _RATIO)
        return worst
    if objective.name == DEADLINES:
        return lateness
    return completion


def _hint(built: _Model, solver: Any) -> None:
    """Start the next search from the plan found."""
    variables = [*built.starts, *built.ends, *(x for own in built.taken for x in own)]
    variables += [x for own in built.hosts.values() for x in own]
    built.model.clear_hints()
    for variable in variables:
        built.model.add_hint(variable, solver.value(variable))


def _hosts(built: _Model, solver: Any, job: int, k: int) -> tuple[int, ...] | None:
    here = built.hosts.get((job, k))
    return None if here is None else tuple(host for host, x in enumerate(here) if solver.boolean_value(x))
