"""The root command: help, version, errors."""

from __future__ import annotations

import pytest

import precision_time
from precision_time.cli.main import app, command_paths, main
from precision_time.errors import ConfigError

COMMANDS = command_paths()
LEAVES = [name for name in COMMANDS if not any(other.startswith(f"{name} ") for other in COMMANDS)]
EXPECTED = [
    "architectures",
    "compare-predictors",
    "devices",
    "env",
    "evaluate",
    "explain",
    "layout",
    "measure",
    "models",
    "precisions",
    "predict",
    "predictddl predict",
    "report",
    "stacks",
    "train",
    "train-ghn",
]


def test_commands_are_the_documented_ones() -> None:
    assert set(EXPECTED) <= set(COMMANDS)


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_has_help_examples_and_json(cli, command: str) -> None:
    answer = cli(*command.split(), "--help")
    assert answer.code == 0
    assert "--json" in answer.out
    assert "Examples:" in answer.out
    assert f"precision-time {command}" in answer.out.split("Examples:")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(cli, command: str) -> None:
    from typer.main import get_command

    group = get_command(app)
    for name in command.split():
        group = group.commands[name]
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
    assert "Commands:" in answer.out + answer.err


def test_unknown_command_exits_with_two(cli) -> None:
    answer = cli("predcit")
    assert answer.code == 2
    assert "No such command 'predcit'" in answer.err
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
    assert (answer.code, answer.out, answer.err) == (2, "", "Error: two lines\n")


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
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(line)
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
    monkeypatch.setenv("_PRECISION_TIME_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"precision-time {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert expected <= set(cli().out.split())
