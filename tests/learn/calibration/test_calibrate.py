from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from build_corpus import write_store
from precision_time import predict_time
from precision_time.cli.calibrate import calibrate as command
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.own import read_own_steps
from precision_time.cost.job import TimingScope
from precision_time.cost.stacks import get_stack_profile
from precision_time.errors import ConfigError, CorpusError, UnknownNameError
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.calibration.calibration import Calibration, as_calibration, checksum
from precision_time.learn.calibration.fit import Calibrated, calibrate
from precision_time.learn.priced import predict_step_times
from precision_time.parallel.layout import Layout
from precision_time.request.request import Request
from precision_time_papers.campaign.campaign_steps import write_steps
from precision_time_papers.campaign.result import TrialResult, write_results

APP = typer.Typer()
APP.command()(command)
ASKED = [(model, gpus, batch) for model in ("resnet50", "resnet18") for gpus in (1, 4) for batch in (32, 64)]


def own_run(model: str, gpus: int, batch: int, factor: float) -> Measurement:
    """A run of a cluster `factor` times as slow as the median, on software of the stack's own year."""
    stack = get_stack_profile("pytorch-eager").stack()
    question = {"device": "T4", "gpus": gpus, "batch_size": batch, "precision": "fp32", "zero_stage": 0}
    asked = Request.of({"model": model, **question, "stack": stack.profile, "software": stack.framework_year})
    [median_s] = predict_step_times([asked.resolve()], shipped_predictor(), coverage=0.9).median_s
    return Measurement(
        source="own",
        source_ref="test",
        model=model,
        device="T4",
        num_devices=gpus,
        num_nodes=1,
        precision="fp32",
        layout=Layout(dp=gpus, micro_batch_size=float(batch)),
        global_batch_size=float(batch * gpus),
        measured_step_time_s=factor * float(median_s),
        stack=stack,
        scope=TimingScope.FULL_STEP,
        configuration_key=f"{hash((model, gpus, batch)) & 0xFFFFFFFF:016x}",
    )


@pytest.fixture(scope="module")
def slow() -> Calibrated:
    return calibrate([own_run(*item, 1.5) for item in ASKED], shipped_predictor(), origin="test")


def test_a_slow_cluster_is_learned_and_the_error_falls(slow: Calibrated) -> None:
    assert slow.before is not None and slow.after is not None
    assert slow.before.mape_percent == pytest.approx(100.0 / 3.0, rel=0.05)
    assert slow.after.mape_percent < slow.before.mape_percent / 2.0
    assert slow.helps
    assert slow.calibration.card["configurations"] == len(ASKED)


def test_predictions_take_it_and_their_terms_add_up(slow: Calibrated) -> None:
    # All that the measured rows say, too: an answer is the middle of what a question leaves open.
    question = {
        "device": "T4", "gpus": 4, "batch_size": 48, "precision": "fp32", "stack": "pytorch-eager",
        "software": get_stack_profile("pytorch-eager").framework_year, "zero_stage": 0, "recompute": "none",
        "compiler": "none", "channels_last": False, "real_input": False,
    }  # fmt: skip
    plain = predict_time("resnet50", **question)
    moved = predict_time("resnet50", **question, calibration=slow.calibration)
    assert 1.3 < moved.step_time_s / plain.step_time_s < 1.55
    assert math.fsum(moved.terms.values()) == pytest.approx(moved.step_time_s, rel=1e-12)
    assert all(seconds > 0.0 for seconds in moved.terms.values())
    assert moved.interval.low_s < moved.step_time_s < moved.interval.high_s
    before = plain.interval.high_s / plain.interval.low_s
    assert moved.interval.high_s / moved.interval.low_s < before
    assert any("Conditioned on 8 measured steps of your own" in line for line in moved.assumptions)
    assert moved.analytical_step_time_s == plain.analytical_step_time_s


def test_elsewhere_less_is_taken_over_and_the_answer_says_so(slow: Calibrated) -> None:
    question = {"device": "H100-SXM5-80GB", "precision": "bf16-mixed", "batch_size": 8, "seq_len": 128}
    plain = predict_time("bert-base-uncased", **question)
    moved = predict_time("bert-base-uncased", **question, calibration=slow.calibration)
    assert 1.0 < moved.step_time_s / plain.step_time_s < 1.3
    assert any("None of them is on H100-SXM5-80GB" in line for line in moved.assumptions)


def test_a_cluster_as_predicted_changes_nothing() -> None:
    result = calibrate([own_run(*item, 1.0) for item in ASKED], shipped_predictor())
    moved = result.calibration.conditioned.at(result.points.places)
    assert abs(moved.log_factor).max() < 1e-3


