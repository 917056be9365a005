"""From a request to its `Layout` and back: what is left open decided, refusals explained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..cost.job import Job
from ..cost.recompute import RECOMPUTED, recomputed_nodes
from ..cost.stacks import get_stack_profile
from ..diagnostics import Diagnostics
from ..errors import ConfigError, LayoutError, UnknownNameError
from ..hardware.device import Cluster
from ..parallel.degrees import nearest_divisor, nearest_multiple
from ..parallel.layout import Layout, Offload, PipelineSchedule, Recompute
from ..parallel.placement import placement_in_words, placement_warnings
from ..parallel.shape import ModelShape, model_shape
from ..parallel.space import COPIES, VARIED
from ..parallel.validation import check_model_layout, degrees_in_words, layout_warnings
from ..workload.workload import Workload
from .schema import LAYOUT, LAYOUT_OPTIONS, RequestFields
from .votes import stacks_table

_LANGUAGE_FAMILIES = frozenset({"transformer-decoder", "moe"})
_FULL_SHARDING = 3
_DECIDED = ("num_microbatches", "zero_stage", "sequence_parallel", "recompute")
"""Fields that a job decides where they are left open, so that the plain value has to be given, too."""
_OF_SEARCH = {
    "batch_size": "micro_batch_size",
    "micro_batch_size": "micro_batch_size",
    "micro_batch": "micro_batch_size",
    "hsdp": "dp_shard",
}
"""Names that the fields of a search have beside those of a request."""


def layout_of(request: RequestFields, workload: Workload, gpus: int, found: Diagnostics) -> Layout:
    """The layout, with a micro batch of 1 until the batch is known.

    Raises:
        LayoutError: Degrees that do not fit the devices, the model or each other.
        ConfigError: A word that is none of the choices.
    """
    shape = model_shape(workload.graph)
    given = {
        name: LAYOUT[name].value(value)
        for name in LAYOUT.keys() & LAYOUT_OPTIONS
        if (value := getattr(request, name)) is not None
    }
    dp = data_parallel_degree(gpus, request.tp, request.pp, request.cp, shape)
    decided: dict[str, Any] = {
        **_recomputation(request, given.get("recompute_modules", ()), workload),
        "dp": dp,
        "dp_shard": _ranks_of_a_copy(request, dp),
        "zero_stage": _zero_stage(request, dp * request.cp, found),
        "schedule": _schedule(request.schedule, request.vpp),
        "sequence_parallel": _sequence_parallel(request, workload),
    }
    layout = Layout(**{**given, **decided})
    if not request.uneven:
        checked = replace(layout, num_microbatches=layout.pp) if _cut_later(request) else layout
        check_model_layout(checked, shape, num_devices=gpus)
    return layout


def _cut_later(request: RequestFields) -> bool:
    """Whether a global batch says how many micro batches there are, once the replicas are known."""
    stated = request.global_batch_size is not None or request.global_batch_tokens is not None
    return stated and "num_microbatches" not in request.given_layout


def sharded_as_usual(layout: Layout, request: RequestFields, job: Job, found: Diagnostics) -> Layout:
    """The layout, sharded as language models on the named stack are where the request does not say it."""
    left_open = request.stack is not None and not request.says_sharding
    usual = job.workload.family in _LANGUAGE_FAMILIES
    if not (left_open and usual) or layout.zero_stage or layout.data_ranks == 1:
        return layout
    profile = get_stack_profile(job.stack.profile)
    stage = profile.usual_zero_stage(job.stack.framework_year, pipeline=layout.pp > 1)
    if not stage:
        return layout
    found.assume(
        "zero_stage", f"ZeRO stage not given: zero_stage={stage} assumed, as usual on {profile.name}."
    )
    return replace(layout, zero_stage=stage)


def habits_with_experts(job: Job, *, recomputing: bool = True) -> dict[str, tuple[Any, ...]]:
    """Values that fields of a layout have where experts are cut up as people do it; none of other models."""
    table = stacks_table()["experts"]
    if not model_shape(job.workload.graph).num_experts:
        return {}
    found: dict[str, tuple[Any, ...]] = {}
    if nodes := table["nodes"].get(job.workload.name):
        found["expert_nodes"] = (nodes,)
    if job.stack.profile in table["overlap"]:
        found["expert_overlap"] = (True,)
        if not recomputing:
            return found
        names = tuple(name for name in table["recomputed"] if recomputed_nodes(job.workload.graph, (name,)))
        found["recompute_modules"] = ((), names)
    return found


def without_idle_operators(layout: Layout) -> Layout:
    """The layout without operators that only selective recomputation would run again."""
    return layout if layout.recompute is Recompute.SELECTIVE else replace(layout, recompute_modules=())


def fields_of(layout: Layout) -> dict[str, Any]:
    """The fields of a request that `layout_of` turns into `layout`, but for its batch: the way back."""
    plain = Layout()
    found = {
        name: field.held(value)
        for name, field in LAYOUT.items()
        if field.option and (value := getattr(layout, name)) != getattr(plain, name)
    }
    found = {name: value for name, value in found.items() if name not in _DECIDED}
    found |= {name: getattr(layout, name) for name in _DECIDED}
    if layout.pp > 1 or layout.schedule is not _schedule(None, layout.vpp):
        found["schedule"] = layout.schedule
    else:
        found.pop("schedule", None)
    if layout.recompute is not Recompute.FULL:
        found.pop("recompute_layers", None)
    return found


def layout_words(layout: Layout, workload: Workload, *, without: Collection[str] = ()) -> str:
    """What a user types for a layout and its batch, but for the options named in `without`."""
    needed = needed_fields(layout, workload)
    return option_words({name: value for name, value in needed.items() if name not in without})


def needed_fields(layout: Layout, workload: Workload) -> dict[str, Any]:
    """The fields of a layout and its batch that do not follow from the others."""
    usual = {
        "schedule": _schedule(None, layout.vpp),
        "recompute": Recompute.NONE,
        "num_microbatches": 1,
        "sequence_parallel": _usually_sequence_parallel(layout.tp, layout.cp, workload),
        "zero_stage": 0 if layout.data_ranks == 1 else None,
    }
    needed = {name: value for name, value in fields_of(layout).items() if value != usual.get(name)}
    if layout.pp == 1:
        needed.pop("schedule", None)
    layers = layout.recompute_layers * (model_shape(workload.graph).num_layers or 0)
    if "recompute_layers" in needed and layers == round(layers):
        needed["recompute_layers"] = round(layers)
    needed["batch_size"] = f"{layout.micro_batch_size / workload.rows_per_sample:g}"
    return needed


def option_words(fields: Mapping[str, Any]) -> str:
    """Fields of a request as the command line takes them."""

    def word(name: str, value: Any) -> str:
        flag = "-b" if name == "batch_size" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            return flag if value else f"--no-{name.replace('_', '-')}"
        return f"{flag} {getattr(value, 'value', value)}"

    return " ".join(word(name, value) for name, value in fields.items())


def layout_remarks(
    layout: Layout, workload: Workload, cluster: Cluster
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What to say of a finished layout: where its ranks sit (an assumption), and warnings."""
    cut = layout.world_size > layout.dp or layout.ep > 1 or layout.dp_shard > 0
    placed = placement_in_words(layout, cluster) if cut else ""
    warnings = (
        *layout_warnings(layout, model_shape(workload.graph)),
        *placement_warnings(layout, cluster),
    )
    return ((placed,) if placed else ()), warnings


