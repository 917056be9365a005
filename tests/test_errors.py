"""Messages are short and printable, whatever they quote."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from precision_time.errors import (
    BrokenPackageError,
    ConfigError,
    MissingExtraError,
    OutputError,
    PrecisionTimeError,
    UnknownNameError,
    in_one_line,
    printable,
    required_module,
    shown,
    validation_problems,
)


class Silent:
    """Its `repr` raises."""

    def __repr__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> list[Any]:
    value: list[Any] = ["x"]
    for _ in range(depth):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    "value", ["a" * 10**6, nested(12), {"k": "v" * 10**6}, b"\0" * 10**6, Silent(), "\x1b[2J"]
)
def test_values_are_shown_in_few_printable_characters(value: Any) -> None:
    assert len(shown(value)) < 600
    assert shown(value).isprintable()


def test_a_message_keeps_its_beginning_and_its_end() -> None:
    said = str(ConfigError(f"begin \x1b[31m{'x' * 500_000} To fix: end."))
    assert len(said) < 5000
    assert said.startswith("begin \\x1b[31mxxx")
    assert said.endswith("To fix: end.")
    assert "characters left out" in said
    assert printable("two\nlines") == "two\nlines"
    assert str(pickle.loads(pickle.dumps(ConfigError("as it was")))) == "as it was"


def test_long_and_odd_names_are_answered_at_once() -> None:
    said = str(UnknownNameError(kind="model", name="\x1b" * 10**6, known=["gpt2"], hint="See the list."))
    assert len(said) < 1000
    assert said.isprintable()


class Sheet(BaseModel):
    """A file of one field."""

    model_config = ConfigDict(extra="forbid")
    count: int = 0


def test_few_of_many_broken_rules_are_listed() -> None:
    with pytest.raises(ValidationError) as caught:
        Sheet.model_validate({"count": "\x1b" * 1000, **{f"key {n}": n for n in range(1000)}})
    said = validation_problems(caught.value)
    assert said.startswith("count: ")
    assert "and 991 more" in said
    assert len(said) < 4000
    assert said.isprintable()


def test_unexpected_errors_are_one_line() -> None:
    assert in_one_line(KeyError("a\nb")).startswith("Unexpected error KeyError: ")
    assert "\n" not in in_one_line(ValueError("a\nb"))


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError(kind="model", name="resent50", known=["resnet50"], hint=""),
        MissingExtraError(package="torch", extra="capture", purpose="capture"),
        BrokenPackageError("torch is installed and cannot be imported"),
        OutputError("no space"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: PrecisionTimeError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


PACKAGES = {
    "asks_for_another": "import a_backend_that_is_away",
    "is_broken": "raise ImportError('undefined symbol: cudaX')",
    "lacks_a_library": "raise OSError('libgomp.so.1: cannot open shared object file')",
    "is_old": "",
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, code in PACKAGES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(code + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in PACKAGES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["not_there_at_all", "not_there_at_all.part", "is_old.newer_part"])
def test_a_package_that_is_away_is_to_be_installed(packages: None, name: str) -> None:
    with pytest.raises(
        MissingExtraError, match=r"^X is not installed.*pip install 'precision-time\[learners\]'"
    ):
        required_module(name, package="X", extra="learners", purpose="fit")


@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        (
            "asks_for_another",
            "No module named 'a_backend_that_is_away'",
            "To fix: install a_backend_that_is_away",
        ),
        ("is_broken", "ImportError: undefined symbol: cudaX", "To fix: install X again, with what it needs"),
        ("is_broken.part", "ImportError: undefined symbol: cudaX", "python -c 'import is_broken.part'"),
        ("lacks_a_library", "OSError: libgomp.so.1", "To fix: install X again"),
    ],
)
def test_a_package_that_is_there_and_fails_says_how(
    packages: None, name: str, said: str, remedy: str
) -> None:
    with pytest.raises(BrokenPackageError) as broken:
        required_module(name, package="X", extra="learners", purpose="fit")
    text = str(broken.value)
    assert text.startswith("X is installed and cannot be imported, and it is needed to fit: ")
    assert said in text and remedy in text
    assert "not installed" not in text and "precision-time[" not in text
    assert isinstance(broken.value, ImportError) and broken.value.__cause__ is not None


def test_a_remedy_of_its_own_is_told(packages: None) -> None:
    with pytest.raises(BrokenPackageError, match="To fix: say it otherwise; "):
        required_module("is_broken", package="X", extra="x", purpose="fit", remedy="say it otherwise")


def test_keras_without_its_backend_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("import tensorflow_that_is_away\n")
    done = subprocess.run(
        [sys.executable, "-c", "import precision_time_integrations.online.keras"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "keras is installed and cannot be imported" in last
    assert "No module named 'tensorflow_that_is_away'" in last and "KERAS_BACKEND" in last
    assert "not installed" not in last
