"""Train a small decoder under a precision schedule that the search found, and under constant precisions.

    python packages/papers/studies/schedule_training.py            # trains what the file lacks: minutes
    python packages/papers/studies/schedule_training.py --search   # searches anew first, and forgets the old

The losses are measured; precisions are emulated, as in docs/reference/precision-risk.md, on a CPU, which
gains nothing by them: the times of the trainings say nothing of an accelerator. What comes out is
schedule_training.json, which docs/reference/precision-schedules.md shows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from precision_time.io import write_atomically
from precision_time.render.table import markdown_lines
from precision_time.request.request import Request
from precision_time_papers.precisions.layer_risk import share_of_gap
from precision_time_papers.precisions.schedules import schedules_of
from precision_time_papers.precisions.search import search_precisions
from repository import ROOT

FILE = Path(__file__).with_suffix(".json")
FOUND = "found"
"""Name of the schedule of the search among the precisions trained."""
FP32, BF16 = "fp32", "bf16-mixed/autocast"
_AGREES = 4.3
"""Standard errors: Student's t of three seeds, 95 %."""
_SHOWN = 8
"""Points of a curve on the page."""


def main() -> None:
    """Search where nothing is stored, train what is missing, each stored at once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--search", action="store_true", help="search anew, and train everything again")
    asked = parser.parse_args()
    import torch

    from risk_study.schedule import load_study, train_schedule

    torch.set_num_threads(1)
    study = load_study()
    stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() and not asked.search else {}
    described = {"model": study.model.model_dump(mode="json"), "evaluations": study.evaluations}
    if not stored or stored["trained"] != described:
        stored = {
            "command": f"python {Path(__file__).relative_to(ROOT)}",
            "trained": described,
            "found": searched(study),
            "trainings": [],
        }
    known = {(item["precision"], item["seed"]) for item in stored["trainings"]}
    for seed in range(study.seeds):
        for precision in (*study.constant, FOUND):
            if (precision, seed) in known:
                continue
            phases = phases_of(study, precision, stored["found"])
            curve = train_schedule(study.model, phases, seed=seed, evaluations=study.evaluations)
            stored["trainings"].append(
                {
                    "precision": precision,
                    "seed": seed,
                    "loss": round(curve.loss, 6),
                    "steps": curve.steps,
                    "losses": [round(loss, 6) for loss in curve.losses],
                    "cpu_s": round(curve.cpu_s, 1),
                    "parameters": curve.parameters,
                    "data": curve.data,
                    "torch": torch.__version__,
                }
            )
            write_atomically(FILE, json.dumps(stored, indent=1) + "\n")
            print(f"{precision}, seed {seed}: loss {curve.loss:.4f}, {curve.cpu_s:.0f} s", flush=True)


def searched(study: Any) -> dict[str, Any]:
    """The schedule that the search finds, and the loss gap that it says of it for the small model."""
    asked = {name: value for name, value in study.search.items() if name != "request"}
    found = search_precisions(Request.of(dict(study.search["request"])), **asked)
    phases = [
        {"share": phase.share, "kinds": [each.group.kind for each in phase.choices if each.risk is not None]}
        for phase in found.phases
    ]
    return {
        "for": f"{found.model}, {found.gpus} {found.device}",
        "reference": found.reference,
        "types": list(found.types),
        "risk_budget": found.risk_budget,
        "saved_share": round(found.saved_share, 4),
        "risk": round(found.risk, 6),
        "phases": phases,
        "gap": {over_time: gap_said(study, phases, over_time) for over_time in ("published", "uniform")},
        "constant_gap": gap_said(study, [{"share": 1.0, "kinds": [*study.layers]}], "published"),
    }


def gap_said(study: Any, phases: Sequence[Mapping[str, Any]], over_time: str) -> float:
    """The loss gap that the model of risks gives the small decoder under a schedule."""
    schedules = schedules_of(
        Request.of(dict(study.small)),
        types=[study.search["types"]],
        recipe=None,
        evidence=study.search["evidence"],
        bands=1,
    )
    edges = [0.0]
    for phase in phases:
        edges.append(edges[-1] + phase["share"])
    gaps = []
    for phase, (low, high) in zip(phases, pairwise(edges), strict=True):
        picks = tuple(int(group.kind in phase["kinds"]) for group in schedules.groups)
        gaps.append(float(schedules.risks_of([picks])[0]) * share_of_gap(over_time, low, min(high, 1.0)))
    return round(math.fsum(gaps), 6)


def phases_of(study: Any, precision: str, found: Mapping[str, Any]) -> list[Any]:
    """A constant precision as one phase, or the phases of the schedule found."""
    from risk_study.schedule import Phase

    if precision != FOUND:
        return [Phase(end=1.0, recipe=precision, layers={})]
    phases, end = [], 0.0
    for part in found["phases"]:
        end += part["share"]
        layers = {pattern: study.narrow for kind in part["kinds"] for pattern in study.layers[kind]}
        phases.append(Phase(end=min(end, 1.0), recipe=study.reference, layers=layers))
    return phases


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A precision against a reference: relative differences of the loss, seed by seed."""

    mean: float
    error: float
    """Standard error of the mean over the seeds."""

    def __str__(self) -> str:
        return f"{self.mean:+.2%} ± {self.error:.2%}"


