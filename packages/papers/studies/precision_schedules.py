"""Searches for precision schedules, compared with each other: docs/reference/precision-schedules.md.

About three minutes on two cores. Needs the extra `reinforcement`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import precision_time
from precision_time.errors import ConfigError
from precision_time.planning.precisions.risk import DEFAULT_BUDGET, Risk
from precision_time.render.table import markdown_lines
from precision_time.request.request import Request
from precision_time.units import format_duration
from precision_time_papers.precisions.environment import train
from precision_time_papers.precisions.knapsack import exhaustive
from precision_time_papers.precisions.layer_risk import curve_words
from precision_time_papers.precisions.methods import METHODS, candidates
from precision_time_papers.precisions.schedules import Picks, Schedules, schedules_of
from precision_time_papers.precisions.search import search_precisions
from repository import write_page
from schedule_training import page_lines

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "precision-schedules.md"
STATED = {"software": 2025.5, "recompute": "none", "tp": 1, "pp": 1, "num_microbatches": 1}
"""What a question leaves open is filled in by several scenarios, each priced: eight times the work."""
LANGUAGE = STATED | {"attention": "flash2", "compiler": "inductor"}
LLAMA = LANGUAGE | {
    "model": "llama3-8b", "device": "H100", "gpus": 64, "zero_stage": 3, "batch_size": 1,
    "stack": "torchtitan", "network": "infiniband-400g",
}  # fmt: skip
OF_ONE_HOST = {"gpus": 8, "zero_stage": 0, "stack": "pytorch-compiled"}
BERT = LANGUAGE | OF_ONE_HOST | {"model": "bert-large", "device": "H100", "batch_size": 64}
IMAGES = STATED | OF_ONE_HOST | {
    "model": "resnet50", "compiler": "none", "channels_last": True, "real_input": False,
}  # fmt: skip
RESNET = IMAGES | {"device": "H100", "batch_size": 256}
ON_B200 = LLAMA | {"device": "B200", "precision": "bf16-mixed"}
ON_A100 = {"device": "A100", "precision": "fp32"}
SHARES = (0.2, 0.4, 0.6, 0.8)
"""Budgets, of the risk of all layers in the riskiest type."""
TRAINED = (0.4, 0.8)
"""Of these an agent is trained."""
DRAWS = 20
"""Of the random baseline."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job and the types that its layers choose from."""

    title: str
    request: Mapping[str, Any]
    types: Sequence[str]
    bands: int = 2
    recipe: str | None = None

    def schedules(self) -> Schedules:
        """With nothing predicted yet."""
        return schedules_of(Request.of(self.request), types=self.types, bands=self.bands, recipe=self.recipe)


