"""Every option of every command, given once: an answer or a refusal in words, never a crash."""

from __future__ import annotations

import functools
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_page import every_command

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TABLE = tomllib.loads((Path(__file__).parent / "option_values.toml").read_text(encoding="utf-8"))
NET = """
from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
"""
ANSWERED, REFUSED = (0, 3), 2
"""Exit codes: an answer, one that does not fit in memory among them, and a refusal in words."""


COMMANDS = dict(every_command())
OPTIONS = [
    (command, flag, option)
    for command, found in every_command(every_option=True)
    for option in found.params
    if option.param_type_name == "option"
    for flag in (max(option.opts, key=len), *option.secondary_opts)
]


WAIT = {
    "--ray": pytest.mark.nightly(
        covered_by="tests/test_ray_executor.py::test_the_search_finds_the_same_layouts_and_times"
    )
}
"""Options of which an answer takes seconds: a Ray is started."""


def _value(command: str, flag: str, option: Any) -> list[str]:
    if option.is_flag or option.count:
        return []
    found = TABLE["instead"].get(command, {}).get(flag, TABLE["values"].get(flag))
    assert found is not None, f"{flag} of {command} has no value in option_values.toml"
    return [found] if isinstance(found, str) else found


def _words(command: str, flag: str, option: Any) -> list[str]:
    said = {name: "" if flag in others else usual for name, (usual, *others) in TABLE["usual"].items()}
    said["model"] = TABLE["model"].get(flag, "resnet50")
    beside = TABLE["beside"].get(f"{command} {flag}", TABLE["beside"].get(flag, "")).split()
    before, _, behind = TABLE["commands"][command].format(**said, option="|").partition("|")
    return [*before.split(), *beside, flag, *_value(command, flag, option), *behind.split()]


def test_every_command_and_option_has_its_words() -> None:
    assert COMMANDS.keys() == TABLE["commands"].keys() and COMMANDS.keys() >= {*TABLE["parsed"]}
    flags = {flag for _, flag, option in OPTIONS if _words(_, flag, option)}
    stale = {*TABLE["values"]} - flags
    assert not stale, f"of no command: {sorted(stale)}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that a command may be asked about; what it writes is gone with it."""
    work = tmp_path / "work"
    shutil.copytree(EXAMPLES, work)
    (work / "net.py").write_text(NET)
    (work / "grid-of-two.yaml").write_text("model: resnet50\nbatch_size: [8, 16]\n")
    (work / "hours.csv").write_text("hour,g_per_kwh\n" + "".join(f"{hour},300\n" for hour in range(24)))
    (work / "token").write_text("a-token-of-a-test-that-is-long-enough\n")
    (work / "job.sh").write_text("#!/bin/bash\n#SBATCH --gres=gpu:a100:1\nsrun python train.py\n")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
    return work


@pytest.mark.sampled(16)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("command", "flag", "option"),
    [pytest.param(*each, id=f"{each[0]} {each[1]}", marks=WAIT.get(each[1], ())) for each in OPTIONS],
)
def test_no_option_crashes(
    cli: Callable[..., Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    flag: str,
    option: Any,
) -> None:
    words = _words(command, flag, option)
    if command in TABLE["parsed"]:
        read = functools.wraps(COMMANDS[command].callback)(lambda **_: None)  # with the fields that it takes
        monkeypatch.setattr(COMMANDS[command], "callback", read)
    answer = cli(*words)
    refused = {flag, f"{command} {flag}"} & {*TABLE["refused"]}
    assert answer.code in ((*ANSWERED, REFUSED) if refused else ANSWERED), f"{' '.join(words)}: {answer.err}"
    assert "Unexpected error" not in answer.err and "Traceback" not in answer.err
