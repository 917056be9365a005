"""The root command: help, version, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import precision_time
from command_page import command_paths
from precision_time.cli.main import OWN, _summary, _tree, load_command, main, other_options
from precision_time.errors import ConfigError

LAZY = _tree()
COMMANDS = command_paths()
LEAVES = [name for name in COMMANDS if not any(other.startswith(f"{name} ") for other in COMMANDS)]
CORE = [
    *(
        "predict",
        "sweep",
        "explain",
        "plan",
        "layout",
        "precisions",
        "list",
        "evaluate",
        "calibrate",
        "train",
    ),
    *("init", "env"),
]
MEMBERS = [
    "schedule",
    "measure",
    "mfu",
    "mcp",
    "import",
    "watch",
    "share",
    "estimate",
    "slurm",
    "kubernetes",
    "papers",
    "serve",
]


def test_the_first_words_are_the_documented_ones() -> None:
    assert list(OWN) == CORE
    assert {name for name in LAZY if name in command_paths()} == {*CORE, *MEMBERS}


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_has_help_examples_and_json(cli, command: str) -> None:
    answer = cli(*command.split(), "--help")
    assert answer.code == 0
    assert ("--json" in answer.out) == (command != "mcp")  # it speaks a protocol of its own
    assert "Examples:" in answer.out
    assert f"precision-time {command}" in answer.out.split("Examples:")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(cli, command: str) -> None:
    first, *names = command.split()
    group = load_command(first)
    for name in names:
        group = group.get_command(None, name)
    parameters = group.params
    unexplained = [p.name for p in parameters if not getattr(p, "help", None)]
    assert unexplained == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_root_help_shows_each_summary_whole(cli, command: str) -> None:
    *group, name = command.split()
    lines = cli(*group, "--help").out.splitlines()
    line = next(line for line in lines if line.strip().startswith(name + " "))
    assert not line.endswith("...")


def test_version(cli) -> None:
    assert cli("--version").out.strip() == precision_time.__version__


def test_no_command_prints_the_help(cli) -> None:
    answer = cli()
    assert "Ask:" in answer.out + answer.err


def test_unknown_command_exits_with_two(cli) -> None:
    answer = cli("predcit")
    assert answer.code == 2
    assert "No such command: 'predcit'. Did you mean predict or" in answer.err
    assert answer.out == ""


@pytest.fixture
def failing_env(monkeypatch: pytest.MonkeyPatch) -> None:
    """`precision-time env` runs into an error of ours."""

    def fail(_: str) -> None:
        raise ConfigError("two\n  lines")

    monkeypatch.setattr("precision_time.cli.env._version_of", fail)


@pytest.mark.usefixtures("failing_env")
def test_errors_are_one_line_and_exit_code_two(cli) -> None:
    answer = cli("env", "--json")
    assert (answer.code, answer.err) == (2, "Error: two lines\n")
    assert json.loads(answer.out) == {
        "schema": "error/1",
        "error": {"type": "ConfigError", "detail": "two lines", "fix": None, "field": None, "nearest": []},
    }
    assert cli("env").out == ""


@pytest.mark.usefixtures("failing_env")
@pytest.mark.parametrize("words", [["--debug", "env"], ["env", "--debug"]])
def test_debug_lets_the_error_through(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="two"):
        main(words)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (RuntimeError("odd\x1b[2J\nthing"), 70, "Unexpected error RuntimeError: odd\\x1b[2J thing."),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (
            PermissionError(13, "Permission denied", "/kept"),
            2,
            "Error: [Errno 13] Permission denied: '/kept'.",
        ),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
        (RecursionError("too deep"), 70, "Unexpected error RecursionError: too deep."),
    ],
)
def test_no_error_ends_in_a_traceback(
    cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr("precision_time.cli.env._version_of", fail)
    answer = cli("env", "--json")
    assert answer.code == code
    assert answer.err.startswith(line)
    if code not in (0, 130):
        assert json.loads(answer.out)["error"]["detail"] in answer.err
    else:
        assert answer.out == ""
    assert answer.err.count("\n") == bool(line)
    if code:
        with pytest.raises(BaseException) as caught:  # noqa: PT011
            main(["--debug", "env"])
        assert not isinstance(caught.value, SystemExit)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("predict resnet50 --precision bf", {"bf16", "bf16-mixed"}),
        ("predict resnet50 --device A100-SXM4", {"A100-SXM4-40GB", "A100-SXM4-80GB"}),
        ("explain resnet50 --precision tf", {"tf32"}),
    ],
)
def test_names_complete_in_the_shell(
    cli, monkeypatch: pytest.MonkeyPatch, words: str, expected: set[str]
) -> None:
    assert expected <= complete(cli, monkeypatch, words)


def test_start_up_and_help_load_nothing_heavy() -> None:
    """Commands are loaded when they are used: `--help` answers at once."""
    code = """
