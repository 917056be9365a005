"""How a job is laid out over the devices: parallel degrees, batches, sharding, recomputation."""

# No annotation is text here: requests and options are made of them.

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Literal

from msgspec import Meta

from ..errors import ConfigError, LayoutError
from ..fields import (
    MAX_COUNT,
    NUMBER,
    WORD,
    AsText,
    BatchSize,
    Count,
    NaturalNumber,
    Option,
    Varied,
    ZeroStage,
)
from ..records import dataclass

_COUNTS = ("dp", "tp", "pp", "cp", "ep", "vpp", "num_microbatches")
_STAGES = (0, 1, 2, 3)
EQUAL_WITHIN = 0.041
"""Relative difference of step times that says nothing: repeats of a measured configuration differ by as much
(docs/devdocs/architecture.md)."""
AXES = ("tp", "cp", "dp", "pp")
"""Axes whose degrees multiply to the world size, innermost first by default (Megatron's order)."""
_MAX_STAGES = 100_000
"""No pipeline is longer: a guard against typing errors."""


DataParallelEngine = Literal["ddp", "dataparallel", "parameter-server", "none"]


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


def parse_modules(given: str) -> tuple[str, ...]:
    """Operators to run again, as Megatron-LM names them.

    >>> parse_modules("layernorm,core_attn")
    ('core_attn', 'layernorm')
    """
    return tuple(sorted({name.strip().lower() for name in given.replace("+", ",").split(",")}))


def parse_stage_layers(given: str) -> tuple[int, ...]:
    """Layers of each stage, of text such as "7,8x14,7".

    Raises:
        ConfigError: If it is none.

    >>> parse_stage_layers("7,8x3,7")
    (7, 8, 8, 8, 7)
    """
    try:
        parts = [part.partition("x") for part in given.lower().split(",")]
        runs = [(int(layers), int(times or 1)) for layers, _, times in parts]
        if sum(times for _, times in runs) > _MAX_STAGES:
            raise ValueError(given)
        return tuple(layers for layers, times in runs for _ in range(times))
    except ValueError:
        raise ConfigError(
            f"stage_layers={given!r} is not a list of layers per stage. To fix: write it like 7,8x14,7."
        ) from None


def stage_layers_in_words(layers: Sequence[int]) -> str:
    """Layers of the stages as the options take them.

    >>> stage_layers_in_words((7, 8, 8, 8, 7))
    '7,8x3,7'
    """
    runs = [(value, len(list(run))) for value, run in groupby(layers)]
    return ",".join(f"{value}x{length}" if length > 1 else f"{value}" for value, length in runs)


