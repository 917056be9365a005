"""Learn what questions are answered with (`predict/question_model.py`) from measured runs that were asked so.

Each question comes once by protocol, answered by a predictor that had not seen its row. Models are fitted to
all of them, and scored by others of the same kind: those of a fold of a protocol are fitted to the questions
whose rows that fold does not hold, of all protocols.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.arrays import Bools, Floats, Ints
from precision_time.learn.boosting import BoosterSettings, boost
from precision_time.learn.table import JobTable
from precision_time.learn.trees import TreeEnsemble
from precision_time.predict.question_model import QuestionModel, left_of, read_of

CENTER = BoosterSettings(
    num_trees=250,
    learning_rate=0.05,
    num_leaves=63,
    max_depth=-1,
    min_data_in_leaf=15,
    bagging_fraction=0.7,
    lambda_l2=5.0,
    extra_trees=True,
    objective="huber",
    huber_width=0.3,
)
_LEAST = 0.05
"""Added to errors in units of the interval before their logarithm."""
_COVERAGE = 0.9


Bounds = tuple[Floats, Floats, Floats]
"""Times and the two bounds of their intervals, shape (n,) each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """n questions: their own jobs, what they say, and what was measured."""

    own: JobTable
    said: Floats
    several: Bools
    """Whether it has more than one scenario, shape (n,)."""
    measured_s: Floats
    sources: Sequence[str]
    levels: Sequence[str]

    def weights(self, power: float) -> Floats:
        """Evidence of each, shape (n,): one of n of a source and level counts as n^-power."""
        members = list(zip(self.sources, self.levels, strict=True))
        count = Counter(members)
        return np.array([count[each] ** -power for each in members])


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """Answers to the questions under one protocol, NaN where it tests none, shape (n,) each."""

    folds: Ints
    """The fold that a question is tested in, -1 for none."""
    distance: Floats
    """Of its own job to the runs of that fold's predictor, shape (n, kinds)."""
    mixed: Bounds
    """Median and 90 % interval of the mixture."""

    @property
    def kinds(self) -> Floats:
        """log(1 + distance), shape (n, kinds)."""
        return np.log1p(self.distance)


def cross_fitted(
    questions: Questions, held_out: Mapping[str, HeldOut]
) -> tuple[dict[str, Bounds], QuestionModel]:
    """What is answered under each protocol by models that have not seen the fold, and the model of all."""
    count = len(questions.measured_s)
    tests = [
        (name, held.folds == fold)
        for name, held in held_out.items()
        for fold in range(int(held.folds.max()) + 1)
        if (held.folds == fold).any()
    ]
    trees = [_center(questions, held_out, ~test) for _, test in tests]
    ratios = {name: np.full(count, np.nan) for name in held_out}
    for center, (name, test) in zip(trees, tests, strict=True):
        held = held_out[name]
        off = center.predict(_read(questions, held, test)) * left_of(held.kinds[test])
        median, low, high = (column[test] for column in held.mixed)
        error = np.log(questions.measured_s[test] / median) - off
        side = np.where(error < 0.0, np.log(median / low), np.log(high / median))
        ratios[name][test] = np.abs(error) / side
    found = {name: np.full((3, count), np.nan) for name in held_out}
    for center, (name, test) in zip(trees, tests, strict=True):
        held = held_out[name]
        model = QuestionModel(center=center, width=_width(questions, held_out, ratios, ~test))
        median, low, high = (column[test] for column in held.mixed)
        found[name][:, test] = model.corrected(
            questions.own.take(np.flatnonzero(test)), held.distance[test], questions.said[test],
            questions.several[test], (median, low, high),
        )  # fmt: skip
    every = np.ones(count, dtype=bool)
    answers: dict[str, Bounds] = {name: (each[0], each[1], each[2]) for name, each in found.items()}
    return answers, QuestionModel(
        center=_center(questions, held_out, every), width=_width(questions, held_out, ratios, every)
    )


def _read(questions: Questions, held: HeldOut, rows: Bools) -> Floats:
    own = questions.own.alone().take(np.flatnonzero(rows))
    return read_of(own, questions.said[rows], held.kinds[rows])


def _center(questions: Questions, held_out: Mapping[str, HeldOut], rows: Bools) -> TreeEnsemble:
    """Trees for what medians are off by."""
    x, y, weights = [], [], []
    for held in held_out.values():
        some = rows & questions.several & (held.folds >= 0)
        if not some.any():
            continue
        x.append(_read(questions, held, some))
        y.append(np.log(questions.measured_s[some] / held.mixed[0][some]))
        weights.append(questions.weights(0.5)[some])
        weights[-1] *= len(weights[-1]) / weights[-1].sum()
    return boost(np.concatenate(x), np.concatenate(y), np.concatenate(weights), CENTER, 0)


def _width(
    questions: Questions, held_out: Mapping[str, HeldOut], ratios: Mapping[str, Floats], rows: Bools
) -> Floats:
    """How wide intervals have to be for 90 % of the questions; protocols and sources count alike.

    Args:
        questions: All of them.
        held_out: Their answers, by protocol.
        ratios: Errors after the correction, in units of the interval on their side.
        rows: Those to learn from.
    """
    x, y, weights = [], [], []
    for name, held in held_out.items():
        some = rows & questions.several & (held.folds >= 0)
        if not some.any():
            continue
        x.append(np.concatenate([np.ones((int(some.sum()), 1)), held.kinds[some]], axis=1))
        y.append(ratios[name][some])
        weights.append(questions.weights(1.0)[some])
        weights[-1] /= weights[-1].sum()
    kinds, ratio, weight = np.concatenate(x), np.concatenate(y), np.concatenate(weights)
    root = np.sqrt(weight)[:, None]
    found: Floats = np.linalg.lstsq(kinds * root, np.log(ratio + _LEAST) * root[:, 0], rcond=None)[0]
    scaled = ratio / np.exp(kinds @ found)
    order = np.argsort(scaled)
    share = np.cumsum(weight[order]) / weight.sum()
    found[0] += np.log(scaled[order][int(np.searchsorted(share, _COVERAGE))])
    return found
