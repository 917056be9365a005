"""`precision-time serve`: the HTTP service and its page."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import required_module
from .output import message

EXAMPLES = """\b
Examples:
  precision-time serve
  precision-time serve --port 9000 --workers 4
  PRECISION_TIME_TOKENS=secret precision-time serve --host 0.0.0.0
  precision-time serve --store postgresql+psycopg://user@db.example/precision_time --workers 4
  curl -s localhost:8400/v1/predictions -H 'Content-Type: application/json' -d '{"model": "resnet50"}'
"""


def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 for any that is free.")] = 8400,
    workers: Annotated[int, typer.Option("--workers", "-w", help="Processes that answer.")] = 1,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            envvar="PRECISION_TIME_STORE",
            metavar="URL",
            help="Where clusters, measurements and models are kept: sqlite:///FILE or postgresql+psycopg://.. "
            " [default: service.sqlite in the data folder]",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Bearer tokens of which a call must bring one, a line each; or PRECISION_TIME_TOKENS in the "
            "environment, separated by commas.  [default: none, everyone may ask]",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Another origin whose pages may ask; may be repeated."),
    ] = None,
    max_jobs: Annotated[int, typer.Option("--max-jobs", help="Most jobs of one call.")] = 1000,
    max_upload: Annotated[int, typer.Option("--max-upload", help="Largest upload [MiB].")] = 256,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Longest call [s].")] = 60.0,
    processes: Annotated[
        int, typer.Option("--processes", help="Processes for plans and layouts, of each worker.")
    ] = 1,
) -> None:
    """Serve predictions over HTTP, and a page to ask them on.

    Listens on the loopback interface, unless --host says otherwise. Nothing that a call sends is imported,
    unpickled or fetched. The routes are described at /openapi.json.
    """
    uvicorn: Any = required_module("uvicorn", package="uvicorn", extra="server", purpose="serve predictions")
    required_module("fastapi", package="fastapi", extra="server", purpose="serve predictions")
    from ..server.settings import MIB, SETTINGS_VARIABLE, Settings

    settings = Settings.of(
        {
            "host": host,
            "port": port,
            "workers": workers,
            "store": store,
            "tokens": None if tokens is None else tuple(tokens.read_text(encoding="utf-8").split()),
            "cors_origins": tuple(cors or ()),
            "max_jobs": max_jobs,
            "max_upload_bytes": max_upload * MIB,
            "time_limit_s": time_limit,
            "processes": processes,
        }
    )
    if host not in ("127.0.0.1", "::1", "localhost") and not settings.tokens:
        message(
            f"Warning: {host} can be reached by others, and no token is asked of them. To fix: --tokens FILE."
        )
    os.environ[SETTINGS_VARIABLE] = settings.to_environment()
    with tempfile.TemporaryDirectory(prefix="precision-time-") as folder:
        if workers > 1:
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        uvicorn.run(
            "precision_time.server.app:app_of_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            server_header=False,
            access_log=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
        )
