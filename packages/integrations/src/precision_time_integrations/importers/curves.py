"""Steps of a run out of its curves: metrics that a tracker has with a step and a time for every point."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from .contract import MOST_STEPS, LoggedStep

EVALUATION = re.compile(r"(^|[/_. -])(eval|val|valid|validation|test)([/_. -]|$)", re.IGNORECASE)
"""Names of curves that an evaluation writes."""
_NOT_TRAINING = re.compile(
    r"^(system|hw|gpu|cpu|memory|disk|network|_wandb|ray)([/_.]|$)|gpu_utili[sz]ation|power_watts",
    re.IGNORECASE,
)
"""Samplers of the machine run on a clock of their own."""
GLOBAL_STEPS = (
    "trainer/global_step", "train/global_step", "global_step", "global_steps", "num_steps_trained", "step",
    "steps",
)  # fmt: skip
"""Names under which trainers log the optimizer steps done, the surest first."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve."""

    step: int
    at_s: float


class Curve(Sequence[Point]):
    """Points in the order in which they were written, 16 bytes each."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.steps, self.at_s = array("q"), array("d")
        for point in points:
            self.add(point.step, point.at_s)

    def add(self, step: int, at_s: float) -> None:
        """Add a point; one whose step no 64-bit integer holds is left out."""
        if -(1 << 63) <= step < 1 << 63:
            self.steps.append(step)
            self.at_s.append(at_s)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> Curve: ...
    def __getitem__(self, index: int | slice) -> Point | Curve:
        if isinstance(index, slice):
            return Curve(self[place] for place in range(*index.indices(len(self))))
        return Point(self.steps[index], self.at_s[index])


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveSteps:
    """Reports out of a run's curves."""

    steps: tuple[LoggedStep, ...] = ()
    """Marked where an evaluation wrote since the one before."""
    notes: tuple[str, ...] = ()
    """What was assumed."""
    reports_epochs: bool = False
    """Whether what is counted is epochs."""


def steps_of_curves(curves: Mapping[str, Curve], *, epochs: float | None = None) -> CurveSteps:
    """The reports of a run, from the curve of its training that has the most points.

    Args:
        curves: Name to points, in the order in which they were written.
        epochs: Of the run, where its settings say it: a curve with a point for each counts epochs.
    """
    own = {name: points for name, points in curves.items() if not _NOT_TRAINING.search(name)}
    training = {name: points for name, points in own.items() if not EVALUATION.search(name)}
    if not training:
        return CurveSteps(notes=("no curve of a training was found",))
    name = max(training, key=lambda key: (len(set(training[key].steps)), "loss" in key.lower()))
    pauses = sorted(at_s for other, curve in own.items() if other not in training for at_s in curve.at_s)
    steps = set(training[name].steps)
    if len(steps) < 2:
        return CurveSteps(
            notes=(f"the longest curve ({name[:80]!r}) has one step: there is no time between steps",)
        )
    counts_epochs = name.startswith("epoch_") or (epochs is not None and max(steps) <= epochs)
    counted = "epochs" if counts_epochs else "optimizer steps"
    return CurveSteps(
        steps=reports(training[name], () if counts_epochs else pauses),
        notes=(f"step times are those between points of {name[:80]!r}, counted as {counted}",),
        reports_epochs=counts_epochs,
    )


def reports(points: Iterable[Point], pauses: Sequence[float] = ()) -> tuple[LoggedStep, ...]:
    """Points as reports; of several at one step the first counts.

    Args:
        points: In the order in which they were written.
        pauses: When evaluations wrote, in order [s].
    """
    found: list[LoggedStep] = []
    passed = 0
    for point in points:
        if not math.isfinite(point.at_s) or (found and point.step == found[-1].step):
            continue
        before = found[-1].at_s if found else None
        while passed < len(pauses) and before is not None and pauses[passed] < before:
            passed += 1
        paused = before is not None and passed < len(pauses) and pauses[passed] <= point.at_s
        found.append(LoggedStep(step=point.step, at_s=point.at_s, after_pause=paused))
    return tuple(thinned(found))


def thinned(found: Sequence[LoggedStep]) -> Sequence[LoggedStep]:
    """At most a million reports: every second, every fourth ... of more."""
    return found[:: max(1, math.ceil(len(found) / MOST_STEPS))]
