"""Messages are short and printable, whatever they quote."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from precision_time.errors import (
    ConfigError,
    MissingExtraError,
    OutputError,
    PrecisionTimeError,
    UnknownNameError,
    in_one_line,
    printable,
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
        OutputError("no space"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: PrecisionTimeError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
