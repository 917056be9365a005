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
