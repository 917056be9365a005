"""What counts as worse: all numbers are made up."""

import json

import pytest

from precision_time.errors import ConfigError
from precision_time.render.document import Metric, Section
from precision_time_papers.evaluation.regressions import baseline_of, regressions, write_baseline
from precision_time_papers.evaluation.tables import Report

ERROR, COVERED = "T5.model.mape_percent", "T5.coverage.model.covered_percent"


def report(values, *, spread=0.2, quick=False, key="T5") -> Report:
    figures = {name: Metric(value=value, spread=spread) for name, value in values.items()}
    section = Section(key=key, title="", headline="", tables=(), figures=figures)
    card = {"quick": quick, "sample": None, "folds": 5, "seeds": 5, "rows": 10}
    return Report(sections=(section,), card=card)


BEFORE = baseline_of(report({ERROR: 10.0, COVERED: 90.0}))


@pytest.mark.parametrize("value", [9.0, 10.0, 10.4])
def test_better_and_within_two_spreads_pass(value) -> None:
    assert regressions(report({ERROR: value, COVERED: 90.0}), BEFORE) == []


def test_beyond_two_spreads_fails() -> None:
    (line,) = regressions(report({ERROR: 10.5, COVERED: 90.0}), BEFORE)
    assert line == "T5.model.mape_percent: 10.50, was 10.00 (noise 0.40)"


def test_the_larger_spread_counts() -> None:
    assert regressions(report({ERROR: 10.9, COVERED: 90.0}, spread=0.5), BEFORE) == []


def test_one_seed_on_both_sides_leaves_a_twentieth() -> None:
    before = baseline_of(report({ERROR: 10.0}, spread=None))
    assert regressions(report({ERROR: 10.45}, spread=None), before) == []
    assert len(regressions(report({ERROR: 10.55}, spread=None), before)) == 1


@pytest.mark.parametrize(("value", "fails"), [(88.0, True), (92.0, True), (90.3, False), (89.7, False)])
def test_coverage_is_bad_on_either_side(value, fails) -> None:
    assert bool(regressions(report({ERROR: 10.0, COVERED: value}), BEFORE)) is fails


def test_a_figure_that_is_gone_fails() -> None:
    (line,) = regressions(report({ERROR: 10.0}), BEFORE)
    assert line.startswith(COVERED)
    assert "is not in the report" in line


def test_tables_that_were_not_asked_for_are_not_missed() -> None:
    assert regressions(report({}, key="T1"), BEFORE) == []


def test_reports_made_differently_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="quick=False, the report with quick=True"):
        regressions(report({ERROR: 10.0}, quick=True), BEFORE)


def test_only_figures_of_ours_are_guarded() -> None:
    mixed = report({ERROR: 10.0, "T3.model.blind.mape_percent": 50.0, "T6.model.device": 4.0})
    assert list(baseline_of(mixed)["figures"]) == [ERROR]


def test_a_file_says_the_same(tmp_path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(report({ERROR: 10.0, COVERED: 90.0}), path)
    assert json.loads(path.read_text(encoding="utf-8")) == BEFORE
    assert regressions(report({ERROR: 11.0, COVERED: 90.0}), path)
