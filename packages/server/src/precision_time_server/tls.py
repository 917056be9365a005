"""Certificates of the service: checked before it starts, and read again when they are renewed."""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from precision_time.errors import ConfigError
from precision_time.io import read_input_bytes

if TYPE_CHECKING:
    from uvicorn import Config

RENEWED_EVERY_S = 30.0
"""How often the files are looked at: cert-manager and kubelet write new ones in the place of old ones."""
_log = logging.getLogger("precision_time_server")


def check_certificate(certificate: Path, key: Path) -> None:
    """Refuse files that no client could be answered with.

    Raises:
        ConfigError: If one cannot be read, the key is encrypted, or they do not belong together.
    """
    for file, option in ((certificate, "--tls-cert"), (key, "--tls-key")):
        try:
            read_input_bytes(file)
        except OSError as error:
            raise ConfigError(
                f"{option} {file} cannot be read: {error.strerror or error}. To fix: check path and "
                "permissions."
            ) from None
    try:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(
            f"{certificate} and {key} cannot be served: {str(reason).lower().replace('_', ' ')}. The rule: a "
            "certificate in PEM, those of its issuers after it, and its own private key without a "
            "passphrase. To fix: `precision-time kubernetes certificate` makes such a pair."
        ) from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def no_passphrase() -> str:
        raise ValueError("the key is encrypted")

    context.load_cert_chain(certificate, key, password=no_passphrase)


def renewed_context(config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """For uvicorn's `ssl_context_factory`: a context whose certificate follows its files.

    Each handshake takes the newest pair that could be read as a whole; one that cannot is logged, and the old
    one stays. Connections that are open keep theirs.
    """
    certificate, key = Path(str(config.ssl_certfile)), Path(str(config.ssl_keyfile))

    def read() -> ssl.SSLContext:
        found = default()
        found.minimum_version = ssl.TLSVersion.TLSv1_2
        return found

    seen = _stamp(certificate, key)
    first = current = read()

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        connection.context = current

    first.sni_callback = choose

    def follow() -> None:
        nonlocal seen, current
        while True:
            time.sleep(RENEWED_EVERY_S)
            now = _stamp(certificate, key)
            if now in (seen, None):
                continue
            seen = now
            try:
                check_certificate(certificate, key)
                current = read()
                _log.info("the certificate was read again")
            except (OSError, ValueError) as error:
                _log.error("the renewed certificate is not taken, the old one stays: %s", error)

    threading.Thread(target=follow, name="certificate", daemon=True).start()
    return first


def _stamp(*files: Path) -> tuple[tuple[int, int, int], ...] | None:
    """What changes when a file is replaced; None where one is not there at this moment."""
    try:
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in map(os.stat, files))
    except OSError:
        return None
