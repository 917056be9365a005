"""`precision-time serve`: the HTTP service and its page."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, write_json
from precision_time.errors import ConfigError, required_module
from precision_time.io import read_input

if TYPE_CHECKING:
    from ..settings import Settings

EXAMPLES = """\b
Examples:
  precision-time serve
  precision-time serve --port 9000 --workers 4
  precision-time serve --host 0.0.0.0 --port 8443 --tls-cert tls.crt --tls-key tls.key
  PRECISION_TIME_TOKENS=secret precision-time serve --host 0.0.0.0
  precision-time serve --allowed-host predict.example
  precision-time serve --store postgresql+psycopg://user@db.example/precision_time --workers 4
  curl -s localhost:8400/v1/predictions -H 'Content-Type: application/json' -d '{"model": "resnet50"}'
"""


_MIB = 1 << 20
_LIMITS = {
    "jobs": ("max_jobs", 1000, 1),
    "upload": ("max_upload_bytes", 256, _MIB),
    "rows": ("max_rows", 200_000, 1),
    "clusters": ("max_clusters", 1000, 1),
    "models": ("max_models", 1000, 1),
    "store": ("max_store_bytes", 4096, _MIB),
}
"""By name: the setting, its usual value, and its unit."""


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
            help="Where clusters, measurements and models are kept: sqlite:///FILE, "
            "postgresql+psycopg://...  [default: service.sqlite in the data folder]",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
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
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="A name under which callers reach the service, such as that of its proxy; may be repeated. "
            "--host, its address and localhost need not be named.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="Most of what a call or the store may hold: "
            + ", ".join(f"{name}={usual}" for name, (_, usual, _) in _LIMITS.items())
            + " (upload and store in MiB); may be repeated.",
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Longest call [s].")] = 60.0,
    processes: Annotated[
        int, typer.Option("--processes", help="Processes for plans and layouts, of each worker.")
    ] = 1,
    train_predictddl: Annotated[
        bool,
        typer.Option("--train-predictddl", help="Let calls train a PredictDDL predictor that is missing."),
    ] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            help="Answer over HTTPS with this certificate (PEM, issuers after it); read at the start.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of --tls-cert.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Serve predictions over HTTP, and a page to ask them on.

    Listens on the loopback interface, unless --host says otherwise. Nothing that a call sends is imported,
    unpickled or fetched. The routes are described at /openapi.json.
    """
    for package in ("uvicorn", "fastapi"):
        required_module(package, package=package, extra="precision-time-server", purpose="serve predictions")
    from ..settings import SETTINGS_VARIABLE, Settings

    settings = Settings.of(
        {
            "host": host,
            "port": port or _free_port(host),
            "workers": workers,
            "store": store,
            "tokens": None if tokens is None else tuple(read_input(tokens).split()),
            "cors_origins": tuple(cors or ()),
            "allowed_hosts": tuple(allowed_host or ()),
            **_limits(limit or ()),
            "time_limit_s": time_limit,
            "processes": processes,
            "train_predictddl": train_predictddl,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
        }
    )
    if host not in ("127.0.0.1", "::1", "localhost") and not settings.tokens:
        message(
            f"Warning: {host} can be reached by others, and no token is asked of them. To fix: "
            "--token-file FILE."
        )
    if settings.tls_cert is not None and settings.tls_key is not None:
        _check_certificate(settings.tls_cert, settings.tls_key)
    _check_port(settings)
    url = settings.url
    if json_output:
        write_json({"url": url, "workers": workers, "openapi": f"{url}/openapi.json"})
        sys.stdout.flush()
    else:
        message(f"Page and routes at {url}, described at {url}/openapi.json. Ctrl-C ends the service.")
    os.environ[SETTINGS_VARIABLE] = settings.to_environment()
    _run(settings)


def _limits(pairs: Sequence[str]) -> dict[str, int]:
    """The limits of the service, as settings.

    Raises:
        ConfigError: If one is unknown, or no number.
    """
    found = {setting: usual * unit for setting, usual, unit in _LIMITS.values()}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in _LIMITS or not text.strip().isdecimal():
            raise ConfigError(
                f"--limit {pair!r} is not NAME=NUMBER. The rule: one of {', '.join(_LIMITS)}. To fix: write "
                "it like --limit jobs=1000."
            )
        setting, _, unit = _LIMITS[name]
        found[setting] = int(text) * unit
    return found


def _run(settings: Settings) -> None:
    """Answer calls until the process is told to end."""
    import uvicorn

    from ..connections import prompt_protocol

    with tempfile.TemporaryDirectory(prefix="precision-time-") as folder:
        if settings.workers > 1:
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        uvicorn.run(
            "precision_time_server.app:app_of_environment",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            server_header=False,
            access_log=False,
            http=prompt_protocol(),
            ws="none",
            limit_concurrency=settings.max_connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )


def _free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with socket.create_server((host, 0), family=_family(host)) as found:
        return int(found.getsockname()[1])


def _check_port(settings: Settings) -> None:
    """Refuse a port that is taken before workers start.

    Raises:
        ConfigError: If it cannot be listened on.
    """
    try:
        socket.create_server((settings.host, settings.port), family=_family(settings.host)).close()
    except OSError as error:
        raise ConfigError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}. To fix: "
            "another --port (0 for any that is free) or --host, or end what listens there."
        ) from None


def _check_certificate(certificate: Path, key: Path) -> None:
    """Refuse files that no client could be answered with, before workers start.

    Raises:
        ConfigError: If one cannot be read, the key is encrypted, or they do not belong together.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # of ssl among them
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{certificate} and {key} cannot be served: {str(reason).lower().replace('_', ' ')}. The rule: a "
            "certificate in PEM, those of its issuers after it, and its own private key without a "
            "passphrase. To fix: correct --tls-cert and --tls-key; openssl or cert-manager makes such a pair."
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
