"""`predict_time`: the one call. It turns what people say into a Job and asks the shipped predictor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cost.job import Job
from ..learn.artifact import shipped_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from .asked import resolve_asked
from .layouts import LayoutWords, layout_of, layout_remarks
from .prediction import Prediction
from .predictor import RunLength, predict_job
from .question import (
    Said,
    check_counts,
    resolve_stack,
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
    cp: int = 1,
    ep: int = 1,
    expert_tp: int | None = None,
    virtual_pp: int = 1,
    schedule: str | None = None,
    stage_layers: str | Sequence[int] | None = None,
    sequence_parallel: bool | None = None,
    context_method: str = "ring",
    shard_size: int = 0,
    reshard_after_forward: bool = True,
    offload: str = "none",
    expert_capacity: float = 0.0,
    rank_order: str | Sequence[str] | None = None,
    prefetch: int = 1,
    stragglers: bool = True,
    calibration: Calibration | str | Path | None = None,
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
        zero: ZeRO stage, 3 is full sharding (FSDP); None takes DDP where it fits, else 3 (1 in a pipeline).
        grad_accum: Micro batches per optimizer step.
        checkpointing: none, selective, full, full:0.5 (share of the layers) or full:16 (layers).
        sizes: Sizes of a parametric model (hidden, layers, heads ...).
        custom: TOML or YAML file with devices and clusters of your own.
        input_rate: Samples/s that the input pipeline delivers over all devices; None where it keeps up.
        coverage: Probability that the interval holds, 0..1.
        example_inputs: Inputs of an `nn.Module`.
        cp: Context-parallel degree: ranks that share a sequence.
        ep: Expert-parallel degree, over the devices of a pipeline stage.
        expert_tp: Tensor-parallel degree inside an expert; None takes tp.
        virtual_pp: Model chunks per stage (interleaved schedule).
        schedule: gpipe, 1f1b, interleaved or zero-bubble; None takes interleaved with virtual_pp, else 1f1b.
        stage_layers: Layers of each stage where they are not even: (7, 8, 8, 7) or "7,8x2,7".
        sequence_parallel: Split norms and dropout over tensor ranks; None does with tp in language models.
        context_method: How context ranks exchange keys and values: ring, all-gather or ulysses.
        shard_size: Data-parallel ranks that hold one copy between them (HSDP); 0 for all.
        reshard_after_forward: Drop gathered parameters after the forward pass (FSDP, zero=3).
        offload: What lives in host memory: none, optimizer or parameters.
        expert_capacity: Tokens that an expert takes, relative to an even share; 0 drops none.
        rank_order: Axes from neighbouring devices outwards, such as "tp-cp-dp-pp".
        prefetch: Units gathered ahead of their computation (FSDP, zero=3); 0 for none.
        stragglers: Allow for the slowest of many devices; False for devices that are all alike.
        calibration: To your own cluster: what `precision-time calibrate --out` wrote, or its path.

    Returns:
        The answer: step time as a sum of named terms, interval, epoch and total time, throughput,
        MFU, memory, evidence, and what was assumed.

    Raises:
        UnknownNameError: Model, device, precision or stack that nobody knows.
        ConfigError: Counts, batches, lengths or a precision that cannot be.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    said = Said()
    words = LayoutWords(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        expert_tp=expert_tp,
        zero=zero,
        shard_size=shard_size,
        reshard_after_forward=reshard_after_forward,
        prefetch=prefetch,
        offload=offload,
        grad_accum=grad_accum,
        schedule=schedule,
        virtual_pp=virtual_pp,
        stage_layers=stage_layers,
        sequence_parallel=sequence_parallel,
        context_method=context_method,
        expert_capacity=expert_capacity,
        checkpointing=checkpointing,
        rank_order=rank_order,
    )
    words.check()
    check_counts(
        gpus=gpus,
        nodes=nodes,
        seq_len=seq_len,
        steps=steps,
        image_size=image_size,
        samples=samples,
        batch_size=batch_size,
        global_batch_size=global_batch_size,
        epochs=epochs,
        input_rate=input_rate,
    )
    asked = resolve_asked(
        model,
        said,
        precision=precision,
        device=device,
        gpus=gpus,
        nodes=nodes,
        node_type=node_type,
        custom=custom,
        seq_len=seq_len,
        image_size=image_size,
        sizes=sizes,
        optimizer=optimizer,
        coverage=coverage,
        dataset=dataset,
        example_inputs=example_inputs,
    )
    workload = asked.workload
    job = Job(
        workload=workload,
        cluster=asked.cluster,
        precision=asked.precision,
        layout=layout_of(words, workload, gpus, said),
        stack=resolve_stack(stack, framework, workload.family, said),
        stragglers=stragglers,
    )
    job = with_batch(job, batch_size, global_batch_size, zero, said)
    placed, warnings = layout_remarks(job.layout, workload, job.cluster)
    said.assumptions.extend(placed)
    said.warnings.extend(warnings)
    say_length(workload, epochs, steps, samples, said)
    answer = predict_job(
        replace(job, assumptions=tuple(said.assumptions)),
        shipped_predictor(),
        length=RunLength(dataset_samples=samples, epochs=epochs, steps=steps, input_samples_per_s=input_rate),
        coverage=coverage,
        calibration=as_calibration(calibration),
    )
    return replace(answer, warnings=(*said.warnings, *answer.warnings))
