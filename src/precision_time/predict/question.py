"""From what people say to a Job: counts checked, names resolved, gaps filled in and said."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..cost.job import Job, Stack
from ..cost.stacks import get_stack, stack_for_framework, usual_stack
from ..errors import CaptureError, ConfigError, LayoutError, MissingExtraError, UnknownNameError
from ..hardware.catalog import get_cluster
from ..hardware.device import Cluster
from ..parallel.degrees import nearest_multiple
from ..parallel.layout import Layout
from ..parallel.shape import ModelShape
from ..parallel.validation import degrees_in_words
from ..workload.graph import OpClass, OpGraph
from ..workload.hf_config import is_config_source
from ..workload.resolve import load_workload
from ..workload.workload import Workload
from .predictor import memory_of_job

DEFAULT_DEVICE = "A100-SXM4-80GB"
_DEFAULT_BATCHES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Tried in this order when no batch size is given: the first that fits in memory."""
_MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against a slip of the keyboard."""
_MAX_VALUE = 10**13
_WHOLE = (
    "gpus",
    "nodes",
    "tp",
    "pp",
    "cp",
    "ep",
    "expert_tp",
    "virtual_pp",
    "shard_size",
    "prefetch",
    "grad_accum",
    "seq_len",
    "image_size",
    "samples",
    "steps",
    "batch_size",
    "global_batch_size",
)
_CONVOLUTIONS = (OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV)
_TIMM_PREFIX = "timm:"
_FILE_SUFFIXES = (".json", ".onnx", ".pt2")


@dataclass(slots=True)
class Said:
    """What had to be assumed on the way, and what must be warned of."""

    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_counts(**counts: float | None) -> None:
    """Refuse counts that cannot be.

    Raises:
        ConfigError: If a count is not a number above 0, or absurdly large, or a fraction where whole
            numbers count.
    """
    for name, value in counts.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_VALUE:
            raise ConfigError(
                f"{name}={value!r} cannot be: it must be a number above 0. To fix: {name}=1 or more."
            )
        if name in _WHOLE and value != int(value):
            raise ConfigError(
                f"{name}={value!r} must be a whole number. To fix: {name}={max(int(value), 1)}."
            )
        if name not in ("samples", "steps", "input_rate") and value > _MAX_COUNT:
            raise ConfigError(f"{name}={value!r} is beyond {_MAX_COUNT:,}. To fix: check the number.")


def resolve_workload(
    model: Any,
    example_inputs: Any,
    *,
    seq_len: int | None,
    image_size: int | None,
    sizes: Mapping[str, Any] | None,
    dataset: str | None,
    optimizer: str | None,
) -> Workload:
    """The workload of a known name, of a configuration, or of a model captured now."""
    if is_config_source(model):
        try:
            return load_workload(
                model,
                seq_len=seq_len,
                image_size=image_size,
                sizes=sizes,
                dataset=dataset,
                optimizer=optimizer,
            )
        except (UnknownNameError, CaptureError):
            if isinstance(model, Mapping) or importlib.util.find_spec("torch") is None:
                raise
    if isinstance(model, str | Path):
        model = str(model).removeprefix(_TIMM_PREFIX)
        if not (":" in model or model.endswith(_FILE_SUFFIXES)):
            try:
                return load_workload(
                    model,
                    seq_len=seq_len,
                    image_size=image_size,
                    sizes=sizes,
                    dataset=dataset,
                    optimizer=optimizer,
                )
            except UnknownNameError as unknown:
                return _captured(_capture_by_name(model, seq_len, image_size, unknown), dataset, optimizer)
    from ..workload.capture.sources import capture_model

    graph = capture_model(model, example_inputs=example_inputs, seq_len=seq_len, image_size=image_size)
    return _captured(graph, dataset, optimizer)


def _capture_by_name(
    name: str, seq_len: int | None, image_size: int | None, unknown: UnknownNameError
) -> OpGraph:
    """A model that does not ship, captured if timm or transformers are here and know it.

    Raises:
        UnknownNameError: `unknown`, if they are not or do not.
    """
    if importlib.util.find_spec("torch") is None:
        raise unknown
    from ..workload.capture.sources import capture_model

    try:
        return capture_model(name, seq_len=seq_len, image_size=image_size)
    except (UnknownNameError, MissingExtraError):
        raise unknown from None


def _family_of(graph: OpGraph) -> str:
    """The family whose kernels do most of the graph's work."""
    work: dict[OpClass, float] = {}
    for node in graph.nodes:
        work[node.op_class] = work.get(node.op_class, 0.0) + node.flops
    total = sum(work.values()) or 1.0
    if sum(work.get(op_class, 0.0) for op_class in _CONVOLUTIONS) > total / 2.0:
        return "cnn"
    if work.get(OpClass.RNN, 0.0) > total / 3.0:
        return "rnn"
    attention = [node for node in graph.nodes if node.op_class is OpClass.ATTENTION]
    if not attention:
        return "other"
    if graph.seq_len is None:
        return "vit"
    return "transformer-decoder" if any(node.causal for node in attention) else "transformer-encoder"


