"""JSON schemas of what commands answer with --json, read off the classes of the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import ERROR_SCHEMA, ConfigError, problem_of

ANSWERS = ("prediction", "run", "plan", "brief", "error")
"""Answers that `init --schema` describes."""
_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # JSON has no word for an endless one
    NoneType: {"type": "null"},
    Any: {},
}


def answer_schema(kind: str) -> dict[str, Any]:
    """The JSON schema of an answer."""
    parts: dict[str, Any] = {}
    if kind == "run":
        from ..planning.run.prediction import RunPrediction

        body = _of(RunPrediction, parts)
        _put_apart(parts, RunPrediction)
    elif kind == "plan":
        from ..planning.decision.result import Plan

        body = _of(Plan, parts)
    elif kind == "prediction":
        from ..predict.prediction import Prediction, Skipped

        body = _object(predictions=_list(_of(Prediction, parts)), skipped=_list(_of(Skipped, parts)))
        _put_apart(parts, Prediction)
    elif kind == "brief":
        body = _object(schema={"type": "string"}, predictions=_list(_brief(parts)), skipped=_list({}))
    else:
        said: dict[str, Any] = {name: {} for name in problem_of(ConfigError())}
        body = _object(schema={"const": ERROR_SCHEMA}, error=_object(**said))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "$defs": parts}


def _figures(parts: dict[str, Any]) -> dict[str, Any]:
    """What a job that does not fit in memory would only have if it did."""
    from ..predict.headline import FIGURES, Headline

    hints = get_type_hints(Headline)
    return _object(**{name: _of(hints[name], parts) for name in FIGURES})


def _put_apart(parts: dict[str, Any], kind: type) -> None:
    """An answer in full has these figures apart too, where it does not fit."""
    parts[kind.__name__]["properties"]["if_it_fitted"] = _figures(parts)


def _brief(parts: dict[str, Any]) -> dict[str, Any]:
    """Of one answer in the short form, whose figures stand under `if_it_fitted` where it does not."""
    from ..predict.headline import CERTAIN, Headline

    hints, figures = get_type_hints(Headline), _figures(parts)
    certain = {name: _of(hints[name] | None, parts) for name in CERTAIN}
    fits = _object(**certain, **figures["properties"])
    return {"oneOf": [fits, _object(**certain, if_it_fitted=figures)]}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _of(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type as `to_plain` writes it; those of dataclasses are put among the parts."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [_of(each, parts) for each in inner]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1], parts)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _list(_of(inner[0], parts))
    if not dataclasses.is_dataclass(kind):
        return {}
    name = kind.__name__  # type: ignore[union-attr]
    if name not in parts:
        parts[name] = {}  # a class may hold its own kind
        hints = get_type_hints(kind)
        shown = [item.name for item in dataclasses.fields(kind) if item.repr]
        parts[name] = _object(**{field: _of(hints[field], parts) for field in shown})
    return {"$ref": f"#/$defs/{name}"}