def _recomputation(request: RequestFields, modules: tuple[str, ...], workload: Workload) -> dict[str, Any]:
    """Mode, and the share of the layers that it covers (0: all).

    Layers alone say full recomputation, modules alone selective.

    Raises:
        ConfigError: If an operator is unknown, the model lacks it or the layers, or the mode has neither.
    """
    mode, layers = request.recompute, request.recompute_layers
    if unknown := [name for name in modules if name not in RECOMPUTED]:
        raise ConfigError(
            f"recompute_modules={unknown[0]!r} is none of {', '.join(RECOMPUTED)}. To fix: name one or "
            "several of them, or leave it out."
        )
    if "recompute" not in request.model_fields_set and (layers or modules):
        mode = Recompute.FULL if layers else Recompute.SELECTIVE
    for name, given, of in (
        ("recompute_layers", layers, Recompute.FULL),
        ("recompute_modules", modules, Recompute.SELECTIVE),
    ):
        if given and mode is not of:
            raise ConfigError(
                f"{name}={shown_value(given)} does not apply: it is of recompute={of.value}, got "
                f"recompute={mode.value}. To fix: recompute={of.value}, or leave it out."
            )
    share = recompute_share(layers, model_shape(workload.graph).num_layers)
    for name in modules:
        if not recomputed_nodes(workload.graph, (name,)):
            has = [known for known in RECOMPUTED if recomputed_nodes(workload.graph, (known,))]
            raise ConfigError(
                f"recompute_modules={name} does not apply: {workload.name} has no such operators in its "
                f"layers. To fix: {'recompute_modules=' + ','.join(has) if has else 'recompute=full'}."
            )
    return {"recompute": mode, "recompute_layers": share}


