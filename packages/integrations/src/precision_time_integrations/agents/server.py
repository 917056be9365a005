"""The tools as a server of the Model Context Protocol, over stdin and stdout or over HTTP on this machine."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anyio import to_thread

from precision_time import __version__
from precision_time.barrier import data_only
from precision_time.errors import ERROR_SCHEMA, ConfigError, problem_of, required_module

from .tools import AgentTool, tools, words

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WHY = "serve agents"


def _module(name: str) -> Any:
    return required_module(name, package="mcp", extra="precision-time-integrations[mcp]", purpose=_WHY)


def answered(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The answer of a tool, and whether it is an error, which an agent reads as it reads an answer."""
    unknown = [name for name in arguments if name not in tool.takes["properties"]]
    try:
        if unknown:
            raise ConfigError(
                f"{unknown[0]} is no argument of {tool.name}. To fix: one of "
                f"{', '.join(tool.takes['properties'])}; other fields of a job go into fields."
            )
        with data_only():
            return _plain(tool.call(arguments)), False
    except Exception as error:  # noqa: BLE001 - whatever it is, the agent is told and the server lives on
        return {"schema": ERROR_SCHEMA, "error": problem_of(error)}, True


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """As JSON holds it: choices as words, paths as text."""
    plain: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False, default=str))
    return plain


def server() -> Any:
    """The server of all tools.

    Raises:
        MissingExtraError: If `mcp` is not installed.
    """
    types, lowlevel = _module("mcp.types"), _module("mcp.server.lowlevel")
    known = {tool.name: tool for tool in tools()}

    async def list_tools(_context: Any, _params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    title=tool.title,
                    description=tool.description,
                    input_schema=dict(tool.takes),
                    output_schema=dict(tool.gives),
                    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
                )
                for tool in known.values()
            ]
        )

    async def call_tool(_context: Any, params: Any) -> Any:
        tool = known.get(params.name)
        if tool is None:
            said, wrong = _unknown(params.name, known), True
        else:
            said, wrong = await to_thread.run_sync(answered, tool, params.arguments or {})
        text = types.TextContent(type="text", text=json.dumps(said))
        return types.CallToolResult(content=[text], structured_content=said, is_error=wrong)

    return lowlevel.Server(
        "precision-time",
        version=__version__,
        instructions=words()["instructions"],
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _unknown(name: str, known: Mapping[str, AgentTool]) -> dict[str, Any]:
    error = ConfigError(f"There is no tool {name!r}. To fix: one of {', '.join(known)}.")
    return {"schema": ERROR_SCHEMA, "error": problem_of(error)}


async def serve_stdio() -> None:
    """Answer over stdin and stdout until they close."""
    stdio = _module("mcp.server.stdio")
    made = server()
    async with stdio.stdio_server() as (reader, writer):
        await made.run(reader, writer, made.create_initialization_options())


def http_app(*, token: str | None, host: str = "127.0.0.1") -> Any:
    """The server as an ASGI application at /mcp.

    Names and origins other than this machine's are refused, as the service does: a web page that a user
    visits is no caller.

    Args:
        token: Bearer token that a call must bring; None: everyone on this machine may ask.
        host: The address that is listened on.

    Raises:
        ConfigError: If that is not this machine alone.
    """
    if host not in LOOPBACK:
        raise ConfigError(
            f"host={host} is open to others. The rule: agents are served on this machine alone. To fix: "
            "127.0.0.1, with a proxy of your own in front where others are to ask."
        )
    app = server().streamable_http_app(json_response=True, stateless_http=True, host=host)
    return app if token is None else _with_token(app, token)


_Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def _with_token(app: _Asgi, token: str) -> _Asgi:
    """The application, for calls that bring the token."""
    expected = f"bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(kind.lower() + b" " + given.strip(), expected):
                body = json.dumps(
                    problem_of(
                        ConfigError(
                            "No token that this server accepts. To fix: send Authorization: Bearer TOKEN."
                        )
                    )
                ).encode()
                start = {
                    "type": "http.response.start",
                    "status": 401,
                    "headers": [
                        (b"content-type", b"application/json"),
                        (b"www-authenticate", b"Bearer"),
                    ],
                }
                await send(start)
                await send({"type": "http.response.body", "body": body})
                return
        await app(scope, receive, send)

    return guarded
