"""The JSON schema of a job file, out of the fields of a request."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from .schema import ALIASES, option_of, request_fields


def job_file_schema() -> dict[str, Any]:
    """What `files.read_requests` takes: a job, a list of jobs, or fields beside a list of `jobs`."""
    fields: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, info in request_fields():
        option = option_of(info)
        if option is None:
            continue
        typed = Annotated[(info.annotation, *info.metadata)]  # type: ignore[index]
        shape = TypeAdapter(typed).json_schema(ref_template="#/$defs/{model}")
        definitions |= shape.pop("$defs", {})
        if any(isinstance(item, BeforeValidator) for item in info.metadata):
            # Numbers may be written with a suffix, lists in one text.
            shape = {"anyOf": [shape, {"type": "string"}]}
        default = f" Default: {option.default}." if option.default else ""
        fields[name] = {**shape, "description": option.help + default}
    others = {alias: {**fields[name], "description": f"Same as {name}."} for alias, name in ALIASES.items()}
    job = {"type": "object", "properties": {**fields, **others}, "additionalProperties": False}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Job"}, "minItems": 1}
    shared = {**job, "properties": {**job["properties"], "jobs": listed}, "required": ["jobs"]}
    one = {"allOf": [{"$ref": "#/$defs/Job"}], "required": ["model"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs of precision-time",
        "anyOf": [one, listed, shared],
        "$defs": {**definitions, "Job": job},
    }
