"""A device and a software stack, out of a data file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def devices() -> Mapping[str, Mapping[str, Any]]:
    """Rows of devices by name."""
    return _tables()["device"]


def stacks() -> Mapping[str, Mapping[str, Any]]:
    """Tables of software stacks by name."""
    return _tables()["stack"]


def _tables() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("catalog.toml").read_text(encoding="utf-8"))
