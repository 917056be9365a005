"""How a software stack uses memory, by its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import Number, where
from ...cache import data
from ...records import dataclass
from ..constants import constants
from ..stacks import Stack, kind_of_stack


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkMemory:
    """What a stack holds besides what the mathematics needs; `cost/data/memory.toml` explains each field."""

    splits_residual: bool
    selective: str
    loss_bytes: float
    split_loss_bytes: float
    fused_loss_from: float
    fused_loss_bytes: float
    loss_needs_compiler: bool
    shard_is_master: bool
    fp32_gradients: bool
    step_bytes: float
    copies_gradients: bool
    most_gradient_bytes: float
    bucket_elems: float
    pipeline_communicators: int
    fragmentation: float
    fused_norms_from: float
    keeps_stage_outputs: bool
    placeholder_gradients_from: float
    fp8_weight_copies: bool
    fp8_saves_fp8: bool
    offloads_checkpoints_from: float

    def logit_bytes(self, compiled: bool, year: float, split: Number) -> Number:
        """Bytes per entry of the logits at the peak of the loss, for 16-bit logits, split or not."""
        if (compiled or not self.loss_needs_compiler) and 0.0 < self.fused_loss_from <= year:
            return self.fused_loss_bytes
        return where(split, self.split_loss_bytes, self.loss_bytes)


@data
def _of_profile(profile: str) -> FrameworkMemory:
    tables: Mapping[str, Mapping[str, Any]] = constants("memory")["framework"]
    named = (profile, kind_of_stack(profile))
    found = (table for name in named for table in tables.values() if name in table.get("stacks", ()))
    own = next(found, {})
    fields = {**tables["default"], **own}
    return FrameworkMemory(**{name: fields[name] for name in FrameworkMemory.__dataclass_fields__})


def framework_memory(stack: Stack) -> FrameworkMemory:
    """How a stack uses memory; as plain PyTorch does where the data do not name its profile."""
    return _of_profile(stack.profile)
