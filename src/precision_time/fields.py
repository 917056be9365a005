"""How a field is declared where it acts: what a value may be, how it is read, how an option shows it."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, Overflow
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta

from .errors import ConfigError, shown
from .records import dataclass

MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against typing errors."""
MAX_BATCH = 10**9
"""Recommenders take tens of millions of samples a step."""
MAX_VALUE = 10**15
LEAST_BATCH = 1e-6
LEAST_VALUE = 1e-9
"""Smaller numbers are no amounts, and what is divided by them is infinite."""
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


@dataclass(frozen=True, slots=True)
class Read:
    """Marks in an annotation what reads a value before its type and bounds are checked."""

    function: Callable[..., Any]
    """Raises `ValueError` with the rule, or a `ConfigError` that says all."""
    named: bool = False
    """Whether it takes the name of the field as well."""
    checks: bool = False
    """Whether it checks the type, too: of classes that msgspec does not know."""


@dataclass(frozen=True, slots=True)
class AsText:
    """Marks a tuple that is typed as text: a request holds the text, a job what it says."""

    read: Callable[[str], tuple[Any, ...]]
    """Raises a `ConfigError`."""
    write: Callable[[tuple[Any, ...]], str]


class Varied:
    """Marks a field of a layout that the search for layouts varies."""


_MOST_DIGITS = 4000


def _amount(base: int) -> Callable[[Any], Any]:
    """Reads `1.28M`, `300B` and `1e6`; the suffixes are powers of `base`, 0 for none. Other text stays."""

    def read(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a number")
        if type(value) in (int, float):
            return value
        if not isinstance(value, str):
            plain = getattr(value, "item", None)  # a number of numpy's
            value = value if plain is None else plain()
            return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
        found = _AMOUNT.fullmatch(value.strip())
        if found is None or (found[2] and not base):
            return value.strip()
        try:
            number = Decimal(found[1]) * (base ** _SUFFIXES.index(found[2].lower()) if base else 1)
        except (InvalidOperation, Overflow):
            return value
        if number.adjusted() > _MOST_DIGITS:
            return value  # no number of Python's could be shown of it
        return int(number) if number == number.to_integral_value() else float(number)

    return read


def _word(value: Any) -> Any:
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


_SWITCH = {"yes": True, "on": True, "y": True, "t": True, "no": False, "off": False, "n": False, "f": False}


def _switch(value: Any) -> Any:
    return _SWITCH.get(value.strip().lower(), value.strip()) if isinstance(value, str) else value


def _list_text(value: Any) -> Any:
    """Numbers or names in a list, as the text that stands for them."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ",".join(str(item) for item in value)
    return value


def _file(value: Any) -> Any:
    if not isinstance(value, str | Path):
        raise ValueError("the path of a file")
    return Path(value)


def _file_or_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str | Path):
        raise ValueError("a file, or a mapping of names to values")
    return Path(value)


def _texts(given: Any) -> Any:
    """One text stands for a list of one."""
    return [given] if isinstance(given, str) else given


def _finite(given: Any) -> Any:
    """Sizes as they are, with no number that is none: JSON and YAML can state 1e400 and NaN.

    Raises:
        ConfigError: Of the first one.
    """
    for name, value in given.items() if isinstance(given, Mapping) else ():
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, float) and not math.isfinite(part) for part in parts):
            raise ConfigError(
                f"The size {name}={shown(value)} is not possible. The rule: sizes are finite. "
                "To fix: correct it."
            )
    return given


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


class OneValue:
    """Marks text that is a list by itself: a comma in it does not separate values to compare."""


def plain_type(annotation: Any) -> Any:
    """The one type that a field holds, None and constraints aside."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_type(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return plain_type(next(item for item in get_args(annotation) if item is not type(None)))
    return origin or annotation


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The words that a field takes; empty where it takes others."""
    origin = get_origin(annotation)
    if origin is Literal:
        return tuple(str(item) for item in get_args(annotation))
    if origin is not None:
        return next((found for item in get_args(annotation) if (found := choices_of(item))), ())
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(str(item.value) for item in annotation)
    return ()


NUMBER = Read(_amount(0))
COUNT = Read(_amount(_BINARY))
"""Batches, devices, tokens of a sample: `8k` is 8192, as everybody means it."""
TOTAL = Read(_amount(_DECIMAL))
"""Lengths of runs and datasets, and rates: `300B` is 3e11."""
WORD = Read(_word)
"""Of a field with a few choices: case and underscores do not matter."""
SWITCH = Read(_switch)
FILE = Read(_file, checks=True)
FILE_OR_MAPPING = Read(_file_or_mapping, checks=True)
TEXTS = Read(_texts)
FINITE = Read(_finite)
Count = Annotated[int, COUNT, Meta(ge=1, le=MAX_COUNT)]
LongCount = Annotated[int, TOTAL, Meta(ge=1, le=MAX_VALUE)]
NaturalNumber = Annotated[int, COUNT, Meta(ge=0, le=MAX_COUNT)]
ZeroStage = Annotated[int, NUMBER, Meta(ge=0, le=3)]
PositiveNumber = Annotated[float, TOTAL, Meta(ge=LEAST_VALUE, le=MAX_VALUE)]
Year = Annotated[float, NUMBER, Meta(ge=1990, le=2100)]
BatchSize = Annotated[float, COUNT, Meta(ge=LEAST_BATCH, le=MAX_BATCH)]
BatchTokens = Annotated[int, COUNT, Meta(ge=1, le=10**12)]
ListText = Annotated[str, Read(_list_text), OneValue]
