"""From layout options to a `Layout`: words parsed, defaults filled in, refusals explained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ..cost.job import Job
from ..cost.recompute import RECOMPUTED, recomputed_nodes
from ..cost.stacks import get_stack_profile
from ..diagnostics import SHARDED, Diagnostics
from ..errors import ConfigError, LayoutError
from ..hardware.device import Cluster
from ..parallel.axis_rules import stage_layers_in_words
from ..parallel.degrees import nearest_multiple
from ..parallel.layout import AXES, Layout, Offload, PipelineSchedule, Recompute
from ..parallel.placement import placement_in_words, placement_warnings
from ..parallel.shape import ModelShape, model_shape
from ..parallel.validation import check_model_layout, degrees_in_words, layout_warnings
from ..workload.workload import Workload
from .schema import LayoutOptions, RequestFields
from .votes import stacks_table

_LANGUAGE_FAMILIES = frozenset({"transformer-decoder", "moe"})
_FULL_SHARDING = 3
_TRANSLATED = (
    *("recompute", "recompute_layers", "recompute_modules", "schedule", "sequence_parallel", "stage_layers"),
    *("rank_order", "zero_stage"),
)
"""Fields of both that the options spell otherwise, or leave to a default that depends on the job."""
_SAME = tuple(
    field.name
    for field in fields(Layout)
    if field.name in LayoutOptions.model_fields and field.name not in _TRANSLATED
)
"""Fields that a layout takes from its options as they are: a new one needs no line here."""
_MAX_STAGES = 100_000
"""No pipeline is longer: a guard against typing errors."""


def layout_of(options: LayoutOptions, workload: Workload, gpus: int, found: Diagnostics) -> Layout:
    """The layout, with a micro batch of 1 until the batch is known.

    Args:
        options: Validated fields.
        workload: Its layers, heads, experts and tokens must divide.
        gpus: Devices in all; what the other degrees leave is data parallel.
        found: Collects what had to be assumed.

    Raises:
        LayoutError: Degrees that do not fit the devices, the model or each other.
        ConfigError: A word that is none of the choices.
    """
    shape = model_shape(workload.graph)
    recompute, share, modules = _recomputation(options, shape.num_layers)
    _check_modules(modules, workload)
    layout = Layout(
        **{name: getattr(options, name) for name in _SAME},
        dp=data_parallel_degree(gpus, options.tp, options.pp, options.cp, shape),
        zero_stage=_zero_stage(options, found),
        schedule=_schedule(options),
        stage_layers=parse_stage_layers(options.stage_layers),
        sequence_parallel=_sequence_parallel(options, workload),
        recompute=recompute,
        recompute_layers=share,
        recompute_modules=modules,
        rank_order=parse_rank_order(options.rank_order),
    )
    if not options.uneven:
        check_model_layout(layout, shape, num_devices=gpus)
    return layout


def sharded_as_usual(layout: Layout, request: RequestFields, job: Job, found: Diagnostics) -> Layout:
    """The layout, sharded as language models on the named stack are where the request does not say it."""
    left_open = request.stack is not None and request.layout.zero_stage is None
    usual = job.workload.family in _LANGUAGE_FAMILIES
    if not (left_open and usual) or layout.zero_stage or layout.data_ranks == 1:
        return layout
    profile = get_stack_profile(job.stack.profile)
    stage = profile.usual_zero_stage(job.stack.framework_year, pipeline=layout.pp > 1)
    if not stage:
        return layout
    found.assume(SHARDED, f"ZeRO stage not given: zero_stage={stage} assumed, as usual on {profile.name}.")
    return replace(layout, zero_stage=stage)


def habits_with_experts(job: Job, *, recomputing: bool = True) -> dict[str, tuple[Any, ...]]:
    """Values that fields of a layout have where experts are cut up as people do it; none of other models.

    Args:
        job: Any.
        recomputing: Whether operators that are run again are among them.
    """
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


def options_of(layout: Layout) -> dict[str, Any]:
    """The layout options that `layout_of` turns into `layout`, but for its batch: the way back."""
    plain = Layout()
    options = {
        name: getattr(layout, name)
        for name in (*_SAME, "stage_layers", "rank_order")
        if getattr(layout, name) != getattr(plain, name)
    }
    usual = _schedule(LayoutOptions(vpp=layout.vpp))
    if layout.pp > 1 or layout.schedule is not usual:
        options["schedule"] = layout.schedule
    if layout.recompute_modules:
        options["recompute_modules"] = ",".join(layout.recompute_modules)
    if layout.recompute is Recompute.FULL and layout.recompute_layers:
        options["recompute_layers"] = layout.recompute_layers
    return options | {
        "zero_stage": layout.zero_stage,
        "num_microbatches": layout.num_microbatches,
        "sequence_parallel": layout.sequence_parallel,
        "recompute": layout.recompute,
    }


def layout_words(layout: Layout, workload: Workload, *, without: Collection[str] = ()) -> str:
    """What a user types for a layout and its batch, but for the options named in `without`."""
    said = said_options(layout, workload)
    return option_words({name: value for name, value in said.items() if name not in without})


def said_options(layout: Layout, workload: Workload) -> dict[str, Any]:
    """The options of a layout and its batch that do not follow from the others.

    Args:
        layout: Any.
        workload: Its family decides what tensor parallelism brings.
    """
    options = options_of(layout)
    usual = {
        "schedule": PipelineSchedule.INTERLEAVED if layout.vpp > 1 else PipelineSchedule.ONE_F_ONE_B,
        "recompute": Recompute.NONE,
        "num_microbatches": 1,
        "sequence_parallel": _usually_sequence_parallel(layout.tp, layout.cp, workload),
        "zero_stage": 0 if layout.data_ranks == 1 else None,
    }
    said = {name: value for name, value in options.items() if value != usual.get(name)}
    if layout.pp == 1:
        said.pop("schedule", None)
    if layout.stage_layers:
        said["stage_layers"] = stage_layers_in_words(layout.stage_layers)
    layers = layout.recompute_layers * (model_shape(workload.graph).num_layers or 0)
    if "recompute_layers" in said and layers == round(layers):
        said["recompute_layers"] = round(layers)
    said["batch_size"] = f"{layout.micro_batch_size / workload.rows_per_sample:g}"
    return said


def option_words(fields: Mapping[str, Any]) -> str:
    """Fields of a request as the command line takes them."""

    def word(name: str, value: Any) -> str:
        flag = "-b" if name == "batch_size" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            return flag if value else f"--no-{name.replace('_', '-')}"
        return f"{flag} {'-'.join(value) if isinstance(value, tuple) else getattr(value, 'value', value)}"

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


def _check_modules(names: tuple[str, ...], workload: Workload) -> None:
    """Refuse operators to run again that the model lacks.

    Raises:
        ConfigError: Of the first.
    """
    for name in names:
        if not recomputed_nodes(workload.graph, (name,)):
            has = [known for known in RECOMPUTED if recomputed_nodes(workload.graph, (known,))]
            raise ConfigError(
                f"recompute_modules={name} does not apply: {workload.name} has no such operators in its "
                f"layers. To fix: {'recompute_modules=' + ','.join(has) if has else 'recompute=full'}."
            )


def _recomputation(
    options: LayoutOptions, num_layers: int | None
) -> tuple[Recompute, float, tuple[str, ...]]:
    """Mode, the share of the layers that it covers (0: all), and the operators that run again by name.

    Layers alone say full recomputation, modules alone selective.

    Args:
        options: Validated fields.
        num_layers: Layers of the model; None where it has none.

    Raises:
        ConfigError: If a module is unknown, there are fewer layers, or the mode has neither.
    """
    mode, layers = options.recompute, options.recompute_layers
    modules = parse_modules(options.recompute_modules)
    if "recompute" not in options.model_fields_set and (layers or modules):
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
    return mode, recompute_share(layers, num_layers), modules


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


def parse_modules(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Operators to run again, as Megatron-LM names them.

    >>> parse_modules("layernorm,core_attn")
    ('core_attn', 'layernorm')

    Raises:
        ConfigError: If one is unknown.
    """
    if given is None:
        return ()
    names = given.replace("+", ",").split(",") if isinstance(given, str) else given
    found = tuple(sorted({name.strip().lower() for name in names}))
    unknown = [name for name in found if name not in RECOMPUTED]
    if unknown:
        raise ConfigError(
            f"recompute_modules={unknown[0]!r} is none of {', '.join(RECOMPUTED)}. To fix: name one or "
            "several of them, or leave it out."
        )
    return found


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
            f"stage_layers={given!r} is not a list of layers per stage. To fix: write it like 7,8x14,7."
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