def _captured(graph: OpGraph, dataset: str | None, optimizer: str | None) -> Workload:
    """A workload around a graph captured now."""
    sequences = graph.seq_len is not None
    return Workload(
        name=graph.name,
        graph=graph,
        family=_family_of(graph),
        optimizer=optimizer or ("adamw" if sequences else "momentum-sgd"),
        sample_unit="sequence" if sequences else "sample",
        units_per_sample=float(graph.seq_len or 1),
        throughput_unit="tokens/s" if sequences else "samples/s",
        dataset=dataset or "",
        assumptions=() if optimizer else ("The optimizer was not given: assumed by the kind of input.",),
    )


def resolve_cluster(
    device: str | None,
    gpus: int,
    nodes: int | None,
    node_type: str | None,
    custom: str | Path | None,
    said: Said,
) -> Cluster:
    """The cluster, with the device that was assumed when none was named."""
    if device is None and node_type is None:
        said.assumptions.append(f"Device not given: {DEFAULT_DEVICE} assumed.")
    name = device or (DEFAULT_DEVICE if node_type is None else None)
    count = None if nodes is None else int(nodes)
    if custom is None:
        return _catalogued(name, int(gpus), count, node_type)
    return get_cluster(
        device=name, num_devices=int(gpus), num_nodes=count, node_type=node_type, custom=Path(custom)
    )


@lru_cache(maxsize=256)
def _catalogued(device: str | None, gpus: int, nodes: int | None, node_type: str | None) -> Cluster:
    """One object per cluster, so that what is worked out for it is kept."""
    return get_cluster(device=device, num_devices=gpus, num_nodes=nodes, node_type=node_type)


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


def resolve_stack(name: str | None, framework: str | None, family: str, said: Said) -> Stack:
    """The stack that was named, else that of the framework, else what a script most likely is."""
    if name is not None:
        return get_stack(name)
    if framework is not None:
        return stack_for_framework(framework)
    stack = usual_stack(family)
    said.assumptions.append(f"Software not given: {stack.profile} assumed (`precision-time stacks`).")
    return stack


def with_batch(
    job: Job, batch_size: float | None, global_batch_size: float | None, zero: int | None, said: Said
) -> Job:
    """The job with its micro batch filled in, and sharded where nothing was said and DDP does not fit."""
    layout = job.layout
    if batch_size is not None and global_batch_size is not None:
        implied = batch_size * layout.dp * layout.num_micro_batches
        if implied != global_batch_size:
            accumulated = _accumulated(layout, batch_size, global_batch_size)
            raise LayoutError(
                f"batch_size({batch_size:g}) * dp({layout.dp}) * grad_accum({layout.num_micro_batches}) = "
                f"{implied:g}, but global_batch_size={global_batch_size:g}. To fix: give only one of them"
                f"{accumulated}."
            )
    if batch_size is None and global_batch_size is not None:
        shares = layout.dp * layout.num_micro_batches
        if global_batch_size % shares:
            raise LayoutError(
                f"global_batch_size={global_batch_size:g} does not divide by dp({layout.dp}) * "
                f"grad_accum({layout.num_micro_batches}) = {shares}. To fix: use "
                f"{max(global_batch_size // shares, 1) * shares:g}."
            )
        batch_size = global_batch_size / shares
    if batch_size is not None:
        return _sharded_if_needed(_batched(job, batch_size), zero, said)
    for candidate in _DEFAULT_BATCHES:
        trial = _sharded_if_needed(_batched(job, candidate), zero, Said())
        if _fits(trial) or candidate == _DEFAULT_BATCHES[-1]:
            break
    said.assumptions.append(f"Batch size not given: {candidate} per device, the largest that fits up to 256.")
    return _sharded_if_needed(_batched(job, candidate), zero, said)


def _accumulated(layout: Layout, batch_size: float, global_batch_size: float) -> str:
    """The accumulation that makes both batches agree, where there is one."""
    steps = global_batch_size / (batch_size * layout.dp)
    return f", or grad_accum={steps:g}" if steps >= 1 and steps == int(steps) else ""


def _sharded_if_needed(job: Job, zero: int | None, said: Said) -> Job:
    """The job as it is, or sharded where nothing was said and it does not fit; pipelines share out less."""
    if zero is not None or job.layout.zero_stage or job.layout.data_ranks == 1 or _fits(job):
        return job
    if job.layout.pp > 1:
        stage, words = 1, "optimizer states sharded (zero=1)"
    else:
        stage, words = 3, "full sharding (zero=3, FSDP)"
    said.assumptions.append(f"Plain data parallelism does not fit: {words} assumed.")
    return replace(job, layout=replace(job.layout, zero_stage=stage))


def _batched(job: Job, micro_batch_size: float) -> Job:
    return replace(job, layout=replace(job.layout, micro_batch_size=float(micro_batch_size)))


def _fits(job: Job) -> bool:
    return sum(memory_of_job(job).values()) <= job.cluster.device.memory_bytes


def say_length(
    workload: Workload, epochs: float | None, steps: int | None, samples: int | None, said: Said
) -> None:
    """Say what was assumed about the length of the run."""
    if steps is not None:
        return
    known = samples or workload.dataset_samples
    if samples is None and known:
        said.assumptions.append(f"Data set: {workload.dataset}, {known:,} samples per epoch.")
    if epochs is None and known:
        said.assumptions.append("Length of the run not given: one epoch.")
