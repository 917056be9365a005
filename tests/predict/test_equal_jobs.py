"""Equal jobs are looked up and priced once: what is counted is the work, not the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz_targets import run_command
from precision_time.learn import evaluation
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration import fit
from precision_time.learn.calibration.fit import calibrate_file
from precision_time.learn.evaluation import evaluate_csv
from precision_time.predict import answer
from precision_time.predict.compare import predict_many
from precision_time.request.request import Request

DISTINCT = 10
TIMES = 30


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Jobs that are looked up, and that are priced."""
    found = {"resolved": 0, "priced": 0}
    resolve = Request.resolve

    def counting_resolve(self: Request, **options: Any) -> Any:
        found["resolved"] += 1
        return resolve(self, **options)

    def counting(price: Callable[..., Any]) -> Callable[..., Any]:
        def counting_price(jobs: Any, *arguments: Any, **options: Any) -> Any:
            found["priced"] += len(jobs)
            return price(jobs, *arguments, **options)

        return counting_price

    monkeypatch.setattr(Request, "resolve", counting_resolve)
    monkeypatch.setattr(answer, "answer", counting(answer.answer))
    for module in (evaluation, fit):
        monkeypatch.setattr(module, "predict_step_times", counting(module.predict_step_times))
    yield found


def _table(path: Path, *, measured: bool) -> Path:
    header = "model,device,gpus,batch_size" + ",step_time_s,notes" * measured
    rows = [
        f"resnet50,T4,1,{number % DISTINCT + 8}" + f",{0.1 + number / 1e4},run {number}" * measured
        for number in range(DISTINCT * TIMES)
    ]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_of_a_table_of_jobs(tmp_path: Path, counted: dict[str, int]) -> None:
    path = _table(tmp_path / "jobs.csv", measured=False)
    code, out, told = run_command(["predict", "--jobs", str(path), "--json"])
    assert code == 0
    assert counted == {"resolved": DISTINCT, "priced": DISTINCT}
    answers = json.loads(out)["predictions"]
    assert len(answers) == DISTINCT * TIMES
    for number, each in enumerate(answers):
        assert each["batch_size"] == number % DISTINCT + 8
        assert each["step_time_s"] == answers[number % DISTINCT]["step_time_s"]
    assert f"0/{DISTINCT}" in told and "different jobs of jobs.csv" in told


def test_answers_are_those_of_each_alone(counted: dict[str, int]) -> None:
    asked: list[dict[str, Any]] = [
        {"model": "resnet50", "device": "T4", "batch_size": 8},
        {"model": "resnet50", "device": "nothing"},
        {"model": "resnet50", "device": "T4", "batch_size": 16, "coverage": 0.5},
        {"model": "resnet50", "device": "T4", "batch_size": 16},
        {"model": "resnet50", "device": "T4", "batch_size": 8},
        {"model": "resnet50", "device": "nothing"},
    ]
    found = predict_many(asked)
    assert counted == {"resolved": 4, "priced": 3}
    alone = [predict_many([each]) for each in asked]
    assert [len(each.skipped) for each in alone] == [0, 1, 0, 0, 0, 1]
    assert [each.step_time_s for each in found.predictions] == pytest.approx(
        [each.predictions[0].step_time_s for each in alone if each.predictions], rel=1e-12
    )
    assert [each.reason for each in found.skipped] == [
        each.skipped[0].reason for each in alone if each.skipped
    ]


def test_requests_with_objects_are_asked_each(counted: dict[str, int]) -> None:
    from precision_time.hardware.catalog import get_cluster

    clusters = [get_cluster(device=name, num_devices=1) for name in ("T4", "V100-SXM2-16GB")]
    found = predict_many([{"model": "resnet50", "batch_size": 8, "cluster": each} for each in clusters])
    assert counted["resolved"] == 2
    assert found.predictions[0].step_time_s > found.predictions[1].step_time_s


def test_of_measured_steps(tmp_path: Path, counted: dict[str, int]) -> None:
    path = _table(tmp_path / "runs.csv", measured=True)
    report = evaluate_csv(path, rows_out=tmp_path / "scored.csv")
    assert report.overall is not None and report.overall.n == DISTINCT * TIMES
    # A chunk may end within the repeats of one.
    assert counted["resolved"] == DISTINCT
    assert DISTINCT <= counted["priced"] <= DISTINCT + DISTINCT * TIMES // evaluation._CHUNK
    counted |= {"resolved": 0, "priced": 0}
    assert calibrate_file(path, shipped_predictor()).points.rows == DISTINCT * TIMES
    assert counted == {"resolved": DISTINCT, "priced": DISTINCT}
