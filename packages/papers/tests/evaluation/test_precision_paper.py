"""The tables of docs/papers.md on the precision-aware paper, on a small sample with a few trees."""

import json
from dataclasses import replace

import numpy as np
import pytest

from papers_tables.claims import glance
from papers_tables.precision import (
    NO_RUN,
    by_network,
    by_precision,
    cell,
    recorded,
    spread,
)
from papers_tables.scope import BLIND_FP32, OURS, SCOPE, Study
from precision_time.corpus.protocols import chip
from precision_time.corpus.store import load_corpus
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time_papers.evaluation.pricing import priced_twice
from precision_time_papers.evaluation.refitted import refitted_section
from precision_time_papers.evaluation.report import sample_families
from precision_time_papers.precision_aware import PrecisionAware

FEW = {stage: replace(item, num_trees=6, num_leaves=8) for stage, item in DEFAULT_SETTINGS.items()}


@pytest.fixture(scope="module")
def study():
    usable = [row for row in load_corpus() if row.usable and chip(row.device) in SCOPE["chips"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "papers_tables.scope.PrecisionAware",
            lambda **options: PrecisionAware(**{"trees": FEW} | options),
        )
        found = Study(table=priced_twice(sample_families(usable, 120)), executor=map, seeds=1)
        assert found.errors
        yield found


def test_every_run_in_scope_is_scored_and_none_outside(study) -> None:
    least, most = SCOPE["devices"]
    inside = np.array([least <= run.num_devices <= most for run in study.runs])
    for errors in study.errors.values():
        assert (~np.isnan(errors) == inside).all()


def test_no_twin_or_configuration_of_a_scored_run_was_fitted(study) -> None:
    groups = study.table.measured.groups()
    for fold in study.folds[0]:
        assert not np.intersect1d(groups[fold.train], groups[fold.test]).size


def test_cells_are_the_means_of_their_rows(study) -> None:
    (table,) = by_precision(study).tables
    rows = {row[0]: row for row in table.rows}
    mask = study.in_scope & np.array([run.precision == "fp16-mixed" for run in study.runs])
    assert rows["fp16-mixed"][1] == mask.sum() > 0
    assert rows["fp16-mixed"][-2].startswith(f"{study.errors[OURS][mask].mean():.1f} (")
    assert rows["fp16-mixed"][3] == cell(study.errors[BLIND_FP32], mask)


def test_claims_say_what_the_tables_have(study) -> None:
    section = by_precision(study)
    claims = {claim.claim: claim for claim in section.claims}
    for name, count, *_, aware, _, ours, _ in section.tables[0].rows:
        if found := claims.pop(f"its error in {name} (digest, unverified)", None):
            assert (found.paper, found.rows) == (f"{aware} %", count)
            assert found.ours.replace(" %", "").replace("median ", "") == ours
            assert (found.verdict == "holds") == (float(ours.split()[0]) <= aware)
    assert sorted(claims) == [
        "a predictor blind to the precision errs by up to",
        "the precision-aware predictor's error over its settings",
        "the precision-aware predictor's error over its settings, a cluster never seen",
        "the precision-aware predictor's error over its settings, labels that the source states",
    ]
    named = {claim.claim: claim for claim in section.claims}
    known, unseen = (
        named[f"the precision-aware predictor's error over its settings{words}"]
        for words in ("", ", a cluster never seen")
    )
    assert known.rows == unseen.rows
    assert "no run of the same source is known" in unseen.scope


def test_no_run_of_a_scored_source_was_fitted_where_sources_are_held_out(study) -> None:
    sources = np.array(study.sources)
    for fold in study._folds("source")[0]:
        assert not {*sources[fold.train]} & {*sources[fold.test]}


def test_a_glance_has_a_row_for_each_claim_and_none_without(study) -> None:
    drawn = glance([by_network(study), measured := spread(study)])
    assert drawn.count("\n") == 1 + len(measured.claims) == 3
    assert measured.claims[1].ours in drawn


def test_a_cell_without_runs_says_so(study) -> None:
    (table,) = by_network(study).tables
    for row in table.rows:
        for precision, text in zip(SCOPE["precisions"], row[2:], strict=True):
            mask = study.in_scope & study.matching(SCOPE["networks"][row[0]])
            count = sum(mask & np.array([run.precision == precision for run in study.runs]))
            assert text.endswith(f"n = {count}")
            assert (text == NO_RUN) == (count == 0)


def test_rows_of_the_communication_stage_add_up(study) -> None:
    stage, waits, campaigns = recorded(study).tables
    *each, whole = stage.rows
    assert whole[1] == (study.table.measured.jobs.exposed_s > 0.0).sum()
    for column in (1, 2, 3):
        assert sum(row[column] for row in each) == whole[column]
    assert all(max(row[3:]) <= row[1] for row in campaigns.rows)
    by_source = {row[0]: row[1] for row in waits.rows}
    assert by_source.pop("all") == sum(by_source.values()) == whole[2] > 0
    table = study.table.measured
    for name, count, _, error, *_ in waits.rows[:-1]:
        chosen = (np.array(study.sources) == name) & (table.jobs.exposed_s > 0.0) & ~np.isnan(table.sync_s)
        off = np.abs(table.jobs.exposed_s[chosen] / table.sync_s[chosen] - 1.0) * 100.0
        assert (error, count) == (f"{off.mean():.1f} ({np.median(off):.1f})", chosen.sum())


def test_spread_of_the_scope_is_within_that_of_all(study) -> None:
    (table,) = spread(study).tables
    scope, whole = table.rows[:2]
    assert float(scope[2]) <= float(whole[2])
    assert scope[1] <= whole[1]


def test_a_refit_is_quoted_as_it_was_stored(tmp_path) -> None:
    before = {"n": 9, "mean_percent": 20.0, "median_percent": 15.0, "sources_percent": 25.0}
    errors = {"formulas, shipped": before, "formulas, refitted": before | {"mean_percent": 22.5}}
    stored = {
        "command": "c",
        "version": "v",
        "corpus": "f",
        "rows": 9,
        "fitted_on": {"kernels": 1, "host": 2, "stragglers": 3},
        "refitted_on_all": before,
        "held_out_by": {"model": {"folds": [{}, {}], "errors": errors}},
    }
    path = tmp_path / "constants.json"
    assert refitted_section(path) == ()
    path.write_text(json.dumps(stored))
    (section,) = refitted_section(path)
    row, control = section.tables[0].rows
    assert control[2:] == (9, "20.0", "15.0", "25.0")
    assert row[2:] == (9, "20.0 -> 22.5", "15.0 -> 15.0", "25.0 -> 25.0")
    assert "20.0 -> 22.5 %" in section.headline
