"""matplotlib, where it is installed: drawing needs no display."""

from __future__ import annotations

from typing import Any

from .errors import required_module


def require_matplotlib() -> tuple[Any, Any]:
    """The module of figures and the context of settings.

    Raises:
        MissingExtraError: If it is not installed.
    """
    figure = required_module("matplotlib.figure", package="matplotlib", extra="plots", purpose="draw plots")
    from matplotlib import rc_context

    return figure, rc_context
