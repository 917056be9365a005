"""The Ray paper's section: rules of proportion on the stored campaign, and tables whose figures add up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from papers_tables.ray import (
    CAMPAIGNS,
    Task,
    flag_table,
    rows_of,
    sections,
    studied,
    tasks_of,
)

OWN = CAMPAIGNS[0]


def test_the_rule_of_proportion_errs_as_the_check_found() -> None:
    """Claim 7 of the papers' check: 5.3 % beyond the measured samples, mean of four models, by hand."""
    errors = []
    for model in ("cnn", "mlp", "recommender", "transformer"):
        rows = [row for row in rows_of(OWN) if row["model"] == model]
        asked = Task(campaign=OWN, model=model, target="epoch_time_s", scenario="extrapolation, samples")
        study = studied(rows, asked, "epoch_time_s", ("samples",))
        errors.append(study.validation_mape)
        (test,) = study.test
        samples = study.points.columns["num_samples"]
        learned = np.setdiff1d(np.arange(len(rows)), test.rows)
        assert samples[test.rows].min() > samples[learned].max()
    assert np.mean(errors) == pytest.approx(5.3, abs=0.2)


def test_a_campaign_is_asked_what_it_has_values_for() -> None:
    scenarios = {task.scenario for task in tasks_of([OWN])}
    assert scenarios == {"interpolation, samples", "extrapolation, samples"}, "two workers, one CPU each"
    assert {row["label"] for row in rows_of(OWN)} == {""}


def test_flagged_answers_and_the_others() -> None:
    table = flag_table("x", [[10.0, 30.0], []], [[1.0], [2.0, 3.0]])
    assert table.rows == (
        ("flagged", 2, 20.0, 20.0, 30.0, 50.0),
        ("not flagged", 3, 2.0, 2.0, 3.0, 0.0),
        ("all", 5, pytest.approx(9.2), 3.0, 30.0, 20.0),
    )


def test_the_section_says_what_its_tables_have(tmp_path: Path) -> None:
    def cell(name: str, mean: float) -> dict[str, object]:
        return {
            "cell": name, "scenario": "interpolation, batch", "learned": 20, "predicted": 2, "chosen": "nnls",
            "mean": mean, "median": mean, "black_box": "nnls", "grey_box": "grey-ridge",
            "by_technique": {"nnls": mean, "grey-ridge": 9.0, "samples": 40.0, "forward": 5.0},
            "with_interval": 2, "inside_interval": 1, "flagged_errors": [mean], "other_errors": [mean],
            "flagged_by": {"error": 1},
        }  # fmt: skip

    path = tmp_path / "public.json"
    told = {"command": "x", "note": "y", "scenarios": ["interpolation, batch"]}
    outcomes = [cell("sia/T4/a", 4.0), cell("pollux/T4/b", 30.0), cell("gavel/V100/c", 60.0)]
    path.write_text(json.dumps({**told, "outcomes": outcomes}), encoding="utf-8")
    (section,) = sections(executor=map, campaigns=(), public=path)
    assert "Pollux and Sia: 1 of 2 cells err by at most 15 %" in section.headline
    assert "mean 17.0 %, median 17.0 %" in section.headline
    stated = {claim.claim.rpartition(": ")[2]: claim for claim in section.claims}
    assert stated["Pollux and Sia"].ours == "17.0 % (median 17.0); 1 of 2 cells within 15 %"
    assert stated["Pollux and Sia"].verdict == "does not hold"
    (row,) = section.tables[0].rows
    told_row = dict(zip(section.tables[0].columns, row, strict=True))
    assert told_row[">cells"] == 2 and told_row[">best in selection, mean %"] == 17.0
    assert told_row[">in 90 % interval %"] == 50.0
    assert told_row["worst cell"] == "pollux/T4/b 30"
