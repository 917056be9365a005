"""The columns of the store's measurement table, and rows to and from `Measurement`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any, get_type_hints

from ..cost.job import TimingScope
from ..cost.stacks import Stack, get_stack_profile
from ..parallel.layout import Layout
from ..request.schema import MOVED
from .measurement import Measurement, Quality


def _fields_of(*types: str) -> tuple[str, ...]:
    return tuple(item.name for item in fields(Measurement) if item.type in types and item.name not in _APART)


_APART = ("configuration_key", "row_id")
TEXTS = _fields_of("str", "TimingScope", "Quality")
INTEGERS = _fields_of("int", "int | None")
REALS = _fields_of("float", "float | None")
OBJECTS = tuple(
    item.name for item in fields(Measurement) if item.name not in (*TEXTS, *INTEGERS, *REALS, *_APART)
)
SIDE = (*TEXTS, *OBJECTS)
"""Texts and objects repeat a great deal: each different one is stored once, in a table of its own."""
COLUMNS = (*SIDE, *INTEGERS, *REALS, "configuration_key")

_LEFT_OUT = {name: value for name, value in asdict(Layout()).items() if name != "micro_batch_size"}
"""Values that the stored form of a layout leaves out: part of the format, so a test pins these defaults."""
_STACK_VERSION_1 = {"fused_attention": False}
"""Defaults of `Stack` that were others when stores of version 1 were written."""
_LAYOUT_RENAMED = {**MOVED, "recomputed": "recompute_modules"}
"""Fields of `Layout` by the names that earlier stores have."""
_STACK_RENAMED = {"overlap_gradients": "overlap_grad_reduce", "overlap_parameters": "overlap_param_gather"}
"""Fields of `Stack` by the names that earlier stores have."""
_LAYOUT_ENUMS = {
    name: kind
    for name, kind in get_type_hints(Layout).items()
    if isinstance(kind, type) and issubclass(kind, StrEnum)
}


def to_json(value: Any) -> str:
    """The stored form of a tuple, mapping, Layout, Stack or None."""
    if isinstance(value, Layout):
        value = _differences(asdict(value), _LEFT_OUT)
    elif isinstance(value, Stack):
        usual = get_stack_profile(value.profile).stack(framework_year=value.framework_year)
        named = {"of": value.profile, "year": value.framework_year}
        value = {**named, **_differences(asdict(value), asdict(usual))}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _differences(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _layout(text: str) -> Layout | None:
    data = json.loads(text)
    if data is None:
        return None
    if "checkpointed_share" in data:
        data["recompute_layers"] = data.pop("checkpointed_share") % 1.0
    data = {_LAYOUT_RENAMED.get(name, name): value for name, value in data.items()}
    for name, value in data.items():
        if isinstance(value, list):
            data[name] = tuple(value)
        elif name in _LAYOUT_ENUMS:
            data[name] = _LAYOUT_ENUMS[name](value)
    return Layout(**data)


def _stack(text: str) -> Stack:
    """What a profile and year say today, and where the row differs; version 1 stored every field."""
    data = {_STACK_RENAMED.get(name, name): value for name, value in json.loads(text).items()}
    if "of" not in data:
        return Stack(**{**_STACK_VERSION_1, **data})
    profile = get_stack_profile(data.pop("of"))
    return replace(profile.stack(framework_year=data.pop("year")), **data)


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


_READERS: dict[str, Callable[[str], Any]] = {
    "sizes": json.loads,
    "placement": _tuple,
    "layout": _layout,
    "stack": _stack,
    "inferred": _tuple,
    "assumptions": _tuple,
    "scope": TimingScope,
    "quality": Quality,
}


def decode(rows: Sequence[Sequence[Any]], texts: dict[int, str]) -> list[Measurement]:
    """Measurements from table rows; equal side values are decoded once and shared."""
    if not rows:
        return []
    columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
    for index, name in enumerate(SIDE):
        read = _READERS.get(name)
        values = {key: read(texts[key]) if read else texts[key] for key in set(columns[index])}
        columns[index] = map(values.__getitem__, columns[index])
    columns[-2] = map(bytes.hex, columns[-2])
    found = [Measurement.__new__(Measurement) for _ in rows]
    # Slots filled a column at a time: the generated constructor takes five times as long.
    for name, column in zip((*COLUMNS, "row_id"), columns, strict=True):
        deque(map(getattr(Measurement, name).__set__, found, column), maxlen=0)
    return found
