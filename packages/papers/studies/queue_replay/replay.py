"""What a scheduler gains by the durations it believes: replays of public traces with measured step times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_time.arrays import Bools, Floats, Ints
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.executor import Executor
from precision_time_papers.evaluation.pricing import priced_twice
from precision_time_papers.precision_aware import PrecisionAware

from .simulation import Arrivals, simulate, simulate_preemptive
from .traces import CASES, HELD_OUT, Workload, workloads_of

TRUTH, OURS, BLIND, FORMULAS, STEPS = "measured", "ours", "blind", "formulas", "steps"
ESTIMATORS: Mapping[str, str] = {
    TRUTH: "the measured times",
    OURS: "our predictor",
    BLIND: "our predictor without precision",
    FORMULAS: "the cost model without learning",
    STEPS: "one step time for all jobs",
}
FIFO, SHORTEST, WAITING, REMAINING, SLACK = "fifo", "shortest", "waiting", "remaining", "slack"
LOADS = (1.0, 2.0, 4.0)
"""Arrivals come so many times as fast as in the trace."""
_PAIRED_SOURCE = "lucid"
_PAIRED_DEVICES = 16
_PAIRED_HOURS = (0.1, 10.0)
_PAIRED_WORKLOADS = 8
_DEADLINE = (1.5, 4.0)
"""A deadline is the arrival plus so many times the shortest true duration, drawn uniformly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutRuns:
    """Measured runs of the traces' sources, and what predictors fitted without these sources say of them."""

    measurements: tuple[Measurement, ...]
    step_time_s: Mapping[str, Floats]
    """By estimator, shape (rows,)."""
    fitted_rows: int
    """Runs of other sources that the predictors have seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One workload under one policy with the durations of one estimator."""

    case: str
    number: int
    load: float
    policy: str
    estimator: str
    """Empty for the policy that needs none."""
    mean_completion_s: float
    makespan_s: float
    missed_share: float


def held_out_runs(*, over: Executor = map, most: int | None = None, seed: int = 0) -> HeldOutRuns:
    """Fit the predictors to all other sources and ask them of the traces' runs.

    Args:
        over: What prices the parts.
        most: Rows to fit, drawn; None for all.
        seed: Of the draw and of the trees.
    """
    usable = [row for row in load_corpus() if row.usable]
    others = [row for row in usable if row.source not in HELD_OUT]
    held = replayed_rows([row for row in usable if row.source in HELD_OUT])
    if most is not None and most < len(others):
        drawn = np.sort(np.random.default_rng(seed).permutation(len(others))[:most])
        others = [others[place] for place in drawn]
    table = priced_twice([*others, *held], over=over)
    measured = table.measured
    is_held = np.isin([row.source for row in measured.measurements], HELD_OUT)
    rows, asked = np.flatnonzero(~is_held), np.flatnonzero(is_held)
    step_time_s = {TRUTH: measured.measured_s[asked]}
    for name, blind in ((OURS, False), (BLIND, True)):
        fitted = PrecisionAware(blind=blind, seed=seed).fit(table, rows)
        step_time_s[name] = fitted.predict(table.jobs.take(asked))
    step_time_s[FORMULAS] = table.jobs.native.analytical_s[asked]
    step_time_s[STEPS] = np.full(len(asked), float(np.median(measured.measured_s[rows])))
    return HeldOutRuns(
        measurements=tuple(measured.measurements[row] for row in asked),
        step_time_s=step_time_s,
        fitted_rows=len(rows),
    )