def shown_value(value: Any) -> str:
    """A value of a layout field as one types it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(getattr(value, "value", value))


def recompute_share(layers: float, num_layers: int | None) -> float:
    """The share, below 1, that a number of layers is of all; a share as it is; 0 for all.

    >>> recompute_share(8, 32), recompute_share(0.5, None), recompute_share(32, 32)
    (0.25, 0.5, 0.0)

    Raises:
        ConfigError: If the model has not so many layers, or they are no whole number.
    """
    if layers < 1:
        return layers
    if not num_layers or layers > num_layers or layers != int(layers):
        known = f"a whole number up to {num_layers}, the layers of the model, or " if num_layers else ""
        raise ConfigError(
            f"recompute_layers={layers:g} must be {known}a share below 1. To fix: "
            f"{f'recompute_layers={num_layers // 2 or 1}' if num_layers else 'recompute_layers=0.5'}, or 0 "
            "for all."
        )
    return int(layers) / num_layers % 1.0


def parse_fixed(pairs: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """`["tp=4,8", "zero_stage=1"]` as `{"tp": (4, 8), "zero_stage": (1,)}`.

    Raises:
        ConfigError: If a pair is not NAME=VALUE or the value breaks the rule of its field.
        UnknownNameError: If a layout has no such field.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"{pair!r} is not NAME=VALUE. To fix: write it like tp=8 or tp=4,8.")
        name = name.strip().lower().replace("-", "_")
        name = _OF_SEARCH.get(name) or RequestFields.own_name(name)
        field = RequestFields.model_fields[COPIES] if name == COPIES else LAYOUT.get(name)
        if field is None:
            raise UnknownNameError(
                kind="field of a layout",
                name=name,
                known=(*LAYOUT, COPIES, *_OF_SEARCH),
                hint=f"Known: {', '.join(sorted({*VARIED, COPIES}))}.",
            )
        words = [text] if field.text else text.split(",")
        found[name] = tuple(field.value(field.read(word.strip(), as_text=True)) for word in words)
    return found


def _schedule(given: PipelineSchedule | None, vpp: int) -> PipelineSchedule:
    return given or (PipelineSchedule.INTERLEAVED if vpp > 1 else PipelineSchedule.ONE_F_ONE_B)


def _sequence_parallel(request: RequestFields, workload: Workload) -> bool:
    """As given; else where tensor parallelism of language models usually brings it and the tokens divide."""
    if request.sequence_parallel is not None:
        return bool(request.sequence_parallel)
    return _usually_sequence_parallel(request.tp, request.cp, workload)


