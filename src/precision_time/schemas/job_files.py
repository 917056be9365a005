"""The JSON schema of a job file, out of the fields of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Union, get_args

import msgspec
from msgspec import Meta

from ..request.files import VERSION, VERSION_FIELD
from ..request.schema import ALIASES, MOVED, RequestFields
from ..request.sweep import PHASES, RUN, takes_several
from ..request.validation import Field

_PATH = Annotated[str, Meta(extra_json_schema={"format": "path"})]

QUEUE_FIELDS: Mapping[str, str] = {
    "name": "Of the job in a queue. Default: its place in the file.",
    "submit": "It starts no earlier: a duration from the start of the plan such as 2h, or a date.",
    "deadline": "It is to end by then: a duration from the start of the plan, or a date.",
    "weight": "How much its lateness or completion counts against that of the others. Default: 1.",
    "tenant": "Whose job it is: tenants have equal shares where fairness is asked for.",
}
"""What a job of a queue says beside the fields of a request and of a run."""


def job_file_schema(*, run: Mapping[str, Field], queue: Mapping[str, str]) -> dict[str, Any]:
    """What `files.read_jobs` takes: a job, a list of jobs, or fields beside a list of `jobs`."""
    definitions: dict[str, Any] = {}
    fields = _properties(RequestFields.model_fields.items(), definitions)
    others = {alias: {**fields[name], "description": f"Same as {name}."} for alias, name in ALIASES.items()}
    others |= {old: {**fields[name], "description": f"Called {name} now."} for old, name in MOVED.items()}
    known: dict[str, Any] = {**fields, **others}
    job_fields = {
        **known,
        VERSION_FIELD: {"const": VERSION, "description": "Of the file."},
        PHASES: {
            "type": "array",
            "items": {"type": "object"},
            "minItems": 1,
            "description": "Parts of a whole run: fields that differ, and a length (steps, share ...).",
        },
        **{name: {"type": ["string", "number"], "description": text} for name, text in queue.items()},
        RUN: {
            "type": "object",
            "properties": _properties(run.items(), definitions),
            "additionalProperties": False,
            "description": "What a whole run costs beside its steps.",
        },
    }
    listed = {"type": "array", "items": {"$ref": "#/$defs/Job"}, "minItems": 1}
    job = {"type": "object", "properties": job_fields, "additionalProperties": False}
    shared = {**job, "properties": {**job_fields, "jobs": listed}, "required": ["jobs"]}
    one = {"allOf": [{"$ref": "#/$defs/Job"}], "required": ["model"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs of precision-time",
        "anyOf": [one, listed, shared],
        "$defs": {**definitions, "Job": job},
    }


def _properties(named: Iterable[tuple[str, Field]], definitions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields that are options; what their types define is added to `definitions`."""
    fields: dict[str, dict[str, Any]] = {}
    for name, info in named:
        option = info.option
        if option is None:
            continue
        shape = msgspec.json.schema(_shown(info))
        definitions |= shape.pop("$defs", {})
        default = f" Default: {option.default}." if option.default else ""
        # Every value may be text as well: numbers with a suffix, lists in one line.
        several = [{"type": "array", "items": shape, "minItems": 1}] if takes_several(info) else []
        forms = [shape, {"type": "string"}, *several]
        fields[name] = {"anyOf": forms, "description": option.help + default}
    return fields


def _shown(field: Field) -> Any:
    """The type of a field, with its bounds, as msgspec knows it."""
    kinds = get_args(field.annotation) or (field.annotation,)
    if field.checked is None:
        return Union[tuple(_PATH if kind is Path else kind for kind in kinds)]  # noqa: UP007 - of a tuple
    return field.checked | None if NoneType in kinds else field.checked
