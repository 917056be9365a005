"""Types of the fields of a request: what a value may be, and how the command line shows it."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ..errors import ConfigError

MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against typing errors."""
MAX_BATCH = 10**9
"""Recommenders take tens of millions of samples a step."""
MAX_VALUE = 10**15
LEAST_BATCH = 1e-6
LEAST_VALUE = 1e-9
"""Smaller numbers are no amounts, and what is divided by them is infinite."""
MAX_VALUES = 10_000
"""Of a range: a guard against typing errors."""
_RANGE = re.compile(r"\s*(?P<low>\S+?)\s*\.\.\s*(?P<high>[^\s:]+)\s*(?::\s*(?P<step>\S+)\s*)?")
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


_MOST_DIGITS = 4000


def _amount(base: int) -> Callable[[Any], Any]:
    """Reads `1.28M`, `300B` and `1e6`; the suffixes are powers of `base`. Other values stay as they are."""

    def read(value: Any) -> Any:
        found = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None or not (found[2] or "e" in found[1].lower()):
            return _number(value)
        try:
            number = Decimal(found[1]) * base ** _SUFFIXES.index(found[2].lower())
        except (InvalidOperation, Overflow):
            return value
        if number.adjusted() > _MOST_DIGITS:
            return value  # no number of Python's could be shown of it
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


class _OneValue:
    """Marks text that is a list by itself: a comma in it does not separate values to compare."""


def takes_several(info: FieldInfo) -> bool:
    """Whether several values of a field can be compared: it holds a number, a name, a choice or a switch.

    Fields that hold lists, mappings, files or objects are taken as they are.
    """
    kind = plain_type(info.annotation)
    marks = [*info.metadata, *(mark for part in get_args(info.annotation) for mark in get_args(part)[1:])]
    if _OneValue in marks:
        return False
    return kind in (int, float, str, bool, Literal) or (isinstance(kind, type) and issubclass(kind, Enum))


def values_of(name: str, info: FieldInfo, given: Any) -> list[Any]:
    """The values that were given for a field: those of a list, of `8,16,64`, or of a range of numbers.

    `16..256` doubles from 16 up to 256, `16..256:16` goes in steps of 16. A field that cannot be compared,
    and one value, are a list of one.

    Raises:
        ConfigError: If a range has no end, or a list nothing in it.
    """
    if not takes_several(info):
        return [given]
    if isinstance(given, list | tuple | range):
        parts = list(given)
    elif isinstance(given, str) and given and plain_type(info.annotation) is not bool:
        parts = [part.strip() for part in given.split(",") if part.strip()]
    else:
        return [given]
    if plain_type(info.annotation) in (int, float):
        parts = _with_ranges(name, info, parts)
    if not parts:
        raise ConfigError(f"{name}={given!r} names no value. To fix: name one, or several such as 8,16,64.")
    try:
        return list(dict.fromkeys(parts))
    except TypeError:  # lists in a list: each is refused with the rule of the field
        return parts


def _with_ranges(name: str, info: FieldInfo, parts: Sequence[Any]) -> list[Any]:
    """The parts with the values of each range in its place; many ranges hold no more than one may."""
    found: list[Any] = []
    ranges = 0
    for part in parts:
        values = _range_of(name, info, part)
        found += values
        ranges += len(values) if len(values) > 1 else 0
        if ranges > MAX_VALUES:
            raise ConfigError(
                f"The ranges of {name} hold more than {MAX_VALUES:,} values. To fix: shorten them, or ask in "
                "parts."
            )
    return found


def _range_of(name: str, info: FieldInfo, part: Any) -> list[Any]:
    found = _RANGE.fullmatch(part) if isinstance(part, str) else None
    if found is None:
        return [part]
    rule = f"{name}={part}: a range is low..high, which doubles, or low..high:step"
    annotated: Any = Annotated[info.annotation, *info.metadata]
    kind = TypeAdapter[Any](annotated)
    try:
        low, high = (kind.validate_python(found[end]) for end in ("low", "high"))
        step = None if found["step"] is None else kind.validate_python(found["step"])
    except ValidationError as error:
        raise ConfigError(f"{rule}. To fix: use numbers, as in {name}=16..256.") from error
    if high < low or low <= 0 or (step is not None and step <= 0):
        raise ConfigError(f"{rule}; this one holds nothing. To fix: {name}=16..256.")
    values = [low]
    while (above := values[-1] * 2 if step is None else values[-1] + step) <= high:
        values.append(above)
        if len(values) > MAX_VALUES:
            raise ConfigError(f"{rule}; this one holds more than {MAX_VALUES:,} values. To fix: shorten it.")
    return values


def plain_type(annotation: Any) -> Any:
    """The one type that a field holds, None and constraints aside."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_type(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return plain_type(next(item for item in get_args(annotation) if item is not type(None)))
    return origin or annotation


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
PositiveNumber = Annotated[float, TOTAL, Field(ge=LEAST_VALUE, le=MAX_VALUE, allow_inf_nan=False)]
BatchSize = Annotated[float, COUNT, Field(ge=LEAST_BATCH, le=MAX_BATCH, allow_inf_nan=False)]
BatchTokens = Annotated[int, COUNT, Field(ge=1, le=10**12)]
ListText = Annotated[str, BeforeValidator(_list_text), _OneValue]
