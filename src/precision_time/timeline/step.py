"""When a device does what in one predicted step: its terms put in order, and the pipeline over its stages.

The order of the micro batches is simulated (`timeline/simulate.py`) with equal stages; how long
everything lasts comes from the prediction, so that the bars add up to its step time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import groupby

from ..cost.job import Job, Jobs
from ..cost.step import StepCosts, price
from ..cost.terms import EXPOSED_TERMS, METHOD_TERMS, TERMS, Pass
from ..parallel.layout import Layout, Recompute
from ..parallel.schedules.contract import StageTimes, Work
from ..planning.layouts.result import layout_name
from ..predict.prediction import Prediction
from ..records import dataclass
from .simulate import Span, simulate

_BUBBLE = "pipeline_bubble_s"
_TAIL, _BACKWARD_ONLY, _EVEN = (
    frozenset(term.name for term in TERMS if term.stands is stands)
    for stands in (Pass.END, Pass.BACKWARD, Pass.MIRRORED)
)
"""Terms after the last backward pass, in the backward pass alone, and in both passes equally."""
_AHEAD = frozenset(term.name for term in METHOD_TERMS)
"""What a method does beside the update stands before it, whatever its order is."""
_GATHERED_FORWARD = 1.0 / 3.0
"""Of the exchange of ZeRO 3: one gather forward; a gather and a scatter backward."""
KERNELS = frozenset({"forward", "backward", "weight"})
"""Kinds of bars that a task begins with."""


class Stream(StrEnum):
    """What a bar occupies."""

    COMPUTE = "compute"
    COMMUNICATION = "exposed communication"
    OVERLAPPED = "overlapped communication"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One thing that a stage does or waits for."""

    name: str
    kind: str
    """forward, backward, weight, recompute, bubble, overlapped, or the name of a term without `_s`."""
    stream: Stream
    stage: int
    start_s: float
    end_s: float
    micro_batch: int | None = None

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimeline:
    """One predicted step as bars."""

    prediction: Prediction
    layout: Layout
    device: tuple[Bar, ...]
    """Of a device of the first stage. Compute and exposed communication add up to the step, term by term."""
    pipeline: tuple[Bar, ...]
    """Of every stage. What the correction makes of the bubble stretches its tasks a little, so that each
    stage lasts the predicted step."""
    kernels: Mapping[str, float]
    """Share of each kind, a term without `_s`, in the bars that `KERNELS` names; sums to 1."""
    overlapped_s: Mapping[str, float]
    """By parallel axis: communication behind the computation of a device, per step."""

    @property
    def name(self) -> str:
        """The layout in a few words."""
        return layout_name(self.layout)

    @property
    def step_time_s(self) -> float:
        """Seconds that the bars of a stage cover."""
        return self.prediction.step_time_s


@dataclass(frozen=True, kw_only=True, slots=True)
class _Passes:
    """Seconds per step that each kind of bar takes, and where."""

    ahead: Mapping[str, float]
    """Before the first forward pass."""
    forward: Mapping[str, float]
    backward: Mapping[str, float]
    tail: Mapping[str, float]
    bubble_s: float
    kernels: Mapping[str, float]
    overlapped_s: Mapping[str, float]


def step_timeline(job: Job, prediction: Prediction) -> StepTimeline:
    """A predicted step in order."""
    passes = _passes(job, prediction)
    layout = job.layout
    count = layout.num_microbatches
    times = StageTimes(
        forward_s=sum(passes.forward.values()) / count, backward_s=sum(passes.backward.values()) / count
    )
    simulated = simulate(layout, times)
    stages = [list(spans) for _, spans in groupby(simulated.spans, key=lambda span: span.stage)]
    ahead_s, tail_s = sum(passes.ahead.values()), sum(passes.tail.values())
    until_s = prediction.step_time_s - tail_s
    stretch = (until_s - ahead_s) / max(simulated.step_s, 1e-12)
    pipeline = [
        bar for spans in stages for bar in _stage_bars(_stretched(spans, stretch, ahead_s), passes, until_s)
    ]
    idle_s = simulated.idle_s[0]
    first = _with_gaps(stages[0], passes.bubble_s / idle_s if idle_s > 1e-12 else 0.0, ahead_s)
    device = [*_stage_bars(first, passes, until_s)]
    return StepTimeline(
        prediction=prediction,
        layout=layout,
        device=(*device, *overlapped(device, sum(passes.overlapped_s.values()))),
        pipeline=tuple(pipeline),
        kernels=passes.kernels,
        overlapped_s=passes.overlapped_s,
    )


