"""Commands of other packages: data until they are used; what is not installed says how to install it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import precision_time
from precision_time.cache import clear
from precision_time.cli import main as root
from precision_time.plugins import Command, forget_plugins

DATA = """
from precision_time.cache import clear
from precision_time.plugins import Command

COMMANDS = (
    Command(path="greet", module="their_code", attribute="greet", summary="Say hello.", examples="__doc__"),
    Command(path="lab run fast", module="their_code", attribute="greet", summary="Run.", examples="__doc__"),
    Command(path="precisions greet", module="their_code", attribute="greet", summary="Hi."),
    Command(path="near", module="their_code", attribute="greet", summary="By it.", section="Ask"),
    Command(path="predict", module="their_code", attribute="greet", summary="Take over.", examples="__doc__"),
)
"""
CODE = '''
"""An epilog."""
import typer

EXAMPLES = "Try it."

def greet(name: str) -> None:
    typer.echo(f"hello {name}")
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "their_data.py").write_text(DATA)
    (tmp_path / "their_code.py").write_text(CODE)
    package = tmp_path / "their-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text("[precision_time.commands]\ntheirs = their_data:COMMANDS\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_plugins()
    yield
    monkeypatch.undo()
    for name in ("their_data", "their_code"):
        sys.modules.pop(name, None)
    forget_plugins()


def test_a_built_in_command_asks_for_no_plugin(installed: None, cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("list", "precisions", "--json").code == 0
    assert "their_data" not in sys.modules


@pytest.mark.filterwarnings("ignore:Commands of the plugin theirs:RuntimeWarning")
def test_commands_of_a_plugin_are_listed_unloaded_and_run(installed: None, cli) -> None:  # type: ignore[no-untyped-def]
    shown = cli("--help").out
    assert "greet" in shown and "Say hello." in shown and "lab" in shown
    assert shown.index("near") < shown.index("Decide:")
    assert "their_code" not in sys.modules
    assert cli("greet", "you").out == "hello you\n"
    assert cli("lab", "run", "fast", "all").out == "hello all\n"
    assert "fast" in cli("lab", "run", "--help").out
    wrong = cli("lab", "walk")
    assert wrong.code == 2 and "run" in wrong.err


def test_built_in_words_stay_built_in(installed: None) -> None:
    with pytest.warns(RuntimeWarning, match="plugin theirs are left out.*predict is there already"):
        tree = root._tree()
    assert tree["predict"] is root.OWN["predict"]
    words = [*tree]
    assert words[:2] == ["predict", "sweep"] and words[-3:] == ["greet", "lab", "near"]


@pytest.mark.filterwarnings("ignore:Commands of the plugin theirs:RuntimeWarning")
def test_a_command_may_be_added_below_a_word_that_allows_it(installed: None, cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("precisions", "greet", "you").out == "hello you\n"
    assert "greet" in cli("precisions", "--help").out
    assert "bf16" in cli("precisions", "bf16-mixed").out
    assert "bf16" in cli("list", "precisions").out


MEMBERS = tomllib.loads(Path(root.__file__).with_name("data").joinpath("members.toml").read_text("utf-8"))


def word_of(command: Command) -> str:
    first = command.path.split()[0]
    return command.path if first in root.OWN else first


def test_the_list_of_members_is_what_they_declare() -> None:
    brought = {
        word_of(command): f"precision-time-{name}"
        for name in ("integrations", "papers", "server")
        for command in import_module(f"precision_time_{name}.cli.commands").COMMANDS
    }
    assert MEMBERS["commands"] == brought
    for name, member in MEMBERS["names"].items():
        assert getattr(import_module(member.replace("-", "_")), name) is not None


@pytest.mark.parametrize("words", [["ghn"], ["precisions", "search", "gpt2"]])
def test_a_command_of_a_member_that_is_not_installed_says_how(
    words: list[str], monkeypatch: pytest.MonkeyPatch, cli
) -> None:  # type: ignore[no-untyped-def]
    listed = {**MEMBERS["commands"], "ghn": "precision-time-papers"}
    monkeypatch.setattr(root, "loaded", lambda group: {})
    monkeypatch.setattr(
        root,
        "packaged_toml",
        lambda package, name: {"commands": listed if "members" in name else {}, "gone": {}},
    )
    clear()
    answer = cli(*words)
    clear()
    assert answer.code == 2
    assert "pip install precision-time-papers" in answer.err


def test_a_name_that_went_to_a_member_says_where() -> None:
    with pytest.raises(AttributeError, match="pip install precision-time-papers, then"):
        precision_time.search_precisions  # noqa: B018


def test_commands_that_cannot_be_imported_are_named_and_hurt_no_other(  # type: ignore[no-untyped-def]
    installed: None, cli, tmp_path: Path
) -> None:
    (tmp_path / "their_data.py").write_text("import no_such_package\n")
    assert cli("list", "precisions", "--json").err == ""  # of the core: no plug-in is asked
    for words in (("--help",), ("import", "--formats"), ("greet", "you")):
        with pytest.warns(RuntimeWarning, match="precision_time|theirs|their_data") as said:
            answer = cli(*words)
        assert len([each for each in said if "their_data" in str(each.message)]) == 1
        assert answer.code == (2 if words[0] == "greet" else 0)
        forget_plugins()


def test_a_command_whose_code_cannot_be_imported_says_so(installed: None, cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "their_code.py").write_text("import no_such_package\n")
    with pytest.warns(RuntimeWarning, match="predict is there already"):
        answer = cli("greet", "you")
    assert answer.code == 2
    assert answer.err.startswith("Error: greet cannot be loaded: their_code: No module named 'no_such_pack")
    assert cli("import", "--formats").code == 0
