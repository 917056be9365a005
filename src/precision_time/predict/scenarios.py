"""The interval of a question: what it leaves open is filled in as people fill it in, in several ways.

A question names model, device, count, precision and batch; software, its year, sharding, recomputation,
compiler, memory format and input are often open. Each row of a table of answers comes with the
weighted scenarios that practice has for what its request leaves open (`request/practice.py`); they are priced
in one table and make a mixture of distributions: every scenario is as uncertain as the predictor says of it.
The answer is the time that errs least in percent (`learn.intervals.least_error`), a little below the median
of the mixture, and its interval holds the share asked for. A request that leaves nothing open has one
scenario: itself.

The mixture is corrected by what questions of measured runs were off by (`question_model.py`).
In a mixture of several, each is wider than alone, by what was fitted to questions of measured runs whose
publisher had no vote (`packages/papers/studies/questions.py`, `data/scenarios.toml`): practice is more
than what was counted.
What is unknown of practice does not depend on what is unknown of the hardware, so that the squares add up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Bools, Floats, sum_in_order
from ..cost.job import Job, Jobs
from ..cost.memory import memory_of, total_bytes
from ..diagnostics import Diagnostics
from ..errors import PrecisionTimeError
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor
from ..learn.intervals import WIDTH_COVERAGE, least_error
from ..learn.predictor import Times
from ..learn.priced import price_jobs
from ..parallel.layout import Layout, Recompute
from ..records import dataclass
from ..request.practice import at_points, axes_of, practice, usual_scenarios
from ..request.practice import scenarios as joint
from ..request.question import Question, question_of
from ..request.request import Request
from ..request.resolve import cluster_of, stack_of
from ..request.votes import STACK, Votes
from .question_model import question_model, said_of

POINTS = ("links", "software", "sharding", "recompute", "compiler", "memory_format", "attention", "input")
"""Open points besides the stack that scenarios fill in: of how a job runs, not of what it trains."""
_OF_REQUEST = frozenset(
    {"network", "stack", "software", "compiler", "channels_last", "attention", "real_input", "loader"}
)
_AXES = ("tp", "pp", "cp", "ep")
_COLUMNS = ("step_time_s", "median_s", "low_s", "high_s")
"""Of times, those that scenarios have."""
_OF_LAYOUT = frozenset({"zero_stage", "recompute", "batch_size", "num_microbatches"})
_TAIL = math.log(19.0)
"""Half the width of the 90 % interval of a logistic distribution of scale 1."""
_TOGETHER = 8_192
"""Rows of scenarios that are priced at once: their features, 12 MB, take no new pages from the system."""
_STEPS = 60
"""At most, towards a quantile: halvings alone would find it to the last digit."""
_REACH = 40.0
"""Scales from the middle of a logistic distribution beyond which nothing is left of it."""
_CLOSE = 1e-12
"""A step in log time after which nothing is left to find."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One way to fill in what a request leaves open."""

    weight: float
    fields: Mapping[str, Any]
    job: Job
    micro_batch_size: float | None = None
    """How it cuts the batch of a replica, where that is a whole number of times in it; None: as the job."""

    @property
    def names_links(self) -> bool:
        """Whether it runs on a network of its own."""
        return "network" in self.fields

    def batches(self, own: Layout, micro: Floats, counts: Floats) -> tuple[Floats, Floats, Bools]:
        """Its micro batches and their number for rows of the request's own job, and whether it has any.

        Args:
            own: Layout of the own job.
            micro: Micro batches of the rows, shape (n,).
            counts: Micro batches of a step, shape (n,).
        """
        whole = micro * counts
        uncut = self.job.layout.dp != own.dp
        if uncut:
            whole = whole * own.dp / self.job.layout.dp
            micro, counts = whole, np.ones_like(whole)
        if self.micro_batch_size is not None:
            times = whole / self.micro_batch_size
            cut = (times >= 1.0) & (times == np.round(times))
            micro, counts = np.where(cut, self.micro_batch_size, micro), np.where(cut, times, counts)
        can = micro >= 1.0
        if uncut and can.any():  # what does not fit uncut is not run like that
            needed = total_bytes(memory_of(Jobs.at(self.job, micro, counts)))
            can &= np.broadcast_to(needed, can.shape) <= self.job.cluster.device.usable_bytes
        return micro, counts, can


