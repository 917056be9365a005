"""What each precision means for a training script in PyTorch (data/precisions.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from precision_time.io import packaged_toml

DATA = Path(__file__).parent / "data"
_DOCUMENT = packaged_toml(__package__, "data/precisions.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionMode:
    """How a model is run under one precision; the fields are explained in the data file."""

    params: str = "fp32"
    autocast: str = ""
    tf32: bool = False
    scaled_loss: bool = False
    fp8: bool = False
    detail: str


MODES: Mapping[str, PrecisionMode] = {
    name: PrecisionMode(**entry) for name, entry in _DOCUMENT["mode"].items()
}
"""Precision -> how to run it."""
CPU_UNSUPPORTED = frozenset(_DOCUMENT["cpu"]["unsupported"])
LEAST_CAPABILITY: Mapping[str, tuple[int, int]] = {
    name: (major, minor) for name, (major, minor) in _DOCUMENT["compute_capability"].items()
}
"""Type -> least CUDA compute capability."""
