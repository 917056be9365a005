"""A cell that breaks its rule costs its row: the others are answered, and line and reason are said."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from precision_time.cli.request_options import requests_of_jobs
from precision_time.corpus.own import read_own_steps
from precision_time.errors import CorpusError
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration.fit import calibrate_file
from precision_time.learn.evaluation import evaluate_csv
from precision_time.predict.compare import predict_many
from precision_time.predict.sweep import write_sweep
from precision_time.request.grid import grid_of_file

GOOD = {
    "model": "vit_b_16",
    "device": "T4",
    "gpus": "1",
    "batch_size": "32",
    "precision": "fp32",
    "step_time_s": "0.5",
    "model_config": "",
}
"""Columns of a table of requests; those of the corpus are the same and some more."""
ODD_LINE = 4
LONG = "9" * 400
NUMBERS = ("nan", "inf", "1e400", "-1", "0", "1e308", LONG, "x", "1e-320", "true", "{}")
SIZES = ("1e400", "-1e400", "NaN", "Infinity", LONG, "9" * 5000, "-1", "0", "[1e400]")
ODD = [
    *((name, cell) for name in ("gpus", "batch_size", "step_time_s") for cell in NUMBERS),
    *(("model_config", f'{{"image_size":{cell}}}') for cell in SIZES),
    *(("model_config", cell) for cell in ("{", "x", "[1]", "[" * 3000, '{"nope":1}')),
    *(("model", cell) for cell in ("", "\0", "x" * 5000, "{}", "{bad", "a.py", "m:f", "config.json")),
    *(("device", cell) for cell in ("{A100", "{}", "x" * 5000)),
    *(("precision", cell) for cell in ("[]", "nope", "no-such-policy.yaml")),
]
IDS = [f"{name}={cell}"[:40].replace("\0", "NUL") for name, cell in ODD]


def _write(path: Path, rows: Iterable[Mapping[str, str]], *, without: str = "") -> Path:
    names = [name for name in GOOD if name != without]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _rows(name: str, cell: str) -> list[dict[str, str]]:
    """Three good rows, and the odd one in line 4."""
    twice = {**GOOD, "batch_size": "64", "step_time_s": "1.0"}
    half = {**GOOD, "batch_size": "16", "step_time_s": "0.27"}
    return [GOOD, twice, {**GOOD, name: cell}, half]


@pytest.mark.parametrize(("name", "cell"), ODD, ids=IDS)
def test_of_measured_steps_the_others_are_scored(tmp_path: Path, name: str, cell: str) -> None:
    path = _write(tmp_path / "runs.csv", _rows(name, cell))
    report = evaluate_csv(path).to_dict()
    assert (report["n"], report["n_unsupported"]) == (3, 1)
    assert json.dumps(report, allow_nan=False)
    [reason] = report["unsupported_reasons"]
    odd = read_own_steps(path)[ODD_LINE - 2]
    assert odd.job is None and odd.reason == reason
    assert odd.unread is reason.startswith(f"line {ODD_LINE}: ")
    assert len(reason) < 500


@pytest.mark.parametrize(("name", "cell"), ODD, ids=IDS)
def test_of_measured_steps_the_others_calibrate(tmp_path: Path, name: str, cell: str) -> None:
    path = _write(tmp_path / "runs.csv", _rows(name, cell))
    found = calibrate_file(path, shipped_predictor())
    assert found.points.rows == 3 and sum(found.points.rejected.values()) == 1
    assert found.before is not None and found.after is not None
    assert json.dumps([found.before.to_dict(), found.after.to_dict()], allow_nan=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "cell"),
    [(name, cell) for name, cell in ODD if (name, cell) != ("model", "") and name != "step_time_s"],
    ids=[each for each in IDS if each != "model=" and not each.startswith("step_time_s")],
)
def test_of_many_jobs_the_others_are_answered(tmp_path: Path, name: str, cell: str) -> None:
    path = _write(tmp_path / "jobs.csv", _rows(name, cell), without="step_time_s")
    found = predict_many(requests_of_jobs(path, {}))
    assert len(found.predictions) == 3 and len(found.skipped) == 1
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_of_a_sweep_the_others_are_answered(tmp_path: Path) -> None:
    odd = [(name, cell) for name, cell in ODD if name != "step_time_s"]
    rows = [GOOD, *({**GOOD, name: cell} for name, cell in odd), GOOD]
    path = _write(tmp_path / "jobs.csv", rows, without="step_time_s")
    swept = write_sweep(grid_of_file(path), tmp_path / "out.csv", workers=1)
    assert (swept.counts.rows, swept.counts.refused) == (len(rows), len(odd))


CORPUS = {
    "source": "mine",
    "source_ref": "",
    "model": "vit_b_16",
    "device": "T4",
    "devices": "1",
    "batch_per_device": "32",
    "precision": "fp32",
    "step_time_s": "0.5",
    "model_config": "",
    "parallelism": "",
    "framework": "pytorch",
    "timing_scope": "",
}
IN_CORPUS = [
    *((name, cell) for name in ("devices", "batch_per_device", "step_time_s") for cell in ("nan", LONG, "x")),
    ("step_time_s", "1e308"),
    *(("model_config", f'{{"image_size":{cell}}}') for cell in ("1e400", "NaN", LONG, "-1")),
    *(("parallelism", cell) for cell in ('{"dp":1e400}', "{", "[1]")),
    ("precision", "nope"),
    ("timing_scope", "nope"),
]


@pytest.mark.parametrize(("name", "cell"), IN_CORPUS, ids=lambda text: text[:30])
def test_rows_of_the_corpus_too(tmp_path: Path, name: str, cell: str) -> None:
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(CORPUS))
        writer.writeheader()
        writer.writerows([CORPUS, {**CORPUS, name: cell}, {**CORPUS, "batch_per_device": "64"}])
    report = evaluate_csv(path, rows_out=tmp_path / "scored.csv").to_dict()
    assert (report["n"], report["n_unsupported"]) == (2, 1)
    assert json.dumps(report, allow_nan=False)
    assert calibrate_file(path, shipped_predictor()).points.rows == 2


def test_a_table_without_a_row_that_can_be_read_is_refused_by_its_first(tmp_path: Path) -> None:
    path = _write(tmp_path / "runs.csv", [{**GOOD, "gpus": "nan"}, {**GOOD, "step_time_s": "x"}])
    for read in (evaluate_csv, read_own_steps, lambda each: calibrate_file(each, shipped_predictor())):
        with pytest.raises(CorpusError, match=r"runs\.csv, line 2: gpus='nan' is invalid.*To fix"):
            read(path)


def test_of_many_broken_rows_some_are_named_and_all_are_counted(tmp_path: Path) -> None:
    path = _write(tmp_path / "runs.csv", [GOOD, *[{**GOOD, "gpus": "nan"}] * 500])
    report = evaluate_csv(path).to_dict()
    assert sum(report["unsupported_reasons"].values()) == report["n_unsupported"] == 500
    assert len(report["unsupported_reasons"]) == 21
