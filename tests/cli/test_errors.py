"""Bad input: one line that names value, rule and way out, exit code 2, nothing on stdout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PREDICT = "predict resnet50 --device A100-SXM4-80GB"
LLAMA = "predict llama3-8b --device H100-SXM5-80GB --gpus 8"

BAD_INPUT = {
    "predict resnet5o": "resnet50",
    "predict resnet50 --device A100-SXM4-80": "A100-SXM4-80GB",
    f"{PREDICT} --precision fp17": "fp1",
    f"{PREDICT} --gpus 0": "0",
    f"{PREDICT} --gpus -2": "-2",
    f"{PREDICT} --nodes 0": "0",
    f"{PREDICT} --gpus 2 --nodes 3": "3",
    f"{PREDICT} --batch-size 0": "0",
    f"{PREDICT} --batch-size -8": "-8",
    f"{PREDICT} --gpus 8 --global-batch-size 100": "100",
    f"{PREDICT} --gpus 8 --batch-size 32 --global-batch-size 100": "100",
    f"{PREDICT} --epochs -1": "-1",
    f"{PREDICT} --steps 0": "0",
    f"{PREDICT} --samples 0": "0",
    f"{PREDICT} --image-size 0": "0",
    f"{PREDICT} --coverage 1.5": "1.5",
    f"{PREDICT} --stack pytorch-eagre": "pytorch-eager",
    f"{PREDICT} --optimizer adamww": "adamw",
    f"{PREDICT} --node-type DGX-A10": "DGX-A100",
    f"{LLAMA} --seq-len 0": "0",
    f"{LLAMA} --tp 3": "3",
    f"{LLAMA} --tp 5": "tp(5) * pp(1) = 5 does not divide 8 devices. To fix: use 10 devices, or tp=4",
    f"{LLAMA} --gpus 24 --tp 3": "heads(32) % tp(3) = 2. To fix: tp=4",
    f"{LLAMA} --gpus 24 --pp 3": "layers(32) % pp(3) = 2. To fix: an uneven split, stage_layers=11x2,10",
    f"{LLAMA} --pp 4 --stage-layers 8x3,9": "stage_layers=8x3,9 adds up to 33",
    f"{LLAMA} --pp 4 --stage-layers eight": "'eight'",
    f"{LLAMA} --pp 4 --stage-layers 8x9999999999": "'8x9999999999' is not a list of layers per stage",
    f"{LLAMA} --pp 4 --vpp 2 --num-microbatches 6": "num_microbatches(6) % pp(4) = 2. To fix: 8 micro",
    f"{LLAMA} --pp 4 --vpp 3 --num-microbatches 4": "layers(32) % (pp(4) * vpp(3)) = 8",
    f"{LLAMA} --pp 4 --vpp 2 --schedule gpipe": "schedule=interleaved",
    f"{LLAMA} --pp 4 --schedule interleave": "--schedule=interleave is invalid: it must be one of gpipe",
    f"{LLAMA} --pp 64 --gpus 64": "layers(32) < pp(64)",
    f"{LLAMA} --cp 0": "cp=0",
    f"{LLAMA} --cp 4 --seq-len 8190": "seq_len(8190) % (2 * cp(4)) = 6. To fix: seq_len=8192",
    f"{LLAMA} --cp 2 --cp-comm-type rings": "one of ring, all-gather or ulysses",
    f"{PREDICT} --gpus 8 --cp 2": "cp(2) cuts sequences",
    f"{LLAMA} --ep 4": "ep=4 is about experts",
    "predict mixtral-8x7b --gpus 16 --ep 16": "experts(8) % ep(16) = 8. To fix: ep=8",
    "predict mixtral-8x7b --gpus 8 --tp 2 --ep 8": "ep(8) * etp(2) = 16. To fix: ep=4, etp=2",
    f"{LLAMA} --zero-stage 3 --dp-shard 3": "does not divide by dp_shard(3). To fix: dp_shard=4",
    f"{LLAMA} --zero-stage 1 --no-reshard-after-forward": "zero_stage=1. To fix: zero_stage=3",
    f"{LLAMA} --zero-stage 0 --offload optimizer": "To fix: zero_stage=1",
    f"{LLAMA} --zero-stage 1 --prefetch 2": "got zero_stage=1. To fix: zero_stage=3",
    f"{LLAMA} --prefetch -1": "prefetch=-1",
    f"{LLAMA} --method qlora": "qlora is an adapter, which any method may train. To fix: --adapter qlora",
    f"{LLAMA} --method full": "where no adapter is named. To fix: --method sft, without --adapter",
    f"{LLAMA} --method orpo": "To fix: --method dpo, less its term reference",
    f"{LLAMA} --offload disk": "--offload=disk is invalid: it must be one of none, optimizer or parameters",
    f"{LLAMA} --rank-order tp-pp": "rank_order=tp-pp must name each of tp, cp, dp, pp once",
    f"{LLAMA} --recompute full --recompute-layers 99": "=99 must be a whole number up to 32",
    f"{LLAMA} --recompute full --recompute-layers 2.5": "=2.5 must be a whole number up to 32",
    f"{LLAMA} --recompute full:": "--recompute=full: is invalid: it must be one of none, selective or full",
    f"{LLAMA} --batch-size 2 --num-microbatches 2 --global-batch-size 64": "or num_microbatches=4",
    f"{LLAMA} --zero-stage 5": "5",
    f"{LLAMA} --num-microbatches 0": "0",
    f"{LLAMA} --recompute some": "selective",
    "predict resnet50 --device V100-SXM2-16GB --precision fp8-mixed": "fp8",
    "predict nosuchmodule:build --device L4": "nosuchmodule",
    "predict missing.onnx --device L4": "missing.onnx",
    "list devices H100-SXN5": "H100-SXM5",
    "explain resnet50 --precision fp17": "fp1",
}


@pytest.mark.parametrize("words", BAD_INPUT)
def test_bad_input_is_one_line(cli: Callable[..., Any], words: str) -> None:
    answer = cli(*words.split())
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("Error: ")
    assert BAD_INPUT[words] in answer.err


def test_control_characters_do_not_reach_the_terminal(cli: Callable[..., Any]) -> None:
    answer = cli("predict", "res\x1b[2Jnet\x07", "--device", "A\x1b[31m100")
    assert answer.code == 2
    assert answer.err.strip().isprintable()


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n\x00\x00", b"colour,size\nred,3\n"])
def test_a_file_that_is_no_measurement_file(cli: Callable[..., Any], tmp_path: Path, content: bytes) -> None:
    file, rows = tmp_path / "runs.csv", tmp_path / "rows.csv"
    file.write_bytes(content)
    answer = cli("evaluate", "--measurements", str(file), "--rows", str(rows))
    assert answer.code == 2
    assert "runs.csv" in answer.err
    assert answer.out == ""
    assert not rows.exists()


@pytest.mark.parametrize("name", ["net.onnx", "net.pt2", "config.json"])
def test_a_model_file_that_is_not_what_it_claims(cli: Callable[..., Any], tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"\x00not a model")
    answer = cli("predict", str(file), "--device", "L4")
    assert answer.code == 2
    assert name in answer.err
    assert answer.out == ""


@pytest.mark.parametrize("name", ["mine.yaml", "mine.toml"])
def test_a_custom_file_that_is_not_what_it_claims(cli: Callable[..., Any], tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("[[[")
    answer = cli("predict", "resnet50", "--custom", str(file))
    assert answer.code == 2
    assert name in answer.err
    assert answer.out == ""


def test_files_that_do_not_exist_are_usage_errors(cli: Callable[..., Any]) -> None:
    for words in ("evaluate --measurements missing.csv", "predict resnet50 --custom missing.toml"):
        answer = cli(*words.split())
        assert answer.code == 2
        assert "missing" in answer.err
