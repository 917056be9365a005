"""`predict` turns its options into a request, and prints what comes back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from precision_time.diagnostics import Diagnostic, Severity
from precision_time.errors import ConfigError
from precision_time.predict.headline import Interval
from precision_time.predict.prediction import Prediction, Skipped
from precision_time.predict.predictions import Predictions
from precision_time.request.request import Request

KEYS = {
    *("step_time_s", "terms", "interval", "epoch_time_s", "total_time_s", "throughput", "throughput_unit"),
    *("mfu", "memory_bytes_per_device", "fits", "nearest_measurements", "diagnostics"),
}


def answer_for(precision: str, batch_size: float) -> Prediction:
    return Prediction(
        model="resnet50",
        device="A100-SXM4-80GB",
        gpus=8,
        nodes=1,
        precision=precision,
        stack="pytorch-eager",
        batch_size=batch_size,
        global_batch_size=8 * batch_size,
        step_time_s=0.25,
        terms={"compute_s": 0.2, "dp_comm_exposed_s": 0.05},
        interval=Interval(low_s=0.2, high_s=0.3, coverage=0.9),
        steps_per_epoch=626,
        epoch_time_s=156.5,
        total_steps=None,
        total_time_s=None,
        throughput=8192,
        throughput_unit="images/s",
        mfu=None,
        memory_bytes_per_device=2e10,
        memory_terms={"activations": 2e10},
        fits=True,
        device_memory_bytes=8e10,
        link_seconds={},
        analytical_step_time_s=0.24,
        diagnostics=(Diagnostic("extrapolation", Severity.WARNING, "said once"),),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Requests that reach the predictor, which answers without predicting and knows no fp8."""
    requests: list[Request] = []

    def fake(request: Request) -> Prediction | Skipped:
        requests.append(request)
        if request.precision == "fp8-mixed":
            return Skipped.of(request, ConfigError("no fp8 here"))
        default_batch = 64.0 if request.precision == "fp64" else 256.0
        answer = answer_for(request.precision or "bf16-mixed", request.batch_size or default_batch)
        return replace(answer, request=request.to_dict())

    monkeypatch.setattr(
        "precision_time.predict.compare.answers_to", lambda some, **_: Predictions.of(map(fake, some))
    )
    return requests


def test_options_become_the_fields_of_a_request(cli: Callable[..., Any], asked: list[Request]) -> None:
    words = (
        "predict resnet50 --device A100-SXM4-80GB --gpus 16 --nodes 2 --node-type DGX-A100 --batch-size 32"
        " --seq-len 128 --image-size 192 --dataset imagenet --samples 1000 --epochs 90 --framework pytorch"
        " --stack ngc-tuned --optimizer lamb --tp 2 --pp 4 --zero-stage 1 --num-microbatches 3"
        " --recompute full --cp 5 --ep 6 --etp 7 --vpp 8 --schedule interleaved --stage-layers 7,8x2,7"
        " --no-sequence-parallel --cp-comm-type ulysses --dp-shard 9 --no-reshard-after-forward"
        " --offload optimizer --expert-capacity-factor 1.25 --rank-order tp-pp-cp-dp --prefetch 2"
        " --no-stragglers --input-rate 900 --coverage 0.8 --size hidden=64 --size rate=0.5 --precision tf32"
        " --intra-node pcie4 --inter-node ethernet-50g --software 2024.5 --compiler xla --channels-last"
        " --fused-optimizer --no-unpadded-sequences --real-input --scope full-step --uneven --task squad"
    )
    anchors = ("--anchor", "gpus=1,precision=fp32,step_time_s=0.2", "--anchor", "samples_per_s=90")
    assert cli(*words.split(), "--calibration", __file__, *anchors).code == 0
    expected = {
        "model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 16, "nodes": 2, "node_type": "DGX-A100",
        "batch_size": 32, "seq_len": 128, "image_size": 192, "dataset": "imagenet",
        "samples": 1000, "epochs": 90.0, "framework": "pytorch", "stack": "ngc-tuned",
        "optimizer": "lamb", "tp": 2, "pp": 4, "zero_stage": 1, "num_microbatches": 3, "recompute": "full",
        "input_rate": 900.0, "coverage": 0.8, "sizes": {"hidden": 64, "rate": 0.5},
        "precision": "tf32", "cp": 5, "ep": 6, "etp": 7, "vpp": 8, "schedule": "interleaved",
        "stage_layers": "7,8x2,7", "sequence_parallel": False, "cp_comm_type": "ulysses", "dp_shard": 9,
        "reshard_after_forward": False, "offload": "optimizer", "expert_capacity_factor": 1.25,
        "rank_order": "tp-pp-cp-dp", "prefetch": 2, "stragglers": False, "intra_node": "pcie4",
        "inter_node": "ethernet-50g", "software": 2024.5, "compiler": "xla", "channels_last": True,
        "fused_optimizer": True, "unpadded_sequences": False, "real_input": True, "scope": "full-step",
        "uneven": True, "task": "squad", "calibration": __file__,
        "anchors": [{"gpus": 1, "precision": "fp32", "step_time_s": 0.2}, {"samples_per_s": 90.0}],
    }  # fmt: skip
    (request,) = asked
    assert request.given() == expected