def replayed_rows(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The runs that a job of a trace has, and those measured at two precisions."""
    step_time_s = np.array([row.measured_step_time_s for row in measurements], dtype=np.float64)
    taken = {place for place, row in enumerate(measurements) if row.source == _PAIRED_SOURCE}
    for case in CASES:
        for workload in workloads_of(case, measurements, step_time_s):
            taken |= set(workload.rows[workload.rows >= 0].tolist())
    return [measurements[place] for place in sorted(taken)]


def replay(runs: HeldOutRuns, progress: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Every workload of every case at every load under every policy with every estimator."""
    found = []
    for case in CASES:
        progress(case)
        for workload in workloads_of(case, runs.measurements, runs.step_time_s[TRUTH]):
            believed = {name: workload.durations(times) for name, times in runs.step_time_s.items()}
            found += _outcomes(case, workload.number, workload.arrivals, believed)
    return found


def _outcomes(case: str, number: int, jobs: Arrivals, believed: Mapping[str, Floats]) -> list[Outcome]:
    draw = np.random.default_rng(number)
    shortest_s = jobs.true_s.min(axis=1)
    allowed_s = draw.uniform(*_DEADLINE, len(shortest_s)) * shortest_s
    found = []
    for load in LOADS if jobs.arrival_s.max() > 0.0 else LOADS[:1]:
        faster = replace(jobs, arrival_s=jobs.arrival_s / load)
        deadline_s = faster.arrival_s + allowed_s
        order_of_pools = np.broadcast_to(np.arange(1.0, jobs.true_s.shape[1] + 1.0), jobs.true_s.shape)
        ends = {(FIFO, ""): simulate(faster, faster.arrival_s, order_of_pools)}
        for name, times in believed.items():
            best_s = times.min(axis=1)
            ends[SHORTEST, name] = simulate(faster, best_s, times)
            if times.shape[1] > 1:
                ends[WAITING, name] = simulate(faster, best_s, times, waits=True)
            ends[REMAINING, name] = simulate_preemptive(faster, times)
            ends[SLACK, name] = simulate(faster, deadline_s - best_s, times)
        for (policy, name), end_s in ends.items():
            found.append(
                Outcome(
                    case=case,
                    number=number,
                    load=load,
                    policy=policy,
                    estimator=name,
                    mean_completion_s=float((end_s - faster.arrival_s).mean()),
                    makespan_s=float(end_s.max() - faster.arrival_s.min()),
                    missed_share=float((end_s > deadline_s).mean()),
                )
            )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedOutcome:
    """One drawn workload of jobs that may run at either of two measured precisions."""

    number: int
    given: Mapping[str, float]
    """Mean completion time [s] by estimator where the precision of each job is given."""
    chosen: Mapping[str, float]
    """The same where the scheduler chooses the precision that it believes to be faster."""
    right_share: Mapping[str, float]
    """Jobs whose faster precision was chosen."""


def measured_pairs(measurements: Sequence[Measurement]) -> Ints:
    """Rows of one configuration without and with mixed precision, shape (pairs, 2)."""
    found: dict[tuple[str, float], dict[bool, int]] = {}
    for place, row in enumerate(measurements):
        if row.source == _PAIRED_SOURCE:
            mixed = "autocast" in row.precision_detail
            found.setdefault((row.model, row.global_batch_size or 0.0), {})[mixed] = place
    return np.array([(pair[False], pair[True]) for pair in found.values() if len(pair) == 2], dtype=np.intp)


def replay_pairs(runs: HeldOutRuns) -> list[PairedOutcome]:
    """Drawn jobs of the measured pairs, on GPUs of one kind, in shortest-predicted-first order.

    No public trace has jobs with measured times at two precisions, so the jobs are drawn: pairs uniformly,
    lengths log-uniformly, arrivals over as long as the cluster needs for all of them. A precision that the
    scheduler believes to be no faster is not chosen.
    """
    pairs = measured_pairs(runs.measurements)
    truth_s = runs.step_time_s[TRUTH][pairs]
    found = []
    for number in range(1, _PAIRED_WORKLOADS + 1):
        draw = np.random.default_rng(number)
        count = 200
        which = draw.integers(len(pairs), size=count)
        low, high = np.log(_PAIRED_HOURS)
        hours = np.exp(draw.uniform(low, high, count))
        steps = hours * 3600.0 / truth_s[which, 0]
        given = draw.integers(2, size=count)
        capacity = np.array([_PAIRED_DEVICES])
        arrival_s = np.sort(draw.uniform(0.0, 3600.0 * hours.sum() / _PAIRED_DEVICES, count))

        def ends(mode: Ints, believed_s: Floats) -> Floats:
            jobs = Arrivals(
                arrival_s=arrival_s,  # noqa: B023
                gpus=np.ones(len(mode), dtype=np.intp),
                true_s=(steps * truth_s[which, mode])[:, None],  # noqa: B023
                capacity=capacity,  # noqa: B023
            )
            times = (steps * believed_s[which, mode])[:, None]  # noqa: B023
            return simulate(jobs, times[:, 0], times) - arrival_s  # noqa: B023

        at, free, right = {}, {}, {}
        for name, times in runs.step_time_s.items():
            believed = times[pairs]
            mode = (believed[which, 1] < believed[which, 0] * (1.0 - 1e-9)).astype(np.intp)
            at[name], free[name] = float(ends(given, believed).mean()), float(ends(mode, believed).mean())
            right[name] = float((mode == truth_s[which].argmin(axis=1)).mean())
        found.append(PairedOutcome(number=number, given=at, chosen=free, right_share=right))
    return found


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's, ties by their mean rank; 0 where one of them is constant."""
    ranks = [_mean_ranks(first), _mean_ranks(second)]
    if any(np.ptp(each) == 0.0 for each in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _mean_ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    low, high = np.searchsorted(ordered, values), np.searchsorted(ordered, values, side="right")
    return np.asarray(low + high, dtype=np.float64)


def duration_errors(workloads: Sequence[Workload], runs: HeldOutRuns) -> dict[str, tuple[float, float]]:
    """Of each estimator: median error of the durations of jobs [%], and rank correlation with the truth."""
    found = {}
    for name, times in runs.step_time_s.items():
        off, ranks = [], []
        for workload in workloads:
            mask: Bools = workload.rows >= 0
            true_s, said_s = workload.arrivals.true_s[mask], workload.durations(times)[mask]
            off.append(np.abs(said_s / true_s - 1.0) * 100.0)
            ranks.append(rank_correlation(said_s, true_s))
        found[name] = (float(np.median(np.concatenate(off))), float(np.mean(ranks)))
    return found
