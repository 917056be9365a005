"""What to measure first, and how long it will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.measure.campaign.design import _job, most_informative, terms_of
from precision_time.measure.campaign.outlook import Outlook, work_of
from precision_time.measure.campaign.plan import Point

Make = Callable[..., Point]
FRACTIONS, WORKERS = (0.25, 0.5, 0.75, 1.0), (1, 2, 4)


@pytest.fixture
def grid(point_of: Make) -> list[Point]:
    axes = product(("cnn", "mlp"), FRACTIONS, WORKERS, (0, 1))
    return [point_of(model=model, fraction=f, workers=w, repeat=repeat) for model, f, w, repeat in axes]


def information(points: Sequence[Point], chosen: Sequence[Point]) -> float:
    """Log-determinant of the information of some points, summed over the jobs."""
    features = dict(zip(map(str, points), terms_of(points), strict=True))
    total = 0.0
    for job in {_job(point) for point in points}:
        rows = [features[str(point)] for point in chosen if _job(point) == job]
        total += np.linalg.slogdet(1e-2 * np.eye(4) + sum((np.outer(r, r) for r in rows), np.zeros((4, 4))))[
            1
        ]
    return total


@given(budget_s=st.floats(0, 60), start_s=st.floats(0, 10))
def test_the_budget_holds_and_nothing_is_chosen_twice(
    point_of: Make, budget_s: float, start_s: float
) -> None:
    points = [point_of(fraction=f, workers=w) for f in FRACTIONS for w in WORKERS]
    chosen = most_informative(points, budget_s, seconds=lambda p: 4.0 * p.fraction, group_start_s=start_s)
    assert len({str(point) for point in chosen}) == len(chosen)
    cost = sum(4.0 * p.fraction for p in chosen) + start_s * len({p.setting for p in chosen})
    assert cost <= budget_s + 1e-9
    if budget_s >= start_s + 4.0 * min(FRACTIONS):
        assert chosen


def test_enough_time_measures_everything(grid: list[Point]) -> None:
    chosen = most_informative(grid, math.inf, seconds=lambda _: 1.0)
    assert sorted(map(str, chosen)) == sorted(map(str, grid))


def test_the_choice_tells_more_than_chance(grid: list[Point]) -> None:
    chosen = most_informative(grid, 8.0, seconds=lambda _: 1.0)
    assert len(chosen) == 8
    draw = np.random.default_rng(0)
    others = [information(grid, [grid[i] for i in draw.permutation(len(grid))[:8]]) for _ in range(200)]
    assert information(grid, chosen) > np.quantile(others, 0.95)


def test_both_jobs_and_no_repeats_come_first(grid: list[Point]) -> None:
    chosen = most_informative(grid, 8.0, seconds=lambda _: 1.0)
    assert {point.model for point in chosen} == {"cnn", "mlp"}
    assert len({point.key for point in chosen}) == 8


def test_what_is_known_is_not_worth_as_much(grid: list[Point]) -> None:
    known = [point for point in grid if point.model == "cnn" and point.setting.num_workers <= 2]
    left = [point for point in grid if point not in known]
    chosen = most_informative(left, 6.0, seconds=lambda _: 1.0, known=known)
    assert sum(point.model == "mlp" for point in chosen) >= 4


def test_nothing_to_choose_from_is_nothing_chosen() -> None:
    assert most_informative([], 10.0, seconds=lambda _: 1.0) == []


@given(constant_s=st.floats(0, 5), rate=st.floats(0, 0.1))
def test_the_outlook_finds_a_line(point_of: Make, constant_s: float, rate: float) -> None:
    points = [point_of(fraction=f, workers=w) for f in FRACTIONS for w in (1, 2)]
    outlook = Outlook()
    for point in points[::2]:
        outlook.learn(point, constant_s + rate * work_of(point))
    for point in points:
        assert outlook.seconds(point) == pytest.approx(constant_s + rate * work_of(point), abs=1e-6)


def test_the_outlook_has_a_first_guess_and_counts_starts(point_of: Make) -> None:
    outlook = Outlook()
    points = [point_of(seconds=2.0), point_of(seconds=2.0, workers=2)]
    assert outlook.total_s(points) > 4.0
    outlook.learn_start(30.0)
    assert outlook.total_s(points) == 64.0
    outlook.learn(points[0], 7.0)
    assert outlook.seconds(point_of(model="mlp")) == 7.0
    assert outlook.total_s([]) == 0.0
