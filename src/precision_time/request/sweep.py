"""Several values of a field ask for several jobs: all combinations of all fields that have more than one.

The same for options (`-g 8,16,64`), job files (a list where a field holds one value) and Python calls.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import product
from typing import Any

from ..errors import ConfigError
from ..precision.catalog import is_policy_file, known_precisions
from ..workload.resolve import is_known_model
from .fields import values_of
from .request import Request
from .schema import ALIASES, request_fields

MOST = 10_000
"""Combinations of one question; so many take seconds. More: `grid.py`."""
ALL = "all"
PHASES, RUN = "phases", "run"
"""Fields of a job file for `precision-time run`."""
_MODEL, _PRECISION = "model", "precision"


def combinations_of(given: Mapping[str, Any], *, prefix: str = "") -> list[Request]:
    """One request for each combination of the values given, the last of the fields varying fastest.

    Args:
        given: Field to value or values, as `fields.values_of` reads them.
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
            "phases are of a whole run, and a prediction is of one step. To fix: `precision-time run` with "
            "the same file, or leave out phases."
        )
    # What a whole run costs beside its steps says nothing of a step.
    flat = _flat({name: value for name, value in given.items() if name not in (PHASES, RUN)})
    order = {name: index for index, (name, _) in enumerate(request_fields())}
    names = sorted(flat, key=lambda name: order.get(ALIASES.get(name, name), len(order)))
    return {name: _values(name, flat[name]) for name in names}


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Layout options beside the others."""
    layout = given.get("layout")
    if not isinstance(layout, Mapping):
        return dict(given)
    return {**layout, **{name: value for name, value in given.items() if name != "layout"}}


def _values(name: str, given: Any) -> list[Any]:
    field = ALIASES.get(name, name)
    info = dict(request_fields()).get(field)
    if info is None or given is None:
        return [given]
    if field == _MODEL:
        return _models(given)
    if field == _PRECISION and isinstance(given, str) and given.strip().lower() == ALL:
        return list(known_precisions())
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
