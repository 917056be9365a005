"""The Pareto front of candidates in time, money and carbon."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from ...arrays import Bools, Floats, Indices

_FEW = 2048
_PIVOTS = 24


def pareto_front(points: Floats) -> Bools:
    """Which of n points no other one dominates: is nowhere worse and somewhere better; shape (n,).

    Points are taken in order of the first coordinate; a point is dominated if one before it is no worse in
    the other two, which the staircase of those two says (Kung, Luccio and Preparata, On finding the maxima
    of a set of vectors, Journal of the ACM 22, 1975).

    Args:
        points: Shape (n, 3), less is better; NaN and infinity where a value is not known.
    """
    values = np.where(np.isnan(points), np.inf, points)
    found = np.zeros(len(values), dtype=bool)
    left = _not_beaten(values)
    order = left[np.lexsort(values[left].T[::-1])]
    rows = values[order].tolist()
    # The staircase: ascending in the second coordinate, descending in the third.
    seconds: list[float] = []
    thirds: list[float] = []
    last: list[float] = []
    for place, row in zip(order.tolist(), rows, strict=True):
        if row == last:  # of equal points all are on the front
            found[place] = True
            continue
        _, second, third = row
        at = bisect_right(seconds, second)
        if at and thirds[at - 1] <= third:
            continue
        found[place] = True
        last = row
        start = at
        while start and seconds[start - 1] == second:
            start -= 1
        end = at
        while end < len(thirds) and thirds[end] >= third:
            end += 1
        seconds[start:end], thirds[start:end] = [second], [third]
    return found


def _not_beaten(values: Floats) -> Indices:
    """The points without those that a few good ones dominate: of many, nearly all."""
    left = np.arange(len(values))
    if len(values) <= _FEW:
        return left
    ranks = np.argsort(np.argsort(values, axis=0), axis=0).astype(float)
    pivots = {int(np.argmin(ranks @ weights)) for weights in _weights()}
    for pivot in pivots:
        some = values[left]
        beaten = (values[pivot] <= some).all(axis=1) & (values[pivot] < some).any(axis=1)
        left = left[~beaten]
    return left


def _weights() -> Floats:
    """Directions that cover the corner of small values evenly, axes first."""
    grid = np.random.default_rng(0).dirichlet(np.ones(3), size=_PIVOTS)
    return np.concatenate([np.eye(3) + 1e-6, grid])
