"""Write docs/reference/scheduling.md: public traces replayed with measured times and predicted order.

python schedule_replay.py            # under five minutes on two cores
python schedule_replay.py --rows 6000   # fitted to a sample, about a minute
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from precision_time.executor import process_map
from queue_replay.plans import PlanOutcome, replay_plans
from queue_replay.replay import (
    BLIND,
    ESTIMATORS,
    FIFO,
    OURS,
    REMAINING,
    SHORTEST,
    SLACK,
    STEPS,
    TRUTH,
    WAITING,
    HeldOutRuns,
    Outcome,
    PairedOutcome,
    duration_errors,
    held_out_runs,
    replay,
    replay_pairs,
)
from queue_replay.traces import CASES, HELD_OUT, workloads_of
from repository import write_page

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/scheduling.md"
HOUR_S = 3600.0
_OTHERS = tuple(name for name in ESTIMATORS if name != TRUTH)


def progress(text: str) -> None:
    """Show what is being done."""
    print(text, file=sys.stderr, flush=True)


def geometric(values: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms."""
    return float(np.std(np.log(values)))


class Found:
    """Outcomes by case, load, workload, policy and estimator."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.by_key = {(o.case, o.load, o.number, o.policy, o.estimator): o for o in outcomes}
        self.groups = sorted(
            {(o.case, o.load) for o in outcomes}, key=lambda key: (list(CASES).index(key[0]), key[1])
        )

    def groups_of(self, policy: str) -> list[tuple[str, float]]:
        """Cases and loads with a policy: none waits for a faster pool where there is one."""
        return [group for group in self.groups if (*group, 1, policy, TRUTH) in self.by_key]

    def numbers(self, case: str, load: float) -> list[int]:
        """Workloads of a case at a load."""
        return sorted({key[2] for key in self.by_key if key[:2] == (case, load)})

    def ratios(
        self,
        figure: Callable[[Outcome], float],
        first: tuple[str, str],
        second: tuple[str, str],
        groups: Sequence[tuple[str, float]],
    ) -> list[float]:
        """A figure of one policy over that of another, of every workload."""
        return [
            figure(self.by_key[case, load, number, *first]) / figure(self.by_key[case, load, number, *second])
            for case, load in groups
            for number in self.numbers(case, load)
        ]  # fmt: skip

    def mean(
        self, figure: Callable[[Outcome], float], case: str, load: float, policy: str, name: str
    ) -> float:
        """Mean over workloads."""
        return float(
            np.mean([figure(self.by_key[case, load, n, policy, name]) for n in self.numbers(case, load)])
        )


def completion(outcome: Outcome) -> float:
    """Mean completion time [s]."""
    return outcome.mean_completion_s


def makespan(outcome: Outcome) -> float:
    """[s]."""
    return outcome.makespan_s


def percent(ratio: float) -> str:
    """How much longer."""
    return f"{100 * (ratio - 1):+.1f} %"


def ratio_table(found: Found, policy: str, figure: Callable[[Outcome], float]) -> Iterator[str]:
    """Of each case and load: hours with measured times, and how much longer with others."""
    heads = ["cluster and jobs", "load", "measured [h]", "FIFO", *(name for name in _OTHERS)]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for case, load in found.groups_of(policy):
        base = (policy, TRUTH)
        cells = [f"{found.mean(figure, case, load, *base) / HOUR_S:.2f}"]
        for other in ((FIFO, ""), *((policy, name) for name in _OTHERS)):
            ratios = found.ratios(figure, other, base, [(case, load)])
            cells.append(f"{percent(geometric(ratios))} (sd {100 * spread(ratios):.0f})")
        yield f"| {CASES[case]['title']} | {load:g} | " + " | ".join(cells) + " |"


def miss_table(found: Found) -> Iterator[str]:
    """Missed deadlines."""
    heads = ["cluster and jobs", "load", "FIFO", *(f"least slack: {name}" for name in ESTIMATORS)]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for case, load in found.groups:
        cells = [
            f"{100 * found.mean(lambda o: o.missed_share, case, load, *key):.1f} %"
            for key in ((FIFO, ""), *((SLACK, name) for name in ESTIMATORS))
        ]
        yield f"| {CASES[case]['title']} | {load:g} | " + " | ".join(cells) + " |"


def error_table(runs: HeldOutRuns) -> Iterator[str]:
    """How wrong the durations are."""
    yield "| cluster and jobs | jobs | left out | " + " | ".join(_OTHERS) + " |"
    yield "| --- | ---: | ---: |" + " ---: |" * len(_OTHERS)
    for case, facts in CASES.items():
        workloads = workloads_of(case, runs.measurements, runs.step_time_s[TRUTH])
        errors = duration_errors(workloads, runs)
        jobs, out = sum(len(w.rows) for w in workloads), sum(w.left_out for w in workloads)
        cells = [
            f"{errors[name][0]:.0f} %, {errors[name][1]:.2f}"
            if name != STEPS
            else f"-, {errors[name][1]:.2f}"
            for name in _OTHERS
        ]
        yield f"| {facts['title']} | {jobs:,} | {out} | " + " | ".join(cells) + " |"


def pair_table(pairs: Sequence[PairedOutcome]) -> Iterator[str]:
    """Mean completion of jobs whose precision is given or chosen."""
    yield "| durations from | precision given | precision chosen | the faster one chosen |"
    yield "| --- | ---: | ---: | ---: |"
    base = [pair.chosen[TRUTH] for pair in pairs]
    given = [pair.given[TRUTH] for pair in pairs]
    for name, words in ESTIMATORS.items():
        cells = []
        for which, own in ((given, [p.given[name] for p in pairs]), (base, [p.chosen[name] for p in pairs])):
            ratios = [a / b for a, b in zip(own, which, strict=True)]
            hours = f"{np.mean(own) / HOUR_S:.2f} h"
            cells.append(
                hours
                if name == TRUTH
                else f"{hours}, {percent(geometric(ratios))} (sd {100 * spread(ratios):.0f})"
            )
        right = np.mean([pair.right_share[name] for pair in pairs])
        yield f"| {words} | {' | '.join(cells)} | {100 * right:.0f} % |"


def plan_table(plans: Sequence[PlanOutcome]) -> Iterator[str]:
    """Makespans of jobs that wait all at once."""
    names = (TRUTH, OURS, BLIND)
    heads = ["cluster and jobs", "jobs", "FIFO [h]", *(f"shortest: {name}" for name in names)]
    heads += [f"planned: {name} (gap)" for name in names]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for plan in plans:
        cells = [f"{plan.jobs}", f"{plan.fifo_s / HOUR_S:.1f}"]
        cells += [f"{plan.shortest_s[name] / HOUR_S:.1f}" for name in names]
        cells += [f"{plan.planned_s[name] / HOUR_S:.1f} ({100 * plan.gap[name]:.0f} %)" for name in names]
        yield f"| {CASES[plan.case]['title']}, {plan.number} | " + " | ".join(cells) + " |"


def plan_line(plans: Sequence[PlanOutcome]) -> str:
    """The plans in a sentence."""
    planned = {
        name: geometric([plan.planned_s[name] / plan.planned_s[TRUTH] for plan in plans])
        for name in (OURS, BLIND)
    }
    others = {
        "FIFO": [plan.fifo_s / plan.planned_s[TRUTH] for plan in plans],
        "shortest first with measured times": [
            plan.shortest_s[TRUTH] / plan.planned_s[TRUTH] for plan in plans
        ],
    }
    said = [f"{name} {percent(ratio)}" for name, ratio in planned.items()]
    said += [f"{name} {percent(geometric(ratios))}" for name, ratios in others.items()]
    return (
        f"- Makespan of plans by `precision-time schedule` for {len(plans)} batches of jobs on several "
        f"pools: {', '.join(said)} over the plans by measured times."
    )


def queued(found: Found) -> list[tuple[str, float]]:
    """Cases and loads where the order matters: FIFO takes 1.1 times as long as shortest first."""
    base = (SHORTEST, TRUTH)
    return [
        group
        for group in found.groups
        if geometric(found.ratios(completion, (FIFO, ""), base, [group])) > 1.1
    ]


def summary(found: Found, pairs: Sequence[PairedOutcome]) -> Iterator[str]:
    """What came out, computed."""
    groups = queued(found)
    yield (
        f"Of {len(found.groups)} clusters and loads, {len(groups)} have queues long enough for the order to "
        "matter (FIFO at least a tenth slower than shortest-first with measured times). There:"
    )
    yield ""
    for policy, words in (
        (SHORTEST, "shortest predicted first"),
        (WAITING, "shortest predicted first, waiting for a faster pool (Sia and Gavel)"),
        (REMAINING, "shortest remaining first, preemptive"),
    ):
        base, own = (policy, TRUTH), [group for group in groups if group in found.groups_of(policy)]
        fifo = geometric(found.ratios(completion, (FIFO, ""), base, own))
        said = ", ".join(
            f"{name} {percent(geometric(found.ratios(completion, (policy, name), base, own)))}"
            for name in _OTHERS
        )
        ratios = found.ratios(completion, (policy, BLIND), (policy, OURS), own)
        better, worse = sum(r > 1.0001 for r in ratios), sum(r < 0.9999 for r in ratios)
        yield (
            f"- Mean completion time, {words}: FIFO {percent(fifo)} over that order with measured times; "
            f"{said}. The blind predictor against ours: {percent(geometric(ratios))}, longer in {better} and "
            f"shorter in {worse} of {len(ratios)} replays."
        )
    pooled = [group for group in groups if group in found.groups_of(WAITING)]
    for name in (TRUTH, OURS, BLIND):
        longer, last = (
            percent(geometric(found.ratios(figure, (WAITING, name), (SHORTEST, name), pooled)))
            for figure in (completion, makespan)
        )
        yield (
            f"- Waiting for a faster pool instead of taking one that is free, {name}: mean completion time "
            f"{longer}, makespan {last}."
        )
    missed = {
        name: np.mean([found.mean(lambda o: o.missed_share, *group, *key) for group in groups])
        for name, key in (("FIFO", (FIFO, "")), *((name, (SLACK, name)) for name in ESTIMATORS))
    }
    yield (
        "- Missed deadlines: "
        + ", ".join(f"{name} {100 * share:.1f} %" for name, share in missed.items())
        + "."
    )
    chosen = {name: geometric([p.chosen[name] / p.chosen[TRUTH] for p in pairs]) for name in _OTHERS}
    yield (
        "- Precision free to choose: "
        + ", ".join(f"{name} {percent(ratio)}" for name, ratio in chosen.items())
        + " over choice and order by measured times."
    )


TEMPLATE = """# Scheduling with predicted times

