"""The Pareto front against its definition."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.planning.decision import front
from precision_time.planning.decision.front import pareto_front

AMOUNT = st.sampled_from([1.0, 2.0, 3.0, 4.0, np.inf, np.nan])
POINTS = st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), max_size=40)


def by_definition(points):
    known = [tuple(np.inf if np.isnan(value) else value for value in point) for point in points]
    return [not any(all(a <= b for a, b in zip(q, p, strict=True)) and q != p for q in known) for p in known]


@settings(max_examples=40, deadline=None)
@given(POINTS, st.sampled_from([0, 2048]))
def test_the_front_has_no_dominated_point_and_misses_none(points, few):
    usual, front._FEW = front._FEW, few  # with and without what is left out before
    try:
        found = pareto_front(np.array(points, dtype=float).reshape(-1, 3))
    finally:
        front._FEW = usual
    assert found.tolist() == by_definition(points)


def test_a_large_front_is_the_front():
    points = np.random.default_rng(1).lognormal(size=(4000, 3))
    some = np.flatnonzero(pareto_front(points))
    for point in some:
        assert not ((points <= points[point]).all(axis=1) & (points < points[point]).any(axis=1)).any()
    rest = np.setdiff1d(np.arange(len(points)), some)
    assert all((points[some] <= points[point]).all(axis=1).any() for point in rest)
