"""matplotlib, where it is installed: drawing needs no display."""

from __future__ import annotations

from typing import Any

from .errors import MissingExtraError


def require_matplotlib() -> tuple[Any, Any]:
    """The module of figures and the context of settings.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        from matplotlib import figure, rc_context
    except ImportError as error:
        raise MissingExtraError(package="matplotlib", extra="plots", purpose="draw plots") from error
    return figure, rc_context
