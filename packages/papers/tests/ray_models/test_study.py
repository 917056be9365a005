"""The five traps of the library that the paper's authors wrote (papers.md 4.2), and what a study tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from precision_time.errors import ConfigError
from precision_time_papers.ray_models.features import engineered
from precision_time_papers.ray_models.points import Points
from precision_time_papers.ray_models.report import remarks, score_rows, to_dict
from precision_time_papers.ray_models.splits import SplitRule, splits_of
from precision_time_papers.ray_models.study import Study, StudyPlan, chosen_first, pool_of, run_study
from precision_time_papers.ray_models.techniques import TECHNIQUES
from precision_time_papers.ray_models.tuning import (
    FeatureSelection,
    Search,
    TunedTechnique,
    mape_percent,
    tune,
)

BEYOND = SplitRule(method="extrapolation", bounds={"workers": 4.0})


def plan(*names: str, **changes: Any) -> StudyPlan:
    base = StudyPlan(
        features=engineered(["workers", "batch"], {}, inverse=["workers"], log=["batch"]),
        techniques=tuple(TECHNIQUES[name] for name in names),
        columns=("workers", "batch"),
        roles={"workers": "workers", "batch": "batch"},
        validation=BEYOND,
    )
    return replace(base, **changes)


def poisoned(points: Points, rows: np.ndarray) -> Points:
    """The same points, with other times in some rows."""
    measured = points.measured.copy()
    measured[rows] *= np.random.default_rng(1).uniform(0.2, 5.0, len(rows))
    return replace(points, measured=measured)


@pytest.mark.parametrize(
    "rule",
    [BEYOND, SplitRule(method="interpolation", column="batch", turns=1), SplitRule(method="holdout")],
    ids=lambda rule: rule.method,
)
def test_1_and_2_nothing_chosen_or_fitted_has_seen_the_points_asked(
    ring_points: Callable[..., Points], rule: SplitRule
) -> None:
    points = ring_points(noise=0.05)
    asked = plan("ridge", "nnls", "tree", validation=rule)
    (split,) = splits_of(points, rule)
    clean = run_study(points, asked, keep=False)
    other = run_study(poisoned(points, split[1]), asked, keep=False)
    assert clean.chosen == other.chosen
    assert np.array_equal(clean.test[0].best_s, other.test[0].best_s)
    by_name = {score.technique.name: score for score in other.scores}
    for score in clean.scores:
        assert score.selection_mape == by_name[score.technique.name].selection_mape
        assert score.training_mape == by_name[score.technique.name].training_mape
    assert clean.validation_mape != other.validation_mape


def test_1_the_kept_model_is_the_best_in_selection_not_in_validation(
    ring_points: Callable[..., Points], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: Mapping[str, float] = {"tree": 1.0, "nnls": 50.0}

    def rigged(_: Any, technique: Any, __: Any) -> tuple[float, ...]:
        return (errors[technique.name],) * 5

    monkeypatch.setattr("precision_time_papers.ray_models.study._nested_errors", rigged)
    rule = SplitRule(method="extrapolation", bounds={"batch": 32.0})
    study = run_study(ring_points(), plan("nnls", "tree", validation=rule))
    validation = {score.technique.name: score.validation_mape for score in study.scores}
    assert validation["nnls"] < validation["tree"]
    assert [item.technique.name for item in study.chosen] == ["tree"]


def tuned(name: str, *errors: float) -> TunedTechnique:
    return TunedTechnique(
        technique=TECHNIQUES[name],
        parameters={},
        columns=None,
        selection_mape=0.0,
        candidates=1,
        nested_errors=errors,
    )


@pytest.mark.parametrize(
    ("others", "taken"),
    [
        # Ridge is closer by 2 of 10 points, and by more than one standard error of the difference.
        ([tuned("ridge", 8.0, 7.0, 9.0, 8.0)], "ridge"),
        # The same mean, of one configuration alone: that may be chance, and the rule stays.
        ([tuned("ridge", 2.0, 10.0, 10.0, 10.0), tuned("tree", 2.0, 10.0, 10.0, 10.0)], "work"),
        # Trees have to beat ridge, not only the rule that ridge has beaten.
        ([tuned("ridge", 8.0, 7.0, 9.0, 8.0), tuned("tree", 8.0, 7.0, 9.0, 7.9)], "ridge"),
        ([tuned("ridge", 8.0, 7.0, 9.0, 8.0), tuned("tree", 4.0, 4.0, 4.0, 4.0)], "tree"),
        # The better of two rules is what the others are compared with.
        ([tuned("samples", 4.0, 4.0, 4.0, 4.0), tuned("ridge", 4.0, 4.0, 4.0, 3.9)], "samples"),
    ],
)
def test_1_a_rule_stays_until_it_is_beaten_by_a_standard_error(
    others: list[TunedTechnique], taken: str
) -> None:
    rule = tuned("work", 10.0, 10.0, 10.0, 10.0)
    chosen = chosen_first([*others, rule])
    assert chosen[0].technique.name == taken
    assert len(chosen) == 1 + len(others)
    assert [item.nested_mape for item in chosen[1:]] == sorted(item.nested_mape for item in chosen[1:])


def test_1_a_technique_is_tuned_again_without_the_points_it_is_compared_on(
    ring_points: Callable[..., Points],
) -> None:
    """Among many candidates one fits noise by chance: its least error is not what techniques go by."""
    points = ring_points(noise=0.3)
    rule = SplitRule(method="kfold", folds=3)
    study = run_study(points, plan("tree", validation=rule), keep=False)
    ((chosen,), (score,)) = study.chosen, study.scores
    assert chosen.candidates > 1
    assert chosen.nested_mape != chosen.selection_mape
    assert len(chosen.nested_errors) == len(
        np.unique(points.take(splits_of(points, rule)[0][0]).configurations)
    )
    assert score.selection_mape > 0.0


def test_2_training_errors_are_no_validation_errors(ring_points: Callable[..., Points]) -> None:
    study = run_study(ring_points(noise=0.1), plan("tree"))
    (score,) = study.scores
    assert score.training_mape < score.validation_mape
    assert study.model.card["validation_mape_percent"] == pytest.approx(study.validation_mape)


def test_3_stepwise_interpolation_never_asks_the_ends(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    study = run_study(
        points,
        plan("nnls", validation=SplitRule(method="interpolation", column="batch", turns=3)),
        keep=False,
    )
    asked = {value for item in study.test for value in points.columns["batch"][item.rows]}
    assert asked == {16.0, 32.0, 64.0}


def test_4_folds_within_folds_are_means_over_all_of_them(ring_points: Callable[..., Points]) -> None:
    points = ring_points(noise=0.05)
    folds = SplitRule(method="kfold", folds=3)
    study = run_study(points, plan("ridge", "tree", validation=folds, selection=folds), keep=False)
    assert len(study.test) == 3
    assert sum(len(item.rows) for item in study.test) == len(points)
    errors = [mape_percent(points.measured[item.rows], item.best_s) for item in study.test]
    assert study.validation_mape == pytest.approx(np.mean(errors))
    assert all(
        np.isfinite([s.training_mape, s.selection_mape, s.validation_mape]).all() for s in study.scores
    )


@pytest.mark.parametrize("method", ["grid", "bayesian", "none"])
def test_5_every_search_minimises_the_percentage_error(
    ring_points: Callable[..., Points], method: str
) -> None:
    points = ring_points(noise=0.05)
    asked = plan("ridge")
    pool = pool_of(asked)
    from precision_time_papers.ray_models.features import feature_table

    x, y = feature_table(pool.features, points.columns), points.measured
    splits = splits_of(points, SplitRule(method="kfold", folds=3))
    options = {"feature_selection": FeatureSelection(), "seed": 0}
    search = Search(method=method, trials=6)  # type: ignore[arg-type]
    chosen = tune(TECHNIQUES["ridge"], pool, x, y, splits, search=search, **options)  # type: ignore[arg-type]
    fitted = [chosen.build(pool, 0).fit(x[train], y[train]) for train, _ in splits]
    errors = [mape_percent(y[test], f.predict(x[test])) for (_, test), f in zip(splits, fitted, strict=True)]
    assert chosen.selection_mape == pytest.approx(np.mean(errors))
    if method == "grid":
        as_built = tune(TECHNIQUES["ridge"], pool, x, y, splits, search=Search(method="none"), **options)  # type: ignore[arg-type]
        assert chosen.selection_mape <= as_built.selection_mape
        assert chosen.candidates == 6


def test_formulas_go_on_where_trees_stand_still(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    rule = SplitRule(method="extrapolation", bounds={"batch": 32.0})
    study = run_study(points, plan("nnls", "overlap", "tree", validation=rule), keep=False)
    errors = {score.technique.name: score.validation_mape for score in study.scores}
    assert errors["nnls"] < 6.0
    assert errors["overlap"] < 6.0
    assert errors["tree"] > 30.0
    assert study.scores[0].technique.name != "tree"


def test_forward_selection_finds_what_the_time_depends_on(ring_points: Callable[..., Points]) -> None:
    forward = FeatureSelection(method="forward", most=3)
    asked = plan("nnls", search=Search(method="none"), feature_selection=forward)
    study = run_study(ring_points(), asked)
    (chosen,) = study.model.card["techniques"]
    assert "batch" in chosen["features"]
    assert len(chosen["features"]) <= 3
    assert any("Features chosen" in line for line in remarks(study))


def test_a_blend_is_the_geometric_mean_of_the_best(ring_points: Callable[..., Points]) -> None:
    points = ring_points(noise=0.05)
    study = run_study(points, plan("ridge", "nnls", "tree", blend=2))
    assert len(study.chosen) == 2
    singles = []
    for item in study.chosen:
        alone = plan(item.technique.name)
        singles.append(run_study(points, alone).model.predict_columns(points.columns))
    blended = study.model.predict_columns(points.columns)
    assert np.allclose(blended, np.sqrt(singles[0] * singles[1]), rtol=1e-6)


def test_the_report_is_complete(ring_points: Callable[..., Points]) -> None:
    study: Study = run_study(ring_points(noise=0.02), plan("ridge", "nnls", "grey-ridge"), keep=False)
    told = to_dict(study)
    assert told["left_out"] == {"grey-ridge": "needs grey_box: what our own predictor answers for each point"}
    assert len(told["held_out"]) == sum(len(item.rows) for item in study.test)
    assert {row["line"] for row in told["held_out"]} <= set(study.points.lines)
    assert len(score_rows(study)) == 2
    assert told["validation_mape_percent"] == study.validation_mape


def test_no_technique_at_all_is_an_error(ring_points: Callable[..., Points]) -> None:
    with pytest.raises(ConfigError, match="No technique can be used: grey-ridge needs grey_box"):
        run_study(ring_points(), plan("grey-ridge"))


def test_a_selection_that_cannot_be_made_is_told(ring_points: Callable[..., Points]) -> None:
    points = ring_points()
    few = points.take(np.flatnonzero(np.isin(points.columns["batch"], (8.0, 16.0, 128.0))))
    rule = SplitRule(method="extrapolation", bounds={"batch": 16.0})
    study = run_study(few, plan("nnls", validation=rule), keep=False)
    assert study.notes == ("selection by the largest values alone: too few for more",)
    rule = SplitRule(method="extrapolation", bounds={"batch": 8.0})
    study = run_study(few, plan("nnls", validation=rule), keep=False)
    assert study.notes == ("selection by folds: too few values for extrapolation",)
