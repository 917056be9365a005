"""Dataclasses as what JSON holds, and back."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .cache import data
from .errors import ConfigError, shown

T = TypeVar("T")
_Read = Callable[[Any], Any]
_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class _WrongError(Exception):
    """What is not as it must be, and where: the place is put together on the way out."""

    def __init__(self, given: Any, rule: str) -> None:
        self.given, self.rule = given, rule
        self.place: list[str] = []


def to_plain(given: Any) -> Any:
    """Dataclasses as dictionaries, whatever they are in; fields that their `repr` leaves out are left out.

    A dataclass inside that has a `to_dict` says itself. The way back is `from_plain`.

    >>> to_plain([{"a": (1, 2)}])
    [{'a': (1, 2)}]
    """
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {
            item.name: _plain(getattr(given, item.name)) for item in dataclasses.fields(given) if item.repr
        }
    return _plain(given)


def _plain(given: Any) -> Any:
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        own = getattr(given, "to_dict", None)
        return to_plain(given) if own is None else own()
    if isinstance(given, Mapping):
        return {name: _plain(value) for name, value in given.items()}
    return type(given)(map(_plain, given)) if type(given) in (list, tuple) else given


def from_plain(kind: type[T], given: Any) -> T:
    """A dataclass of ours out of its dictionary.

    A dataclass inside that has a `from_dict` reads itself. Numbers stay as they are (256 is not made 256.0),
    so that what is written again is the same text. Keys that are no field are left out: dictionaries also
    have what is computed of the fields.

    Args:
        kind: A dataclass whose fields are numbers, texts, choices, mappings, tuples and such dataclasses.
        given: What JSON gave.

    Raises:
        ConfigError: If a field is missing or holds something else; names where.
    """
    try:
        found: T = _of_fields(kind)(given)
    except _WrongError as wrong:
        place = "".join([kind.__name__, *reversed(wrong.place)])
        raise ConfigError(
            f"{place} is {shown(wrong.given)}. The rule: {wrong.rule}. To fix: correct it."
        ) from None
    return found


@data
def _fields(kind: Any) -> tuple[tuple[str, _Read, bool], ...]:
    """Name, what reads it, whether it must be there."""
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    return tuple(
        (item.name, _of(hints[item.name]), item.default is missing and item.default_factory is missing)
        for item in dataclasses.fields(kind)
        if item.repr  # the others are not written either
    )


def _of_fields(kind: Any) -> _Read:
    def read(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _WrongError(given, "an object")
        found = {}
        for name, reader, required in _fields(kind):  # late: a dataclass may hold its own kind
            if name in given:
                try:
                    found[name] = reader(given[name])
                except _WrongError as wrong:
                    wrong.place.append(f".{name}")
                    raise
            elif required:
                raise _WrongError(given, f"an object with {name}")
        return kind(**found)

    return read


def _of(kind: Any) -> _Read:
    """What reads a value of a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda given: given
    if origin in (types.UnionType, Union):
        return _of_one(parts)
    if origin is Literal:
        return _of_choice({each: each for each in parts})
    if origin is tuple:
        return _of_tuple(parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(_of(parts[1]))
    if dataclasses.is_dataclass(kind):
        own = getattr(kind, "from_dict", None)
        return _of_fields(kind) if own is None else _of_own(own)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _of_choice({each.value: each for each in kind})
    return _of_value(kind)


def _of_value(kind: Any) -> _Read:
    allowed = (int, float) if kind is float else (kind,)

    def read(given: Any) -> Any:
        if type(given) not in allowed:
            raise _WrongError(given, _NAMES.get(kind, str(kind)))
        return given

    return read


def _of_choice(choices: Mapping[Any, Any]) -> _Read:
    def read(given: Any) -> Any:
        if not isinstance(given, str | int) or given not in choices:
            raise _WrongError(given, f"one of {', '.join(map(str, choices))}")
        return choices[given]

    return read


def _of_own(own: Callable[[Mapping[str, Any]], Any]) -> _Read:
    def read(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _WrongError(given, "an object")
        return own(given)

    return read


def _of_mapping(value: _Read) -> _Read:
    def read(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _WrongError(given, "an object")
        return {name: value(item) for name, item in given.items()}

    return read


def _of_one(kinds: tuple[Any, ...]) -> _Read:
    """What reads a value that is of one of several types, the first that it can be."""
    readers = [_of(kind) for kind in kinds if kind is not type(None)]
    optional = type(None) in kinds

    def read(given: Any) -> Any:
        if given is None and optional:
            return None
        for reader in readers[:-1]:
            try:
                return reader(given)
            except _WrongError:
                continue
        return readers[-1](given)

    return read


def _of_tuple(kinds: tuple[Any, ...]) -> _Read:
    endless = len(kinds) == 2 and kinds[1] is Ellipsis  # noqa: PLR2004
    readers = [_of(kind) for kind in kinds if kind is not Ellipsis]

    def read(given: Any) -> Any:
        if not isinstance(given, list | tuple):
            raise _WrongError(given, "a list")
        if not endless and len(given) != len(readers):
            raise _WrongError(given, f"a list of {len(readers)}")
        each = readers * len(given) if endless else readers
        return tuple(reader(item) for reader, item in zip(each, given, strict=True))

    return read
