"""What a search for a precision schedule found, its page, and the files that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from precision_time.io import write_atomically
from precision_time.planning.precisions.risk import Risk
from precision_time.precision.own import as_yaml, policy_of, stated_policy
from precision_time.render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone
from precision_time.render.result import Result
from precision_time.render.table import Table
from precision_time.request.request import Request
from precision_time.units import format_bytes, format_duration

from .groups import LayerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChoice:
    """One group of layers and the type that a schedule gives it."""

    group: LayerGroup
    dtype: str
    """The name of the reference precision where it stays in it."""
    alone_s: float
    """By which the step becomes longer where this group alone changes; below 0 where it becomes shorter."""
    risk: Risk | None
    """None in the reference, which adds none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulePhase:
    """One part of a run."""

    share: float
    """Of the steps, 0..1."""
    policy: Mapping[str, Any]
    """As a policy file says it."""
    step_time_s: float
    additive_step_time_s: float
    """What the times of the groups add up to: what dynamic programming compared."""
    risk: float
    """What the phase adds to the loss gap of the run."""
    choices: tuple[GroupChoice, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The type of each group."""
        return tuple(each.dtype for each in self.choices)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class PrecisionSearch(Result):
    """The fastest precision schedule that was found under a budget of risk."""

    model: str
    device: str
    gpus: int
    reference: str
    """The precision that layers keep unless the schedule says otherwise."""
    types: tuple[str, ...]
    method: str
    risk_budget: float
    """Largest relative gap of the loss that was allowed."""
    risk: float
    """Relative gap of the loss that the schedule is charged: the sum over groups and phases."""
    reference_step_time_s: float
    step_time_s: float
    """Predicted, the mean over the phases by their shares."""
    phases: tuple[SchedulePhase, ...]
    memory_bytes_per_device: float
    """Of the phase that needs most."""
    fits: bool
    schedules: int
    """Assignments of types to groups that there are."""
    evaluations: int
    """Of them predicted."""
    search_s: float
    assumptions: tuple[str, ...] = ()
    request: Request | None = field(default=None, repr=False, compare=False)
    """What was asked, the layout and the batch that were compared among it."""

    @property
    def saved_share(self) -> float:
        """Share of the reference's time that is saved, 0..1."""
        return 1.0 - self.step_time_s / self.reference_step_time_s

    @property
    def policy(self) -> Mapping[str, Any]:
        """The policy of the first phase, as a policy file says it."""
        return self.phases[0].policy

    @property
    def run_phases(self) -> tuple[dict[str, Any], ...]:
        """The phases as `predict_run` takes them."""
        return tuple({"share": phase.share, "precision": dict(phase.policy)} for phase in self.phases)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        found = {name: getattr(self, name) for name in self.__slots__ if name not in ("request", "phases")}
        return found | {
            "saved_share": self.saved_share,
            "phases": [asdict(phase) for phase in self.phases],
            "request": None if self.request is None else self.request.to_dict(),
        }

    def write(self, path: Path) -> None:
        """The schedule as a policy file where it has one phase, as a job file with phases where it has more.

        Raises:
            OutputError: If it cannot be written.
        """
        write_atomically(path, self.to_yaml())

    def to_yaml(self) -> str:
        """What `write` writes."""
        import yaml

        if len(self.phases) == 1:
            return as_yaml(policy_of(stated_policy(self.policy)))
        asked = {} if self.request is None else self.request.given()
        job = {name: value for name, value in asked.items() if name != "precision"}
        text: str = yaml.safe_dump(
            {"version": 1} | job | {"phases": [*self.run_phases]}, sort_keys=False, width=110
        )
        return text

    def in_one_line(self) -> str:
        """By how much it is faster, and at what risk."""
        return _headline(self)

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time precisions search` prints."""
        del width, why
        yield from (*self.notebook(), GAP)
        sources = dict.fromkeys(
            f"{choice.dtype}: {choice.risk.basis}, {choice.risk.source}"
            for phase in self.phases
            for choice in phase.choices
            if choice.risk is not None
        )
        lines = [
            f"{self.model} on {self.gpus} x {self.device}, {self.reference} and "
            f"{', '.join(self.types)} by groups of layers; {self.evaluations:,} of {self.schedules:,} "
            f"schedules predicted, {self.method}",
            *(f"Risk of {source}." for source in sources),
            *(f"Assumed: {line}" for line in self.assumptions),
            f"Memory: {format_bytes(self.memory_bytes_per_device)} per device"
            + ("." if self.fits else ", which does not fit."),
        ]
        yield from (Text(line, Tone.SOFT) for line in lines)

    def notebook(self) -> Iterator[Block]:
        """The answer, and the types of the groups."""
        yield from (Text(_headline(self), Tone.LEAD), GAP, _table(self))


def _headline(search: PrecisionSearch) -> str:
    reference_s = format_duration(search.reference_step_time_s)
    if search.saved_share <= 0.0:
        return (
            f"Nothing is faster than {search.reference} within a risk of {search.risk_budget:.3%}: "
            f"{reference_s} a step."
        )
    return (
        f"{format_duration(search.step_time_s)} a step, {search.saved_share:.1%} less than "
        f"{search.reference} ({reference_s}), at a risk of {search.risk:.3%} of {search.risk_budget:.3%}."
    )


def _table(search: PrecisionSearch) -> Table:
    """A row for each group: its type in each phase, its share of the products, what it saves and costs."""
    several = len(search.phases) > 1
    types = [f"{phase.share:.0%} of steps" if several else "type" for phase in search.phases]
    headers = ["layers", *types, ">products", ">alone", ">risk"]
    rows = []
    for place, first in enumerate(search.phases[0].choices):
        own = [phase.choices[place] for phase in search.phases]
        changed = next((each for each in own if each.risk is not None), None)
        rows.append(
            (
                first.group.name,
                *(each.dtype for each in own),
                f"{first.group.flops_share:.1%}",
                "-" if changed is None else f"{changed.alone_s / search.reference_step_time_s:+.1%}",
                "-" if changed is None or changed.risk is None else f"{changed.risk.counted:.3%}",
            )
        )
    totals = [format_duration(phase.step_time_s) for phase in search.phases]
    saved = "-" if search.saved_share <= 0.0 else f"{-search.saved_share:+.1%}"
    rows.append(("all", *totals, "", saved, f"{search.risk:.3%}"))
    return Table(columns=tuple(headers), rows=tuple(rows))
