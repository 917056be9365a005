"""How a job is laid out over the devices: parallel degrees, batches, sharding, checkpointing."""

from __future__ import annotations

from enum import StrEnum

from ..errors import LayoutError
from ..records import dataclass

_COUNTS = ("dp", "tp", "pp", "cp", "ep", "vpp", "num_microbatches")
_STAGES = (0, 1, 2, 3)
EQUAL_WITHIN = 0.041
"""Relative difference of step times that says nothing: repeats of a measured configuration differ by as much
(docs/devdocs/architecture.md)."""
AXES = ("tp", "cp", "dp", "pp")
"""Axes whose degrees multiply to the world size, innermost first by default (Megatron's order)."""


class Recompute(StrEnum):
    """Which activations are recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class PipelineSchedule(StrEnum):
    """In which order a stage runs its micro batches; one file each in `parallel/schedules/`."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"


class CpCommType(StrEnum):
    """How context-parallel ranks see the keys and values of the others."""

    RING = "ring"
    ALL_GATHER = "all-gather"
    ULYSSES = "ulysses"


class Offload(StrEnum):
    """What lives in host memory."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    """Master weights and states, updated by the host's processor (ZeRO-Offload)."""
    PARAMETERS = "parameters"
    """Those, and the sharded parameters (ZeRO-Infinity to host memory, FSDP CPUOffload)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Degrees of parallelism and the batch that they share.

    dp · tp · pp · cp equals the world size. Experts have a layout of their own over the same devices:
    ep · etp divides tp · cp · dp, as in Megatron.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    """Tensor-parallel degree inside an expert; None: that of the other layers."""
    zero_stage: int = 0
    """0: DDP; 1, 2, 3: sharded optimizer, gradients, parameters (3 = FSDP FULL_SHARD)."""
    dp_shard: int = 0
    """Data-parallel ranks that hold one copy between them (HSDP); 0: all of them."""
    reshard_after_forward: bool = True
    """ZeRO 3: drop gathered parameters after the forward pass and gather them again for the backward."""
    prefetch: int = 1
    """ZeRO 3: units gathered ahead of their computation; 0: none."""
    offload: Offload = Offload.NONE
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    vpp: int = 1
    """Model chunks per stage; above 1 with the interleaved schedule and only there."""
    stage_layers: tuple[int, ...] = ()
    """Layers of each stage where they are not split evenly."""
    sequence_parallel: bool = False
    cp_comm_type: CpCommType = CpCommType.RING
    expert_capacity_factor: float = 0.0
    """Tokens that an expert takes, relative to an even share; 0: dropless."""
    expert_nodes: int = 0
    """Most nodes that a token goes to, over the network once each (DeepSeek-V3: 4); 0: once per expert."""
    expert_overlap: bool = False
    """Messages of the experts hide behind another micro batch (DualPipe, combined 1F1B)."""
    micro_batch_size: float = 1.0
    """Samples per forward pass and model replica (per data-parallel rank)."""
    num_microbatches: int = 1
    """Forward passes per optimizer step and replica (gradient accumulation)."""
    recompute: Recompute = Recompute.NONE
    recompute_layers: float = 0.0
    """Share of the layers that full recomputation covers, below 1; 0: all. A request may count layers."""
    recompute_modules: tuple[str, ...] = ()
    """Operators that selective recomputation runs again (cost/recompute.py); empty: what the stack's does."""
    bucket_bytes: float = 25 * 2**20
    """DDP gradient bucket."""
    data_parallel_engine: str = "ddp"
    """ddp, dataparallel (one process, scatter and gather), parameter-server, none."""
    rank_order: tuple[str, ...] = AXES
    """Axes from the innermost (neighboring devices) to the outermost."""

    @property
    def weights_stage(self) -> int:
        """The ZeRO stage that says how mixed precision holds weights.

        States in host memory are DeepSpeed's (offload_optimizer), which keeps 16-bit weights on the device
        under ZeRO 3 too; FSDP moves parameters with them.
        """
        return min(self.zero_stage, 2) if self.offload is Offload.OPTIMIZER else self.zero_stage

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value < 1:
                raise LayoutError(f"{name}={value} is not a degree: it must be at least 1. To fix: {name}=1.")
        if self.micro_batch_size <= 0:
            raise LayoutError(
                f"micro_batch_size={self.micro_batch_size:g} must be above 0. "
                "To fix: give a batch size of at least one sample."
            )
        if self.zero_stage not in _STAGES:
            raise LayoutError(f"zero_stage={self.zero_stage} is not a stage. To fix: use 0, 1, 2 or 3.")
        if not 0.0 <= self.recompute_layers < 1.0:
            raise LayoutError(
                f"recompute_layers={self.recompute_layers:g} is not a share of the layers: it must be "
                "at least 0 and below 1. To fix: recompute_layers=0 for all of them."
            )
        if sorted(self.rank_order) != sorted(AXES):
            raise LayoutError(
                f"rank_order={'-'.join(self.rank_order)} must name each of {', '.join(AXES)} once. "
                f"To fix: {'-'.join(AXES)}."
            )

    @property
    def world_size(self) -> int:
        """Devices that the layout needs."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def global_batch_size(self) -> float:
        """Samples per optimizer step over all replicas."""
        return self.micro_batch_size * self.num_microbatches * self.dp

    @property
    def tensor_degree_of_experts(self) -> int:
        """Devices that share one expert."""
        return self.tp if self.etp is None else self.etp

    @property
    def recompute_share(self) -> float:
        """Share of the layers that recomputation covers."""
        return self.recompute_layers or 1.0

    @property
    def data_ranks(self) -> int:
        """Ranks that hold the same shard of the dense parameters and average its gradients: dp · cp."""
        return self.dp * self.cp

    @property
    def expert_data_ranks(self) -> int:
        """Ranks that hold the same experts and average their gradients."""
        return max(self.tp * self.cp * self.dp // (self.tensor_degree_of_experts * self.ep), 1)

    @property
    def shard_ranks(self) -> int:
        """Data ranks over which ZeRO spreads a copy: `dp_shard`, or all of them."""
        return self.dp_shard or self.data_ranks

    def stride(self, axis: str) -> int:
        """Devices between neighboring ranks of an axis: the product of the degrees further in."""
        inner = self.rank_order[: self.rank_order.index(axis)]
        stride = 1
        for name in inner:
            stride *= int(getattr(self, name))
        return stride


def simplicity(layout: Layout) -> tuple[float, ...]:
    """Sorts layouts that are equally fast: the one with the least to set up and to go wrong first."""
    return (
        sum(degree > 1 for degree in (layout.tp, layout.pp, layout.cp)),
        layout.offload is not Offload.NONE,
        layout.vpp > 1 or layout.schedule not in (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE),
        layout.dp_shard > 0,
        layout.zero_stage,
        not layout.reshard_after_forward,
        layout.recompute is not Recompute.NONE,
        layout.tp * layout.pp * layout.cp,
        layout.num_microbatches,
    )


def layers_of_stages(num_layers: int, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage, first to last; they add up to `num_layers`.

    Stated ones as they are. Otherwise as even as possible: where the layers do not divide, stages in the
    middle take one more, since the first also embeds and the last also computes the loss.

    >>> layers_of_stages(32, Layout(pp=4)), layers_of_stages(10, Layout(pp=4))
    ((8, 8, 8, 8), (2, 3, 3, 2))
    """
    if layout.stage_layers:
        return layout.stage_layers
    least, left = divmod(num_layers, layout.pp)
    by_need = sorted(range(layout.pp), key=lambda stage: (stage == layout.pp - 1) * 2 + (stage == 0))
    more = set(by_need[:left])
    return tuple(least + (stage in more) for stage in range(layout.pp))
