"""What routes say of themselves: the schema of a job is that of a job file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_type_hints

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from precision_time.cache import data
from precision_time.planning.run.schema import RunOptions
from precision_time.request.schema import ALIASES
from precision_time.request.sweep import RUN
from precision_time.request.validation import REQUIRED, Fields
from precision_time.schemas.job_files import job_file_schema

from .jobs import REFUSED

JOB = "Job"
EXAMPLE_JOB: Mapping[str, Any] = {
    "model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "precision": "fp16-mixed", "batch_size": 256,
}  # fmt: skip
_COMPONENTS = "#/components/schemas/"


@data
def job_schemas() -> Mapping[str, Any]:
    """The schemas of a job and of what its fields use, by name."""
    text = json.dumps(job_file_schema(run=RunOptions.model_fields, queue={})["$defs"])
    found: dict[str, Any] = json.loads(text.replace("#/$defs/", _COMPONENTS))
    fields = found[JOB]["properties"]
    for name in (*REFUSED, "version", "phases", "run"):
        fields.pop(name, None)
    fields["model"] = {
        "anyOf": [{"type": "string"}, {"type": "object"}],
        "description": "A known name (GET /v1/catalogs/models), an inline Hugging Face configuration, or the "
        "name of an uploaded model (POST /v1/models).",
    }
    fields["cluster"] = {
        "type": "string",
        "description": "A stored cluster (GET /v1/clusters): its defaults, anchors and calibration are used.",
    }
    found[JOB] |= {"required": ["model"], "description": "A training job, as a job file describes it."}
    return found


def job_reference() -> dict[str, str]:
    """A job, as part of another schema."""
    return {"$ref": f"{_COMPONENTS}{JOB}"}


def body(schema: Mapping[str, Any], **examples: Mapping[str, Any]) -> dict[str, Any]:
    """For `openapi_extra=` of a route that reads JSON.

    Args:
        schema: Of the body.
        examples: Bodies by name; at least one.
    """
    stated = {name: {"value": example} for name, example in examples.items()}
    content = {"application/json": {"schema": schema, "examples": stated}}
    return {"requestBody": {"required": True, "content": content}}


def answer(kind: Any, description: str) -> dict[str, Any]:
    """For one entry of `responses=`: the schema of a dataclass of ours."""
    return {"description": description, "content": {"application/json": {"schema": part(kind)}}}


def part(kind: Any) -> dict[str, Any]:
    """The schema of a dataclass or a type of ours, as part of another one."""
    schema: dict[str, Any] = TypeAdapter(kind).json_schema(
        mode="serialization", ref_template=f"{_COMPONENTS}{{model}}"
    )
    _extra_schemas.update(schema.pop("$defs", {}))
    return schema


def arguments_part(kind: type[Fields]) -> dict[str, Any]:
    """The fields of what a call may say, as properties of another schema."""
    of_file = job_file_schema(run=kind.model_fields, queue={})["$defs"][JOB]["properties"]
    found: dict[str, Any] = of_file[RUN]["properties"]
    for name, field in kind.model_fields.items():
        if name in found and field.default not in (None, REQUIRED):
            found[name]["default"] = field.default
    return found


def job_part(names: Collection[str] | None = None) -> dict[str, Any]:
    """Fields of a job as properties of another schema; None for all of them.

    A name that a job has for the same quantity goes with its field.
    """
    fields: dict[str, Any] = job_schemas()[JOB]["properties"]
    return {
        name: schema for name, schema in fields.items() if names is None or ALIASES.get(name, name) in names
    }


def dictionary(
    kind: type,
    description: str,
    *,
    without: Collection[str] = (),
    instead: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """For one entry of `responses=`: what `to_dict` of a dataclass of ours says, key by field.

    Args:
        kind: The dataclass.
        description: Of the answer.
        without: Fields that `to_dict` leaves out.
        instead: Schemas of fields that `to_dict` says otherwise.
    """
    hints, stated = get_type_hints(kind), dict(instead or {})
    names = [item.name for item in dataclasses.fields(kind) if item.name not in without]
    properties = {name: stated[name] if name in stated else part(hints[name]) for name in names}
    schema = {"type": "object", "properties": properties, "required": names}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def with_nulls(name: str) -> None:
    """Let the numbers of a schema that an answer uses be null: JSON has no word for endless ones."""
    for field, schema in _extra_schemas[name]["properties"].items():
        if schema.get("type") == "number":
            _extra_schemas[name]["properties"][field] = {**schema, "type": ["number", "null"]}
        elif schema.get("additionalProperties", {}) == {"type": "number"}:
            schema["additionalProperties"] = {"type": ["number", "null"]}


def _bounded(schema: Any, most: int) -> Any:
    """The same, where each list of what is asked has an end: the jobs of a call, if it states no other."""
    if isinstance(schema, list):
        return [_bounded(each, most) for each in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {
        name: part if name in ("example", "examples") else _bounded(part, most)
        for name, part in schema.items()
    }
    return {"maxItems": most, **parts} if schema.get("type") == "array" else parts


_extra_schemas: dict[str, Any] = {}
"""What the schemas of answers use, by name; filled when routes are imported."""


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Let the document have the schemas of jobs and answers, and bodies of routes as they are stated."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            # FastAPI leaves out what is null, which an example may say on purpose.
            for route in (route for router in routers for route in router.routes):
                stated = (getattr(route, "openapi_extra", None) or {}).get("requestBody")
                if stated and isinstance(route, APIRoute):
                    for method in route.methods or ():
                        found["paths"][route.path_format][method.lower()]["requestBody"] = stated
            components = found.setdefault("components", {})
            components["schemas"] = {**components.get("schemas", {}), **_extra_schemas, **job_schemas()}
            components["schemas"][JOB] = _bounded(components["schemas"][JOB], app.state.settings.max_jobs)
            for operation in (each for path in found["paths"].values() for each in path.values()):
                if "requestBody" in operation:
                    operation["requestBody"] = _bounded(operation["requestBody"], app.state.settings.max_jobs)
            if app.state.settings.tokens:
                components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