def test_json_of_one_is_a_list_of_one(cli: Callable[..., Any], asked: list[Request]) -> None:
    answer = cli("predict", "resnet50", "--json")
    [document] = json.loads(answer.out)["predictions"]
    assert document.keys() >= KEYS
    assert set(document["interval"]) == {"low_s", "high_s", "coverage"}
    assert sum(document["terms"].values()) == pytest.approx(document["step_time_s"])
    assert document["precision"] == "bf16-mixed"


def test_json_of_several_is_a_list_in_the_order_asked(cli: Callable[..., Any], asked: list[Request]) -> None:
    document = json.loads(cli("predict", "resnet50", "-p", "tf32, bf16-mixed", "--json").out)
    assert [each["precision"] for each in document["predictions"]] == ["tf32", "bf16-mixed"]


def test_all_leaves_out_what_the_device_cannot_do_and_says_why(
    cli: Callable[..., Any], asked: list[Request]
) -> None:
    document = json.loads(cli("predict", "resnet50", "-p", "all", "--json").out)
    precisions = [each["precision"] for each in document["predictions"]]
    assert {"fp32", "tf32", "fp16-mixed", "bf16-mixed"} <= set(precisions)
    left = {"request": {"model": "resnet50", "precision": "fp8-mixed"}, "reason": "no fp8 here"}
    assert left in [{name: each[name] for name in left} for each in document["skipped"]]
    assert "fp8-mixed" not in precisions


def test_all_in_a_table_says_the_reasons_on_stderr(cli: Callable[..., Any], asked: list[Request]) -> None:
    answer = cli("predict", "resnet50", "-p", "all")
    assert "Left out fp8-mixed: no fp8 here" in answer.err
    assert "fp8-mixed" not in answer.out


def test_only_if_nothing_can_be_answered_it_is_an_error(
    cli: Callable[..., Any], asked: list[Request]
) -> None:
    answer = cli("predict", "resnet50", "-p", "tf32,fp8-mixed")
    assert (answer.code, answer.err) == (0, "Left out fp8-mixed: no fp8 here\n")
    answer = cli("predict", "resnet50", "-p", "fp8-mixed")
    assert (answer.code, answer.out, answer.err) == (2, "", "Error: no fp8 here\n")


@pytest.mark.parametrize("pair", ["hidden", "hidden=", "=64"])
def test_sizes_are_names_with_values(cli: Callable[..., Any], asked: list[Request], pair: str) -> None:
    answer = cli("predict", "resnet50", "--size", pair)
    assert answer.code == 2
    assert "NAME=VALUE" in answer.err
    assert asked == []


def test_precisions_side_by_side_share_the_largest_batch_that_fits_all(
    cli: Callable[..., Any], asked: list[Request]
) -> None:
    document = json.loads(cli("predict", "resnet50", "-p", "fp64,tf32", "--json").out)
    assert [each["batch_size"] for each in document["predictions"]] == [64.0, 64.0]
    last = document["predictions"][1]["diagnostics"][-1]
    assert (last["code"], last["severity"]) == ("default-batch", "assumption")
    assert "64 per device" in last["text"]


def test_a_batch_that_is_given_stays(cli: Callable[..., Any], asked: list[Request]) -> None:
    document = json.loads(cli("predict", "resnet50", "-p", "fp64,tf32", "-b", "32", "--json").out)
    assert [each["batch_size"] for each in document["predictions"]] == [32.0, 32.0]
    assert len(asked) == 2