<!-- Written by packages/papers/studies/schedule_replay.py; under five minutes on two cores. -->

Both papers name scheduling as a use of their predictors. Here the jobs of public traces are replayed:
they arrive as in the trace, take the times that were measured of them, and start in the order of the
times that the scheduler believes.

## What came out

{summary}

## How

A cluster with a queue is simulated event by event. FIFO starts the job that came first; shortest first
the one with the shortest believed duration; least slack the one that must start soonest to meet its
deadline. While that one does not start, none overtakes it. Of the pools that are free it takes the one that
it is believed to be fastest on (FIFO: the first of the list below). The variant that waits takes the
pool on which it is believed to end first, though its devices may not be free yet; a run that outlasts what is
believed of it is believed to take twice as long. Shortest remaining first may preempt and move jobs at
no cost, and lets others overtake. GPUs of a pool are interchangeable: packing on hosts is not simulated,
and every job runs at its measured time on as few hosts as it can.

Durations are believed from:

{estimators}

Ours and blind are fitted to {fitted:,} runs of other sources: none of {held_out} was seen. The constants
of the formulas were fitted before, to kernels and runs that include some of them. No trace states
durations that users guessed. `steps` knows how many steps a job has and nothing else; one duration for
all would be FIFO.

A job's steps are those of the trace (Gavel), or of the measured convergence of Pollux's simulator; it
runs with the nearest batch per GPU that was measured on as many GPUs, for as many samples. Jobs whose
application was not measured (YOLOv3, A3C, CycleGAN) are left out. Deadlines are drawn: arrival plus 1.5
to 4 times the shortest true duration, uniformly, the number of the workload as seed. Load 2 halves the
times between arrivals.

