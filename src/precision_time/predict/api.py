"""`predict_time`: the one call. It turns what people say into a Job and asks the shipped predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..cost.job import Job, Stack
from ..cost.stacks import get_stack, stack_for_framework
from ..errors import ConfigError, LayoutError
from ..hardware.catalog import get_cluster
from ..hardware.device import Cluster
from ..learn.artifact import shipped_predictor
from ..parallel.layout import Checkpointing, Layout
from ..precision.catalog import get_policy, parse_precision
from ..precision.support import check_support
from ..workload.resolve import load_workload
from ..workload.workload import Workload
from .prediction import Prediction
from .predictor import RunLength, memory_of_job, predict_job

DEFAULT_DEVICE = "A100-SXM4-80GB"
_DEFAULT_BATCHES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Tried in this order when no batch size is given: the first that fits in memory."""
_MAX_COUNT = 10_000_000
"""No cluster, batch or sequence is longer: a guard against a slip of the keyboard."""
_FILE_SUFFIXES = (".json", ".onnx", ".pt2")


@dataclass(slots=True)
class _Said:
    """What had to be assumed on the way, and what must be warned of."""

    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def predict_time(
    model: Any,
    *,
    precision: str = "fp16-mixed",
    device: str | None = None,
    gpus: int = 1,
    nodes: int | None = None,
    node_type: str | None = None,
    batch_size: float | None = None,
    global_batch_size: float | None = None,
    seq_len: int | None = None,
    image_size: int | None = None,
    dataset: str | None = None,
    samples: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    framework: str | None = None,
    stack: str | None = None,
    optimizer: str | None = None,
    tp: int = 1,
    pp: int = 1,
    zero: int | None = None,
    grad_accum: int = 1,
    checkpointing: str = "none",
    sizes: Mapping[str, Any] | None = None,
    custom: str | Path | None = None,
    coverage: float = 0.9,
    example_inputs: Any = None,
) -> Prediction:
    """How long one training step, one epoch and the whole run take.

    Main arguments:

    Args:
        model: Known name (`precision-time models`), timm or Hugging Face name, `module:function`, path
            of a config.json, .onnx or .pt2 file, an `nn.Module` (with `example_inputs`), a Hugging
            Face config object or an exported program.
        precision: Any usual spelling: fp32, tf32, fp16-mixed, mixed_fp16_fp32, bf16-true, fp8 ...
        device: Accelerator name in any usual spelling; A100-SXM4-80GB when nothing is said.
        gpus: Devices in all.
        batch_size: Samples per device and forward pass, as in every PyTorch script.
        global_batch_size: Samples per optimizer step over all devices: the other way to say it.
        dataset: Name of the data set, for the number of samples per epoch.
        samples: Samples per epoch.
        epochs: Length of the run in epochs; 1 when neither epochs nor steps are given.
        steps: Length of the run in optimizer steps.

    Other arguments:
        nodes: Hosts the devices are spread over. node_type: DGX-A100, p4d.24xlarge ..., sets links.
        seq_len, image_size, sizes: sizes of the model. framework, stack: the software.
        optimizer: sgd, adamw, lamb ... tp, pp, zero: parallel degrees and ZeRO stage (3 = FSDP);
        zero=None takes DDP where it fits and full sharding where it does not. grad_accum: micro
        batches per step. checkpointing: none, selective or full. custom: file with your own devices
        and clusters. coverage: probability that the interval holds.

    Returns:
        The answer: step time as a sum of named terms, interval, epoch and total time, throughput,
        MFU, memory, evidence, and what was assumed.

    Raises:
        UnknownNameError: Model, device, precision or stack that nobody knows.
        ConfigError: Counts, batches, lengths or a precision that cannot be.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    said = _Said()
    _check_counts(gpus=gpus, nodes=nodes, grad_accum=grad_accum, tp=tp, pp=pp, seq_len=seq_len, steps=steps,
                  image_size=image_size, samples=samples, batch_size=batch_size,
                  global_batch_size=global_batch_size, epochs=epochs)
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage={coverage} is no probability of an interval. To fix: use 0.5 to 0.99.")
    workload = _workload(
        model, example_inputs, seq_len=seq_len, image_size=image_size, sizes=sizes, dataset=dataset,
        optimizer=optimizer,
    )
    cluster = _cluster(device, gpus, nodes, node_type, custom, said)
    choice = parse_precision(precision)
    if choice.assumption:
        said.assumptions.append(choice.assumption)
    policy = get_policy(choice.name, variant=choice.variant)
    said.warnings.extend(check_support(policy, cluster.device))
    layout = Layout(
        dp=_data_parallel(gpus, tp, pp), tp=tp, pp=pp, zero_stage=zero or 0, num_micro_batches=grad_accum,
        checkpointing=_checkpointing(checkpointing),
    )
    job = Job(
        workload=workload, cluster=cluster, precision=policy, layout=layout,
        stack=_stack(stack, framework, said),
    )
    job = _with_batch(job, batch_size, global_batch_size, zero, said)
    _say_length(workload, epochs, steps, samples, said)
    answer = predict_job(
        replace(job, assumptions=tuple(said.assumptions)),
        shipped_predictor(),
        length=RunLength(dataset_samples=samples, epochs=epochs, steps=steps),
        coverage=coverage,
    )
    return replace(answer, warnings=(*said.warnings, *answer.warnings))


def _check_counts(**counts: float | None) -> None:
    for name, value in counts.items():
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MAX_COUNT * 1000:
            raise ConfigError(f"{name}={value!r} cannot be: it must be a number above 0. To fix: {name}=1 or more.")
        if name in ("gpus", "nodes", "tp", "pp", "grad_accum", "seq_len", "image_size"):
            if value != int(value):
                raise ConfigError(f"{name}={value!r} must be a whole number. To fix: {name}={max(int(value), 1)}.")
            if value > _MAX_COUNT:
                raise ConfigError(f"{name}={value!r} is beyond {_MAX_COUNT:,}. To fix: check the number.")


def _workload(
    model: Any,
    example_inputs: Any,
    *,
    seq_len: int | None,
    image_size: int | None,
    sizes: Mapping[str, Any] | None,
    dataset: str | None,
    optimizer: str | None,
) -> Workload:
    """The workload of a known name, or of a model captured now."""
    named = isinstance(model, str | Path)
    if named and not (":" in str(model) or str(model).endswith(_FILE_SUFFIXES)):
        return load_workload(
            str(model), seq_len=seq_len, image_size=image_size, sizes=sizes, dataset=dataset, optimizer=optimizer
        )
    from ..workload.capture.sources import capture_model

    graph = capture_model(model, example_inputs=example_inputs, seq_len=seq_len, image_size=image_size)
    sequences = graph.seq_len is not None
    return Workload(
        name=graph.name,
        graph=graph,
        family="other",
        optimizer=optimizer or ("adamw" if sequences else "momentum-sgd"),
        sample_unit="sequence" if sequences else "sample",
        units_per_sample=float(graph.seq_len or 1),
        throughput_unit="tokens/s" if sequences else "samples/s",
        dataset=dataset or "",
        assumptions=() if optimizer else ("The optimizer was not given: assumed by the kind of input.",),
    )


def _cluster(
    device: str | None, gpus: int, nodes: int | None, node_type: str | None, custom: str | Path | None, said: _Said
) -> Cluster:
    if device is None and node_type is None:
        said.assumptions.append(f"Device not given: {DEFAULT_DEVICE} assumed.")
    return get_cluster(
        device=device or (DEFAULT_DEVICE if node_type is None else None),
        num_devices=int(gpus),
        num_nodes=None if nodes is None else int(nodes),
        node_type=node_type,
        custom=None if custom is None else Path(custom),
    )


def _data_parallel(gpus: int, tp: int, pp: int) -> int:
    if gpus % (tp * pp):
        raise LayoutError(
            f"Invalid layout: tp({tp}) * pp({pp}) = {tp * pp} does not divide {gpus} devices. "
            f"To fix: use {tp * pp * max(gpus // (tp * pp), 1)} devices, or other degrees."
        )
    return int(gpus // (tp * pp))


def _checkpointing(word: str) -> Checkpointing:
    try:
        return Checkpointing(word.lower())
    except ValueError:
        known = ", ".join(item.value for item in Checkpointing)
        raise ConfigError(f"checkpointing={word!r} is none of {known}. To fix: use one of them.") from None


def _stack(name: str | None, framework: str | None, said: _Said) -> Stack:
    if name is not None:
        return get_stack(name)
    if framework is not None:
        return stack_for_framework(framework)
    stack = get_stack()
    said.assumptions.append(f"Software not given: {stack.profile} assumed (`precision-time stacks`).")
    return stack


def _with_batch(
    job: Job, batch_size: float | None, global_batch_size: float | None, zero: int | None, said: _Said
) -> Job:
    """The job with its micro batch filled in, and sharded where nothing was said and DDP does not fit."""
    layout = job.layout
    if batch_size is not None and global_batch_size is not None:
        implied = batch_size * layout.dp * layout.num_micro_batches
        if implied != global_batch_size:
            raise LayoutError(
                f"batch_size({batch_size:g}) * dp({layout.dp}) * grad_accum({layout.num_micro_batches}) = "
                f"{implied:g}, but global_batch_size={global_batch_size:g}. To fix: give only one of them."
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
        trial = _sharded_if_needed(_batched(job, candidate), zero, _Said())
        if _fits(trial) or candidate == _DEFAULT_BATCHES[-1]:
            break
    said.assumptions.append(f"Batch size not given: {candidate} per device, the largest that fits up to 256.")
    return _sharded_if_needed(_batched(job, candidate), zero, said)


def _sharded_if_needed(job: Job, zero: int | None, said: _Said) -> Job:
    if zero is not None or job.layout.dp == 1 or _fits(job):
        return job
    sharded = replace(job, layout=replace(job.layout, zero_stage=3))
    said.assumptions.append("Plain data parallelism does not fit: full sharding (zero=3, FSDP) assumed.")
    return sharded


def _batched(job: Job, micro_batch_size: float) -> Job:
    return replace(job, layout=replace(job.layout, micro_batch_size=float(micro_batch_size)))


def _fits(job: Job) -> bool:
    return sum(memory_of_job(job).values()) <= job.cluster.device.memory_bytes


def _say_length(
    workload: Workload, epochs: float | None, steps: int | None, samples: int | None, said: _Said
) -> None:
    if steps is not None:
        return
    known = samples or workload.dataset_samples
    if samples is None and known:
        said.assumptions.append(f"Data set: {workload.dataset}, {known:,} samples per epoch.")
    if epochs is None and known:
        said.assumptions.append("Length of the run not given: one epoch.")
