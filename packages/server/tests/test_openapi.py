"""Every route says what it takes and gives, with examples that it answers as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from precision_time_server.app import create_app, routers
from precision_time_server.settings import Settings

JSON = "application/json"


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return create_app(Settings.of({"store": "sqlite://"})).openapi()


DOCUMENT = document()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def examples() -> Iterator[Any]:
    """Calls that the document shows: method, path with its parameters filled in, body, operation."""
    for method, path, operation in operations():
        bodies = operation.get("requestBody", {}).get("content", {})
        for kind, content in bodies.items():
            for name, example in content.get("examples", {}).items():
                call = (method, path, kind, example["value"], operation)
                yield pytest.param(*call, id=f"{method} {path} {name}")


def schema_of(operation: dict[str, Any], status: int, kind: str) -> dict[str, Any]:
    answers = operation["responses"]
    content = answers.get(str(status), answers.get(f"{status // 100}XX"))["content"]
    found: dict[str, Any] = content[kind]["schema"]
    return {**found, "components": DOCUMENT["components"]}


def test_every_route_is_documented() -> None:
    routes = {
        (method.lower(), route.path)
        for router in routers()
        for route in router.routes
        if isinstance(route, APIRoute) and (route.include_in_schema or route.path.startswith("/v1"))
        for method in route.methods
    }
    assert routes == {(method, path) for method, path, _ in operations()}
    assert len(routes) >= 12
    for method, path, operation in operations():
        assert operation.get("summary"), (method, path)
        assert operation.get("description"), (method, path)
        assert any(status.startswith("2") for status in operation["responses"]), (method, path)
        if path.startswith("/v1"):
            assert "4XX" in operation["responses"], (method, path)
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content.get("examples") or content.get("example"), (method, path, kind)


@pytest.mark.parametrize(("method", "path", "kind", "sent", "operation"), examples())
def test_every_example_is_answered_as_the_document_says(
    client: TestClient, method: str, path: str, kind: str, sent: Any, operation: dict[str, Any]
) -> None:
    body = operation["requestBody"]["content"][kind].get("schema", {})
    if kind == JSON:
        jsonschema.validate(sent, {**body, "components": DOCUMENT["components"]})
    if "{" in path or kind != JSON:  # what must be stored first is, in the tests of its route
        return
    answer = client.request(method, path, json=sent)
    assert answer.status_code in (200, 201), answer.text
    jsonschema.validate(answer.json(), schema_of(operation, answer.status_code, JSON))


def test_routes_of_a_plugin_join_and_what_is_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = APIRouter(prefix="/v1/theirs")
    there = routers()
    monkeypatch.setattr("precision_time_server.app.loaded", lambda _: {"theirs": theirs, "none": "words"})
    with pytest.warns(RuntimeWarning, match="plugin none are left out.*str is no APIRouter"):
        found = routers()
    assert theirs in found and found[-1] is there[-1]
