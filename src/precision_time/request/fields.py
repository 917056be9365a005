"""Types of the fields of a request: what a value may be, and how the command line shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ..errors import ConfigError

MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against typing errors."""
MAX_BATCH = 10**9
"""Recommenders take tens of millions of samples a step."""
MAX_VALUE = 10**13


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """How a field is shown as a command-line option."""

    help: str
    flags: tuple[str, ...] = ()
    """Spellings besides the one made of the field's name, such as `-d`."""
    metavar: str = ""
    default: str = ""
    """What is taken where nothing is given, in words; the field's default value where this is empty."""
    complete: str = ""
    """What completes the value: model, device, precision, stack or dataset; if empty, the field's choices."""


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("it must be a number")
    return value


def _word(value: Any) -> Any:
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


def _list_text(value: Any) -> Any:
    """Numbers or names in a list, as the text that stands for them."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ",".join(str(item) for item in value)
    return value


def pairs_of(text: str) -> dict[str, Any]:
    """`"gpus=8,precision=tf32"` as a mapping; a value that is no JSON is a word, an object is taken as it is.

    >>> pairs_of("gpus=8,precision=tf32")
    {'gpus': 8, 'precision': 'tf32'}

    Raises:
        ConfigError: If a part is not NAME=VALUE.
    """
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ConfigError(f"{text!r} is no JSON object: {error}. To fix: correct it.") from error
    pairs: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ConfigError(
                f"{part!r} of {text!r} is not NAME=VALUE. To fix: write it like gpus=8,step_time_s=0.21."
            )
        try:
            pairs[name.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            pairs[name.strip().replace("-", "_")] = value.strip()
    return pairs


NUMBER = BeforeValidator(_number)
WORD = BeforeValidator(_word)
"""Of a field with a few choices: case and underscores do not matter."""
Count = Annotated[int, NUMBER, Field(ge=1, le=MAX_COUNT)]
LongCount = Annotated[int, NUMBER, Field(ge=1, le=MAX_VALUE)]
NaturalNumber = Annotated[int, NUMBER, Field(ge=0, le=MAX_COUNT)]
ZeroStage = Annotated[int, NUMBER, Field(ge=0, le=3)]
PositiveNumber = Annotated[float, NUMBER, Field(gt=0, le=MAX_VALUE, allow_inf_nan=False)]
BatchSize = Annotated[float, NUMBER, Field(gt=0, le=MAX_BATCH, allow_inf_nan=False)]
ListText = Annotated[str, BeforeValidator(_list_text)]
