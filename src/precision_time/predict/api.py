"""`predict_time`: the one call. It turns what people say into a Job and asks the shipped predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cost.job import Job
from ..errors import ConfigError
from ..learn.artifact import shipped_predictor
from ..parallel.layout import Layout
from ..precision.catalog import get_policy, parse_precision
from ..precision.support import check_support
from .prediction import Prediction
from .predictor import RunLength, predict_job
from .question import (
    Said,
    check_counts,
    data_parallel_degree,
    resolve_checkpointing,
    resolve_cluster,
    resolve_stack,
    resolve_workload,
    say_length,
    with_batch,
)


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
    input_rate: float | None = None,
    coverage: float = 0.9,
    example_inputs: Any = None,
) -> Prediction:
    """How long one training step, one epoch and the whole run take.

    The first ten arguments are what most questions need; the rest fills in details.

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
        nodes: Hosts the devices are spread over.
        node_type: DGX-A100, p4d.24xlarge ...: sets the links.
        seq_len: Tokens per sample.
        image_size: Side of the images [pixels].
        framework: pytorch, tensorflow, jax ...: the stack that a script of one's own most likely is.
        stack: Software profile (`precision-time stacks`).
        optimizer: sgd, adamw, lamb ...
        tp: Tensor-parallel degree.
        pp: Pipeline-parallel degree.
        zero: ZeRO stage, 3 is full sharding (FSDP); None takes DDP where it fits, else 3.
        grad_accum: Micro batches per optimizer step.
        checkpointing: none, selective or full.
        sizes: Sizes of a parametric model (hidden, layers, heads ...).
        custom: TOML or YAML file with devices and clusters of your own.
        input_rate: Samples/s that the input pipeline delivers over all devices; None where it keeps up.
        coverage: Probability that the interval holds, 0..1.
        example_inputs: Inputs of an `nn.Module`.

    Returns:
        The answer: step time as a sum of named terms, interval, epoch and total time, throughput,
        MFU, memory, evidence, and what was assumed.

    Raises:
        UnknownNameError: Model, device, precision or stack that nobody knows.
        ConfigError: Counts, batches, lengths or a precision that cannot be.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    said = Said()
    check_counts(
        gpus=gpus,
        nodes=nodes,
        grad_accum=grad_accum,
        tp=tp,
        pp=pp,
        seq_len=seq_len,
        steps=steps,
        image_size=image_size,
        samples=samples,
        batch_size=batch_size,
        global_batch_size=global_batch_size,
        epochs=epochs,
        input_rate=input_rate,
    )
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage={coverage} is no probability of an interval. To fix: use 0.5 to 0.99.")
    workload = resolve_workload(
        model,
        example_inputs,
        seq_len=seq_len,
        image_size=image_size,
        sizes=sizes,
        dataset=dataset,
        optimizer=optimizer,
    )
    cluster = resolve_cluster(device, gpus, nodes, node_type, custom, said)
    choice = parse_precision(precision)
    if choice.assumption:
        said.assumptions.append(choice.assumption)
    policy = get_policy(choice.name, variant=choice.variant)
    said.warnings.extend(check_support(policy, cluster.device))
    layout = Layout(
        dp=data_parallel_degree(gpus, tp, pp),
        tp=tp,
        pp=pp,
        zero_stage=zero or 0,
        num_micro_batches=grad_accum,
        checkpointing=resolve_checkpointing(checkpointing),
    )
    job = Job(
        workload=workload,
        cluster=cluster,
        precision=policy,
        layout=layout,
        stack=resolve_stack(stack, framework, workload.family, said),
    )
    job = with_batch(job, batch_size, global_batch_size, zero, said)
    say_length(workload, epochs, steps, samples, said)
    answer = predict_job(
        replace(job, assumptions=tuple(said.assumptions)),
        shipped_predictor(),
        length=RunLength(dataset_samples=samples, epochs=epochs, steps=steps, input_samples_per_s=input_rate),
        coverage=coverage,
    )
    return replace(answer, warnings=(*said.warnings, *answer.warnings))