def test_no_precision_is_an_error(cli: Callable[..., Any], asked: list[Request]) -> None:
    answer = cli("predict", "resnet50", "-p", ",")
    assert (answer.code, answer.out) == (2, "")
    assert "names no value" in answer.err


SHAPE = {
    **dict.fromkeys(("model", "device", "precision", "stack", "throughput_unit"), str),
    **dict.fromkeys(("gpus", "nodes"), int),
    **dict.fromkeys(("steps_per_epoch", "total_steps"), int | None),
    **dict.fromkeys(("epoch_time_s", "total_time_s", "mfu"), float | None),
    **dict.fromkeys(("batch_size", "global_batch_size", "step_time_s", "throughput"), float),
    **dict.fromkeys(("memory_bytes_per_device", "analytical_step_time_s"), float),
    **dict.fromkeys(("terms", "memory_terms", "interval", "link_seconds", "request", "assumed"), dict),
    **dict.fromkeys(("nearest_measurements", "diagnostics"), list),
    "fits": bool,
    "total_interval": dict | None,
    **dict.fromkeys(("device_hours", "cost_usd", "usd_per_hour"), float | None),
    "total_time_missing": str,
    "device_memory_bytes": float,
    "params": float,
}
RUN_SHAPE = {
    **dict.fromkeys(("model", "device", "precision", "stack", "source", "source_ref"), str),
    **dict.fromkeys(("global_batch_size", "similarity"), float),
    **dict.fromkeys(("measured_step_time_s", "predicted_step_time_s"), float),
    "gpus": int,
    "precision_inferred": bool,
}


@pytest.mark.parametrize("words", ["resnet50 -g 8 -b 256", "llama3-8b -d V100-SXM2-16GB -p bf16 --steps 9"])
def test_the_shape_of_a_real_answer_in_json(cli: Callable[..., Any], words: str) -> None:
    """Programs read it: no key comes, goes or changes its type unseen."""
    answer = json.loads(cli("predict", *words.split(), "--json").out)
    assert answer.keys() == {"predictions", "skipped"}
    [document] = answer["predictions"]
    assert {name: type(value) for name, value in document.items()
            if name in SHAPE and not isinstance(value, SHAPE[name])} == {}  # fmt: skip
    apart = set() if document["fits"] else {"if_it_fitted"}
    assert document.keys() == SHAPE.keys() | apart
    assert [*document][:3] == ["total_time_s", "total_interval", "cost_usd"]  # the run leads
    assert all(isinstance(value, float) for name in ("terms", "memory_terms", "interval")
               for value in document[name].values())  # fmt: skip
    for run in document["nearest_measurements"]:
        assert run.keys() == RUN_SHAPE.keys()
        assert all(isinstance(run[name], kind) for name, kind in RUN_SHAPE.items())
    assert document["diagnostics"]
    for each in document["diagnostics"]:
        assert each.keys() == {"code", "severity", "text"}
        assert each["severity"] in ("assumption", "warning")
        assert each["code"] == each["code"].lower().replace(" ", "-")
        assert len(each["text"]) > 10


def test_brief_is_one_line_for_each_answer(cli: Callable[..., Any], asked: list[Request]) -> None:
    lines = cli("predict", "resnet50", "-p", "tf32,bf16-mixed", "--brief").out.splitlines()
    assert [line.startswith("resnet50 on 8 x A100-SXM4-80GB, ") for line in lines] == [True, True]


def test_why_explains_its_words_and_shows_all_that_was_assumed(cli: Callable[..., Any]) -> None:
    words = ("predict", "resnet50", "-d", "A100", "-g", "8")
    short, full = cli(*words).out, cli(*words, "--why").out
    assert full.count("Assumed: ") > 3
    assert short.count("Assumed: ") == 1 and "Left open" in short
    assert "Convolution kernels" in full
    assert "Convolution kernels" not in short


