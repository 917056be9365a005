"""`layout` ranks, explains and draws; nothing but the document reaches stdout with --json."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPEATS_DIFFER = 0.041
SMALL = ("layout", "llama3.2-1b", "-d", "A100-SXM4-40GB", "-g", "8", "--seq-len", "2048",
         "--global-batch-size", "32", "--workers", "1")  # fmt: skip


def test_json_and_files(cli: Callable[..., Any], tmp_path: Path) -> None:
    page, trace = tmp_path / "step.html", tmp_path / "step.json"
    answer = cli(*SMALL, "--json", "--top", "3", "--timeline", str(page), "--trace", str(trace))
    assert answer.code == 0
    document = json.loads(answer.out)
    times = [each["prediction"]["step_time_s"] for each in document["ranked"]]
    assert len(times) == 3
    assert times[1:] == sorted(times[1:])
    assert times[0] <= min(times) * (1.0 + REPEATS_DIFFER), "the simplest of the equally fast"
    assert document["global_batch_size"] == 32
    assert str(page) in answer.err
    assert str(trace) in answer.err
    assert "<svg" in page.read_text(encoding="utf-8")
    assert json.loads(trace.read_text(encoding="utf-8"))["otherData"]["step_time_s"] == pytest.approx(
        times[0]
    )


def test_the_page_names_the_best_and_why(cli: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    answer = cli(*SMALL, "--top", "2", "--fix", "tp=2,4", "--fix", "zero_stage=1", "--timeline", str(picture))
    assert answer.code == 0
    first = next(line for line in answer.out.splitlines() if line.startswith("1 "))
    assert "tp2" in first or "tp4" in first
    assert any(word in answer.out for word in (" beats ", " is equal within ", " is the simplest "))
    assert "do not fit" in answer.out
    ET.parse(picture)


def test_the_batch_is_assumed_when_not_given(cli: Callable[..., Any]) -> None:
    answer = cli("layout", "resnet50", "-d", "A100-SXM4-80GB", "--workers", "1", "--json")
    document = json.loads(answer.out)
    assert document["global_batch_size"] == 256
    assert any("Global batch not given" in each["text"] for each in document["diagnostics"])


def test_what_does_not_fit_is_an_answer(cli: Callable[..., Any], tmp_path: Path) -> None:
    words = ("layout", "llama3.1-405b", "-d", "A100-SXM4-40GB", "--global-batch-size", "8", "--workers", "1")
    answer = cli(*words, "--trace", str(tmp_path / "step.json"))
    assert answer.code == 3
    assert "Nothing fits" in answer.out
    assert "devices hold it" in answer.out
    assert "No picture" in answer.err
    assert not (tmp_path / "step.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--fix tp=3", "tp(3)"),
        ("--fix tpp=2", "tp"),
        ("--fix tp", "NAME=VALUE"),
        ("--timeline step.png", "step.html"),
        ("--top 0", "top=0"),
        ("--gpus 0", "--gpus=0"),
        ("--global-batch-size 0", "--global-batch-size=0"),
        ("--coverage 2", "--coverage=2"),
        ("-p bf17", "bf16"),
    ],
)
def test_bad_input_is_one_line(cli: Callable[..., Any], words: str, said: str) -> None:
    answer = cli(*SMALL, *words.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("Error: ")
    assert said in answer.err


def test_emit_prints_the_file_of_a_launcher_and_nothing_else(cli: Callable[..., Any]) -> None:
    words = ("llama3.2-1b", "-d", "A100-SXM4-80GB", "-g", "8")
    fixed = ("--fix", "pp=1", "--fix", "tp=1", "--fix", "cp=1", "--workers", "1")
    answer = cli("layout", *words, "--global-batch-size", "16", *fixed, "--emit", "deepspeed")
    assert answer.code == 0
    assert json.loads(answer.out)["train_micro_batch_size_per_gpu"] in (1, 2)
    one = cli("predict", *words, "--zero-stage", "3", "-b", "1", "--emit", "torchtitan")
    assert "--parallelism.data_parallel_shard_degree 8" in one.out
    assert "YOUR_MODULE" in one.out
    assert "none of its models" in one.out
    assert "--stack torchtitan" in one.out
    several = cli("predict", *words, "--zero-stage", "3", "-b", "1,2", "--emit", "torchtitan")
    assert several.code == 2
    assert "one layout" in several.err
    assert cli("layout", *words, "--emit", "slurm").code == 2
