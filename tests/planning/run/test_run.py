"""Whole runs of requests: phases, job files, what contradicts itself, and the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli.main import main
from precision_time.errors import ConfigError
from precision_time.planning.run.api import predict_run
from precision_time.planning.run.phases import phases_of
from precision_time.predict.api import predict_time
from precision_time.request.files import read_requests
from precision_time.request.request import Request

BERT: dict[str, Any] = {"model": "bert-large", "device": "A100-SXM4-80GB", "gpus": 8, "batch_size": 32}
EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "run.yaml"
NOTHING: dict[str, Any] = {
    "failures": False,
    "start_up": 0,
    "warm_up_steps": 0,
    "compile_time": 0,
    "checkpoint_bytes": 1,
}


def done(words: list[str]) -> int:
    """Exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


def test_terms_add_up_and_lie_in_the_interval() -> None:
    run = predict_run(**BERT, steps=50_000, evaluation_every=1000, evaluation_samples=10_000, spot=True)
    assert math.fsum(run.terms.values()) == pytest.approx(run.total_s, rel=1e-12)
    assert all(seconds >= 0.0 for seconds in run.terms.values())
    assert run.interval.low_s <= run.p50_s <= run.interval.high_s
    assert run.p10_s < run.p50_s < run.p90_s
    assert run.probability_within(run.p90_s) == pytest.approx(0.9, abs=0.01)
    assert run.goodput == run.terms["steps"] / run.total_s


def test_steps_are_those_of_predict() -> None:
    lengths: tuple[dict[str, Any], ...] = (
        {"epochs": 3, "samples": 88_524},
        {"tokens": "2B", "model": "llama3.2-1b", "batch_size": 2},
        {"steps": 777},
    )
    for length in lengths:
        asked = {**BERT, **length}
        run, step = predict_run(**asked), predict_time(**asked)
        assert run.phases[0].steps == step.total_steps
        assert run.terms["steps"] == pytest.approx(step.total_time_s)


def test_a_run_of_one_step_is_mostly_start_up() -> None:
    run = predict_run(**BERT, steps=1)
    assert run.terms["start_up"] > 0.5 * run.total_s


def test_without_overhead_and_failures_a_run_is_its_steps() -> None:
    run = predict_run(**BERT, steps=1000, **NOTHING)
    assert run.total_s == pytest.approx(run.phases[0].prediction.total_time_s, rel=1e-6)
    assert run.goodput == pytest.approx(1.0)


@pytest.mark.parametrize(
    "phases", [[{"steps": 1000}], [{"share": 1.0}], [{}], [{"name": "all", "steps": 1000}]]
)
def test_one_phase_is_no_phase(phases: list[dict[str, Any]]) -> None:
    total = {} if phases == [{"steps": 1000}] else {"steps": 1000}
    assert predict_run(**BERT, **total, phases=phases).terms == predict_run(**BERT, steps=1000).terms


def test_phases_differ_in_length_resolution_and_precision() -> None:
    run = predict_run(
        **BERT,
        steps=10_000,
        phases=[{"seq_len": 128, "share": 0.9}, {"seq_len": 512, "precision": "fp32", "batch_size": 8}],
    )
    short, long = run.phases
    assert (short.steps, long.steps) == (9000, 1000)
    alone = predict_time(**{**BERT, "batch_size": 8}, seq_len=512, precision="fp32")
    assert long.prediction.step_time_s == alone.step_time_s
    assert run.total_s == pytest.approx(short.total_s + long.total_s)
    assert long.terms["start_up"] == 0.0


