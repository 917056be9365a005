"""The calibrated constants of the collectives, read once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def calibration() -> Mapping[str, Any]:
    """The tables of `cost/data/collectives.toml`."""
    text = files("precision_time.cost").joinpath("data/collectives.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