def test_options_take_several_values_and_every_combination_is_a_job(
    cli: Callable[..., Any], asked: list[Request]
) -> None:
    words = (
        "predict resnet50,vgg16 -g 8..32 -b 16..48:16 -p tf32,fp32 --zero-stage 1,3 --stage-layers 7,8 --json"
    )
    answer = cli(*words.split())
    assert answer.code == 0
    assert len(asked) == 2 * 3 * 3 * 2 * 2
    assert {request.gpus for request in asked} == {8, 16, 32}
    assert {request.batch_size for request in asked} == {16.0, 32.0, 48.0}
    assert {request.stage_layers for request in asked} == {"7,8"}
    assert (asked[0].model, asked[0].precision, asked[1].zero_stage) == ("resnet50", "tf32", 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-g 1..1000000 -b 1..9000:1", "at most 10,000"),
        ("-g 8..4", "holds nothing"),
        ("-g 8..many", "low..high"),
        ("-g 0,8", "--gpus"),
        ("--sort beauty", "--sort beauty"),
        ("--baseline precision=fp64", "the baseline"),
        ("--plot x.txt", ".svg"),
        ("--out x.xlsx", ".csv"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    cli: Callable[..., Any], asked: list[Request], words: str, said: str
) -> None:
    answer = cli("predict", "resnet50", *words.split())
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "To fix" in answer.err


def test_a_table_of_jobs_is_answered_row_by_row(
    cli: Callable[..., Any], asked: list[Request], tmp_path: Path
) -> None:
    jobs, out = tmp_path / "jobs.csv", tmp_path / "answers.csv"
    jobs.write_text(
        "model,num_devices,precision,batch_size\nresnet50,8,tf32,32\nresnet50,none,tf32,32\n"
        "resnet50,8,fp8-mixed,32\nvgg16,8,tf32,64\n"
    )
    answer = cli("predict", "--jobs", str(jobs), "--out", str(out), "--seq-len", "9", "--json")
    assert answer.code == 2
    document = json.loads(answer.out)
    assert [each["request"]["model"] for each in document["predictions"]] == ["resnet50", "vgg16"]
    assert [each["request"]["precision"] for each in document["skipped"]] == ["tf32", "fp8-mixed"]
    assert {request.seq_len for request in asked} == {9}
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["job"] for row in rows] == ["1", "2", "3", "4"]
    assert [bool(row["step_time_s"]) for row in rows] == [True, False, False, True]
    assert "line 3" in rows[1]["error"] and "gpus" in rows[1]["error"]
    assert rows[2]["error"] == "no fp8 here"


def test_several_jobs_are_a_table(cli: Callable[..., Any]) -> None:
    words = "-d A100 -g 8,16,64 -b 16 -p bf16-mixed,tf32 --sort efficiency --baseline precision=tf32"
    answer = cli("predict", "bert-base", *words.split())
    assert answer.code == 0
    assert "6 jobs over gpus, precision" in answer.out
    assert "weak scaling, at the same batch per device" in answer.out
    rows = [line.split() for line in answer.out.splitlines() if "scaling" not in line and line.count("%") > 1]
    assert len(rows) == 6
    assert all(row[2] != "tf32" or "1" in row for row in rows)


def test_the_step_as_a_trace(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    job = ("llama3.2-1b", "-d", "A100-SXM4-40GB", "-g", "8", "-b", "1", "--seq-len", "2048")
    answered = cli("predict", *job, "--json", "--trace", str(path))
    assert answered.code == 0 and f"Wrote {path}" in answered.err
    document = json.loads(path.read_text(encoding="utf-8"))
    stated = json.loads(answered.out)["predictions"][0]["step_time_s"]
    assert document["otherData"]["step_time_s"] == pytest.approx(stated)
    several = cli("predict", *job, "-p", "bf16-mixed,fp32", "--trace", str(path))
    assert several.code != 0 and "--trace shows one job" in several.err
    other = cli("predict", *job, "--trace", str(tmp_path / "step.svg"))
    assert other.code != 0 and "step.json" in other.err


def test_devices_of_several_kinds_are_one_answer(cli: Callable[..., Any], tmp_path: Path) -> None:
    answer = cli("predict", "resnet18", "-d", "2xT4+2xV100", "-p", "fp16-mixed", "-b", "32")
    assert answer.code == 0 and "waits" in answer.out and "uneven batches" in answer.out
    found = json.loads(
        cli("predict", "resnet18", "-d", "2xT4+V100", "-p", "fp16-mixed", "-b", "32", "--json").out
    )
    assert [part["gpus"] for part in found["parts"]] == [2, 1] and found["fits"]
    refused = cli("predict", "resnet18", "-d", "2xT4+2xV100", "--pp", "2")
    assert refused.code != 0 and "plain data parallelism" in refused.err
    refused = cli("predict", "resnet18", "-d", "2xT4+2xV100", "--out", str(tmp_path / "t.csv"))
    assert refused.code != 0 and "leave out --jobs, --out" in refused.err
