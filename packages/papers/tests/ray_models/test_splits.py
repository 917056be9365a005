from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from precision_time.errors import ConfigError
from precision_time_papers.ray_models.points import Points
from precision_time_papers.ray_models.splits import (
    SplitRule,
    inner_rule,
    largest_held_out,
    splits_of,
)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_interpolation_asks_interior_values_only(ring_points: Callable[..., Points], turns: int) -> None:
    points = ring_points()
    for split in splits_of(points, SplitRule(method="interpolation", column="workers", turns=turns)):
        asked = points.columns["workers"][split[1]]
        assert asked.min() > 1.0 and asked.max() < 8.0


def test_asking_the_smallest_value_is_refused(ring_points: Callable[..., Points]) -> None:
    rule = SplitRule(method="interpolation", column="workers", values=(1.0,))
    with pytest.raises(ConfigError, match="workers = 1 is not an interior value"):
        splits_of(ring_points(), rule)


def test_extrapolation_asks_beyond_the_bound_only(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    (split,) = splits_of(points, SplitRule(method="extrapolation", bounds={"workers": 4.0}))
    assert points.columns["workers"][split[0]].max() == 4.0
    assert points.columns["workers"][split[1]].min() > 4.0


@pytest.mark.parametrize("method", ["kfold", "holdout"])
def test_repeats_stay_together(ring_points: Callable[..., Points], method: str) -> None:
    points = ring_points(repeats=3, noise=0.1)
    for split in splits_of(points, SplitRule(method=method)):
        numbers = points.configurations
        assert not set(numbers[split[0]]) & set(numbers[split[1]])
        assert len(split[0]) + len(split[1]) == len(points)


def test_folds_ask_every_point_once(ring_points: Callable[..., Points]) -> None:
    points = ring_points(repeats=2)
    asked = np.concatenate([split[1] for split in splits_of(points, SplitRule(method="kfold", folds=4))])
    assert sorted(asked) == list(range(len(points)))


def test_models_are_chosen_by_the_question_they_are_judged_by() -> None:
    assert (
        inner_rule(SplitRule(method="extrapolation", bounds={"workers": 4.0}), None).method == "extrapolation"
    )
    assert inner_rule(SplitRule(method="interpolation", column="workers"), None).column == "workers"
    assert inner_rule(SplitRule(method="holdout"), None).method == "kfold"
    own = SplitRule(method="holdout")
    assert inner_rule(SplitRule(method="kfold"), own) is own


def test_what_cannot_be_split_says_so(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    with pytest.raises(ConfigError, match="leaves no point to predict"):
        splits_of(points, SplitRule(method="extrapolation", bounds={"workers": 8.0}))
    with pytest.raises(ConfigError, match="'nodes' is not a numeric column"):
        splits_of(points, SplitRule(method="interpolation", column="nodes"))
    assert largest_held_out(points, SplitRule(method="extrapolation", shares={"batch": (0.6,)})) == SplitRule(
        method="extrapolation", bounds={"batch": 64.0}
    )


def test_no_course_is_asked_of_a_single_value(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    rule = SplitRule(method="extrapolation", shares={"batch": (0.6, 0.1, 0.07)})
    bounds = [points.columns["batch"][split[0]].max() for split in splits_of(points, rule)]
    assert bounds == [64.0], "0.1 and 0.07 of 128 leave 8 alone, or nothing"
