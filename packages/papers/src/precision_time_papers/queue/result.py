"""A plan of a queue, and the page that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from precision_time.predict.headline import Interval
from precision_time.render.blocks import GAP, TEXT_WIDTH, Block, Text
from precision_time.render.result import Result
from precision_time.render.table import Table
from precision_time.units import format_duration

from .objectives import FAIRNESS, MAKESPAN, OBJECTIVES
from .pools import Pool
from .reasons import Remedy

_LEAST_BAR, _MOST_BAR = 12, 60
"""Width of the terminal's Gantt chart [characters]."""
_TABLE_WIDTH = 102
"""Of what stands beside it."""
_SHORT_S = 600.0
"""Plans shorter than this are told in seconds, others in hours and minutes."""
_PROVED = 1e-3
"""Gap below which a plan is told as the best there is: whole seconds and rounded ratios."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledJob:
    """One job of a plan; times are seconds from the start of the plan."""

    name: str
    model: str
    tenant: str
    weight: float
    device: str
    pool: str
    gpus: int
    nodes: int
    slots: tuple[int, ...]
    """Its devices, numbered within the pool host by host."""
    precision: str
    submit_s: float
    start_s: float
    end_s: float
    """By the planned duration."""
    duration_s: float
    """Predicted median."""
    planned_s: float
    """Padded to the quantile of the plan."""
    duration_interval: Interval
    end_median_s: float
    """Over executions of the plan with drawn durations."""
    end_low_s: float
    """5th percentile of these."""
    end_high_s: float
    """95th percentile of these."""
    deadline_s: float | None
    lateness_s: float
    """Of the planned end."""
    on_time_probability: float | None
    """None without a deadline."""
    finish_ratio: float
    """From submission to planned end over the time on a fair share of the cluster."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Schedule(Result):
    """When each job starts, where and in which precision."""

    DERIVED = ("makespan_s", "gap")

    objective: str
    value: float
    """Of the objective [s; without unit for fairness]."""
    bound: float
    """No plan has a smaller one."""
    optimal: bool
    """Whether the search proved that none is better, up to whole seconds."""
    quantile: float
    start: datetime | None
    pools: tuple[Pool, ...]
    jobs: tuple[ScheduledJob, ...]
    """In the order of the file."""
    makespan_median_s: float
    makespan_low_s: float
    makespan_high_s: float
    mean_completion_s: float
    """From submission to planned end."""
    all_on_time_probability: float | None
    """None where no job has a deadline."""
    remedies: tuple[Remedy, ...] = ()
    """What would meet the deadlines, where one is missed."""
    notes: tuple[str, ...] = ()

    @property
    def makespan_s(self) -> float:
        """Planned end of the last job."""
        return max(job.end_s for job in self.jobs)

    @property
    def gap(self) -> float:
        """How much smaller the objective might be, at most, as a share of it."""
        return 0.0 if self.optimal or self.value <= 0.0 else 1.0 - self.bound / self.value

    @property
    def late(self) -> tuple[ScheduledJob, ...]:
        """Jobs that end after their deadline by the plan."""
        return tuple(job for job in self.jobs if job.lateness_s > 0.0)

    @property
    def in_order(self) -> list[ScheduledJob]:
        """The jobs, the earliest first."""
        return sorted(self.jobs, key=lambda job: (job.start_s, job.end_s, job.name))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        start = None if self.start is None else self.start.isoformat(sep=" ")
        return Result.to_dict(self) | {"start": start}

    def plot(self) -> Any:
        """The plan as a Gantt chart; needs matplotlib.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtraError: If matplotlib is not installed.
        """
        from .gantt import gantt_figure

        return gantt_figure(self)

    def when(self, seconds: float) -> str:
        """A time of the plan: hours and minutes from its start, or a date where that is one."""
        if self.start is None and self.makespan_s < _SHORT_S:
            return format_duration(round(seconds)) if round(seconds) else "0"
        if self.start is None:
            return f"{round(seconds) // 3600}:{round(seconds) % 3600 // 60:02d}"
        return f"{self.start + timedelta(seconds=round(seconds)):%Y-%m-%d %H:%M}"

    def headline(self) -> Iterator[str]:
        """What it is worth, how sure that is, and what would meet its deadlines."""
        return _headline(self)

    def in_one_line(self) -> str:
        """How many jobs, and when the last one ends."""
        return f"{len(self.jobs)} jobs, {format_duration(self.makespan_s)}"

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """Jobs in the order of their start, what the plan is worth, reasons."""
        del why
        heads = ("job", "runs on", "precision", ">start", ">end", ">90 % interval", *_due_header(self))
        bars = width - _TABLE_WIDTH if width >= _TABLE_WIDTH + _LEAST_BAR else 0
        rows = (
            (
                job.name,
                f"{job.gpus} x {job.pool}",
                job.precision,
                self.when(job.start_s),
                self.when(job.end_s),
                _range(self, job),
                *_due(self, job),
                *((_bar(self, job, min(bars, _MOST_BAR)),) if bars else ()),
            )
            for job in self.in_order
        )
        yield Table(columns=(*heads, *(("",) if bars else ())), rows=tuple(rows))
        yield from (GAP, *map(Text, self.headline()))
        if self.start is None and self.makespan_s >= _SHORT_S:
            yield Text("Times are hours:minutes from the start of the plan.")
        yield from (GAP, *(Text(f"{job.name}: {job.reason}") for job in self.in_order))