def _usually_sequence_parallel(tp: int, cp: int, workload: Workload) -> bool:
    usual = tp > 1 and workload.family in _LANGUAGE_FAMILIES
    return usual and (workload.graph.seq_len or 0) % (tp * cp) == 0


def _ranks_of_a_copy(request: RequestFields, dp: int) -> int:
    """Data ranks that hold one copy, 0 for all: as `dp_shard` says, or torchtitan's `dp_replicate`.

    Context ranks share a copy, too: of n copies each has dp · cp / n ranks, torchtitan's dp_shard · cp.

    Raises:
        LayoutError: Copies that do not fill the data ranks, or contradict how states are sharded.
    """
    copies, ranks = request.dp_replicate, dp * request.cp
    if not copies:
        return int(request.dp_shard)
    if dp % copies:
        raise LayoutError(
            f"dp_replicate({copies}) does not divide dp({dp}). To fix: "
            f"dp_replicate={nearest_divisor(dp, copies)}."
        )
    size = ranks // copies
    if request.dp_shard not in (0, size):
        raise LayoutError(
            f"dp_replicate({copies}) * dp_shard({request.dp_shard}) are not the dp({dp}) * cp({request.cp}) "
            f"data ranks. To fix: dp_shard={size}, which counts context ranks, or give only one of them."
        )
    if request.zero_stage == 0 and size > 1:
        raise LayoutError(
            f"dp_replicate({copies}) leaves a copy to {size} ranks, and zero_stage=0 gives one to each. "
            "To fix: zero_stage=3 (HSDP), or leave out dp_replicate."
        )
    return 0 if size == ranks or (size == 1 and not request.zero_stage) else size


def _zero_stage(request: RequestFields, ranks: int, found: Diagnostics) -> int:
    """As given; else what the other options need over so many data ranks, 0 if nothing.

    Raises:
        LayoutError: If units are to be gathered ahead where nothing is gathered.
    """
    ahead = request.prefetch != LAYOUT["prefetch"].default
    if request.zero_stage is not None:
        if ahead and request.zero_stage != _FULL_SHARDING:
            raise LayoutError(
                f"prefetch={request.prefetch} gathers ahead what ZeRO 3 shards, got "
                f"zero_stage={request.zero_stage}. To fix: zero_stage=3, or leave it away."
            )
        return int(request.zero_stage)
    needs = {
        _FULL_SHARDING: {
            "dp_shard": request.dp_shard > 0,
            "dp_replicate": 0 < request.dp_replicate < ranks,
            "reshard_after_forward": not request.reshard_after_forward,
            "prefetch": ahead,
            "offload=parameters": request.offload is Offload.PARAMETERS,
        },
        2 if request.pp == 1 else 1: {"offload=optimizer": request.offload is Offload.OPTIMIZER},
    }
    for stage, reasons in needs.items():
        named = [name for name, given in reasons.items() if given]
        if named:
            found.assume(
                "zero_stage", f"ZeRO stage not given: zero_stage={stage} assumed, for {' and '.join(named)}."
            )
            return stage
    return 0


def data_parallel_degree(gpus: int, tp: int, pp: int, cp: int, shape: ModelShape) -> int:
    """Replicas that are left once tensor, pipeline and context degrees are taken.

    Raises:
        LayoutError: If they do not divide the devices.
    """
    degrees = {"tp": tp, "pp": pp, "cp": cp} if cp > 1 else {"tp": tp, "pp": pp}
    sharing = tp * pp * cp
    if gpus % sharing:
        product = " * ".join(f"{name}({degree})" for name, degree in degrees.items())
        others = degrees_in_words(gpus, degrees, shape)
        raise LayoutError(
            f"Invalid layout: {product} = {sharing} does not divide {gpus} devices. "
            f"To fix: use {nearest_multiple(sharing, gpus)} devices, or {others}."
        )
    return int(gpus // sharing)