@dataclass(frozen=True, kw_only=True, slots=True)
class Widening:
    """How wide a scenario is among several."""

    own: float
    """Times its width alone."""
    layout_open: float
    """And beside that half the width in log time of a 90 % interval, where the layout is left open, too."""
    layout_said: float
    """The same where the layout is said."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scenarios:
    """The scenarios of n rows: m at most, of which the first is the row's own job."""

    weights: Floats
    """Shape (n, m), of a row together 1; 0 where it has fewer."""
    fields: Sequence[Sequence[Mapping[str, Any]]]
    """By group of the rows, what each scenario fills in."""
    step_time_s: Floats
    """Shape (n, m); that of the row's own job where there is none."""
    correction: Floats
    """Factor on the median: what questions like this were off by, shape (n,)."""

    def told(self, row: int, group: int) -> tuple[float, float, str]:
        """The shortest and longest step of a row's scenarios [s], and the field that sets most of them apart.

        Args:
            row: Which.
            group: Its group.
        """
        has = np.flatnonzero(self.weights[row] > 0.0).tolist()
        step_s, weights = self.step_time_s[row, has], self.weights[row, has]
        fields = [self.fields[group][number] for number in has]
        logs = np.log(step_s)
        names = dict.fromkeys(name for each in fields for name in each)
        shares = {name: _between(logs, weights, [repr(each.get(name)) for each in fields]) for name in names}
        widest = max(shares, key=lambda name: (shares[name], name == STACK), default="")
        return float(step_s.min()), float(step_s.max()), widest


def scenarios_of(request: Request, job: Job, *, votes: Votes | None = None) -> tuple[Scenario, ...]:
    """The scenarios of a request, its own job first; that alone where nothing is open.

    Args:
        request: What is asked.
        job: What it resolves to: what is assumed counts by itself (`own_share`).
        votes: Of whom; None for those that ship.
    """
    own = Scenario(weight=1.0, fields={}, job=job)
    if job.workload.method is not None or request.anchors or request.calibration is not None:
        return (own,)
    question = _of_all_rows(question_of(request, job.workload, job.cluster))
    settings = _settings()
    points = (*POINTS, *(["batch"] if question.family in settings["cut_families"] else ()))
    most = int(settings["most"])
    if votes is None:
        found = usual_scenarios(question, points, most)
    else:
        found = joint(at_points(practice(question, votes), points), most)
    if len(found) == 1 and not found[0].fields.keys() - {STACK}:
        return (own,)
    others = [
        replace(made, weight=weight)
        for weight, fields in found
        if (made := _made(request, job, fields)) is not None
    ]
    total = sum(each.weight for each in others)
    if not total:
        return (own,)
    share = float(settings["own_share"])
    rest = (replace(each, weight=(1.0 - share) * each.weight / total) for each in others)
    return (replace(own, weight=share), *rest)


def _of_all_rows(question: Question) -> Question:
    """The question of all batches and of all numbers of devices of a scale, one device among those of a host.

    So the rows of a sweep have the scenarios that each has alone, and more devices are not other people.
    """
    scale = "host" if question.scale == "one" else question.scale
    return replace(question, samples=None, scale=scale, num_devices=2)


def leaves_layout_open(scenarios: Sequence[Scenario]) -> bool:
    """Whether a question with these scenarios leaves open how the job is spread and cut."""
    return any(_OF_LAYOUT & each.fields.keys() for each in scenarios)


def level_of(request: Request) -> str:
    """How much a request says, as questions are scored (data/questions.toml): bare, software or layout."""
    given = request.model_fields_set
    if not given & {"stack", "framework"}:
        return "bare"
    return "layout" if request.given_layout and "batch_size" in given else "software"


def _settings() -> Mapping[str, Any]:
    found: Mapping[str, Any] = packaged_toml(__package__, "data/scenarios.toml")["mixture"]
    return found


def _made(request: Request, job: Job, fields: Mapping[str, Any]) -> Scenario | None:
    """The job as a scenario runs it; None where it cannot be."""
    changed = request.changed(**{name: value for name, value in fields.items() if name in _OF_REQUEST})
    try:
        stack = stack_of(changed, job.workload.family, job.cluster.device, Diagnostics())
        cluster = job.cluster if "network" not in fields else cluster_of(changed, Diagnostics())
        made = replace(job, cluster=cluster, stack=stack, layout=_layout(job.layout, stack.profile, fields))
    except PrecisionTimeError:
        return None
    return Scenario(weight=0.0, fields=fields, job=made, micro_batch_size=fields.get("batch_size"))