COMPARED = (
    Case(title="llama3-8b, 64 H100", request=LLAMA | {"precision": "bf16-mixed"}, types=["fp8"]),
    Case(title="llama3-8b, 64 B200", request=ON_B200, types=["fp4"]),
    Case(title="bert-large, 8 H100", request=BERT | {"precision": "bf16-mixed:megatron"}, types=["fp8"]),
    Case(
        title="bert-large, 8 H100, from tf32",
        request=BERT | {"precision": "tf32", "batch_size": 32},
        types=["bf16", "fp8"],
        bands=1,
    ),
)
LARGE = Case(
    title="llama3-8b, 64 H100, 4 ranges",
    request=LLAMA | {"precision": "bf16-mixed"},
    types=["fp8"],
    bands=4,
)
SHOWN = (
    Case(title="llama3-8b, 64 H100", request=LLAMA | {"precision": "bf16-mixed"}, types=["fp8"], bands=1),
    Case(title="llama3-8b, 64 B200", request=ON_B200, types=["fp4"], bands=1),
    Case(
        title="bert-large, 8 H100",
        request=BERT | {"precision": "bf16-mixed:megatron"},
        types=["fp8"],
        bands=1,
    ),
    Case(title="resnet50, 8 H100", request=RESNET | {"precision": "bf16-mixed"}, types=["fp8"], bands=1),
    Case(
        title="resnet50, 8 A100",
        request=IMAGES | ON_A100 | {"batch_size": 128},
        types=["tf32", "bf16", "fp16"],
        bands=1,
    ),
    Case(
        title="bert-large, 8 A100",
        request=BERT | ON_A100 | {"batch_size": 16},
        types=["tf32", "bf16", "fp16"],
        bands=1,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a method found in one case under one budget."""

    method: str
    gap: float
    """Step time over that of the best of all, less one."""
    evaluations: int
    seconds: float


def main() -> None:
    """Write the page."""
    started_s = time.perf_counter()
    parts = [INTRODUCTION.format(version=precision_time.__version__)]
    outcomes: dict[str, list[Outcome]] = {}
    for case in COMPARED:
        outcomes[case.title] = [*compared(case)]
        print(f"{case.title} after {time.perf_counter() - started_s:.0f} s", flush=True)
    parts += [*comparison(outcomes)]
    parts += [*large_space()]
    parts += [*additivity()]
    parts += [*found_schedules()]
    parts += [*over_time()]
    parts += [*page_lines()]
    write_page(PAGE, "\n".join(parts).rstrip() + "\n")
    print(f"{PAGE.name} after {time.perf_counter() - started_s:.0f} s")


def largest_risk(schedules: Schedules) -> float:
    """Of all layers in the riskiest type that a risk is known of."""
    risk = schedules.choices.risk
    return float(np.where(np.isfinite(risk), risk, 0.0).max(axis=1).sum())


def compared(case: Case) -> Iterator[Outcome]:
    """Every method under every budget, each from an empty memory."""
    every = case.schedules()
    most = largest_risk(every)
    for share in SHARES:
        budget = share * most
        best_s = every.times_s([METHODS["exhaustive"](every, budget)])[0]
        for method in ("exhaustive", "dynamic-programming"):
            own = case.schedules()
            started_s = time.perf_counter()
            picks = METHODS[method](own, budget)
            seconds = time.perf_counter() - started_s
            yield outcome(method, own, picks, best_s, seconds)
        if share in TRAINED:
            own = case.schedules()
            started_s = time.perf_counter()
            trained = train(own, budget, seed=0)
            seconds = time.perf_counter() - started_s
            yield outcome(AGENT_BEST, own, trained.best, best_s, seconds)
            yield outcome(AGENT, own, trained.greedy, best_s, seconds)
            yield random_outcome(every, budget, best_s, trained.schedules)


AGENT_BEST, AGENT, RANDOM = (
    "agent, best of its episodes",
    "agent, its own choice",
    "random, as many schedules",
)


def outcome(method: str, own: Schedules, picks: Picks, best_s: float, seconds: float) -> Outcome:
    """Of one search."""
    gap = float(own.times_s([picks])[0] / best_s - 1.0)
    return Outcome(method=method, gap=gap, evaluations=own.evaluations, seconds=seconds)


def random_outcome(every: Schedules, budget: float, best_s: float, count: int) -> Outcome:
    """The best of as many different schedules at random as the agent tried, the mean of some draws."""
    allowed = [*exhaustive(every.choices, budget)]
    times_s = every.times_s(allowed)
    draws = np.random.default_rng(0)
    count = min(count, len(allowed))
    best = [times_s[draws.choice(len(allowed), count, replace=False)].min() for _ in range(DRAWS)]
    return Outcome(
        method=RANDOM, gap=float(np.mean(best) / best_s - 1.0), evaluations=count, seconds=float("nan")
    )


def comparison(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """The table of the methods, and what it says."""
    rows = []
    for title, found in outcomes.items():
        for method in dict.fromkeys(each.method for each in found):
            own = [each for each in found if each.method == method]
            gaps = [each.gap for each in own]
            seconds = np.mean([each.seconds for each in own])
            rows.append(
                (
                    title,
                    method,
                    f"{sum(gap <= 1e-9 for gap in gaps)} of {len(gaps)}",
                    f"{np.mean(gaps):.2%}",
                    f"{max(gaps):.2%}",
                    f"{np.mean([each.evaluations for each in own]):.0f}",
                    took(float(seconds)),
                )
            )
    headers = (
        "job",
        "method",
        "optimum found",
        ">mean gap",
        ">largest gap",
        ">schedules predicted",
        ">seconds",
    )
    yield "## Against every schedule of small spaces\n"
    yield SMALL
    yield from markdown_lines(headers, rows)
    every = [each for found in outcomes.values() for each in found]

    def mean(method: str, figure: str) -> float:
        return float(np.mean([getattr(each, figure) for each in every if each.method == method]))

    near, agent = "dynamic-programming", AGENT_BEST
    times = mean(agent, "seconds") / mean(near, "seconds")
    yield (
        f"\nOver all, dynamic programming is {mean(near, 'gap'):.2%} from the optimum with "
        f"{mean(near, 'evaluations'):.0f} predictions. The best schedule that the agent tried is "
        f"{mean(agent, 'gap'):.2%} from it with {mean(agent, 'evaluations'):.0f} predictions, what the "
        f"trained agent would choose itself {mean(AGENT, 'gap'):.2%}, and the best of as many schedules "
        f"drawn at random {mean(RANDOM, 'gap'):.2%}: in spaces this small the agent tries a large part of "
        f"what there is, and takes {times:.0f} times as long as dynamic programming.\n"
    )


def large_space() -> Iterator[str]:
    """A space in which an agent cannot try all."""
    every = LARGE.schedules()
    most = largest_risk(every)
    started_s = time.perf_counter()
    allowed = [*exhaustive(every.choices, max(TRAINED) * most)]
    every.times_s(allowed)
    exhaustive_s = time.perf_counter() - started_s
    rows, every_one = [], []
    for share in TRAINED:
        budget = share * most
        best_s = every.times_s([METHODS["exhaustive"](every, budget)])[0]
        own, method = LARGE.schedules(), "dynamic-programming"
        started_s = time.perf_counter()
        found = outcome(method, own, METHODS[method](own, budget), best_s, 0.0)
        every_one.append(found)
        rows.append(large_row(share, found, time.perf_counter() - started_s))
        own = LARGE.schedules()
        started_s = time.perf_counter()
        trained = train(own, budget, seed=0)
        seconds = time.perf_counter() - started_s
        for found in (
            outcome(AGENT_BEST, own, trained.best, best_s, 0.0),
            outcome(AGENT, own, trained.greedy, best_s, 0.0),
            random_outcome(every, budget, best_s, trained.schedules),
        ):
            every_one.append(found)
            rows.append(large_row(share, found, float("nan") if found.method == RANDOM else seconds))
    yield "## A larger space\n"
    yield (
        f"{LARGE.title}: {len(every.groups)} groups of layers, {len(allowed):,} schedules within the "
        f"larger budget. Predicting all of them took {exhaustive_s:.0f} s and gives the optimum that the "
        "gaps are from.\n"
    )
    headers = ("budget", "method", ">gap", ">schedules predicted", ">seconds")
    yield from markdown_lines(headers, rows)
    gaps = {
        method: np.mean([each.gap for each in every_one if each.method == method])
        for method in dict.fromkeys(each.method for each in every_one)
    }
    yield "\nMean gaps: " + "; ".join(f"{method} {gap:.2%}" for method, gap in gaps.items()) + ".\n"


def large_row(share: float, found: Outcome, seconds: float) -> tuple[str, ...]:
    """A row of the larger space."""
    return (f"{share:.0%}", found.method, f"{found.gap:.2%}", f"{found.evaluations:,}", took(seconds))


def took(seconds: float) -> str:
    """Seconds of a search."""
    return "-" if np.isnan(seconds) else f"{seconds:.0f}" if seconds >= 1.0 else f"{seconds:.1f}"


def additivity() -> Iterator[str]:
    """How far sums over groups are from what the predictor says of whole schedules."""
    rows = []
    for case in COMPARED:
        own = case.schedules()
        every = [*exhaustive(own.choices, 1e9)]
        reference = (0,) * len(own.groups)
        picks = np.array(every)
        sums = (
            (own.choices, own.times_s(every), own.times_s([reference])[0]),
            (own.analytical_choices, own.analytical_s(every), own.analytical_s([reference])[0]),
        )
        cells = []
        for choices, times_s, reference_s in sums:
            errors = np.abs(reference_s + choices.seconds_of(picks) - times_s) / reference_s
            cells += [f"{np.median(errors):.2%}", f"{errors.max():.2%}"]
        offered = candidates(own, largest_risk(own))
        rows.append((case.title, f"{len(every):,}", *cells, f"{len(offered)}"))
    headers = (
        "job", ">schedules", ">predictor, median", ">largest", ">cost model alone, median", ">largest",
        ">on the frontiers",
    )  # fmt: skip
    yield "## Do the times of groups add up?\n"
    yield ADDITIVE
    yield from markdown_lines(headers, rows)
    yield ""


def found_schedules() -> Iterator[str]:
    """Schedules of some models under the default budget."""
    yield "## Schedules found\n"
    yield FOUND.format(budget=f"{DEFAULT_BUDGET:.2%}")
    rows: list[tuple[str, ...]] = []
    sources: dict[str, None] = {}
    for case in SHOWN:
        try:
            for budget in (DEFAULT_BUDGET / 4, DEFAULT_BUDGET / 2, DEFAULT_BUDGET):
                found = search_precisions(
                    Request.of(case.request),
                    types=case.types,
                    layers=case.bands,
                    recipe=case.recipe,
                    risk_budget=budget,
                )
                changed = [
                    f"{choice.dtype}: {choice.group.name}"
                    for choice in found.phases[0].choices
                    if choice.risk is not None
                ]
                rows.append(
                    (
                        case.title,
                        f"{budget:.3%}",
                        found.method,
                        format_duration(found.reference_step_time_s),
                        format_duration(found.step_time_s),
                        f"{found.saved_share:.1%}",
                        f"{found.risk:.3%}",
                        together(changed) or f"nothing: {found.reference} throughout",
                    )
                )
                for choice in found.phases[0].choices:
                    if choice.risk is not None:
                        sources[source_words(choice.dtype, choice.risk)] = None
        except ConfigError as error:
            rows.append((case.title, "-", "-", "-", "-", "-", "-", str(error)))
    headers = (
        "job",
        ">budget",
        "method",
        ">reference",
        ">step",
        ">saved",
        ">risk",
        "layers that leave the reference",
    )
    yield from markdown_lines(headers, rows)
    yield ""
    yield "Risks: " + " ".join(sources) + "\n"


def same_schedules(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Rows of one job that differ in the budget alone, as one."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for title, budget, *rest in rows:
        alike.setdefault((title, *rest), []).append(budget)
    for (title, *rest), budgets in alike.items():
        yield title, " to ".join(dict.fromkeys((budgets[0], budgets[-1]))), *rest


def source_words(dtype: str, risk: Risk) -> str:
    """Where the risks of a type come from."""
    return f"{dtype}: {risk.basis.value}, {risk.source}."


def together(changed: Sequence[str]) -> str:
    """Layers by type: "fp8: attention 1-30, head"."""
    types: dict[str, list[str]] = {}
    for each in changed:
        dtype, name = each.split(": ", 1)
        types.setdefault(dtype, []).append(name)
    return "; ".join(f"{dtype}: {', '.join(names)}" for dtype, names in types.items())


def over_time() -> Iterator[str]:
    """One schedule for the whole run against a schedule for each of two phases."""
    yield "## Over a run\n"
    yield OVER_TIME.format(published=curve_words("published"), uniform=curve_words("uniform"))
    rows = []
    case = SHOWN[0]
    for budget in (DEFAULT_BUDGET / 4, DEFAULT_BUDGET / 2):
        for title, phases, curve in (
            ("one schedule", "", "published"),
            ("82 % and 18 %", "82%,18%", "published"),
            ("82 % and 18 %", "82%,18%", "uniform"),
        ):
            found = search_precisions(
                Request.of(case.request), types=case.types, risk_budget=budget, phases=phases, over_time=curve
            )
            parts = [
                together(
                    [f"{each.dtype}: {each.group.name}" for each in phase.choices if each.risk is not None]
                )
                or "nothing"
                for phase in found.phases
            ]
            rows.append(
                (
                    f"{budget:.3%}",
                    title,
                    curve if phases else "-",
                    f"{found.saved_share:.1%}",
                    f"{found.risk:.3%}",
                    " / ".join(parts),
                )
            )
    headers = (">budget", "phases", "gap over time", ">saved", ">risk", "layers in fp8, phase by phase")
    yield from markdown_lines(headers, rows)
    yield ""


INTRODUCTION = """# Precision schedules: which layers, and when

Generated by `python packages/papers/studies/precision_schedules.py`; do not edit. Version {version}.

A schedule gives each group of layers the reference precision or another type, and each part of a run a
schedule of its own. Searched is the one of least predicted time whose **risk**, a relative gap of the
loss, stays within a budget. Times are the predictor's, of whole schedules of jobs that say their software
and layout. Risks come from [small
trainings](precision-risk.md) and from published runs, and are taken to add up over groups: that is an
assumption, and the page of measured risk says how well it holds there.

Methods: **exhaustive** predicts every schedule within the budget. **Dynamic programming** solves the
multiple-choice knapsack of the groups to its optimum, once with the predicted differences of one group
at a time and once with those of the cost model alone, and predicts every schedule on the two frontiers.
**Greed** takes the change that saves most per risk until nothing fits. The **agent** is proximal policy
optimization (Stable-Baselines3, 4,096 steps, one seed) in a Gymnasium environment whose reward is the
predicted time that each decision saves: an experiment, which finds nothing that dynamic programming does not.
"""
SMALL = """Budgets are 20, 40, 60 and 80 % of the risk of all layers in the riskiest type; agents were
trained for 40 and 80 %. A gap is the step time found over that of the best schedule, less one. Seconds
were taken on a shared machine.
"""
ADDITIVE = """Dynamic programming adds up what single groups save, and a sum that every type adds once, set
so that the schedule with all groups in a type is met. Errors are of the step time, relative to the
reference's, over every schedule. The cost model nearly adds up; what is learned on top of it does not,
as it was fitted to runs with one precision in all layers, or in all but the first and the last.
"""
FOUND = """The default budget is {budget} and what DeepSeek-V3 states for fp8; rows are a quarter, a half
and all of it. fp8 is with current scaling. Convolutions are not multiplied in fp8: nothing is gained on
resnet50 on H100. On A100 the known gaps of tf32, bf16 and fp16 with loss scaling are zero, so every
budget allows all of them.
"""
OVER_TIME = """llama3-8b on 64 H100. How a gap comes about over a run is taken from one published run
("published": {published}), or every step is taken to leave the same part of it ("uniform": {uniform}).
A change of precision takes no time here; `predict --whole-run` adds a compilation for each phase.
"""


if __name__ == "__main__":
    main()