def test_one_configuration_has_nothing_held_out() -> None:
    run = own_run(*ASKED[0], 1.5)
    result = calibrate([run, replace(run, source_ref="again")], shipped_predictor())
    assert result.after is None and result.points.rows == 2
    assert result.left_out == "one configuration: nothing can be held out"


def test_the_file_says_the_same_and_damage_is_told(slow: Calibrated, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    slow.calibration.save(path)
    loaded = as_calibration(path)
    question = {"device": "T4", "batch_size": 48, "precision": "fp32"}
    assert loaded is not None
    assert (
        predict_time("resnet50", **question, calibration=path).step_time_s
        == predict_time("resnet50", **question, calibration=slow.calibration).step_time_s
    )
    stated = json.loads(path.read_text(encoding="utf-8"))
    for change, words in (
        ({"schema_version": 99}, "upgrade precision-time"),
        ({"format": "other"}, "not a readable calibration"),
        ({"log_ratios": [1.0]}, "do not fit together"),
        ({"points": {**stated["points"], "width": [1.0]}}, "do not fit together"),
        ({"process": {}}, "not a readable calibration"),
    ):
        changed = {**stated, **change}
        path.write_text(json.dumps({**changed, "sha256": checksum(changed)}), encoding="utf-8")
        with pytest.raises(CorpusError, match=words):
            Calibration.load(path)
    path.write_text(json.dumps({**stated, "log_ratios": [0.1, *stated["log_ratios"][1:]]}), encoding="utf-8")
    with pytest.raises(CorpusError, match="changed after it was written"):
        Calibration.load(path)
    path.write_text(json.dumps(stated)[:200], encoding="utf-8")
    with pytest.raises(CorpusError, match="not a readable calibration"):
        Calibration.load(path)
    with pytest.raises(CorpusError, match="There is no calibration at"):
        Calibration.load(tmp_path / "none.json")


def point(**changes: Any) -> TrialResult:
    """A point of a campaign; its times are made up."""
    given: dict[str, Any] = {
        "campaign": "c", "key": "k", "repeat": 0, "model": "resnet50", "dataset": "synthetic",
        "dataset_fraction": 1.0, "num_samples": 1000, "num_workers": 2, "cpus_per_worker": 1.0,
        "gpus_per_worker": 1.0, "batch_per_worker": 16, "precision": "fp32", "optimizer": "sgd", "sizes": {},
        "device": "my box", "num_steps": 20, "step_time_s": 0.5,
    }  # fmt: skip
    return TrialResult(**{**given, **changes})


def test_points_of_a_campaign_are_read(tmp_path: Path) -> None:
    trials, path = tmp_path / "campaign.csv", tmp_path / "rows.csv"
    with trials.open("w", encoding="utf-8") as file:
        write_results([point(), point(key="l", batch_per_worker=32, step_time_s=0.9)], file)
    with pytest.raises(CorpusError, match="table of a campaign's trials. To fix: .*campaign export"):
        raise CliRunner().invoke(APP, [str(trials)]).exception or AssertionError
    write_steps(trials, path)
    done = CliRunner().invoke(APP, [str(path), "--device", "t4", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["configurations"] == 2
    assert {"products", "links", "residual"} <= {*told["factors"]}
    unknown = CliRunner().invoke(APP, [str(path), "--device", "T5"])
    assert isinstance(unknown.exception, UnknownNameError)
    refused = CliRunner().invoke(APP, [str(path)])
    assert isinstance(refused.exception, ConfigError)
    assert "None of 2 measured rows can be priced: device not known (2)" in str(refused.exception)


def test_files_without_points_say_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="To fix"):
        read_own_steps(path)


def test_the_command_shows_errors_before_and_after(tmp_path: Path) -> None:
    store, out = tmp_path / "own.sqlite", tmp_path / "cluster.json"
    write_store(store, [own_run(*item, 1.5) for item in ASKED])
    done = CliRunner().invoke(APP, [str(store), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["after"]["mape_percent"] < told["before"]["mape_percent"]
    assert told["factors"]["residual"] > 1.0
    shown = CliRunner().invoke(APP, [str(store)])
    assert "before" in shown.stdout and "after" in shown.stdout
    assert Calibration.load(out).devices == {"T4"}
    nowhere = CliRunner().invoke(APP, [str(store), "--out", str(tmp_path / "no" / "x.json")])
    assert isinstance(nowhere.exception, ConfigError)
