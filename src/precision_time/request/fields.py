"""Types of the fields of a request: what a value may be, and how the command line shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ..errors import ConfigError

MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against typing errors."""
MAX_BATCH = 10**9
"""Recommenders take tens of millions of samples a step."""
MAX_VALUE = 10**15
_SUFFIXES = ("", "k", "m", "b", "t")
_AMOUNT = re.compile(r"([+-]?[\d._]+(?:e[+-]?\d{1,3})?)\s*([kmbt]?)", re.IGNORECASE)
_BINARY, _DECIMAL = 1024, 1000


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


def _amount(base: int) -> Callable[[Any], Any]:
    """Reads `1.28M`, `300B` and `1e6`; the suffixes are powers of `base`. Other values stay as they are."""

    def read(value: Any) -> Any:
        found = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None or not (found[2] or "e" in found[1].lower()):
            return _number(value)
        try:
            number = Decimal(found[1]) * base ** _SUFFIXES.index(found[2].lower())
        except InvalidOperation:
            return value
        return int(number) if number == number.to_integral_value() else float(number)

    return read


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
COUNT = BeforeValidator(_amount(_BINARY))
"""Batches, devices, tokens of a sample: `8k` is 8192, as everybody means it."""
TOTAL = BeforeValidator(_amount(_DECIMAL))
"""Lengths of runs and datasets, and rates: `300B` is 3e11."""
WORD = BeforeValidator(_word)
"""Of a field with a few choices: case and underscores do not matter."""
Count = Annotated[int, COUNT, Field(ge=1, le=MAX_COUNT)]
LongCount = Annotated[int, TOTAL, Field(ge=1, le=MAX_VALUE)]
NaturalNumber = Annotated[int, COUNT, Field(ge=0, le=MAX_COUNT)]
ZeroStage = Annotated[int, NUMBER, Field(ge=0, le=3)]
PositiveNumber = Annotated[float, TOTAL, Field(gt=0, le=MAX_VALUE, allow_inf_nan=False)]
BatchSize = Annotated[float, COUNT, Field(gt=0, le=MAX_BATCH, allow_inf_nan=False)]
BatchTokens = Annotated[int, COUNT, Field(ge=1, le=10**12)]
ListText = Annotated[str, BeforeValidator(_list_text)]
