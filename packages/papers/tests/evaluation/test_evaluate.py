"""The shipped predictor on a measurement file: every row comes back, scored or with its reason.

`data/runs.csv` holds five published rows (their `source_ref` says from where) and three made-up ones.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import ConfigError, CorpusError
from precision_time.learn.evaluation import ADDED_COLUMNS, evaluate_csv

RUNS = Path(__file__).parent / "data" / "runs.csv"
SCORED, UNSUPPORTED = 5, 3


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows, columns=None):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    out = tmp_path_factory.mktemp("evaluate") / "rows.csv"
    report = evaluate_csv(RUNS, group_by=["source", "precision"], rows_out=out)
    return report, read(out)


def test_every_row_is_counted_once(scored):
    report, rows = scored
    assert report.overall.n == SCORED
    assert report.n_unsupported == UNSUPPORTED
    assert report.overall.n + report.n_unsupported == len(read(RUNS)) == len(rows)
    assert report.unsupported_reasons == {
        "model not known": 1,
        "device not known": 1,
        "no step time, and none can be derived from the throughput": 1,
    }


def test_rows_come_back_in_order_with_all_their_cells(scored):
    _, rows = scored
    before = read(RUNS)
    assert list(rows[0]) == [*before[0], *ADDED_COLUMNS]
    for ours, theirs in zip(rows, before, strict=True):
        assert {name: ours[name] for name in theirs} == theirs


def test_scored_rows_have_numbers_and_the_others_a_reason(scored):
    _, rows = scored
    for row in rows:
        if row["supported"] == "true":
            low, middle, high = (
                float(row[name]) for name in ("interval_low_s", "predicted_step_time_s", "interval_high_s")
            )
            assert 0.0 < low <= middle <= high
            assert float(row["measured_step_time_s"]) == pytest.approx(float(row["step_time_s"]))
            assert row["reason"] == ""
        else:
            assert row["predicted_step_time_s"] == row["interval_low_s"] == ""
            assert row["reason"]
    reasons = {row["model"]: row["reason"] for row in rows}
    assert reasons["no-such-network"] == "model not known"
    assert {row["reason"] for row in rows if row["device"] == "GTX9999"} == {"device not known"}


def test_the_errors_are_those_of_the_rows(scored):
    report, rows = scored
    good = [row for row in rows if row["supported"] == "true"]
    measured = np.array([float(row["measured_step_time_s"]) for row in good])
    ratio = np.array([float(row["predicted_step_time_s"]) for row in good]) / measured
    assert report.overall.mape_percent == pytest.approx(100 * np.abs(ratio - 1).mean())
    assert report.overall.median_ape_percent == pytest.approx(100 * np.median(np.abs(ratio - 1)))
    inside = [
        float(row["interval_low_s"]) <= float(row["measured_step_time_s"]) <= float(row["interval_high_s"])
        for row in good
    ]
    assert report.overall.interval_coverage == pytest.approx(np.mean(inside))


def test_groups_are_of_scored_rows(scored):
    report, _ = scored
    assert {name: item.n for name, item in report.groups["source"].items()} == {
        "nvidia-dle": 2,
        "pollux": 1,
        "pytorch-gpu-benchmark": 1,
        "timm": 1,
    }
    assert sum(item.n for item in report.groups["precision"].values()) == SCORED


def test_famous_runs_are_not_far_off(scored):
    report, _ = scored
    assert report.overall.mape_percent < 40.0


def test_the_report_turns_into_json(scored):
    report, _ = scored
    told = json.loads(json.dumps(report.to_dict()))
    assert told["n"] == SCORED
    assert told["n_unsupported"] == UNSUPPORTED
    assert told["groups"]["source"]["timm"]["n"] == 1


def test_a_prediction_does_not_depend_on_the_other_rows_or_on_the_measured_time(scored, tmp_path):
    _, rows = scored
    slower = [dict(row, step_time_s="9.9", throughput="", throughput_unit="") for row in read(RUNS)[:1]]
    out = tmp_path / "one.csv"
    evaluate_csv(write(tmp_path / "slower.csv", slower), rows_out=out)
    assert float(read(out)[0]["predicted_step_time_s"]) == pytest.approx(
        float(rows[0]["predicted_step_time_s"]), rel=1e-9
    )
    assert float(read(out)[0]["measured_step_time_s"]) == 9.9


def test_a_file_of_the_command_itself_can_be_scored_again(tmp_path):
    once, twice = tmp_path / "once.csv", tmp_path / "twice.csv"
    first = evaluate_csv(RUNS, rows_out=once)
    assert evaluate_csv(once, rows_out=twice) == first
    assert twice.read_bytes() == once.read_bytes()


def test_a_file_with_nothing_to_score_says_why(tmp_path):
    rows = [row for row in read(RUNS) if row["model"] == "no-such-network"]
    report = evaluate_csv(write(tmp_path / "none.csv", rows))
    assert report.overall is None
    told = report.to_dict()
    assert (told["n"], told["mape_percent"], told["n_unsupported"]) == (0, None, 1)


def test_wider_coverage_gives_wider_intervals(scored, tmp_path):
    _, rows = scored
    out = tmp_path / "narrow.csv"
    evaluate_csv(RUNS, rows_out=out, coverage=0.5)
    for narrow, wide in zip(read(out), rows, strict=True):
        if narrow["supported"] == "true":
            assert float(wide["interval_low_s"]) <= float(narrow["interval_low_s"])
            assert float(narrow["interval_high_s"]) <= float(wide["interval_high_s"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (RUNS.read_bytes()[:-150], r"line 9: .*cells where the header has|unclosed quote"),
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "not UTF-8 text"),
        (b"model;device;devices;precision;step_time_s\nresnet50;T4;1;fp32;1\n", "separated by commas"),
        (b"name,value\na,1\n", "column 'model' is missing"),
        (
            b"model,device,devices,precision,step_time_s\nresnet50,T4,1,fp32,fast\n",
            "step_time_s='fast' is not a number",
        ),
        (b"model,device,devices,precision,step_time_s\nresnet50,T4,-1,fp32,1\n", "devices='-1'"),
    ],
    ids=["truncated", "empty", "picture", "semicolons", "other table", "word", "negative"],
)
def test_a_file_that_is_no_measurement_table_is_refused_and_nothing_written(tmp_path, content, said):
    path, out = tmp_path / "bad.csv", tmp_path / "out.csv"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=said) as caught:
        evaluate_csv(path, rows_out=out)
    assert "bad.csv" in str(caught.value)
    assert "To fix" in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"nowhere.csv cannot be read.*To fix"):
        evaluate_csv(tmp_path / "nowhere.csv")


def test_an_unknown_column_to_group_by_is_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "out.csv"
    with pytest.raises(ConfigError, match=r"--group-by colour: .*no such column\. It has: source.*To fix"):
        evaluate_csv(RUNS, group_by=["source", "colour"], rows_out=out)
    assert not out.exists()


def test_an_old_result_survives_a_failure(tmp_path):
    out = tmp_path / "out.csv"
    evaluate_csv(RUNS, rows_out=out)
    before = out.read_bytes()
    bad = tmp_path / "bad.csv"
    bad.write_bytes(RUNS.read_bytes()[:-150])
    with pytest.raises(CorpusError):
        evaluate_csv(bad, rows_out=out)
    assert out.read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["bad.csv", "out.csv"]