{sources}

## The durations

Median error, and rank correlation with the measured durations, over jobs and pools.

{errors}

## Mean completion time, shortest first

How much longer than with measured times: geometric mean over the workloads, and the standard deviation
of the logarithms in hundredths.

{shortest}

## Mean completion time, shortest first, waiting for a faster pool

{waiting}

## Mean completion time, shortest remaining first

{remaining}

## Makespan, shortest first

{makespan}

Waiting for a faster pool:

{makespan_waiting}

## Plans

The plans of `precision-time schedule` (makespan, 10 s of search each) for the first 100 jobs of a
workload with several pools, all waiting at the start: planned with believed durations, executed in the
plan's order and on its GPUs with the measured ones. Hours from the start to the end of the last job; in
brackets how much smaller the planned makespan could be at most. Searches end by time, so a faster
machine finds somewhat other plans. A plan keeps every job on its GPUs, however long the jobs before it take.

{plans}

## Missed deadlines

{missed}

## Where the precision matters

In the traces above nearly every application has one precision, so a predictor without it misses little.
Lucid measured its jobs on one RTX 3090 with and without mixed precision, and mixed precision is the
slower of the two in many. No trace has such jobs, so they are drawn: 200 jobs of these pairs for each of
8 workloads (lengths log-uniform from 0.1 to 10 h, arrivals over as long as 16 GPUs need for all),
shortest predicted first. In the first column each job's precision is given by the draw, in the second
the scheduler takes the one that it believes to be faster; a blind one sees no difference and stays
without mixed precision.

