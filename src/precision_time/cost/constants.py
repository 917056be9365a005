"""Constants of the cost model, calibrated or assumed: the files of `cost/data`, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..io import packaged_toml


def measured(arch: str) -> Mapping[str, Any]:
    """What `processors.toml` says of an architecture whose rates were measured; nothing of a data sheet's."""
    found: Mapping[str, Any] = constants("processors").get(arch, {})
    return found


def constants(name: str) -> Mapping[str, Any]:
    """The tables of `cost/data/<name>.toml`."""
    return packaged_toml(__package__, f"data/{name}.toml")
