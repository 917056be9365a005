"""From what people say of a layout to a `Layout`: words parsed, defaults filled in, refusals explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ..errors import ConfigError, LayoutError
from ..hardware.device import Cluster
from ..parallel.layout import AXES, Checkpointing, ContextMethod, Layout, Offload, PipelineSchedule
from ..parallel.placement import placement_in_words, placement_warnings
from ..parallel.shape import ModelShape, model_shape
from ..parallel.validation import check_model_layout, layout_warnings
from ..workload.workload import Workload
from .question import Said, check_counts, data_parallel_degree

_SEQUENCE_PARALLEL_FAMILIES = frozenset({"transformer-decoder", "moe"})
_FULL_SHARDING = 3
_MAX_STAGES = 100_000
"""No pipeline is longer: a guard against a slip of the keyboard."""
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutWords:
    """A layout as `predict_time` and the command line take it."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    zero: int | None = None
    shard_size: int = 0
    reshard_after_forward: bool = True
    prefetch: int = 1
    offload: str = "none"
    grad_accum: int = 1
    schedule: str | None = None
    virtual_pp: int = 1
    stage_layers: str | Sequence[int] | None = None
    sequence_parallel: bool | None = None
    context_method: str = "ring"
    expert_capacity: float = 0.0
    checkpointing: str = "none"
    rank_order: str | Sequence[str] | None = None

    def check(self) -> None:
        """Refuse counts that cannot be.

        Raises:
            ConfigError: If a degree is not a whole number above 0.
        """
        check_counts(
            grad_accum=self.grad_accum,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            ep=self.ep,
            expert_tp=self.expert_tp,
            virtual_pp=self.virtual_pp,
            shard_size=self.shard_size or None,
            prefetch=self.prefetch or None,
            expert_capacity=self.expert_capacity or None,
        )


def layout_of(words: LayoutWords, workload: Workload, gpus: int, said: Said) -> Layout:
    """The layout, with a micro batch of 1 until the batch is known.

    Args:
        words: What was said; `check` has passed.
        workload: Its layers, heads, experts and tokens must divide.
        gpus: Devices in all; what the other degrees leave is data parallel.
        said: Takes what had to be assumed.

    Raises:
        LayoutError: Degrees that do not fit the devices, the model or each other.
        ConfigError: A word that is none of the choices.
    """
    shape = model_shape(workload.graph)
    offload = _choice(Offload, words.offload, "offload")
    checkpointing, share = parse_checkpointing(words.checkpointing, shape.num_layers)
    layout = Layout(
        dp=data_parallel_degree(gpus, words.tp, words.pp, words.cp, shape),
        tp=words.tp,
        pp=words.pp,
        cp=words.cp,
        ep=words.ep,
        expert_tp=words.expert_tp,
        zero_stage=_zero_stage(words, offload, said),
        shard_size=words.shard_size,
        reshard_after_forward=words.reshard_after_forward,
        prefetch=words.prefetch,
        offload=offload,
        num_micro_batches=words.grad_accum,
        schedule=_schedule(words),
        virtual_pp=words.virtual_pp,
        stage_layers=parse_stage_layers(words.stage_layers),
        sequence_parallel=_sequence_parallel(words, workload, shape),
        context_method=_choice(ContextMethod, words.context_method, "context_method"),
        expert_capacity=words.expert_capacity,
        checkpointing=checkpointing,
        checkpointed_share=share,
        rank_order=parse_rank_order(words.rank_order),
    )
    check_model_layout(layout, shape, num_devices=gpus)
    return layout


