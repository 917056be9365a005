"""What a user's own measured steps are worth: runs of the corpus as those of users, docs/reference/ray.md.

A user has the runs of one model in one source; the predictor has not seen the model (or, for clusters,
the source), and the prior is fitted on the other half of the users. A few runs are given, others asked: of
the same cell (model, sizes, device, precision, software), on more devices, at another precision, on another
device, or anything on one device of one source. Every user counts alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.protocols import publisher
from precision_time.learn.calibration.fitting import blocks_of, fit_process
from precision_time.learn.calibration.places import KINDS, Places, position_columns
from precision_time.learn.calibration.process import Conditioned, Process
from precision_time.learn.intervals import IntervalModel
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.training import HELD_OUT, OutOfFold, fit_intervals, held_out_places, row_weights
from precision_time_papers.ernest import fit_ernest
from precision_time_papers.evaluation.cross_validation import Runs

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

QUESTIONS: Mapping[str, tuple[int, ...]] = {
    "same cell": (1, 3, 10),
    "more devices": (1, 3),
    "other precision": (1, 3),
    "other device": (1, 3),
}
CLUSTER_POINTS = (1, 3, 10)
_LEAST_OF_A_CLUSTER, _MOST_ASKED, _ASKED_OF_A_CLUSTER, _DRAWS = 20, 6, 60, 3
_TAIL = 1.6448536269514722


@dataclass(frozen=True, kw_only=True)
class Users:
    """Configurations predicted out of fold, the median of repeats each."""

    source: NDArray[np.str_]
    publisher: NDArray[np.str_]
    """Family of sources of each."""
    user: Ints
    """Number of the source and the model of each."""
    device: NDArray[np.str_]
    places: Places
    measured_s: Floats
    predicted_s: Floats
    samples: Floats
    """Of a step."""
    devices: Floats
    nodes: Floats

    @cached_property
    def log_ratios(self) -> Floats:
        """log(measured / predicted), shape (n,)."""
        return np.log(self.measured_s / self.predicted_s)

    @cached_property
    def cell(self) -> Ints:
        """Number of the cell of each configuration."""
        columns = position_columns()
        shape = self.places.positions[:, [columns.index(name) for name in ("log_seq_len", "log_image_size")]]
        words = np.concatenate([self.user[:, None].astype(str), self.places.kinds, shape.astype(str)], axis=1)
        return np.unique(words, axis=0, return_inverse=True)[1].reshape(-1).astype(np.intp)

    def kind(self, name: str) -> NDArray[np.str_]:
        """One kind of each configuration."""
        return self.places.kinds[:, KINDS.index(name)]

    @cached_property
    def fitted(self) -> dict[tuple[int, ...], Process]:
        """Priors by the sources or users that they are fitted on."""
        return {}

    def process(self, halves: Ints, half: int) -> Process:
        """The prior of the configurations of one half."""
        key = (half, *halves.tolist())
        if key not in self.fitted:
            self.fitted[key] = self._fit(np.flatnonzero(halves == half))
        return self.fitted[key]

    def _fit(self, rows: Ints) -> Process:
        sources = self.source[rows].tolist()
        return fit_process(
            blocks_of(self.places.take(rows), self.log_ratios[rows], sources, np.arange(len(rows)))
        )


def held_out(runs: Runs, protocol: str) -> Users:
    """The corpus as predicted out of fold under a protocol."""
    table = runs.priced.table
    return users_of(table, runs.ours(protocol, 0), intervals_of(runs))


def intervals_of(runs: Runs) -> IntervalModel:
    """The intervals that out-of-fold predictions give."""
    known = {name: runs.ours(name, 0) for name in HELD_OUT}
    table = runs.priced.table
    return fit_intervals(table, known, row_weights(table), runs.settings, 0)


def users_of(table: MeasuredTable, held: OutOfFold, intervals: IntervalModel) -> Users:
    """The configurations of a table that were predicted out of fold."""
    places = held_out_places(table, held, intervals)
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index in np.flatnonzero(~np.isnan(held.step_time_s)).tolist():
        row = table.measurements[index]
        rows[row.source, row.configuration_key].append(index)
    first = np.array([same[0] for same in rows.values()])
    named = [table.measurements[row] for row in first]
    users = [f"{row.source} {row.model}" for row in named]
    return Users(
        source=np.array([row.source for row in named]),
        publisher=np.array([publisher(row) for row in named]),
        user=np.unique(users, return_inverse=True)[1].astype(np.intp),
        device=np.array([row.device for row in named]),
        places=places.take(first),
        measured_s=np.array([np.median(table.measured_s[same]) for same in rows.values()]),
        predicted_s=np.array([np.median(held.step_time_s[same]) for same in rows.values()]),
        samples=np.array([float(row.global_batch_size or 0.0) for row in named]),
        devices=np.array([float(row.num_devices) for row in named]),
        nodes=np.array([float(row.num_nodes) for row in named]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Errors [%] with some points: means over users, each a mean over its draws and asked runs."""

    question: str
    points: int
    users: int
    before: float
    factor: float
    """By the median ratio of the points."""
    after: float
    median_after: float
    """Of the users."""
    worse: float
    """Share of the users that are predicted worse than without, 0..1."""
    covered_before: float
    """Share of runs within the 90 % interval of the predictor as it ships, 0..1."""
    covered: float
    """The same with the points."""
    narrowed: float
    """Width of the interval relative to that without points, as logarithm."""
    ernest: float | None
    """By Ernest from the same points; None with fewer than its four terms."""