def _layout(layout: Layout, stack: str, fields: Mapping[str, Any]) -> Layout:
    """The layout under a scenario: data-parallel alone on a stack that lacks an axis of the one assumed."""
    changes: dict[str, Any] = {}
    if "recompute" in fields:
        changes |= {
            "recompute": Recompute(fields["recompute"]),
            "recompute_layers": 0.0,
            "recompute_modules": (),
        }
    zero = fields.get("zero_stage", layout.zero_stage)
    if {axis for axis in _AXES if getattr(layout, axis) > 1} - set(axes_of(stack)):
        world = layout.world_size
        changes |= {
            "dp": world, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": None, "vpp": 1, "stage_layers": (),
            "num_microbatches": 1, "sequence_parallel": False, "expert_nodes": 0, "expert_overlap": False,
        }  # fmt: skip
        zero = max(zero, 3)
    changes["zero_stage"] = min(zero, 1) if changes.get("pp", layout.pp) > 1 else zero
    made = replace(layout, **changes)
    return made if made.data_ranks > 1 else replace(made, zero_stage=layout.zero_stage)


def widened(
    jobs: Jobs,
    requests: Sequence[Request],
    times: Times,
    predictor: TrainedPredictor,
    *,
    coverage: Floats,
) -> tuple[Times, Scenarios | None]:
    """Times of jobs as answers to what was asked: those of the mixtures over their scenarios.

    Args:
        jobs: n jobs.
        requests: What was asked, by group of the jobs.
        times: What the predictor says of the jobs.
        predictor: That predictor.
        coverage: Probability that each interval holds, 0..1, shape (n,).

    Returns:
        The times, terms in proportion; and the scenarios, None where no request leaves anything open.
    """
    if predictor.measurements.own:  # learned from measured runs of one's own, on one's own software
        return times, None
    groups = [scenarios_of(request, job) for request, job in zip(requests, jobs.shared, strict=True)]
    width = max(map(len, groups), default=1)
    if width == 1:
        return times, None
    tables: list[Jobs] = []
    place = np.full((len(jobs), width), -1, dtype=np.intp)
    weights, links = np.zeros((len(jobs), width)), np.zeros((len(jobs), width), dtype=bool)
    start = 0
    rows_of = [np.flatnonzero(jobs.group == group) for group in range(len(groups))]
    for group, (rows, members) in enumerate(zip(rows_of, groups, strict=True)):
        weights[rows, : len(members)] = [each.weight for each in members]
        links[rows, : len(members)] = [each.names_links for each in members]
        for number, each in enumerate(members[1:], 1):
            micro, counts, can = each.batches(
                jobs.shared[group].layout, jobs.micro_batch_size[rows], jobs.num_microbatches[rows]
            )
            weights[rows[~can], number] = 0.0
            if can.any():
                tables.append(Jobs.at(each.job, micro[can], counts[can]))
                place[rows[can], number] = start + np.arange(int(can.sum()))
                start += int(can.sum())
    if not tables:
        return times, None
    # The answer must not depend on the coverage asked.
    usual = times
    if not (coverage == WIDTH_COVERAGE).all():
        usual = predictor.times(times.jobs, coverage=WIDTH_COVERAGE)
    others = _times_of(tables, predictor)
    known = place >= 0
    columns = []
    for name, of_others in zip(_COLUMNS, others, strict=True):
        column = np.repeat(getattr(usual, name)[:, None], width, axis=1)
        column[known] = of_others[place[known]]
        columns.append(column)
    step_s, median_s, low_s, high_s = columns
    weights = on_bearable_links(weights, links, step_s)
    weights /= sum_in_order(weights)[:, None]
    is_open = np.array([leaves_layout_open(members) for members in groups])[jobs.group]
    several = (weights > 0.0).sum(axis=1) > 1
    said = said_of(requests)[jobs.group]

    def mixed(wanted: Floats) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
        of_practice = mixture(median_s, low_s, high_s, weights, wanted, layout_open=is_open)
        asked = question_model().corrected(times.jobs, times.distance, said, several, of_practice)
        return of_practice[0], asked

    practice_s, answer = mixed(np.full(len(jobs), WIDTH_COVERAGE))
    point_s = least_error(*answer)
    if usual is not times:
        answer = mixed(coverage)[1]
    least_s = times.jobs.least_s  # however it is run
    step_time_s = np.where(several, np.maximum(point_s, least_s), times.step_time_s)
    answered = replace(
        times,
        step_time_s=step_time_s,
        median_s=np.where(several, np.maximum(answer[0], least_s), times.median_s),
        low_s=np.where(several, np.minimum(np.maximum(answer[1], least_s), step_time_s), times.low_s),
        high_s=np.where(several, np.maximum(answer[2], least_s), times.high_s),
        exposed_s=times.exposed_s * (step_time_s / times.step_time_s),
    )
    fields = [[each.fields for each in members] for members in groups]
    correction = answer[0] / practice_s
    return answered, Scenarios(weights=weights, fields=fields, step_time_s=step_s, correction=correction)