def summed_bars(job: Job, prediction: Prediction) -> tuple[Bar, ...]:
    """A device's step with all its passes in one: each kind of bar once, as long as the term is in sum."""
    passes = _passes(job, prediction)
    parts = [
        *passes.ahead.items(),
        *_in_order(passes.forward),
        ("bubble", passes.bubble_s),
        *_in_order(passes.backward),
        *passes.tail.items(),
    ]
    bars = [*_row(((kind, seconds) for kind, seconds in parts if seconds > 0.0), 0, 0.0)]
    return (*bars, *overlapped(bars, sum(passes.overlapped_s.values())))


def _in_order(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Kernels first, the communication that shows last."""
    return sorted(parts.items(), key=lambda part: (part[0] not in KERNELS, part[0].endswith("_exposed")))


def _stream_of(kind: str) -> Stream:
    return Stream.COMMUNICATION if kind.endswith("_exposed") else Stream.COMPUTE


def _passes(job: Job, prediction: Prediction) -> _Passes:
    """The terms by pass."""
    costs = price(Jobs.at(job))
    share = _forward_share(job, costs)
    ahead, forward, backward, tail, kernels = (defaultdict[str, float](float) for _ in range(5))
    for name, seconds in prediction.terms.items():
        exposed = name in EXPOSED_TERMS
        kind = name.removesuffix("_s") if exposed or name in _TAIL or name == "recompute_s" else ""
        if name == _BUBBLE:
            continue
        if name in _AHEAD:
            ahead[name.removesuffix("_s")] += seconds
            continue
        if name in _TAIL or (name == "data_exposed_s" and job.layout.zero_stage < 3):
            tail[kind] += seconds
            continue
        if name in _BACKWARD_ONLY:
            part = 0.0
        elif name in _EVEN:
            part = 0.5
        else:
            part = _GATHERED_FORWARD if exposed else share
        if not kind:
            kernels[name.removesuffix("_s")] += seconds
        forward[kind or "forward"] += part * seconds
        backward[kind or "backward"] += (1.0 - part) * seconds
    corrected = prediction.step_time_s / max(prediction.analytical_step_time_s, 1e-12)
    hidden = {
        axis: float(seconds[0]) - float(costs.terms.get(f"{axis}_exposed_s", [0.0])[0])
        for axis, seconds in costs.link_seconds.items()
    }
    whole = sum(kernels.values()) or 1.0
    return _Passes(
        ahead=ahead,
        forward=forward,
        backward=backward,
        tail=tail,
        bubble_s=prediction.terms.get(_BUBBLE, 0.0),
        kernels={name: seconds / whole for name, seconds in kernels.items() if seconds > 0.0},
        overlapped_s={axis: seconds * corrected for axis, seconds in hidden.items() if seconds > 0.0},
    )


def _forward_share(job: Job, costs: StepCosts) -> float:
    """Part of the kernels that runs in the forward pass: what full checkpointing would do again."""
    full = replace(job, layout=replace(job.layout, recompute=Recompute.FULL, recompute_layers=0.0))
    again = price(Jobs.at(full)).terms
    kernels = sum(
        float(seconds[0])
        for name, seconds in again.items()
        if name not in {*EXPOSED_TERMS, *_TAIL, "recompute_s", "host_stall_s"}
    )
    return min(float(again["recompute_s"][0]) / kernels, 1.0) if kernels else 1.0 / 3.0


def _stretched(spans: Sequence[Span], factor: float, from_s: float) -> list[Span]:
    """The tasks `factor` times as long, from a time on."""
    return [
        replace(span, start_s=from_s + span.start_s * factor, end_s=from_s + span.end_s * factor)
        for span in spans
    ]


def _with_gaps(spans: Sequence[Span], factor: float, from_s: float) -> list[Span]:
    """The tasks at their length, the gaps between them times `factor`, from a time on."""
    moved: list[Span] = []
    clock, simulated = from_s, 0.0
    for span in spans:
        clock += (span.start_s - simulated) * factor
        moved.append(replace(span, start_s=clock, end_s=clock + span.end_s - span.start_s))
        clock, simulated = moved[-1].end_s, span.end_s
    return moved


def _stage_bars(spans: Sequence[Span], passes: _Passes, until_s: float) -> Iterator[Bar]:
    """Bars of a stage from 0 to the end of the step: tasks in their parts, gaps, what is before and after."""
    stage = spans[0].stage
    ahead = [*_row(passes.ahead.items(), stage, 0.0)]
    yield from ahead
    clock = ahead[-1].end_s if ahead else 0.0
    for span in spans:
        yield from _bubble(stage, clock, span.start_s)
        yield from _task_bars(span, passes)
        clock = span.end_s
    yield from _bubble(stage, clock, until_s)
    yield from _row(passes.tail.items(), stage, until_s)


def _row(parts: Iterable[tuple[str, float]], stage: int, from_s: float) -> Iterator[Bar]:
    """Bars of these kinds and lengths, one after the other."""
    clock = from_s
    for kind, seconds in parts:
        yield Bar(
            name=words(kind),
            kind=kind,
            stream=_stream_of(kind),
            stage=stage,
            start_s=clock,
            end_s=clock + seconds,
        )
        clock += seconds


def _bubble(stage: int, start_s: float, end_s: float) -> Iterator[Bar]:
    if end_s - start_s > 1e-12:
        yield Bar(
            name="bubble", kind="bubble", stream=Stream.COMPUTE, stage=stage, start_s=start_s, end_s=end_s
        )


def _task_bars(span: Span, passes: _Passes) -> Iterator[Bar]:
    """A task's kernels, then the communication that shows in it."""
    task = span.task
    forward = task.work is Work.FORWARD
    parts = passes.forward if forward else passes.backward
    whole = sum(parts.values()) or 1.0
    clock, length = span.start_s, span.end_s - span.start_s
    for kind, part_s in _in_order(parts):
        seconds = length * part_s / whole
        kernels = kind in KERNELS
        named = task.work.value if kernels else kind
        chunk = f" chunk {task.chunk}" if task.chunk else ""
        yield Bar(
            name=f"{words(named)} {task.micro_batch}{chunk}" if kernels else words(kind),
            kind=named,
            stream=_stream_of(kind),
            stage=span.stage,
            start_s=clock,
            end_s=clock + seconds,
            micro_batch=task.micro_batch,
        )
        clock += seconds


def overlapped(bars: Sequence[Bar], seconds: float) -> Iterator[Bar]:
    """Communication behind the computation of these bars, as late as it can be: under the last backwards."""
    latest_backward_first = sorted(bars, key=lambda bar: (bar.kind == "forward", -bar.start_s))
    for bar in (bar for bar in latest_backward_first if bar.kind in KERNELS):
        if seconds <= 0.0:
            return
        taken = min(seconds, bar.seconds)
        yield Bar(
            name="overlapped communication",
            kind="overlapped",
            stream=Stream.OVERLAPPED,
            stage=bar.stage,
            start_s=bar.end_s - taken,
            end_s=bar.end_s,
            micro_batch=bar.micro_batch,
        )
        seconds -= taken


def tasks_of(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Each task as one bar, with the communication that shows in it."""
    whole: Bar | None = None
    for bar in bars:
        if whole is not None and bar.micro_batch is not None and bar.kind not in KERNELS:
            whole = replace(whole, end_s=bar.end_s)
            continue
        if whole is not None:
            yield whole
        whole = bar
    if whole is not None:
        yield whole


def words(kind: str) -> str:
    """A kind of bar for people."""
    return kind.removesuffix("_exposed").replace("_", " ")
