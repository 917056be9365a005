"""Whatever a call says, it is answered in time as the OpenAPI document promises, and never with 500."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from precision_time_server.app import create_app
from precision_time_server.settings import Settings

NIGHTLY = bool(os.environ.get("PRECISION_TIME_NIGHTLY"))
CALLS = 10_000 if NIGHTLY else 100
TIME_LIMIT_S = 10.0
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_HOSTILE: list[Any] = [
    0, -1, 1e308, 5e-324, 2**31, 2**53 + 1, 10**40, True, "", " ", "\x00", "a" * 5000, "1..1000000000:1",
    "1..1000000000000", ",".join(map(str, range(500))), ["1..9999:1"] * 3, "/etc/passwd", "../../etc/passwd",
    "/etc/policy.yaml,fp32", "uploads/../../x", "os:system", "net.py", "NaN", "1e999", "-0", "9" * 50, [], {},
    [[]], [{}], {"a": {"b": []}}, [None], "custom=/etc/passwd,step_time_s=1", [{"step_time_s": 1}],
    [{"step_time_s": 1e-300, "gpus": 10**30}], {"model_type": "llama"},
    {"model_type": "llama", "hidden_size": -1},
    {"architectures": [{}], "model_type": "bert", "num_hidden_layers": 10**12}, "\ud7ff\uffff", "x=1",
    ["tp=0"],
]  # fmt: skip
"""Values put into fields of jobs that are else as the examples have them."""
_CLUSTER = "lab"
_seen: Counter[str] = Counter()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with tight limits; what it does not foresee is raised here."""
    store = f"sqlite:///{tmp_path_factory.mktemp('fuzz') / 'service.sqlite'}"
    chosen = {"store": store, "time_limit_s": TIME_LIMIT_S, "max_jobs": 50}
    with TestClient(create_app(Settings.of(chosen))) as found:
        yield found
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(_seen.items()))
    print(f"\n{_seen.total():,} calls: {statuses}")


def operations() -> dict[str, Any]:
    """Every operation of the document, by method and path."""
    app = create_app(Settings.of({"store": "sqlite://"}))
    schema = schemathesis.openapi.from_dict(app.openapi())
    return {found.label: found for found in (each.ok() for each in schema.get_all_operations())}


OPERATIONS = operations()


def examples_of(operation: Any) -> list[dict[str, Any]]:
    """Bodies that the document shows for an operation, as JSON objects."""
    content = operation.definition.raw.get("requestBody", {}).get("content", {})
    shown = content.get("application/json", {}).get("examples", {})
    return [each["value"] for each in shown.values() if isinstance(each["value"], dict)]


@st.composite
def cases(draw: st.DrawFn, operation: Any) -> Any:
    """A call as the schema has it, as it does not have it, or an example with some fields changed."""
    mode = draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
    case = draw(operation.as_strategy(generation_mode=mode))
    if "name" in case.path_parameters and draw(st.integers(0, 3)):
        case.path_parameters["name"] = _CLUSTER  # a name that is there
    examples = examples_of(operation)
    if not examples or draw(st.integers(0, 3)) == 0:
        return case
    body = dict(draw(st.sampled_from(examples)))
    if isinstance(case.body, dict) and draw(st.booleans()):
        names = sorted(case.body.keys() - {"model"})
        chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
        body |= {name: case.body[name] for name in chosen}
    else:
        fields = operation.definition.raw["requestBody"]["content"]["application/json"]["schema"]
        known = sorted(fields.get("properties", {})) or sorted(body) or ["model"]
        body[draw(st.sampled_from(known))] = draw(st.sampled_from(_HOSTILE))
    case.body, case.media_type, case.query = body, "application/json", {}
    return case


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_foreseen(client: TestClient, label: str) -> None:
    operation = OPERATIONS[label]
    client.put(f"/v1/clusters/{_CLUSTER}", json={"fields": {"device": "A100-SXM4-80GB"}})
    has_input = operation.body or operation.query or operation.path_parameters
    shared = sum(bool(each.body or each.query or each.path_parameters) for each in OPERATIONS.values())

    @seed(18)
    @settings(
        max_examples=-(-CALLS // shared) if has_input else 1,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(operation))
    def ask(case: Any) -> None:
        sent = requests.Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
        note(f"{sent.method} {sent.url} {sent.body!r}")
        started_s = time.perf_counter()
        answer = client.request(sent.method, sent.url, headers=dict(sent.headers), content=sent.body)
        took_s = time.perf_counter() - started_s
        _seen[str(answer.status_code)] += 1
        assert took_s < TIME_LIMIT_S + 5.0, f"{took_s:.1f} s"
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        if answer.status_code != 504:
            case.validate_response(answer, checks=_CHECKS)

    ask()