def on_bearable_links(weights: Floats, links: Bools, step_s: Floats) -> Floats:
    """Weights of scenarios, 0 of those whose network makes a step too long for anybody to run it so.

    Args:
        weights: Of the scenarios, the row's own job first, shape (n, m).
        links: Whether each names a network, shape (n, m).
        step_s: Their step times.
    """
    most = float(_settings()["slowest_links"])
    return np.where(links & (step_s > most * step_s[:, :1]), 0.0, weights)


def _times_of(tables: Sequence[Jobs], predictor: TrainedPredictor) -> Floats:
    """Step times of tables of jobs, their medians and the bounds of their 90 % intervals, shape (4, n).

    Some thousand rows at a time, whose features stay small.
    """
    ends = np.cumsum([len(table) for table in tables])
    parts = np.flatnonzero(np.diff(ends // _TOGETHER, prepend=-1, append=-1))
    found = []
    for first, last in itertools.pairwise(parts.tolist()):
        times = price_jobs(Jobs.together(tables[first:last])).times(predictor, coverage=WIDTH_COVERAGE)
        found.append([getattr(times, name) for name in _COLUMNS])
    return np.concatenate(found, axis=1)


def mixture(
    median_s: Floats,
    low_s: Floats,
    high_s: Floats,
    weights: Floats,
    coverage: Floats,
    *,
    layout_open: Bools,
    widening: Widening | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Median and interval of mixtures, shape (n,) each.

    A scenario is logistic in log time, on each side as wide as its own interval says; among several wider.

    Args:
        median_s: Of the scenarios, the row's own job first, shape (n, m); so are the two bounds and weights.
        low_s: Lower bounds of their 90 % intervals.
        high_s: Upper bounds.
        weights: Of a row together 1.
        coverage: Of the intervals that are wanted, shape (n,).
        layout_open: Whether the layout is left open, too, shape (n,).
        widening: Of scenarios among several; None for that of data/scenarios.toml.
    """
    chosen = Widening(**_settings()["widening"]) if widening is None else widening
    several = (weights > 0.0).sum(axis=1) > 1
    own = np.where(several, chosen.own, 1.0)[:, None]
    beside = np.where(several, np.where(layout_open, chosen.layout_open, chosen.layout_said), 0.0)[:, None]
    center = np.log(median_s)

    def scale(reach_of: Floats) -> Floats:
        found: Floats = np.maximum(np.hypot(own * reach_of, beside) / _TAIL, 1e-9)
        return found

    below, above = scale(center - np.log(low_s)), scale(np.log(high_s) - center)
    shares = np.stack((np.full(len(center), 0.5), 0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage))
    median, lower, upper = np.exp(_quantiles(shares, weights, center, below, above))
    return median, lower, upper


def _quantiles(shares: Floats, weights: Floats, center: Floats, below: Floats, above: Floats) -> Floats:
    """Where the mixtures hold some shares, shape (3, n) as these: Newton's steps in their log odds.

    Those are close to lines. A step out of the range that is left halves it; a row is done by itself, so that
    it is the same to the bit beside any others.
    """
    ends = (center - _REACH * below).min(axis=1), (center + _REACH * above).max(axis=1)
    low, high, found = (np.tile(each, len(shares)) for each in (*ends, sum_in_order(weights * center)))
    wanted = np.log(shares / (1.0 - shares)).ravel()
    left = np.arange(shares.size)
    for _ in range(_STEPS):
        at, row = found[left], left % len(center)
        away = at[:, None] - center[row]
        wide = np.where(away < 0.0, below[row], above[row])
        under = 1.0 / (1.0 + np.exp(-np.clip(away / wide, -_REACH, _REACH)))
        share = sum_in_order(weights[row] * under)
        rate = sum_in_order(weights[row] * under * (1.0 - under) / wide)
        with np.errstate(divide="ignore", invalid="ignore"):  # a share of all: that step halves
            off = np.log(share / (1.0 - share)) - wanted[left]
            step = at - off * share * (1.0 - share) / rate
        low[left], high[left] = np.where(off < 0.0, at, low[left]), np.where(off < 0.0, high[left], at)
        inside = (step >= low[left]) & (step <= high[left])
        found[left] = np.where(inside, step, 0.5 * (low[left] + high[left]))
        left = left[np.abs(found[left] - at) > _CLOSE]
        if not len(left):
            break
    return found.reshape(shares.shape)


def _between(values: Floats, weights: Floats, labels: Sequence[str]) -> float:
    """Variance of values that equal labels do not share."""
    named = np.unique(labels, return_inverse=True)[1]
    shares = np.bincount(named, weights)
    means = np.bincount(named, weights * values) / shares
    mean = float(weights @ values / weights.sum())
    return float(shares @ (means - mean) ** 2)