def _headline(plan: Schedule) -> Iterator[str]:
    """What a plan is worth, how sure that is, and what would meet its deadlines."""
    value = (
        f"{plan.value:.2f}"
        if plan.objective == FAIRNESS
        else format_duration(plan.value)
        if plan.value
        else "0"
    )
    quality = (
        "proved the smallest" if plan.gap < _PROVED else f"at most {plan.gap:.1%} above the smallest possible"
    )
    yield f"{OBJECTIVES[plan.objective].capitalize()}: {value}, {quality} for these durations."
    others = (
        [] if plan.objective == MAKESPAN else [f"the last job ends after {format_duration(plan.makespan_s)}"]
    )
    others.append(f"jobs take {format_duration(plan.mean_completion_s)} from submission to end on average")
    yield f"{'; '.join(others).capitalize()}."
    yield (
        f"Durations are planned at their {plan.quantile:.0%} quantile. Executed in this order, each job as "
        f"soon as its devices are free, the last job ends after {format_duration(plan.makespan_median_s)} "
        f"(90 % interval {format_duration(plan.makespan_low_s)} to {format_duration(plan.makespan_high_s)})."
    )
    if plan.all_on_time_probability is not None:
        yield f"Every deadline is met with probability {plan.all_on_time_probability:.0%}."
    if plan.late:
        worst = max(plan.late, key=lambda job: job.lateness_s)
        yield (
            f"{len(plan.late)} of {len(plan.jobs)} jobs end after their deadline by the plan; the latest, "
            f"{worst.name}, by {format_duration(worst.lateness_s)}."
        )
        for each in plan.remedies:
            effect = (
                f"{each.late_jobs} late, the latest by {format_duration(each.lateness_s)}"
                if each.late_jobs
                else "every deadline is met"
            )
            host = f", with one more host of {each.one_more_host_of}" if each.one_more_host_of else ""
            yield f"Planned for the deadlines (--objective deadlines){host}: {effect}."
    yield from plan.notes
    yield (
        "Durations are of whole runs: with start-up, compilation, checkpoints and failures at their usual "
        "rates, and evaluation where `run` states it."
    )


def _range(plan: Schedule, job: ScheduledJob) -> str:
    if plan.start is not None:
        return f"{plan.when(job.end_low_s)[5:]} to {plan.when(job.end_high_s)[5:]}"
    return f"{plan.when(job.end_low_s)} to {plan.when(job.end_high_s)}"


def _due_header(plan: Schedule) -> tuple[str, ...]:
    return (">deadline", ">P(met)") if plan.all_on_time_probability is not None else ()


def _due(plan: Schedule, job: ScheduledJob) -> tuple[str, ...]:
    if plan.all_on_time_probability is None:
        return ()
    if job.deadline_s is None or job.on_time_probability is None:
        return "", ""
    return plan.when(job.deadline_s), f"{job.on_time_probability:.0%}"


def _bar(plan: Schedule, job: ScheduledJob, width: int) -> str:
    """A line of the terminal's Gantt chart."""
    scale = width / plan.makespan_s
    left = min(int(job.start_s * scale), width - 1)
    right = max(round(job.end_s * scale), left + 1)
    return f"{'.' * left}{'#' * (right - left)}{'.' * (width - right)}"
