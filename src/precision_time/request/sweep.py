"""Several values of a field ask for several jobs: all combinations of all fields that have more than one.

The same for options (`-g 8,16,64`), job files (a list where a field holds one value) and Python calls.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import product
from typing import Any, Literal

from ..errors import ConfigError
from ..fields import OneValue, plain_type
from ..precision.catalog import is_policy_file, known_precisions
from ..workload.resolve import is_known_model
from .request import Request
from .schema import RequestFields
from .validation import Field

MOST = 10_000
"""Combinations of one question; so many take seconds. More: `grid.py`."""
MAX_VALUES = 10_000
"""Of a range: a guard against typing errors."""
_RANGE = re.compile(r"\s*(?P<low>\S+?)\s*\.\.\s*(?P<high>[^\s:]+)\s*(?::\s*(?P<step>\S+)\s*)?")
_PADDED = re.compile(r"0\d+")
"""What follows the comma in 1,024."""
ALL = "all"
_ON_REQUEST = "fp64"
PHASES, RUN = "phases", "run"
"""Fields of a job file for `precision-time predict --whole-run`."""
_MODEL, _PRECISION = "model", "precision"


def combinations_of(given: Mapping[str, Any], *, prefix: str = "") -> list[Request]:
    """One request for each combination of the values given, the last of the fields varying fastest.

    Args:
        given: Field to value or values, as `values_of` reads them.
        prefix: What stands before a field where the user wrote it: `--` for options.

    Raises:
        ConfigError: If there are more than MOST, a field is unknown or a value breaks its rule.
    """
    values = axes_of(given)
    count = math.prod(map(len, values.values()))
    if count > MOST:
        counted = " x ".join(f"{name} ({len(found)})" for name, found in values.items() if len(found) > 1)
        raise ConfigError(
            f"{counted} are {count:,} combinations; at most {MOST:,} are answered at once. To fix: name "
            "fewer values, or ask in parts."
        )
    return [
        Request.of(dict(zip(values, chosen, strict=True)), prefix=prefix)
        for chosen in product(*values.values())
    ]


def axes_of(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each field, in the order of the fields.

    Raises:
        ConfigError: If a range has no end, or a list nothing in it.
    """
    if given.get(PHASES) is not None:
        raise ConfigError(
            "phases are of a whole run, and a prediction is of one step. To fix: `precision-time predict "
            "--whole-run` with the same file, or leave out phases."
        )
    # What a whole run costs beside its steps says nothing of a step.
    flat = _flat({name: value for name, value in given.items() if name not in (PHASES, RUN)})
    order = {name: index for index, name in enumerate(RequestFields.model_fields)}
    names = sorted(flat, key=lambda name: order.get(RequestFields.own_name(name), len(order)))
    return {name: _values(name, flat[name]) for name in names}


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Layout options beside the others."""
    layout = given.get("layout")
    if not isinstance(layout, Mapping):
        return dict(given)
    return {**layout, **{name: value for name, value in given.items() if name != "layout"}}


def _values(name: str, given: Any) -> list[Any]:
    field = RequestFields.own_name(name)
    info = RequestFields.model_fields.get(field)
    if info is None or given is None:
        return [given]
    if field == _MODEL:
        return _models(given)
    if field == _PRECISION and isinstance(given, str) and given.strip().lower() == ALL:
        # The fastest kinds first, as people compare them; fp64 where somebody asks for it.
        return [name for name in reversed(known_precisions()) if name != _ON_REQUEST]
    if field == _PRECISION:
        return [_read_policy(value) for value in values_of(name, info, given)]
    return values_of(name, info, given)


def _read_policy(given: Any) -> Any:
    """What a policy file says in the place of its path, so that it is read once."""
    if not is_policy_file(given):
        return given
    from ..precision.own import stated_policy

    return stated_policy(given)


def _models(given: Any) -> list[Any]:
    """Models in a list, or named in a text that is no file."""
    if isinstance(given, list | tuple):
        return list(given)
    if isinstance(given, str) and "," in given and not (os.path.exists(given) or is_known_model(given)):
        return list(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))
    return [given]


def takes_several(field: Field) -> bool:
    """Whether several values of a field can be compared: it holds a number, a name, a choice or a switch.

    Fields that hold lists, mappings, files or objects are taken as they are.
    """
    kind = plain_type(field.annotation)
    if OneValue in field.marks:
        return False
    return kind in (int, float, str, bool, Literal) or (isinstance(kind, type) and issubclass(kind, Enum))


def values_of(name: str, field: Field, given: Any) -> list[Any]:
    """The values that were given for a field: those of a list, of `8,16,64`, or of a range of numbers.

    `16..256` doubles from 16 up to 256, `16..256:16` goes in steps of 16. A field that cannot be compared,
    and one value, are a list of one.

    Raises:
        ConfigError: If a range has no end, or a list nothing in it.
    """
    if not takes_several(field):
        return [given]
    if isinstance(given, list | tuple | range):
        parts = list(given)
    elif isinstance(given, str) and given and plain_type(field.annotation) is not bool:
        parts = [part.strip() for part in given.split(",") if part.strip()]
    else:
        return [given]
    if plain_type(field.annotation) in (int, float):
        if len(parts) > 1 and any(isinstance(part, str) and _PADDED.fullmatch(part) for part in parts):
            raise ConfigError(f"{name}={given}: a comma parts values. To fix: a thousand is 1000 or 1k.")
        parts = _with_ranges(name, field, parts)
    if not parts:
        raise ConfigError(f"{name}={given!r} names no value. To fix: name one, or several such as 8,16,64.")
    try:
        return list(dict.fromkeys(parts))
    except TypeError:  # lists in a list: each is refused with the rule of the field
        return parts


def _with_ranges(name: str, field: Field, parts: Sequence[Any]) -> list[Any]:
    """The parts with the values of each range in its place; many ranges hold no more than one may."""
    found: list[Any] = []
    ranges = 0
    for part in parts:
        values = _range_of(name, field, part)
        found += values
        ranges += len(values) if len(values) > 1 else 0
        if ranges > MAX_VALUES:
            raise ConfigError(
                f"The ranges of {name} hold more than {MAX_VALUES:,} values. To fix: shorten them, or ask in "
                "parts."
            )
    return found


def _range_of(name: str, field: Field, part: Any) -> list[Any]:
    found = _RANGE.fullmatch(part) if isinstance(part, str) else None
    if found is None:
        return [part]
    rule = f"{name}={part}: a range is low..high, which doubles, or low..high:step"
    try:
        low, high = (field.read(found[end]) for end in ("low", "high"))
        step = None if found["step"] is None else field.read(found["step"])
    except ConfigError as error:
        raise ConfigError(f"{rule}. To fix: use numbers, as in {name}=16..256.") from error
    if high < low or low <= 0 or (step is not None and step <= 0):
        raise ConfigError(f"{rule}; this one holds nothing. To fix: {name}=16..256.")
    values = [low]
    while (above := values[-1] * 2 if step is None else values[-1] + step) <= high:
        values.append(above)
        if len(values) > MAX_VALUES:
            raise ConfigError(f"{rule}; this one holds more than {MAX_VALUES:,} values. To fix: shorten it.")
    return values
