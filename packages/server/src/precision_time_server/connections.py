"""Connections of the service: those that say nothing, or half of something, are closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object

PATIENCE_S = 10.0
"""From the connection, or the first byte of a further call, to the end of the headers."""
MOST_HEADER_BYTES = 64 * 2**10
"""Of what is not yet a call."""


class Prompt(_Protocol):
    """In front of one of uvicorn's protocols: an end to waiting for headers.

    What comes after them is the application's to wait for: `guard` bounds bodies, uvicorn the time between
    two calls (`timeout_keep_alive`) and the number of connections (`limit_concurrency`).
    """

    _late: asyncio.TimerHandle | None = None
    _waiting_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller has connected."""
        super().connection_made(transport)
        # Beyond its limit uvicorn still takes connections, and answers their calls with 503.
        most = self.config.limit_concurrency
        if most is not None and len(self.connections) > most + most // 4:
            transport.abort()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Something was sent: a part of headers, of a body, or more than that."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
            return
        if self._late is None:
            self._wait()
        if self.cycle is not None and self.cycle.more_body:
            return  # the rest of a body that was refused: the answer may be on its way
        self._waiting_bytes += len(data)
        if self._waiting_bytes > MOST_HEADER_BYTES:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(PATIENCE_S, self._close)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late, self._waiting_bytes = None, 0

    def _close(self) -> None:
        self._stop()
        self.transport.abort()


def prompt_protocol() -> type[asyncio.Protocol]:
    """Uvicorn's protocol, whichever parser it has, with an end to waiting for headers."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return type("PromptProtocol", (Prompt, AutoHTTPProtocol), {})
