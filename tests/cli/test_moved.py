"""Names of the release before: each answers, with one remark that says the new one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli import main as root
from precision_time.cli.main import command_paths

MOVED = tomllib.loads(Path(root.__file__).with_name("data").joinpath("moved.toml").read_text("utf-8"))


@pytest.mark.parametrize(("old", "new"), MOVED["commands"].items())
def test_every_old_command_answers_and_names_the_new(cli: Callable[..., Any], old: str, new: str) -> None:
    path = " ".join(word for word in new.split() if not word.startswith("--") and word != "numbers")
    assert path in command_paths()
    assert old not in command_paths() or old == "precisions"  # which has other commands below it
    words = old.split() if old != "precisions" else [old, "bf16-mixed"]
    answer = cli(*words, *([] if old == "precisions" else ["--help"]))
    if old != "precisions":
        assert (answer.code, f"precision-time {path}" in answer.out.replace("\n", " ")) == (0, True)
    note = f"Note: {old} is called {new} now; the old name goes with the next release."
    assert answer.err.splitlines()[0] == note


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "run resnet50 -d A100 --steps 1000 --json",
            "predict resnet50 -d A100 --steps 1000 --whole-run --json",
        ),
        ("run docs/examples/run.yaml --json", "predict docs/examples/run.yaml --json"),
        (
            "run resnet50 --steps 1000 --mtbf 100h --json",
            "predict resnet50 --steps 1000 --set mtbf=100h --json",
        ),
        ("sensitivity resnet50 -d A100 --json", "explain resnet50 --what numbers -d A100 --json"),
        ("precisions", "list precisions"),
        ("precisions show O2", "list precisions O2"),
        ("schema job", "init job --schema"),
        ("glossary contention", "list words contention"),
        ("trainers --json", "watch --trainers --json"),
    ],
)
def test_the_answer_is_that_of_the_new_words(cli: Callable[..., Any], old: str, new: str) -> None:
    before, now = cli(*old.split()), cli(*new.split())
    assert (before.code, before.out) == (now.code, now.out)
    assert now.code == 0 and now.out
    assert "is called" in before.err and "is called" not in now.err


def test_what_goes_with_the_next_release_says_so(cli: Callable[..., Any]) -> None:
    answer = cli("kubernetes", "certificate", "--help")
    assert answer.code == 0
    assert answer.err.startswith("Note: kubernetes certificate goes with the next release: cert-manager")
    assert "certificate" not in cli("kubernetes", "--help").out