def gap_of(trainings: Sequence[Mapping[str, Any]], precision: str, reference: str) -> Gap:
    """The gap over the seeds that both were trained with."""
    by = {(item["precision"], item["seed"]): item["loss"] for item in trainings}
    seeds = sorted({seed for name, seed in by if name == precision} & {s for n, s in by if n == reference})
    gaps = [by[precision, seed] / by[reference, seed] - 1.0 for seed in seeds]
    return Gap(mean=statistics.fmean(gaps), error=statistics.stdev(gaps) / math.sqrt(len(gaps)))


def page_lines() -> Iterator[str]:
    """The section of docs/reference/precision-schedules.md; nothing where nothing was trained."""
    if not FILE.is_file():
        return
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    found, trainings = stored["found"], stored["trainings"]
    first = trainings[0]
    yield "## A schedule that was trained\n"
    yield _what(found, first, len({item["seed"] for item in trainings}))
    headers = ("precision", ">loss", ">± seeds", ">gap to fp32, measured", ">gap to bf16, measured")
    yield from markdown_lines((*headers, ">gap, predicted"), [*_gap_rows(trainings, found)])
    yield ""
    yield _verdict(trainings, found)
    yield "\n### Validation loss on the way, mean over the seeds\n"
    names = dict.fromkeys(item["precision"] for item in trainings)
    places = [round((number + 1) * len(first["steps"]) / _SHOWN) - 1 for number in range(_SHOWN)]
    yield from markdown_lines(
        ("step", *(f">{_title(name)}" for name in names)),
        [
            (f"{first['steps'][place]}", *(f"{_loss_at(trainings, name, place):.4f}" for name in names))
            for place in places
        ],
    )
    change = round(found["phases"][0]["share"] * first["steps"][-1])
    slower = _seconds(trainings, FOUND) / _seconds(trainings, "fp32")
    yield (
        f"\nThe schedule changes after step {change}. Emulated, its trainings took {slower:.1f} times the "
        "processor time of those in fp32. All curves are in packages/papers/studies/schedule_training.json. "
        f"Again: `{stored['command']}`.\n"
    )


def _what(found: Mapping[str, Any], first: Mapping[str, Any], seeds: int) -> str:
    """What was searched and what was trained."""
    parts = " / ".join(
        f"{'+'.join(found['types'])} in {', '.join(part['kinds']) or 'nothing'} for {part['share']:.0%}"
        for part in found["phases"]
    )
    return (
        f"The search for {found['for']} with a budget of {found['risk_budget']:.2%} finds: {parts}; the rest "
        f"in {found['reference']}. It saves {found['saved_share']:.1%} of the predicted time. A decoder of "
        f"{first['parameters']:,} parameters and four blocks was trained on {first['data']}, "
        f"{first['steps'][-1]} steps, {seeds} seeds, its layers in the types that the schedule gives groups "
        "of their kind, and in constant precisions from the same parameters on the same batches. Losses are "
        "measured, on data not trained on. The types are emulated on a CPU, where they are no faster than "
        "fp32: **the times of these trainings prove nothing**, and the time that the schedule saves remains "
        "a prediction.\n"
    )


def _title(precision: str) -> str:
    return "the schedule found" if precision == FOUND else precision


def _loss_at(trainings: Sequence[Mapping[str, Any]], precision: str, place: int) -> float:
    """The mean over the seeds at an evaluation."""
    return statistics.fmean(item["losses"][place] for item in trainings if item["precision"] == precision)


def _seconds(trainings: Sequence[Mapping[str, Any]], precision: str) -> float:
    return statistics.fmean(item["cpu_s"] for item in trainings if item["precision"] == precision)


def _gap_rows(trainings: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    gaps = found["gap"]
    said = {
        FOUND: f"{gaps['published']:.2%} ({gaps['uniform']:.2%} if every step counts the same)",
        FP32: "0, the reference",
        BF16: "0",
    }
    for name in dict.fromkeys(item["precision"] for item in trainings):
        losses = [item["loss"] for item in trainings if item["precision"] == name]
        yield (
            _title(name),
            f"{statistics.fmean(losses):.4f}",
            f"{statistics.stdev(losses):.4f}",
            "-" if name == FP32 else str(gap_of(trainings, name, FP32)),
            "-" if name in (FP32, BF16) else str(gap_of(trainings, name, BF16)),
            said.get(name, f"{found['constant_gap']:.2%}"),
        )


def _verdict(trainings: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> str:
    """What the measured gap says of the predicted one."""
    gap, said = gap_of(trainings, FOUND, BF16), found["gap"]["published"]
    away = (gap.mean - said) / gap.error
    words = "agrees with" if abs(away) <= _AGREES else "is below" if away < 0 else "is above"
    kept = "kept" if gap.mean <= found["risk_budget"] else "exceeded"
    return (
        f"The gap measured under the schedule, {gap} of the loss in bf16, {words} the predicted {said:.2%} "
        f"({abs(away):.1f} standard errors of three seeds apart); the budget of {found['risk_budget']:.2%} "
        f"is {kept}. The risks of the prediction come from trainings of a decoder of half as many blocks and "
        "two thirds of the width."
    )


if __name__ == "__main__":
    main()
