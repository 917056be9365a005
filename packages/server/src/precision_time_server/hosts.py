"""Which names and origins a call may come by: a web page that a user visits is no caller of the service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from precision_time.errors import shown

from .problems import ForeignOriginError, WrongHostError
from .settings import Settings

_READS = ("GET", "HEAD", "OPTIONS")
"""Browsers show their answers to no foreign page."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_PORTS = {"http": 80, "https": 443}


def check_place(scope: Mapping[str, Any], headers: Mapping[bytes, bytes], settings: Settings) -> None:
    """Refuse calls that a page of somebody else's makes.

    Args:
        scope: Of the call (ASGI).
        headers: Of the call, each once.
        settings: Has the names and origins that are allowed.

    Raises:
        WrongHostError: If it is for another host: a name that was bound to this address (DNS rebinding).
        ForeignOriginError: If a page of another origin writes.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if host and not _is_own(host, scope, settings):  # without one no browser asks
        raise WrongHostError(
            f"The call is for the host {shown(host)}. The rule: a name of this service, its address or "
            "localhost. To fix: ask under one of these, or let the operator allow the name "
            "(--allowed-host NAME)."
        )
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    if origin and scope["method"] not in _READS and not _may_write(origin, host, settings):
        raise ForeignOriginError(
            f"A page of {shown(origin)} asks. The rule: pages of other origins may not. To fix: let the "
            "operator allow it: --cors ORIGIN, or --allowed-host NAME where it is this service's page "
            "behind a proxy."
        )


def _is_own(host: str, scope: Mapping[str, Any], settings: Settings) -> bool:
    name = _name(host)
    # The address that was connected to, of the socket: a caller cannot choose what stands there.
    listened = str((scope.get("server") or ("",))[0])
    configured = settings.host.lower()
    if name in ("localhost", configured, listened.lower()):
        return True
    if {host, name} & {each.lower() for each in settings.allowed_hosts}:
        return True
    try:
        # Names can be bound to any address, an address to nothing: behind 0.0.0.0 all are of the machine.
        return ip_address(name).is_loopback or configured in ("0.0.0.0", "::")  # noqa: S104
    except ValueError:
        return False


def _name(host: str) -> str:
    """Without port, brackets and the point of a full name."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).removesuffix(".") if found else host


def _may_write(origin: str, host: str, settings: Settings) -> bool:
    allowed = {each.lower().removesuffix("/") for each in settings.cors_origins}
    if origin in allowed or "*" in allowed:
        return True
    scheme, _, place = origin.partition("://")
    # A proxy that ends TLS may ask under another name than the one that its page has.
    own = {host, *(each.lower() for each in settings.allowed_hosts)}
    port = f":{_PORTS.get(scheme)}"
    return bool(place) and place.removesuffix(port) in {each.removesuffix(port) for each in own}