def layout_remarks(
    layout: Layout, workload: Workload, cluster: Cluster
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What to say of a finished layout: where its ranks sit (an assumption), and warnings."""
    cut = layout.world_size > layout.dp or layout.ep > 1 or layout.shard_size > 0
    placed = placement_in_words(layout, cluster) if cut else ""
    warnings = (
        *layout_warnings(layout, model_shape(workload.graph)),
        *placement_warnings(layout, cluster),
    )
    return ((placed,) if placed else ()), warnings


def parse_checkpointing(word: str, num_layers: int | None) -> tuple[Checkpointing, float]:
    """Mode, and the share of the layers that it covers.

    Args:
        word: none, selective, full, full:0.5 (half of the layers) or full:16 (sixteen layers).
        num_layers: Layers of the model; None where it has none.

    Raises:
        ConfigError: If the word is none of these, or counts more layers than there are.

    >>> parse_checkpointing("full:8", 32)
    (<Checkpointing.FULL: 'full'>, 0.25)
    """
    mode, colon, amount = word.lower().partition(":")
    if mode not in list(Checkpointing) or (colon and mode != Checkpointing.FULL):
        known = ", ".join(item.value for item in Checkpointing)
        raise ConfigError(
            f"checkpointing={word!r} is none of {known}. To fix: use one of them; full:0.5 or full:16 for a "
            "share of the layers or a number of them."
        )
    if not colon:
        return Checkpointing(mode), 1.0
    share = _share(amount, num_layers)
    if share is None or not 0.0 < share <= 1.0:
        layers = f"full:1 to full:{num_layers}" if num_layers else "full:0.5"
        raise ConfigError(
            f"checkpointing={word!r} must name a share above 0.0 and up to 1.0, or layers of the model. To "
            f"fix: {layers}, or full."
        )
    return Checkpointing.FULL, share


def _share(amount: str, num_layers: int | None) -> float | None:
    """With a decimal point a share, without one a number of layers; None where it is neither."""
    try:
        if "." in amount:
            return float(amount)
        return int(amount) / num_layers if num_layers else None
    except ValueError:
        return None


def parse_stage_layers(given: str | Sequence[int] | None) -> tuple[int, ...]:
    """Layers of each stage.

    Args:
        given: Numbers, or text such as "7,8x14,7".

    Raises:
        ConfigError: If it is neither.

    >>> parse_stage_layers("7,8x3,7")
    (7, 8, 8, 8, 7)
    """
    if given is None:
        return ()
    try:
        if not isinstance(given, str):
            return tuple(int(layers) for layers in given)
        parts = [part.partition("x") for part in given.lower().split(",")]
        runs = [(int(layers), int(times or 1)) for layers, _, times in parts]
        if sum(times for _, times in runs) > _MAX_STAGES:
            raise ValueError(given)
        return tuple(layers for layers, times in runs for _ in range(times))
    except (TypeError, ValueError):
        raise ConfigError(
            f"stage_layers={given!r} is no list of layers per stage. To fix: write it like 7,8x14,7."
        ) from None


def parse_rank_order(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Axes from the innermost to the outermost; `ep`, which Megatron lists too, follows from the others.

    >>> parse_rank_order("tp-cp-ep-dp-pp")
    ('tp', 'cp', 'dp', 'pp')
    """
    if given is None:
        return AXES
    names = given.lower().replace(",", "-").split("-") if isinstance(given, str) else list(given)
    return tuple(name.strip() for name in names if name.strip() != "ep")


def _choice(kind: type[_Word], word: str, name: str) -> _Word:
    try:
        return kind(word.lower().replace("_", "-"))
    except (AttributeError, ValueError):
        known = ", ".join(item.value for item in kind)
        raise ConfigError(f"{name}={word!r} is none of {known}. To fix: use one of them.") from None


def _schedule(words: LayoutWords) -> PipelineSchedule:
    if words.schedule is not None:
        return _choice(PipelineSchedule, words.schedule, "schedule")
    return PipelineSchedule.INTERLEAVED if words.virtual_pp > 1 else PipelineSchedule.ONE_F_ONE_B


def _sequence_parallel(words: LayoutWords, workload: Workload, shape: ModelShape) -> bool:
    """As said; else where tensor parallelism of language models usually brings it and the tokens divide."""
    if words.sequence_parallel is not None:
        return words.sequence_parallel
    usual = words.tp > 1 and workload.family in _SEQUENCE_PARALLEL_FAMILIES
    return usual and (shape.seq_len or 0) % (words.tp * words.cp) == 0


def _zero_stage(words: LayoutWords, offload: Offload, said: Said) -> int:
    """As said; else what the other words need, 0 if nothing.

    Raises:
        LayoutError: If units are to be gathered ahead where nothing is gathered.
    """
    ahead = words.prefetch != LayoutWords().prefetch
    if words.zero is not None:
        if ahead and words.zero != _FULL_SHARDING:
            raise LayoutError(
                f"prefetch={words.prefetch} gathers ahead what ZeRO 3 shards, got zero={words.zero}. "
                "To fix: zero=3, or leave it away."
            )
        return words.zero
    needs = {
        _FULL_SHARDING: {
            "shard_size": words.shard_size > 0,
            "reshard_after_forward": not words.reshard_after_forward,
            "prefetch": ahead,
            "offload=parameters": offload is Offload.PARAMETERS,
        },
        2 if words.pp == 1 else 1: {"offload=optimizer": offload is Offload.OPTIMIZER},
    }
    for stage, reasons in needs.items():
        named = [name for name, given in reasons.items() if given]
        if named:
            said.assumptions.append(f"ZeRO stage not given: zero={stage} assumed, for {' and '.join(named)}.")
            return stage
    return 0
