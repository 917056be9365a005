"""What frameworks hold besides what the mathematics needs: `cost/data/memory.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..constants import constants
from ..job import Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkMemory:
    """How a stack uses memory; what each field means stands in the data file."""

    splits_residual: bool
    selective: str
    loss_bytes: float
    split_loss_bytes: float
    fused_loss_from: float
    fused_loss_bytes: float
    shard_is_master: bool
    fp32_gradients: bool
    copies_gradients: bool
    most_gradient_bytes: float
    bucket_elems: float
    pipeline_communicators: int
    fp8_weight_copies: bool
    fp8_saves_fp8: bool

    def logit_bytes(self, compiled: bool, year: float, split: bool) -> float:
        """Bytes per entry of the logits at the peak of the loss, for 16-bit logits, split or not."""
        if compiled and 0.0 < self.fused_loss_from <= year:
            return self.fused_loss_bytes
        return self.split_loss_bytes if split else self.loss_bytes


@cache
def _of_profile(profile: str) -> FrameworkMemory:
    tables: Mapping[str, Mapping[str, Any]] = constants("memory")["framework"]
    own = next((table for table in tables.values() if profile in table.get("stacks", ())), {})
    fields = {**tables["default"], **own}
    return FrameworkMemory(**{name: fields[name] for name in FrameworkMemory.__dataclass_fields__})


def framework_memory(stack: Stack) -> FrameworkMemory:
    """How a stack uses memory; as plain PyTorch does where the data do not name its profile."""
    return _of_profile(stack.profile)