{pairs}
"""


def page(
    runs: HeldOutRuns, found: Found, pairs: Sequence[PairedOutcome], plans: Sequence[PlanOutcome]
) -> str:
    """The whole page."""
    return TEMPLATE.format(
        summary="\n".join([*summary(found, pairs), plan_line(plans)]),
        plans="\n".join(plan_table(plans)),
        estimators="\n".join(f"- {name}: {words}" for name, words in ESTIMATORS.items()),
        fitted=runs.fitted_rows,
        held_out=", ".join(HELD_OUT),
        sources="\n".join(f"- {facts['title']}: {facts['source']}" for facts in CASES.values()),
        errors="\n".join(error_table(runs)),
        shortest="\n".join(ratio_table(found, SHORTEST, completion)),
        remaining="\n".join(ratio_table(found, REMAINING, completion)),
        waiting="\n".join(ratio_table(found, WAITING, completion)),
        makespan="\n".join(ratio_table(found, SHORTEST, makespan)),
        makespan_waiting="\n".join(ratio_table(found, WAITING, makespan)),
        missed="\n".join(miss_table(found)),
        pairs="\n".join(pair_table(pairs)),
    )


def main() -> None:
    """Fit, replay and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=None, help="fit to a sample of so many runs")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    progress("fitting without the sources of the traces")
    with process_map(2) as over:
        runs = held_out_runs(over=over, most=given.rows)
    found = Found(replay(runs, progress))
    plans = replay_plans(runs, progress=progress)
    write_page(given.out, page(runs, found, replay_pairs(runs), plans))


if __name__ == "__main__":
    main()
