"""All tables on a small sample of the corpus with a few trees: the plumbing, not the accuracy."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from precision_time.corpus.protocols import PROTOCOLS
from precision_time.corpus.splits import configuration_groups
from precision_time.corpus.store import load_corpus
from precision_time.errors import ConfigError
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.render.table import text_of
from precision_time_papers.evaluation.ablations import ABLATIONS
from precision_time_papers.evaluation.cross_validation import Runs
from precision_time_papers.evaluation.generalization import (
    LEVELS,
    _pair_known,
    evidence_tables,
    nearest_known,
    served,
)
from precision_time_papers.evaluation.importance import GROUPS, grouped_features
from precision_time_papers.evaluation.pricing import priced_corpus
from precision_time_papers.evaluation.report import SECTIONS, build_report, report_of, sample_families
from precision_time_papers.evaluation.tables import html, markdown

ROWS = 220
FAST = tuple(key for key in SECTIONS if key != "T4")
SETTINGS = {
    stage: replace(item, num_trees=5, num_leaves=8, min_data_in_leaf=5)
    for stage, item in DEFAULT_SETTINGS.items()
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    usable = [item for item in load_corpus() if item.usable]
    priced = priced_corpus(sample_families(usable, ROWS))
    return Runs(priced=priced, settings=SETTINGS, folds=2, folder=tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def report(runs):
    return report_of(runs, only=FAST, seeds=1)


def figure(report, name) -> float:
    return report.figures[name].value


def test_all_tables_are_there(report) -> None:
    assert [section.key for section in report.sections] == list(FAST)
    for section in report.sections:
        assert section.headline.endswith(".")
        assert section.tables
        for table in section.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.slow
def test_ablations_are_scored_on_the_same_rows(runs) -> None:
    (section,) = report_of(runs, only=("T4",), seeds=1).sections
    (table,) = section.tables
    assert [row[0] for row in table.rows][:2] == ["ours", ABLATIONS["dtype-features"].title]
    assert len(table.rows) == len(ABLATIONS) + 2
    scores = {row[0]: row[1] for row in table.rows}
    assert scores["minus both (precision-blind)"] > scores["ours"]
    assert scores["minus the trees"] == pytest.approx(
        np.mean(np.abs(runs.table.jobs.analytical_s / runs.table.measured_s - 1.0)) * 100.0
    )


def test_json_is_pure(report) -> None:
    said = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert list(said["sections"]) == list(FAST)
    assert said["sections"]["T5"]["figures"]["T5.model.mape_percent"]["spread"] is None


def test_figures_are_the_held_out_errors(report, runs) -> None:
    answered = served(runs, "model", 0)
    errors = np.abs(answered.step_time_s / runs.table.measured_s - 1.0) * 100.0
    assert figure(report, "T5.model.mape_percent") == pytest.approx(errors.mean())
    medians = np.abs(runs.ours("model", 0).step_time_s / runs.table.measured_s - 1.0) * 100.0
    assert figure(report, "T3.model.ours.mape_percent") == pytest.approx(medians.mean())
    seconds = runs.table.jobs.analytical_s
    formulas = np.abs(seconds / runs.table.measured_s - 1.0).mean() * 100.0
    assert figure(report, "T3.configuration.formulas.mape_percent") == pytest.approx(formulas)


def test_a_target_is_met_only_where_both_means_meet_it(report) -> None:
    (section,) = (section for section in report.sections if section.key == "T5")
    verdicts = [row[-1] for row in section.tables[0].rows if row[-1] != "-"]
    met = sum("missed" not in verdict for verdict in verdicts)
    assert section.headline.startswith(f"{met} of {len(verdicts)} targets met")
    coverage = [row for row in section.tables[0].rows if row[0].startswith("Coverage")]
    assert len(coverage) == sum(name.startswith("T5.coverage") for name in section.figures) // 2 > 3


def test_a_predictor_of_the_precision_beats_the_blind_ones(report) -> None:
    ours = figure(report, "T2.ours.mape_percent")
    assert ours < figure(report, "T2.blind.mape_percent")
    assert figure(report, "T2.blind.mape_percent") > figure(report, "T2.blind_floor_percent")
    assert figure(report, "T3.configuration.ours.mape_percent") < figure(
        report, "T3.configuration.blind.mape_percent"
    )


def test_what_was_predicted_is_kept_on_disk(runs) -> None:
    told = []
    again = Runs(priced=runs.priced, settings=SETTINGS, folds=2, folder=runs.folder, progress=told.append)
    np.testing.assert_array_equal(again.ours("model", 0).step_time_s, runs.ours("model", 0).step_time_s)
    assert told == []
    other = {stage: replace(item, num_trees=9) for stage, item in SETTINGS.items()}
    renewed = Runs(priced=runs.priced, settings=other, folds=2, folder=runs.folder, progress=told.append)
    assert not np.array_equal(renewed.ours("model", 0).step_time_s, runs.ours("model", 0).step_time_s)
    assert told


def test_a_predictor_of_one_precision_is_asked_of_families_that_ran_at_it(runs) -> None:
    asked = ~np.isnan(runs.trained_at("fp32", 0, blind=True))
    families = [family for family in runs.families if "fp32" in family.rows]
    rows = np.concatenate([part for family in families for part in family.rows.values()])
    assert sorted(np.flatnonzero(asked).tolist()) == sorted(rows.tolist())


def test_wider_intervals_hold_more_often(runs) -> None:
    inside = served(runs, "model", 0).inside
    shares = np.nanmean(inside, axis=1)
    assert shares.shape == (len(LEVELS),)
    assert (np.diff(shares) >= 0.0).all()
    assert shares[-1] > 0.75  # of five trees on 110 runs


def test_every_feature_is_in_one_group(runs) -> None:
    groups = grouped_features(runs.table.jobs.names)
    columns = sorted(index for members in groups.values() for index in members)
    assert columns == list(range(len(runs.table.jobs.names)))
    assert set(groups) <= set(GROUPS)


def test_markdown_has_every_row_of_every_table(report) -> None:
    page = markdown(report)
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rejected = len(report.card["rejected"])
    expected = sum(len(table.rows) + 1 for section in report.sections for table in section.tables)
    assert len(lines) == expected + (rejected + 1 if rejected else 0)
    assert all(f"## {section.key} {section.title}" in page for section in report.sections)
    assert "nan" not in re.findall(r"[a-z]+", page.lower())


def test_html_is_one_page_with_its_plots(report) -> None:
    page = html(report)
    assert page.count("<svg") == page.count("</svg>") >= 10
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", page)
    for section in report.sections:
        assert f'<h2 id="{section.key}">' in page


def test_cells_are_shown_with_the_digits_that_count() -> None:
    assert [text_of(cell) for cell in (99.96, 0.5, 3, "a", None)] == ["100.0", "0.5", "3", "a", "-"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": ["T7"]}, "no such table"),
        ({"seeds": 0}, "at least one seed"),
        ({"sample": 10}, "at least 200"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_priced(arguments, message) -> None:
    with pytest.raises(ConfigError, match=message):
        build_report(measurements=[], **arguments)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_equal_in_all_features_are_never_on_both_sides(protocol, runs) -> None:
    rows = [row.tobytes() for row in runs.table.jobs.features]
    twins = {row for row, count in Counter(rows).items() if count > 1}
    assert twins
    for fold in runs.split(protocol, 0):
        assert not {rows[place] for place in fold.train} & {rows[place] for place in fold.test}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_twins_under_other_names_are_never_on_both_sides(protocol, runs) -> None:
    items, draw = runs.table.measurements, np.random.default_rng(1)
    pairs = draw.permutation(len(items))[:12].reshape(-1, 2)
    twins = np.arange(len(items))
    twins[pairs[:, 1]] = pairs[:, 0]
    for fold in PROTOCOLS[protocol].split(items, 0, 2, twins):
        assert len(fold.train)
        assert not np.intersect1d(twins[fold.train], twins[fold.test]).size


def test_evidence_is_of_rows_that_were_known(runs) -> None:
    rows, similarity = nearest_known(runs, 0)
    groups = configuration_groups(runs.table.measurements)
    assert rows.shape == similarity.shape == (len(runs.table), 3)
    assert (groups[rows] != groups[:, None]).all()
    assert (np.diff(similarity, axis=1) <= 0.0).all()
    assert ((similarity > 0.0) & (similarity <= 1.0)).all()
    by_similarity, worst = evidence_tables(runs, served(runs, "configuration", 0).step_time_s, 0)
    assert sum(row[1] for row in by_similarity.rows) == len(runs.table)
    errors = [row[3] for row in worst.rows]
    assert errors == sorted(errors, reverse=True)


def test_a_pair_known_from_its_own_source_is_scored_apart(report, runs) -> None:
    whole = figure(report, "T5.precision.mape_percent")
    own = figure(report, "T5.precision.same-source.mape_percent")
    assert whole > 0.0
    assert own > 0.0
    (mask,) = _pair_known(runs, 1)
    asked = ~np.isnan(runs.ours("precision", 0).step_time_s)
    assert (mask <= asked).all()
    assert 0 < mask.sum() <= asked.sum()
