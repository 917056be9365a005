"""Published schemas of what is read and written, cut down to the parts that these tests use.

`schemas.json` holds, for each kind, the places of the published schema that our documents touch: their types,
and beside them the names of all other fields, so that a field that the schema does not have is found. Where
kubernetes-validate is installed, test_deploy.py checks against the whole schemas.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]


@cache
def _schemas() -> dict[str, Any]:
    path = Path(__file__).with_name("schemas.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def schema_of(document: dict[str, Any]) -> dict[str, Any]:
    return dict(_schemas()[f"{document['apiVersion']} {document['kind']}"]["schema"])


def violations(document: Any, schema: dict[str, Any]) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in found]


def published(version: str, kind: str) -> dict[str, Any]:
    """A definition of a custom resource for an API server, of the cut schema."""
    group, _, number = version.partition("/")
    plural = f"{kind.lower()}s"
    cut = _schemas()[f"{version} {kind}"]["schema"]
    schema = structural({**cut, "properties": {**cut["properties"], "metadata": {}}})
    schema["properties"]["metadata"] = {"type": "object"}  # an API server has its own
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups of Kubernetes itself (kueue.x-k8s.io, jobset.x-k8s.io) want a word on their review.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": number, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def structural(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema in the words of Kubernetes: fields that it does not name are dropped, the others are kept."""
    if schema.get("type") == ["integer", "string"]:
        return {"x-kubernetes-int-or-string": True}
    if not schema:
        return {"x-kubernetes-preserve-unknown-fields": True}
    found = {
        key: value
        for key, value in schema.items()
        if key in ("type", "enum", "minimum", "maximum", "required")
    }
    found.setdefault("type", "object")
    if "properties" in schema:
        found["properties"] = {name: structural(each) for name, each in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = structural(schema["additionalProperties"])
    elif found["type"] == "object":
        found["x-kubernetes-preserve-unknown-fields"] = True
    if found["type"] == "array":
        found["items"] = structural(schema.get("items", {}))
    return found