def test_ramps_are_plateaus_that_keep_the_length() -> None:
    ramp = {"global_batch_size": "256..1024", "steps": 1000}
    phases = phases_of(Request.of(BERT), [ramp])
    assert [phase.request.global_batch_size for phase in phases] == [256, 512, 1024]
    assert sum(phase.request.steps or 0 for phase in phases) == 1000
    assert [phase.compiles for phase in phases] == [True, False, False]
    grown = phases_of(Request.of({"model": "resnet50"}), [{"image_size": "128..192:32", "samples": "3M"}])
    assert [phase.request.image_size for phase in grown] == [128, 160, 192]
    assert predict_run("resnet50", phases=[{"samples": 25_600, "batch_size": 256}]).phases[0].steps == 100


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ([{"steps": 10, "epochs": 2}], "both say how long"),
        ([{"share": 0.5, "steps": 10}], "both say how long"),
        ([{"steps": 900}, {"steps": 900}], "make up 1,800 steps, the total is 1,000"),
        ([{"share": 0.5}, {"share": 0.6}], "make up 1,100"),
        ([{"share": 1.5}], "at most 1"),
        ([{"steps": 0}], "at least 1"),
        ([{"tokens": 5}, {}], "the total in steps"),
        ([{}, {}], "at most one takes"),
        ([{"gpus": 4, "steps": 1000}], "gpus may not change"),
        ([{"model": "resnet50"}], "model may not change"),
        ([{"seq_length": 5, "steps": 1000}], "Unknown field 'seq_length'"),
        ([{"global_batch_size": "8,16", "seq_len": "128,512"}], "ramp one field"),
        ([], "at least one phase"),
        ([7], "a phase is a mapping"),
    ],
)
def test_phases_that_contradict_themselves_are_refused(phases: list[Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        phases_of(Request.of({**BERT, "steps": 1000}), phases)
    assert "To fix:" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "How long is the run"),
        ({"steps": 10, "checkpoint_interval": "1h", "checkpoint_steps": 5}, "how often checkpoints"),
        ({"steps": 10, "evaluation_every": 5}, "give both"),
        ({"steps": 10, "failures": False, "spot": True}, "changes nothing without failures"),
        ({"steps": 10, "mtbf": "soon"}, "mtbf 'soon' is not a duration"),
        ({"steps": 10, "reference_batch": 5}, "give critical_batch"),
        ({"steps": 10**7, "mtbf": "10s"}, "would hardly ever end"),
        ({"phases": [{"share": 0.5}]}, "no total is given"),
    ],
)
def test_options_that_contradict_themselves_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        predict_run(**BERT, **options)
    assert "To fix:" in str(refused.value)


def test_the_critical_batch_decides_the_length() -> None:
    asked = {**BERT, "batch_size": None, "global_batch_size": 1024, "steps": 1000}
    run = predict_run(**asked, critical_batch=1024, reference_batch=512)
    assert run.phases[0].steps == 667  # (1 + 1) / (1 + 2)
    samples = [target.samples for target in run.targets]
    assert samples == sorted(samples)


def test_job_files_hold_phases_and_a_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert done(["predict", "--whole-run", str(EXAMPLE), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [phase["steps"] for phase in answer["phases"]] == [7038, 1563]
    assert answer["terms"]["evaluation"] > 0.0
    assert done(["predict", str(EXAMPLE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert done(["layout", str(EXAMPLE)]) == 2
    assert "precision-time predict --whole-run" in capsys.readouterr().err
    later = tmp_path / "later.yaml"
    later.write_text("version: 2\nmodel: resnet50\n")
    with pytest.raises(ConfigError, match="of version 2, and version 1 is read here. To fix: update"):
        read_requests(later)
    later.write_text("version: 1\nmodel: resnet50\nrun: {mtbf: 1000h}\n")
    [request] = read_requests(later)
    assert request.model == "resnet50"


def test_the_page_and_the_picture(tmp_path: Path) -> None:
    run = predict_run(**BERT, steps=5000, phases=[{"seq_len": 128, "share": 0.5}, {}])
    assert "Goodput" in str(run)
    assert "phase 2" in str(run)
    assert run._repr_html_().count("<table") == 2
    from precision_time.planning.run.picture import write_picture

    write_picture(run, tmp_path / "run.html")
    assert "runs done" in (tmp_path / "run.html").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"not \.svg"):
        write_picture(run, tmp_path / "run.pdf")


def test_money_energy_and_carbon_add_up_and_follow_the_price() -> None:
    asked = {**BERT, "steps": 20_000, "region": "aws:us-east-1"}
    run = predict_run(**asked)
    assert run.cost_usd and run.energy_kwh and run.carbon_g
    assert run.energy_kwh * 3.6e6 == pytest.approx(math.fsum(run.energy_terms_j.values()))
    # 0.4 to 1.2 kW for a device with its host and cooling.
    assert 0.4 < run.energy_kwh / run.device_hours < 1.2
    assert any("aws:us-east-1" in line and "list of" in line for line in run.assumptions)
    own = predict_run(**{**asked, "region": None, "usd_per_device_hour": 2.5})
    assert own.cost_usd == pytest.approx(2.5 * own.device_hours)
    assert own.carbon_g is None
    spot = predict_run(**asked, spot=True, reclaim_rate=0)
    assert spot.cost_usd is not None
    assert spot.cost_usd < run.cost_usd


def test_a_price_that_is_not_known_is_said() -> None:
    run = predict_run("resnet50", device="P100-SXM2-16GB", steps=100, region="gcp:us-central1")
    assert run.cost_usd is None
    assert any("price of hosts" in line and "To fix" in line for line in run.warnings)
