"""Inputs that once broke something, each with what it must say now."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fuzz_promises import LONGEST_MESSAGE, check_answer, limited
from fuzz_targets import run_command
from precision_time.cost.roofline import peak_flops_per_s
from precision_time.errors import ConfigError, CorpusError, PrecisionTimeError
from precision_time.hardware.device_table import get_device
from precision_time.learn.evaluation import evaluate_csv
from precision_time.precision.policy import DType
from precision_time.predict.api import predict_time
from precision_time.workload.hf_config import is_config_source

HEADER = "model,device,gpus,framework,precision,batch_size,step_time_s\n"
ROW = "resnet50,A100-SXM4-80GB,1,pytorch,tf32,256,"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch_size": 5e-324}, "1e-06 or more"),
        ({"input_rate": 5e-324}, "1e-09 or more"),
        ({"calibration": {"factor": 1}}, "is no calibration"),
        ({"calibration": "/"}, "not a readable calibration"),
        ({"custom": "a" * 9000}, "cannot be read"),
        ({"coverage": [[]]}, "coverage"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_refused_in_words(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PrecisionTimeError, match=words) as refused:
        predict_time(**{"model": "resnet50", **fields})
    assert len(str(refused.value)) < LONGEST_MESSAGE


def test_a_name_too_long_for_a_file_is_none() -> None:
    assert not is_config_source("a" * 3000)


def test_less_than_a_sample_per_device_is_answered() -> None:
    check_answer(predict_time("gpt2", batch_size=0.1, global_batch_tokens=1, tp=1))


def test_the_narrowest_interval_contains_the_step_time() -> None:
    check_answer(predict_time("t5-small", cp_comm_type="ring", coverage=1e-9))


def test_a_batch_of_a_billion_is_answered_soon() -> None:
    with limited():
        answer = predict_time("resnet50", batch_size=1e9)
    assert not answer.fits
    check_answer(answer)


def test_utilization_is_of_the_fastest_type_that_products_compute_in() -> None:
    """B300 has few units for int8: products that stay in bf16 are faster than its int8 peak."""
    question = {"device": "B300", "batch_size": 8, "zero_stage": 0, "stragglers": False}
    narrow = predict_time("llama2-7b", precision="int8-mixed", **question)
    wide = predict_time("llama2-7b", precision="bf16-mixed", **question)
    assert narrow.mfu and wide.mfu and narrow.mfu <= 1.0
    assert peak_flops_per_s(get_device("B300"), DType.INT8) < peak_flops_per_s(get_device("B300"), DType.BF16)
    assert narrow.mfu * narrow.step_time_s == pytest.approx(wide.mfu * wide.step_time_s)


def test_measured_steps_faster_than_the_device_are_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}{ROW}0.001\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="of the peak of A100-SXM4-80GB"):
        predict_time("resnet50", batch_size=256, precision="tf32", calibration=path)
    path.with_name("absurd.csv").write_text(f"{HEADER}{ROW}1e-300\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="no time of a step"):
        predict_time("resnet50", batch_size=256, precision="tf32", calibration=path.with_name("absurd.csv"))


def test_a_cell_that_begins_like_json_and_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}{ROW}0.3\n{ROW.replace('A100-SXM4-80GB', '{A100')}0.3\n", encoding="utf-8")
    [reason] = evaluate_csv(path).unsupported_reasons
    assert reason.startswith("line 3: device='{A100' is not JSON")


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    path, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    path.write_text(f"notes,{HEADER}=cmd|' /C calc'!A0,{ROW}0.3\n-1.5,{ROW}0.3\n", encoding="utf-8")
    evaluate_csv(path, rows_out=out)
    with out.open(encoding="utf-8", newline="") as file:
        assert [row["notes"] for row in csv.DictReader(file)] == ["'=cmd|' /C calc'!A0", "-1.5"]


def test_control_characters_of_wrong_words_are_escaped() -> None:
    for words in (
        ["precisions", "\x1b[31mred"],
        ["predict", "gpt2", "--\x1b[2J"],
        ["--\x1b[2J"],
        ["\x1b[2J"],
    ):
        code, out, told = run_command(words)
        assert code == 2 and "\x1b" not in out + told and "\\x1b" in told


def test_a_baseline_is_checked_before_the_report_is_made(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"figures": {}}', encoding="utf-8")
    code, _, told = run_command(["papers", "report", "--quick", "--against", str(path)])
    assert code == 2 and "is no baseline of a report: card" in told


def test_a_device_that_only_names_its_base_is_its_base(tmp_path: Path) -> None:
    """Its usual host and network, too."""
    path = tmp_path / "own.toml"
    path.write_text('[device.Mine]\nbase = "H100-SXM5-80GB"\n', encoding="utf-8")
    question = {"gpus": 16, "batch_size": 8, "zero_stage": 3}
    own = predict_time("gpt2", device="Mine", custom=path, **question)
    assert own.step_time_s == predict_time("gpt2", device="H100-SXM5-80GB", **question).step_time_s