def _schedule(options: LayoutOptions) -> PipelineSchedule:
    if options.schedule is not None:
        return options.schedule
    return PipelineSchedule.INTERLEAVED if options.vpp > 1 else PipelineSchedule.ONE_F_ONE_B


def _sequence_parallel(options: LayoutOptions, workload: Workload) -> bool:
    """As given; else where tensor parallelism of language models usually brings it and the tokens divide."""
    if options.sequence_parallel is not None:
        return options.sequence_parallel
    return _usually_sequence_parallel(options.tp, options.cp, workload)


def _usually_sequence_parallel(tp: int, cp: int, workload: Workload) -> bool:
    usual = tp > 1 and workload.family in _LANGUAGE_FAMILIES
    return usual and (workload.graph.seq_len or 0) % (tp * cp) == 0


def _zero_stage(options: LayoutOptions, found: Diagnostics) -> int:
    """As given; else what the other options need, 0 if nothing.

    Raises:
        LayoutError: If units are to be gathered ahead where nothing is gathered.
    """
    ahead = options.prefetch != type(options).model_fields["prefetch"].default
    if options.zero_stage is not None:
        if ahead and options.zero_stage != _FULL_SHARDING:
            raise LayoutError(
                f"prefetch={options.prefetch} gathers ahead what ZeRO 3 shards, got "
                f"zero_stage={options.zero_stage}. To fix: zero_stage=3, or leave it away."
            )
        return options.zero_stage
    needs = {
        _FULL_SHARDING: {
            "dp_shard": options.dp_shard > 0,
            "reshard_after_forward": not options.reshard_after_forward,
            "prefetch": ahead,
            "offload=parameters": options.offload is Offload.PARAMETERS,
        },
        2 if options.pp == 1 else 1: {"offload=optimizer": options.offload is Offload.OPTIMIZER},
    }
    for stage, reasons in needs.items():
        named = [name for name, given in reasons.items() if given]
        if named:
            found.assume(
                SHARDED, f"ZeRO stage not given: zero_stage={stage} assumed, for {' and '.join(named)}."
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