def parse_rank_order(given: str) -> tuple[str, ...]:
    """Axes from the innermost to the outermost; `ep`, which Megatron lists too, follows from the others.

    >>> parse_rank_order("tp-cp-ep-dp-pp")
    ('tp', 'cp', 'dp', 'pp')
    """
    return tuple(name.strip() for name in given.lower().replace(",", "-").split("-") if name.strip() != "ep")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Degrees of parallelism and the batch that they share.

    dp · tp · pp · cp equals the world size. Experts have a layout of their own over the same devices:
    ep · etp divides tp · cp · dp, as in Megatron.

    A field with an `Option` is a field of a request, an option, a column and a key of job files, too, and
    needs no line elsewhere but where it acts. One whose default is told in words is open in a request that
    leaves it out: the job decides it (`request/layout.py`).
    """

    dp: Annotated[Count, Varied] = 1
    tp: Annotated[Count, Varied, Option(help="Tensor-parallel degree.")] = 1
    pp: Annotated[Count, Varied, Option(help="Pipeline-parallel degree.")] = 1
    cp: Annotated[Count, Varied, Option(help="Context-parallel degree: ranks that share a sequence.")] = 1
    ep: Annotated[
        Count, Varied, Option(help="Expert-parallel degree, over the devices of a pipeline stage.")
    ] = 1
    etp: Annotated[
        Count | None,
        Varied,
        Option(help="Experts: tensor-parallel degree inside one.", default="--tp"),
    ] = None
    expert_capacity_factor: Annotated[
        float,
        NUMBER,
        Meta(ge=0.0, le=1e7),
        Option(help="Experts: tokens taken, relative to an even share; 0 drops none."),
    ] = 0.0
    expert_nodes: Annotated[
        NaturalNumber,
        Option(
            help="Experts: most nodes a token is sent to, once each (DeepSeek-V3: 4); 0: once per expert."
        ),
    ] = 0
    expert_overlap: Annotated[
        bool, Option(help="Experts: messages hide behind another micro batch (DualPipe, combined 1F1B).")
    ] = False
    rank_order: Annotated[
        tuple[str, ...],
        AsText(parse_rank_order, "-".join),
        Option(
            help="Axes from neighboring devices outwards, such as tp-cp-dp-pp.",
            metavar="AXES",
            default="tp-cp-dp-pp",
        ),
    ] = AXES
    zero_stage: Annotated[
        ZeroStage,
        Varied,
        Option(
            help="Data: ZeRO stage 0-3; 3 is full sharding (FSDP).",
            flags=("--zero-stage", "--zero"),
            default="DDP where it fits, else 3 (1 with --pp)",
        ),
    ] = 0
    dp_shard: Annotated[
        NaturalNumber,
        Varied,
        Option(help="Data: ranks that hold one copy between them (HSDP); 0 for all."),
    ] = 0
    reshard_after_forward: Annotated[
        bool,
        Varied,
        Option(help="Data: drop gathered parameters after the forward pass (FSDP)."),
    ] = True
    prefetch: Annotated[
        NaturalNumber, Option(help="Data: units gathered ahead of their computation (FSDP); 0 for none.")
    ] = 1
    offload: Annotated[
        Offload,
        WORD,
        Varied,
        Option(help="Data: what lives in host memory: none, optimizer or parameters."),
    ] = Offload.NONE
    data_parallel_engine: Annotated[
        DataParallelEngine,
        WORD,
        Option(help="Data: who reduces gradients: ddp, dataparallel (one process), parameter-server."),
    ] = "ddp"
    micro_batch_size: Annotated[BatchSize, Varied] = 1.0
    """Rows per forward pass and model replica (per data-parallel rank)."""
    num_microbatches: Annotated[
        Count,
        Varied,
        Option(
            help="Micro batches per optimizer step (gradient accumulation).",
            flags=("--num-microbatches", "--gradient-accumulation-steps"),
        ),
    ] = 1
    recompute: Annotated[
        Recompute, WORD, Varied, Option(help="Activations that the backward pass computes again.")
    ] = Recompute.NONE
    recompute_layers: Annotated[
        float,
        NUMBER,
        Meta(ge=0.0, le=MAX_COUNT),
        Option(help="Recomputation: layers that full covers, a number or a share below 1; 0 for all."),
    ] = 0.0
    """Of a layout the share; a request may count layers."""
    recompute_modules: Annotated[
        tuple[str, ...],
        AsText(parse_modules, ",".join),
        Option(
            help="Recomputation: operators that selective runs again: core_attn, layernorm, moe_act, "
            "mla_up_proj.",
            metavar="NAME,...",
            default="what the stack's does",
        ),
    ] = ()
    """Of `cost/recompute.py`; empty: what the stack's does."""
    sequence_parallel: Annotated[
        bool,
        Varied,
        Option(help="Tensor: split norms and dropout too.", default="with --tp in language models"),
    ] = False
    cp_comm_type: Annotated[
        CpCommType, WORD, Option(help="Context: how ranks exchange keys: ring, all-gather or ulysses.")
    ] = CpCommType.RING
    schedule: Annotated[
        PipelineSchedule,
        WORD,
        Varied,
        Option(help="Pipeline schedule.", default="1f1b; interleaved with --vpp"),
    ] = PipelineSchedule.ONE_F_ONE_B
    vpp: Annotated[Count, Varied, Option(help="Pipeline: model chunks per stage (interleaved).")] = 1
    stage_layers: Annotated[
        tuple[int, ...],
        AsText(parse_stage_layers, stage_layers_in_words),
        Option(
            help="Pipeline: layers of each stage where they differ, such as 7,8x14,7.",
            metavar="N,NxTIMES...",
            default="even",
        ),
    ] = ()
    bucket_bytes: float = 25 * 2**20
    """DDP gradient bucket."""

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
        if self.rank_order is not AXES and sorted(self.rank_order) != sorted(AXES):
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