def score(known: Users, question: str, points: int, *, form: Callable[[Process], Process]) -> Score:
    """One line of the table: priors from one half of the users, the other half asked, and in turn.

    Args:
        known: Configurations out of fold.
        question: Of QUESTIONS, or "cluster".
        points: That are given.
        form: What is made of the fitted prior: an ablation.
    """
    owner = known.user
    if question == "cluster":
        words = np.char.add(np.char.add(known.source, " "), known.device)
        owner = np.unique(words, return_inverse=True)[1].astype(np.intp)
        halves = np.unique(known.source, return_inverse=True)[1] % 2
    else:
        halves = np.random.default_rng(5).integers(0, 2, owner.max() + 1)[owner]
    draw = np.random.default_rng(points)
    by_user: dict[int, list[Floats]] = defaultdict(list)
    for half in (0, 1):
        process = form(known.process(halves, 1 - half))
        for user in np.unique(owner[halves == half]):
            rows = np.flatnonzero(owner == user)
            for given, asked in _draws(known, rows, question, points, draw):
                by_user[int(user)].append(_errors(known, given, asked, process))
    means = np.array([np.concatenate(parts).mean(axis=0) for parts in by_user.values()])
    before, factor, after, covered_before, covered, narrowed, _ = means.mean(axis=0)
    by_ernest = means[~np.isnan(means[:, 6]), 6]
    return Score(
        question=question,
        points=points,
        users=len(means),
        before=100.0 * before,
        factor=100.0 * factor,
        after=100.0 * after,
        median_after=100.0 * float(np.median(means[:, 2])),
        worse=float(np.mean(means[:, 2] > means[:, 0])),
        covered_before=covered_before,
        covered=covered,
        narrowed=narrowed,
        ernest=100.0 * float(by_ernest.mean()) if len(by_ernest) else None,
    )


def _errors(known: Users, given: Ints, asked: Ints, process: Process) -> Floats:
    """Of asked runs: error before, by one factor, after; covered before, after; width; error of Ernest."""
    ratios = known.log_ratios
    moved = Conditioned.on(process, known.places.take(given), ratios[given]).at(known.places.take(asked))
    narrowed = moved.sd / moved.sd_before
    half = _TAIL * known.places.width[asked]
    inside_before = (np.abs(ratios[asked]) <= half).astype(np.float64)
    inside = (np.abs(ratios[asked] - moved.log_factor) <= half * narrowed).astype(np.float64)
    ernest = np.full(len(asked), np.nan)
    if len(given) >= 4 and len(np.unique(known.cell[[*given, *asked]])) == 1:
        share = known.samples / known.samples[[*given, *asked]].max()
        fitted = fit_ernest(share[given], known.devices[given], known.measured_s[given])
        ernest = np.abs(fitted.seconds(share[asked], known.devices[asked]) / known.measured_s[asked] - 1.0)
    logs = (np.zeros(len(asked)), np.full(len(asked), np.median(ratios[given])), moved.log_factor)
    errors = [np.abs(np.exp(log - ratios[asked]) - 1.0) for log in logs]
    return np.stack([*errors, inside_before, inside, narrowed, ernest], axis=1)


def _draws(
    known: Users, rows: Ints, question: str, points: int, draw: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Runs given and runs asked of one user."""
    cell, device, precision = known.cell[rows], known.kind("device")[rows], known.kind("precision")[rows]
    devices = known.devices[rows]
    for _ in range(_DRAWS):
        if question == "cluster":
            mixed = draw.permutation(rows)
            if len(rows) >= _LEAST_OF_A_CLUSTER:
                yield mixed[:points], mixed[max(CLUSTER_POINTS) :][:_ASKED_OF_A_CLUSTER]
            continue
        one = draw.integers(len(rows))
        same = cell == cell[one]
        if question == "same cell":
            mixed = draw.permutation(rows[same])
            offered, others = mixed[:points], mixed[points:]
        elif question == "more devices":
            offered, others = (
                rows[same & part] for part in (devices <= devices[one], devices > devices[one])
            )
        elif question == "other precision":
            alike = (device == device[one]) & (
                known.kind("software")[rows] == known.kind("software")[rows][one]
            )
            at_it = precision == precision[one]
            offered, others = rows[alike & at_it], rows[alike & ~at_it]
        else:
            offered, others = rows[device == device[one]], rows[device != device[one]]
        if len(offered) >= points and len(others):
            yield draw.permutation(offered)[:points], draw.permutation(others)[:_MOST_ASKED]


def scores(
    models: Users, sources: Users, *, form: Callable[[Process], Process] = lambda process: process
) -> Iterator[Score]:
    """Every line of the table.

    Args:
        models: Predicted by a predictor that has not seen their models.
        sources: The same of their sources.
        form: What is made of the fitted prior.
    """
    for question, counts in QUESTIONS.items():
        for points in counts:
            yield score(models, question, points, form=form)
    for points in CLUSTER_POINTS:
        yield score(sources, "cluster", points, form=form)


def table_lines(found: Sequence[Score]) -> Iterator[str]:
    """Markdown of the scores."""
    yield (
        "| asked | points | users | no point | one factor | with the points | median user | "
        "worse, % of users | covered before, % | covered, % | width of the interval | Ernest |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for item in found:
        figures = (item.before, item.factor, item.after, item.median_after)
        cells = " | ".join(f"{figure:.1f}" for figure in figures)
        ernest = "" if item.ernest is None else f"{item.ernest:.1f}"
        yield (
            f"| {item.question} | {item.points} | {item.users} | {cells} | {100 * item.worse:.0f} | "
            f"{100 * item.covered_before:.0f} | {100 * item.covered:.0f} | x {item.narrowed:.2f} | {ernest} |"
        )
