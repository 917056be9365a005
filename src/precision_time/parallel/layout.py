"""How a job is laid out over the devices: parallel degrees, batches, checkpointing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import LayoutError


class Checkpointing(StrEnum):
    """Which activations are recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Degrees of parallelism and the batch that they share.

    dp · tp · pp · cp equals the world size (ep lies inside dp·cp, as in Megatron).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero_stage: int = 0
    """0: DDP; 1, 2, 3: sharded optimizer, gradients, parameters (3 = FSDP FULL_SHARD)."""
    virtual_pp: int = 1
    sequence_parallel: bool = False
    micro_batch_size: float = 1.0
    """Samples per forward pass and model replica (per data-parallel rank)."""
    num_micro_batches: int = 1
    """Forward passes per optimizer step and replica (gradient accumulation)."""
    checkpointing: Checkpointing = Checkpointing.NONE
    bucket_bytes: float = 25 * 2**20
    """DDP gradient bucket."""
    data_parallel_engine: str = "ddp"
    """ddp, dataparallel (one process, scatter and gather), parameter-server, none."""

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "virtual_pp", "num_micro_batches"):
            value = getattr(self, name)
            if value < 1:
                raise LayoutError(f"{name}={value} is not a degree: it must be at least 1. To fix: {name}=1.")
        if self.micro_batch_size <= 0:
            raise LayoutError(
                f"micro_batch_size={self.micro_batch_size:g} must be above 0. "
                "To fix: give a batch size of at least one sample."
            )
        if self.zero_stage not in (0, 1, 2, 3):
            raise LayoutError(f"zero_stage={self.zero_stage} is not a stage. To fix: use 0, 1, 2 or 3.")

    @property
    def world_size(self) -> int:
        """Devices that the layout needs."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def global_batch_size(self) -> float:
        """Samples per optimizer step over all replicas."""
        return self.micro_batch_size * self.num_micro_batches * self.dp
