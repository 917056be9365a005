"""Intervals cover what they say, flags name what cannot be learned, and both know the training part alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import ConfigError
from precision_time_papers.ray_models.features import engineered
from precision_time_papers.ray_models.forecast import cheapest, counts_of, offers_of
from precision_time_papers.ray_models.model import PerformanceModel
from precision_time_papers.ray_models.points import Points
from precision_time_papers.ray_models.splits import SplitRule, splits_of
from precision_time_papers.ray_models.study import StudyPlan, run_study
from precision_time_papers.ray_models.techniques import TECHNIQUES
from precision_time_papers.ray_models.trust import COVERAGE, Trust, interval_width, model_flags

BEYOND = SplitRule(method="extrapolation", bounds={"workers": 4.0})


def plan(*names: str, rule: SplitRule = BEYOND) -> StudyPlan:
    return StudyPlan(
        features=engineered(["workers", "batch"], {}, inverse=["workers"], log=["batch"]),
        techniques=tuple(TECHNIQUES[name] for name in names),
        columns=("workers", "batch"),
        roles={"workers": "workers", "batch": "batch"},
        validation=rule,
    )


@pytest.mark.parametrize("count", [4, 9, 40])
def test_an_interval_covers_what_it_says(count: int) -> None:
    draw = np.random.default_rng(0).standard_normal((3000, count + 1))
    covered = np.mean([abs(row[-1]) <= interval_width(row[:-1].tolist()) for row in draw])
    assert COVERAGE - 0.02 <= covered <= COVERAGE + 0.06


def test_one_error_is_no_interval() -> None:
    assert np.isnan(interval_width([0.1]))
    assert np.isnan(Trust(folds=(0.1,)).widths({"workers": np.ones(2)})).all()


def test_nothing_of_it_has_seen_the_points_asked(ring_points: Callable[..., Points]) -> None:
    points = ring_points(noise=0.05)
    ((_, asked),) = splits_of(points, BEYOND)
    measured = points.measured.copy()
    measured[asked] *= 3.0
    clean, other = (
        run_study(each, plan("ridge", "tree"), keep=False, judged=True).test[0].trust
        for each in (points, replace(points, measured=measured))
    )
    assert clean is not None and clean == other


def test_flags_grow_with_the_distance(ring_points: Callable[..., Points]) -> None:
    model = run_study(ring_points(noise=0.02), plan("nnls")).model
    inside, between, near, far = model.answers(
        [{"workers": 2, "batch": size} for size in (32, 48, 200, 5000)]
    )
    assert not inside.flags and not between.flags and not near.flags
    assert [flag.kind for flag in far.flags] == ["beyond"]
    assert "To fix: measure batch nearer" in str(far.flags[0])
    widths = [np.log(item.high / item.time) for item in (inside, near, far) if item.high is not None]
    assert widths[0] <= widths[1] < widths[2]


def test_a_step_that_no_column_explains_is_flagged(ring_points: Callable[..., Points]) -> None:
    points = ring_points(noise=0.02)
    measured = np.where(points.columns["batch"] == 32.0, 4.0, 1.0) * points.measured
    model = run_study(replace(points, measured=measured), plan("nnls")).model
    (answer,) = model.answers([{"workers": 2, "batch": 48}])
    assert {"step", "error"} <= {flag.kind for flag in answer.flags}
    assert answer.high is not None and answer.high > 1.5 * answer.time


def test_a_label_is_no_answer_between_its_values(ring_points: Callable[..., Points]) -> None:
    """With two values left, selection is by folds, where a constant for each of them is without error."""
    points = ring_points()
    three = points.take(np.flatnonzero(np.isin(points.columns["workers"], (1.0, 4.0, 8.0))))
    times = three.columns["batch"] * (1.0 + 1.0 / three.columns["workers"])
    rule = SplitRule(method="interpolation", column="workers", values=(4.0,))
    study = run_study(
        replace(three, measured=times), plan("samples", "ridge", rule=rule), keep=False, judged=True
    )
    (test,) = study.test
    assert [score.technique.name for score in study.scores] == ["ridge", "samples"]
    assert study.scores[1].selection_mape == pytest.approx(0.0, abs=1e-6) and test.best == "ridge"
    assert test.trust is not None
    flags = test.trust.flags(three.take(test.rows).columns)
    assert all("untried" in [flag.kind for flag in some] for some in flags)


def test_flags_of_a_fit() -> None:
    def kinds(**changed: object) -> list[str]:
        told = {"configurations": 20, "terms": 4, "repeats": np.array([1.1]), "held_out": np.full(20, 0.02)}
        return [flag.kind for flag in model_flags(**{**told, **changed}, lines=range(2, 22))]  # type: ignore[arg-type]

    odd = np.full(20, 0.02)
    odd[3] = 1.0
    assert kinds() == []
    assert kinds(configurations=6) == ["few-points"]
    assert kinds(repeats=np.array([1.1, 1.8])) == ["step"]
    assert kinds(held_out=odd) == ["step"]
    assert kinds(held_out=np.concatenate([odd, np.full(180, 0.02)])) == [], "one odd point of 200 is no step"


def test_the_file_answers_as_the_model(ring_points: Callable[..., Points], tmp_path: Path) -> None:
    model = run_study(ring_points(noise=0.02), plan("nnls")).model
    model.save(tmp_path / "model.ptm")
    rows = [{"workers": 5, "batch": 32}, {"workers": 100, "batch": 500}]
    assert PerformanceModel.load(tmp_path / "model.ptm").answers(rows) == model.answers(rows)


def test_the_cheapest_that_is_done_in_time(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    epochs = replace(
        points, measured=100.0 / points.columns["workers"] + points.columns["workers"], target="epoch_s"
    )
    rule = SplitRule(method="kfold")
    made = replace(plan("nnls", rule=rule), features=engineered(["workers"], {}, inverse=["workers"]))
    model = run_study(epochs, made).model
    offers = offers_of(model, {"batch": 32}, {"workers": counts_of("1..8")}, price_per_hour=3.6)
    assert [round(offer.answer.time, 3) for offer in offers] == [round(100 / w + w, 3) for w in range(1, 9)]
    assert offers[3].cost == pytest.approx(3.6 * 4 * 29.0 / 3600.0, rel=1e-6)
    first, tight = cheapest(offers), cheapest(offers, 25.5)
    assert first is not None and first.workers == 1.0
    assert tight is not None and tight.workers == 5.0
    assert cheapest(offers, 1.0) is None
    with pytest.raises(ConfigError, match="neither numbers above 0 nor a range"):
        counts_of("4..1")
