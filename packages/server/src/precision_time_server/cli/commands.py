"""The command of the service: data, from which the root makes its help."""

from __future__ import annotations

from precision_time.plugins import Command

COMMANDS = (
    Command(
        path="serve",
        module=f"{__package__}.serve",
        attribute="serve",
        summary="Serve predictions over HTTP, and a page to ask them on.",
        section="Serve",
    ),
)
