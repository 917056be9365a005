"""`precision-time mcp`: the tools that agents ask by."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from precision_time.cli.output import message

EXAMPLES = """\b
Examples:
  precision-time mcp
  precision-time mcp --http --port 8765
  claude mcp add precision-time -- precision-time mcp
"""
TOKEN_VARIABLE = "PRECISION_TIME_TOKEN"  # noqa: S105 - the name of the variable


def mcp(
    *,
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help=f"Answer over streamable HTTP at /mcp on this machine, with the token of {TOKEN_VARIABLE} "
            "if set, rather than over stdin and stdout.",
        ),
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of --http.")] = 8765,
) -> None:
    """Serve the tools that agents ask by.

    They are predict, plan, layout, explain and devices.

    Each answers as the command of its name does, typed in and out; what cannot be is an error that names the
    field and the way to mend it. Nothing of a call is run, and no file is read.
    """
    import anyio

    from ..agents.server import http_app, serve_stdio

    if not http:
        anyio.run(serve_stdio)
        return
    import uvicorn

    app = http_app(token=os.environ.get(TOKEN_VARIABLE) or None)
    message(f"Agents are served at http://127.0.0.1:{port}/mcp")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