import sys
from precision_time.cli.main import main
try:
    main(["--help"])
except SystemExit as done:
    assert not done.code
heavy = {"numpy", "scipy", "pydantic", "yaml", "torch", "ray", "pandas", "sklearn", "lightgbm"}
sys.exit(str(sorted(heavy & sys.modules.keys())) if heavy & sys.modules.keys() else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Ask:" in done.stdout


@pytest.mark.parametrize("name", [name for name in LAZY if name in COMMANDS])
def test_summaries_are_the_first_lines_of_the_help(cli, name: str) -> None:
    """The root help shows them without loading the command."""
    text = " ".join(cli(name, "--help").out.split())
    assert text.split(" ]", 1)[0].startswith("Usage: precision-time")
    assert " ".join(_summary(LAZY[name]).split()) in text
    assert load_command(name).get_short_help_str(limit=200) == _summary(LAZY[name])


def test_help_names_every_command_once(cli) -> None:
    listed = [line.split()[0] for line in cli("--help").out.splitlines() if re.match(r"  [a-z]+  +\S", line)]
    assert sorted(listed) == sorted(name for name in LAZY if name in command_paths())


def complete(cli, monkeypatch: pytest.MonkeyPatch, words: str) -> set[str]:
    """What the shell offers for the last of these words."""
    monkeypatch.setenv("_PRECISION_TIME_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"precision-time {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    return set(cli().out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {*CORE, *MEMBERS}),
        ("pre", {"predict", "precisions"}),
        ("list pre", {"precisions"}),
        ("papers predictddl ", {"predict", "batch", "train", "registry", "collect"}),
        ("predict --cp-c", {"--cp-comm-type"}),
        ("predict resnet50 --schedule inter", {"interleaved"}),
        ("predict resnet50 --cp-comm-type ", {"ring", "all-gather", "ulysses"}),
        ("predict resnet50 --stack torch", {"torchtitan"}),
        ("predict resnet15", {"resnet152"}),
        ("layout resnet50 -d H100-PC", {"H100-PCIE-80GB"}),
    ],
)
def test_commands_options_and_values_complete(
    cli, monkeypatch: pytest.MonkeyPatch, words: str, expected: set[str]
) -> None:
    found = complete(cli, monkeypatch, words)
    assert expected <= found
    begun = words.rpartition(" ")[2]
    assert all(each.startswith(begun) for each in found)


@pytest.mark.parametrize(("given", "ours"), list(other_options().items()))
def test_options_of_other_tools_say_what_to_type_here(cli: Callable[..., Any], given: str, ours: str) -> None:
    options = {flag for item in load_command("predict", every_option=True).params for flag in item.opts}
    assert given not in options, "an option of ours needs no hint"
    assert ours.split(maxsplit=1)[0] in options
    answer = cli("predict", "resnet50", given, "1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"Error: No such option: {given}. To fix: {ours}.\n"
