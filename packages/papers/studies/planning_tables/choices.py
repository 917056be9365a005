r"""What choosing by a score costs: how often the choice is the best, its regret, and how well scores rank.

Formula: regret $= v_c / \min_i v_i - 1$ of the measured value $v$ (seconds, dollars) of the choice $c$ among
the alternatives that are allowed. Alternatives that a score cannot tell apart are equally likely to be
chosen, so everything here is an expectation over ties; a score that says nothing is random choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from precision_time_papers.contract import Bools, Floats

WITHIN = 1.05
"""Of the best value: what counts as good as the best."""
_SAME = 1e-6
"""Scores that differ by less, relatively, are equal: medians of repeats differ in last digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """What one choice gave, or the mean of several."""

    best: float
    """Probability that it is the best one measured."""
    within: float
    """Probability that it is within 5 % of the best."""
    regret: float
    """Expected regret, 0 for the best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Choices over groups."""

    groups: int
    best: float
    within: float
    mean: float
    """Of the regrets, as the others."""
    median: float
    p90: float
    over_sources: float
    """Mean over sources of their mean regrets."""


def shares(scores: Floats) -> Floats:
    """Probability that each alternative is chosen, shape (k,): equal among those of the least score.

    >>> shares(np.array([2.0, 1.0, 1.0])).tolist()
    [0.0, 0.5, 0.5]
    """
    least = float(scores.min())
    tied = scores <= least + _SAME * abs(least)
    chosen: Floats = tied / tied.sum()
    return chosen


def choice(values: Floats, scores: Floats, allowed: Bools | None = None) -> Chosen:
    """Choose the least score and pay the measured value.

    Args:
        values: Measured, above 0, shape (k,).
        scores: Predicted, the least is chosen.
        allowed: Alternatives that may be chosen; all when None.
    """
    if allowed is not None:
        values, scores = values[allowed], scores[allowed]
    chosen, ratio = shares(scores), values / values.min()
    return Chosen(
        best=float(chosen[ratio <= 1.0].sum()),
        within=float(chosen[ratio <= WITHIN].sum()),
        regret=float(chosen @ ratio - 1.0),
    )


def mean_choice(found: Sequence[Chosen]) -> Chosen:
    """The mean of several choices within one group."""
    best, within, regret = np.mean([(item.best, item.within, item.regret) for item in found], axis=0)
    return Chosen(best=float(best), within=float(within), regret=float(regret))


def under_caps(values: Floats, scores: Floats, devices: Floats) -> Chosen | None:
    """The mean over every cap on the number of devices that leaves something to choose; None without any."""
    caps = [devices <= cap for cap in np.unique(devices)]
    found = [choice(values, scores, allowed) for allowed in caps if allowed.sum() > 1]
    return mean_choice(found) if found else None


def summarized(found: Sequence[Chosen], sources: Sequence[str]) -> Summary:
    """Over groups, every group once; beside it over sources, every source once.

    Args:
        found: The choice of each group.
        sources: Where each group was measured.
    """
    regret, names = np.array([item.regret for item in found]), np.array(sources)
    return Summary(
        groups=len(found),
        best=float(np.mean([item.best for item in found])),
        within=float(np.mean([item.within for item in found])),
        mean=float(regret.mean()),
        median=float(np.median(regret)),
        p90=float(np.percentile(regret, 90.0)),
        over_sources=float(np.mean([regret[names == name].mean() for name in np.unique(names)])),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Pairs of alternatives of one group that were measured further apart than repeats of one are."""

    ratio: Floats
    """Slower over faster, above 1, shape (p,)."""
    right: Floats
    """1 where the scores are in the measured order, 0.5 where they are equal, 0 where reversed."""

    @property
    def tau(self) -> float | None:
        """Kendall's tau without the measured ties, an equal score counting as neither; None without pairs."""
        return float(2.0 * self.right.mean() - 1.0) if len(self.right) else None


def pairs_of(values: Floats, scores: Floats, spread: Floats) -> Pairs:
    """All pairs of a group, ties of the measurement left out.

    Args:
        values: Measured, shape (k,).
        scores: Predicted.
        spread: (largest - smallest) / median over repeats of each; a pair that differs by less than the wider
            of its two is a tie.
    """
    one, other = np.triu_indices(len(values), 1)
    ratio = np.maximum(values[one], values[other]) / np.minimum(values[one], values[other])
    apart = ratio > 1.0 + np.maximum(spread[one], spread[other])
    one, other = one[apart], other[apart]
    said = scores[one] - scores[other]
    said[np.abs(said) <= _SAME * np.minimum(np.abs(scores[one]), np.abs(scores[other]))] = 0.0
    agrees = np.sign(said) * np.sign(values[one] - values[other])
    return Pairs(ratio=ratio[apart], right=0.5 + 0.5 * agrees)


def accuracy_by_distance(
    groups: Iterable[Pairs], limits: Sequence[float]
) -> tuple[list[float | None], list[int]]:
    """Share of pairs in the right order by their measured ratio, mean over groups, and how many groups.

    Args:
        groups: Pairs of each group.
        limits: Lower ends of the classes, ascending; the last is open.
    """
    each: list[list[float]] = [[] for _ in limits]
    for pairs in groups:
        place = np.searchsorted(limits, pairs.ratio, side="right") - 1
        for number, found in enumerate(each):
            if (place == number).any():
                found.append(float(pairs.right[place == number].mean()))
    return [float(np.mean(found)) if found else None for found in each], [len(found) for found in each]
