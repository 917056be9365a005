"""Names of the release before: each answers, with one remark that says the new one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_page import command_paths, every_command
from precision_time.cli import main as root
from precision_time.request.schema import MOVED as MOVED_FIELDS

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


COMMANDS = dict(every_command())
OPTIONS = [(path, old, new) for path, table in MOVED["options"].items() for old, new in table.items()]


@pytest.mark.parametrize(("path", "old", "new"), OPTIONS)
def test_every_old_option_is_read_and_names_the_new(
    cli: Callable[..., Any], path: str, old: str, new: str
) -> None:
    flags = {flag for item in COMMANDS[path].params for flag in item.opts}
    assert old not in flags and new.split(maxsplit=1)[0] in flags
    value = ["--help"] if new.endswith(" -") or new == "--list-regions" else ["1", "--help"]
    answer = cli(*path.split(), old, *value)
    assert answer.code == 0
    assert answer.err == f"Note: {old} of {path} is {new} now; the old name goes with the next release.\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("list prices T4 --csv", "list prices T4 --out -"),
        ("list prices --regions", "list prices --list-regions"),
        ("measure --what ops --plan cpu --list", "measure --only ops --plan cpu --list"),
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
    assert before.err.startswith("Note: ") and "next release" not in now.err


@pytest.mark.parametrize(("old", "instead"), MOVED["gone"].items())
def test_what_is_gone_says_what_does_the_same(cli: Callable[..., Any], old: str, instead: str) -> None:
    answer = cli(*old.split(), "1")
    assert (answer.code, answer.out) == (2, "")
    assert f"is gone. To fix: {instead}" in " ".join(answer.err.split())


def test_files_of_several_kinds_are_told_by_their_endings(cli: Callable[..., Any], tmp_path: Path) -> None:
    picture, table = tmp_path / "a.svg", tmp_path / "a.csv"
    asked = ("predict", "resnet50", "-g", "1,2")
    assert cli(*asked, "--out", str(picture), "--out", str(table)).code == 0
    assert picture.read_text().startswith("<?xml") and "step_time_s" in table.read_text()
    before = cli(*asked, "--plot", str(tmp_path / "b.svg"), "--out", str(tmp_path / "b.csv"))
    assert before.code == 0 and (tmp_path / "b.csv").read_text() == table.read_text()
    for names, said in ((["a.pdf"], "said by its ending"), (["a.csv", "b.jsonl"], "would hold the same")):
        words = [word for name in names for word in ("--out", str(tmp_path / name))]
        answer = cli(*asked, *words)
        assert (answer.code, answer.out) == (2, "") and said in answer.err and "To fix" in answer.err
    missing = cli(*asked, "--out", str(tmp_path / "none" / "a.csv"))
    assert missing.code == 2 and "folder does not exist" in missing.err


KEPT = {"--store": "where what was measured is kept: a file, or the URL of a database"}
"""Options of one meaning that are files here and values there."""


def test_one_word_has_one_meaning() -> None:
    """An option is a flag, a file or a value wherever it stands; what is no file here is none there."""
    types: dict[str, dict[str, list[str]]] = {}
    for path, command in COMMANDS.items():
        for item in command.params:
            if item.param_type_name == "option" and not item.hidden:
                kind = (
                    "flag"
                    if item.is_flag
                    else "file"
                    if "Path" in str(vars(item)) or "FILE" in str(item.metavar)
                    else "value"
                )
                for flag in item.opts:
                    if flag.startswith("--"):
                        types.setdefault(flag, {}).setdefault(kind, []).append(path)
    several = {flag: kinds for flag, kinds in types.items() if len(kinds) > 1 and flag not in KEPT}
    assert several == {}


@pytest.mark.parametrize(
    ("flag", "commands"),
    [
        ("--budget", {"plan"}),
        ("--workers", {"sweep", "layout", "plan", "train", "serve"}),
        ("--devices", {"plan"}),
        ("--host", {"serve"}),
        ("--plan", {"measure"}),
        ("--list", {"measure", "papers campaign run"}),
        ("--csv", set()),
        ("--html", set()),
        ("--plot", set()),
        ("--cluster", {"papers predictddl collect"}),
        ("--server", {"slurm submit", "papers predictddl collect"}),
        ("--tokens", None),
        ("--version", set()),
    ],
)
def test_words_that_meant_several_things_mean_one(flag: str, commands: set[str] | None) -> None:
    found = {path for path, command in COMMANDS.items() for item in command.params if flag in item.opts}
    assert found == commands if commands is not None else "serve" not in found


def test_the_page_of_upgrades_has_every_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrade.md").read_text(encoding="utf-8")
    rows = [f"| `{old}` | `{new}` |" for old, new in MOVED["commands"].items()]
    rows += [f"| `{path}` | `{old}` | `{new}` |" for path, old, new in OPTIONS]
    assert [row for row in rows if row not in page] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--grad-accum 2", "--num-microbatches 2"),
        ("--checkpointing full", "--recompute full"),
        ("--set shard_size=4 --zero-stage 3", "--dp-shard 4 --zero-stage 3"),
    ],
)
def test_a_field_by_its_old_name_is_one_of_a_step(cli: Callable[..., Any], old: str, new: str) -> None:
    """It was taken for a field of a whole run."""
    before, now = (cli(*f"predict llama3-8b -d 8xH100 -b 1 --brief {said}".split()) for said in (old, new))
    assert (before.code, before.out) == (now.code, now.out)
    assert "per step" in now.out


def test_the_page_of_upgrades_has_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrade.md").read_text(encoding="utf-8")
    assert [old for old, new in MOVED_FIELDS.items() if f"| field | `{old}` | `{new}`" not in page] == []
