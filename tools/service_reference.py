"""The routes of the service as Markdown, from the application itself: parameters, limits, true examples.

`tools/update_docs.py` puts it into docs/reference/http.md. Numbers of answers are rounded and long parts
are left out, so that the page stays readable and the same on every machine.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

JSON = "application/json"
BASE = "http://127.0.0.1:8400"
_DEPTH, _LONGEST, _ITEMS, _KEYS = 3, 100, 2, 12
_TIMES = frozenset({"search_s", "created", "at"})
"""Keys whose values differ from call to call."""


def reference() -> str:
    """The limits and every route with its examples, as Markdown."""
    from starlette.testclient import TestClient

    from precision_time_server.app import create_app
    from precision_time_server.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.of({"store": f"sqlite:///{Path(folder) / 'service.sqlite'}"})
        with TestClient(create_app(settings), raise_server_exceptions=False) as client:
            document = client.get("/openapi.json").json()
            parts = [_limits(settings)]
            tags: dict[str, list[str]] = {}
            job = document["components"]["schemas"]["Job"]["properties"]
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    tag = (operation.get("tags") or ["other"])[0]
                    tags.setdefault(tag, []).append("\n".join(_route(client, method, path, operation, job)))
    for tag, routes in tags.items():
        parts += [f"## {tag[:1].upper()}{tag[1:]}\n", *routes]
    return "\n".join(parts)


def _limits(settings: Any) -> str:
    """The limits that an operator sets, and their defaults."""
    from precision_time_server.settings import MIB

    rows = {
        "body of a call": f"{settings.max_body_bytes / MIB:g} MiB",
        "uploaded model or table": f"{settings.max_upload_bytes / MIB:g} MiB",
        "jobs of one call, of a sweep and of a plan": f"{settings.max_jobs:,}",
        "seconds of one call": f"{settings.time_limit_s:g}",
        "calls in progress in a worker": f"{settings.max_waiting:,}",
    }
    lines = ["| limit | default |", "|---|---:|", *(f"| {what} | {value} |" for what, value in rows.items())]
    return "\n".join(lines) + "\n"


def _route(
    client: Any, method: str, path: str, operation: Mapping[str, Any], job: Mapping[str, Any]
) -> Iterator[str]:
    """One route: what it is for, what it takes beside the fields of a job, an example and its answer."""
    yield f"### {operation.get('summary', path)}: `{method.upper()} {path}`\n"
    if operation.get("description"):
        yield f"{operation['description']}\n"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "| parameter | in | meaning | default |\n|---|---|---|---|"
        for each in parameters:
            schema = each.get("schema", {})
            text = each.get("description") or schema.get("description") or _choices(schema)
            yield f"| `{each['name']}` | {each['in']} | {text} | {_shown(schema.get('default'))} |"
        yield ""
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema", {})
    own = {name: field for name, field in body.get("properties", {}).items() if field != job.get(name)}
    if own:
        beside = (
            ", beside the [fields of a job](request.md)" if job.keys() & body["properties"].keys() else ""
        )
        yield f"Fields of the body{beside}:\n\n| field | meaning | default |\n|---|---|---|"
        for name, field in own.items():
            default = field.get("default")
            yield f"| `{name}` | {field.get('description', '-')} | {_shown(default)} |"
        yield ""
    address = _address(path, parameters)
    sent = False
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        for example in content.get("examples", {}).values():
            yield from _example(client, method, address, kind, example["value"], answered=not sent)
            sent = True
    if not sent and method == "get" and address is not None and path != "/metrics":
        yield from _example(client, method, address, None, None, answered=True)


def _shown(default: Any) -> str:
    return "-" if default in (None, "", []) else f"`{json.dumps(default)}`"


def _choices(schema: Mapping[str, Any]) -> str:
    found = schema.get("enum")
    return ", ".join(map(str, found)) if found else "-"


def _address(path: str, parameters: list[dict[str, Any]]) -> str | None:
    """The path with examples of its parameters; None where one has none."""
    for each in parameters:
        if each["in"] == "path":
            schema = each.get("schema", {})
            shown = each.get("example") or next(
                iter(schema.get("examples") or schema.get("enum") or ()), None
            )
            if shown is None:
                return None
            path = path.replace(f"{{{each['name']}}}", str(shown))
    queries = [
        f"{each['name']}={value}"
        for each in parameters
        if each["in"] == "query" and (value := next(iter(each.get("schema", {}).get("examples") or ()), None))
    ]
    return f"{path}?{'&'.join(queries)}" if queries else path


def _example(
    client: Any, method: str, address: str | None, kind: str | None, value: Any, *, answered: bool
) -> Iterator[str]:
    """A call as one would type it, and what it answers."""
    body = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    words = ["curl", *(["-X", method.upper()] if method not in ("get", "post") else [])]
    words.append(f"{BASE}{address or ''}")
    if kind is not None:
        words += [
            *([] if kind == JSON else ["-H", f"Content-Type: {kind}"]),
            "--json" if kind == JSON else "-d",
        ]
        words.append(body)
    if address is None:
        yield f"```json\n{json.dumps(value, indent=1, ensure_ascii=False)}\n```\n"
        return
    yield f"```console\n$ {shlex.join(words)}\n```\n"
    if not answered:
        return
    headers = {} if kind is None else {"content-type": kind}
    answer = client.request(method, address, content=None if kind is None else body, headers=headers)
    if answer.is_success and answer.headers.get("content-type", "").startswith(JSON):
        text = json.dumps(shortened(answer.json()), indent=1, ensure_ascii=False)
        yield f"```json\n{text}\n```\n"


def shortened(value: Any, depth: int = _DEPTH) -> Any:
    """A value with rounded numbers and without what is deep, long or different every time.

    >>> shortened({"step_time_s": 0.123456789, "items": [1, 2, 3, 4]})
    {'step_time_s': 0.1235, 'items': [1, 2, '... 2 more']}
    """
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if not isinstance(value, dict | list) or not value:
        return value
    if depth == 0:
        return "{...}" if isinstance(value, dict) else "[...]"
    if isinstance(value, list):
        more = [f"... {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return [*(shortened(item, depth - 1) for item in value[:_ITEMS]), *more]
    kept = [name for name in value if name not in _TIMES]
    found = {name: shortened(value[name], depth - 1) for name in kept[:_KEYS]}
    return found | ({"...": f"{len(kept) - _KEYS} more"} if len(kept) > _KEYS else {})


if __name__ == "__main__":
    sys.stdout.write(reference())
