"""`precision-time predict`: the time of a training job, at one precision or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    BatchSizeOption,
    CheckpointingOption,
    ContextMethodOption,
    CpOption,
    CustomOption,
    DeviceOption,
    EpOption,
    ExpertCapacityOption,
    ExpertTpOption,
    ImageSizeOption,
    JsonOption,
    ModelArgument,
    OffloadOption,
    PpOption,
    PrefetchOption,
    RankOrderOption,
    ReshardOption,
    ScheduleOption,
    SeqLenOption,
    SequenceParallelOption,
    ShardSizeOption,
    SizesOption,
    StageLayersOption,
    StragglersOption,
    TpOption,
    VirtualPpOption,
    ZeroOption,
    complete_precision,
    parse_sizes,
)
from .output import message, page_width, progress, write_json, write_renderable

EXAMPLES = """\b
Examples:
  precision-time predict resnet50 --device A100-SXM4-80GB --gpus 8 -p fp16-mixed --batch-size 256
  precision-time predict bert-large -d V100-SXM2-32GB -g 8 -p all --seq-len 512 --batch-size 8
  precision-time predict llama3-8b -d H100-SXM5-80GB -g 64 --nodes 8 -p bf16-mixed,fp8-mixed --zero 3
  precision-time predict llama3-70b -d H100-SXM5-80GB -g 64 -p bf16-mixed --tp 8 --pp 4 --grad-accum 16
  precision-time predict mypackage.models:build --device L4 --json
"""


def predict(
    model: ModelArgument,
    *,
    device: DeviceOption = None,
    gpus: Annotated[int, typer.Option("--gpus", "-g", help="Devices in all.")] = 1,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Hosts the devices are spread over.")] = None,
    node_type: Annotated[
        str | None, typer.Option("--node-type", help="DGX-A100, p4d.24xlarge ...: sets the links.")
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            "-p",
            metavar="P[,P2...]|all",
            help="Precision, several separated by commas, or all that the device can do.",
            autocompletion=complete_precision,
        ),
    ] = "fp16-mixed",
    batch_size: BatchSizeOption = None,
    global_batch_size: Annotated[
        int | None,
        typer.Option("--global-batch-size", help="Samples per optimizer step over all devices."),
    ] = None,
    seq_len: SeqLenOption = None,
    image_size: ImageSizeOption = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="imagenet, squad1.1, coco2017 ...")] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Training samples per epoch.")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Length of the run in epochs.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Length of the run in steps.")] = None,
    framework: Annotated[str | None, typer.Option("--framework", help="pytorch, tensorflow, jax ...")] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", help="Software profile (`precision-time stacks`).")
    ] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help="sgd, adamw, lamb ...")] = None,
    tp: TpOption = 1,
    pp: PpOption = 1,
    cp: CpOption = 1,
    ep: EpOption = 1,
    rank_order: RankOrderOption = None,
    zero: ZeroOption = None,
    shard_size: ShardSizeOption = 0,
    reshard_after_forward: ReshardOption = True,
    prefetch: PrefetchOption = 1,
    offload: OffloadOption = "none",
    grad_accum: Annotated[int, typer.Option("--grad-accum", help="Micro batches per optimizer step.")] = 1,
    checkpointing: CheckpointingOption = "none",
    sequence_parallel: SequenceParallelOption = None,
    context_method: ContextMethodOption = "ring",
    schedule: ScheduleOption = None,
    virtual_pp: VirtualPpOption = 1,
    stage_layers: StageLayersOption = None,
    expert_tp: ExpertTpOption = None,
    expert_capacity: ExpertCapacityOption = 0.0,
    size: SizesOption = None,
    custom: CustomOption = None,
    input_rate: Annotated[
        float | None,
        typer.Option("--input-rate", help="Samples/s that the input pipeline delivers over all devices."),
    ] = None,
    stragglers: StragglersOption = True,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            exists=True,
            dir_okay=False,
            help="To your own cluster: a file of `precision-time calibrate`.",
        ),
    ] = None,
    coverage: Annotated[float, typer.Option("--coverage", help="Probability that the interval holds.")] = 0.9,
    json_output: JsonOption = False,
) -> None:
    """Predict the time of a step, an epoch, a run."""
    arguments = {name: value for name, value in locals().items() if name not in _OWN}
    arguments["sizes"] = parse_sizes(size)
    from ..predict.compare import ALL, compare_precisions

    wanted = precision.strip().lower()
    names = ALL if wanted == ALL else [name.strip() for name in precision.split(",") if name.strip()]
    with progress(f"Predicting {model}"):
        comparison = compare_precisions(precisions=names, **arguments)
    if json_output:
        several = len(comparison.predictions) + len(comparison.skipped) > 1
        write_json(comparison.to_dict() if several else comparison.predictions[0].to_dict())
        return
    from ..predict.render import render

    write_renderable(render(comparison.predictions, width=page_width()))
    for name, reason in comparison.skipped.items():
        message(f"Left out {name}: {reason}")


_OWN = ("precision", "size", "json_output")
"""Parameters of the command that `predict_time` does not take under the same name."""
