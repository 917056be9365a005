"""`precision-time predictddl`: one predictor per data-set type, for architectures never seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..io import write_atomically
from . import predictddl_collect, predictddl_train
from .options import (
    DeviceOption,
    ImageSizeOption,
    JsonOption,
    ModelArgument,
    SeqLenOption,
    SizesOption,
    complete_precision,
    parse_sizes,
)
from .output import message, progress, write_json, write_rows
from .predictddl_options import (
    InventoryOption,
    NoTrainOption,
    RegistryOption,
    RegressorOption,
    VariantOption,
    complete_dataset,
    open_registry,
)

if TYPE_CHECKING:
    from ..papers.predictddl.contract import Answer

HELP = "Predict architectures never seen (PredictDDL)."
EXAMPLES = """\b
Examples:
  precision-time predictddl predict resnet50 --device A100 --devices-per-node 8 --batch-size 256
  precision-time predictddl predict vgg16 --dataset tiny-imagenet --inventory lab.yaml --batch-size 64 --json
  precision-time predictddl batch requests.jsonl --inventory lab.yaml --output answers.jsonl
  precision-time predictddl train translation --csv my-runs.csv
  precision-time predictddl registry
  scontrol show node | precision-time predictddl collect --slurm -
"""
_PREDICT = """\b
Examples:
  precision-time predictddl predict resnet50 --device A100 --devices-per-node 8 --batch-size 256
  precision-time predictddl predict resnet18 --dataset tiny-imagenet --device V100 --batch-size 64
  precision-time predictddl predict bert-large --inventory lab.yaml --batch-size 32 --json
"""
_BATCH = """\b
Examples:
  precision-time predictddl batch requests.jsonl --inventory lab.yaml
  precision-time predictddl batch requests.yaml --output answers.jsonl
A request is {"model": "resnet50", "batch_size": 64, "cluster": {"device": "A100", "num_nodes": 2,
"devices_per_node": 8}, "dataset": "imagenet", "epochs": 90, "precision": "fp16-mixed"}.
"""

app = typer.Typer(
    name="predictddl", help=HELP, epilog=EXAMPLES, no_args_is_help=True, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip


@app.command(epilog=_PREDICT)
def predict(
    model: ModelArgument,
    *,
    batch_size: Annotated[float, typer.Option("--batch-size", "-b", help="Samples per device.")],
    device: DeviceOption = None,
    nodes: Annotated[int, typer.Option("--nodes", help="Hosts.")] = 1,
    devices_per_node: Annotated[int, typer.Option("--devices-per-node", help="Devices on each host.")] = 1,
    inventory: InventoryOption = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", help="Default: the one usual for the model.", autocompletion=complete_dataset
        ),
    ] = None,
    epochs: Annotated[float, typer.Option("--epochs", help="Length of the run.")] = 1.0,
    precision: Annotated[
        str, typer.Option("--precision", "-p", help="Precision.", autocompletion=complete_precision)
    ] = "fp32",
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Of the predictor; default: newest.")
    ] = None,
    grad_accum: Annotated[int, typer.Option("--grad-accum", help="Micro batches per optimizer step.")] = 1,
    seq_len: SeqLenOption = None,
    image_size: ImageSizeOption = None,
    size: SizesOption = None,
    task: Annotated[str, typer.Option("--task", help="What is trained, where no data set says so.")] = "",
    stack: Annotated[str | None, typer.Option("--stack", help="Software profile.")] = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict the training time of one model."""
    from ..papers.predictddl.border import read_request
    from ..papers.predictddl.controller import PredictDDL

    request: dict[str, Any] = {
        "model": model,
        "batch_size": batch_size,
        "dataset": dataset,
        "epochs": epochs,
        "precision": precision,
        "variant": variant,
        "regressor": regressor,
        "version": version,
        "num_micro_batches": grad_accum,
        "seq_len": seq_len,
        "image_size": image_size,
        "sizes": parse_sizes(size) or {},
        "task": task,
        "stack": stack,
    }
    if inventory is not None:
        request["cluster"] = str(inventory)
    else:
        if device is None:
            raise typer.BadParameter(
                "Name a --device (with --nodes and --devices-per-node) or an --inventory."
            )
        request["cluster"] = {"device": device, "num_nodes": nodes, "devices_per_node": devices_per_node}
    with progress(f"Predicting {model}") as tell:
        service = PredictDDL(registry=open_registry(registry), train=not no_train, tell=tell)
        answer = service.predict(read_request(request, is_data=False))
    if json_output:
        write_json(answer.to_dict())
        return
    _write_answers([answer])
    for note in answer.substitutions:
        message(f"Note: {note}")
    if answer.unknown_ops:
        listed = ", ".join(f"{name} x{count}" for name, count in answer.unknown_ops.items())
        message(f"Note: operators that the embedding goes around: {listed}")


@app.command(epilog=_BATCH)
def batch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines, or a JSON or YAML list.", show_default=False)
    ],
    *,
    inventory: InventoryOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="JSON lines with the answers.")
    ] = None,
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict the training times of many requests.

    A line that cannot be answered says why, the others are answered.

    Exits with 1 if any request was refused.
    """
    from ..hardware.inventory_file import read_inventory
    from ..papers.predictddl.border import read_batch
    from ..papers.predictddl.contract import Refusal
    from ..papers.predictddl.controller import PredictDDL, answer_batch

    cluster = None if inventory is None else read_inventory(inventory)
    defaults = {"variant": variant, "regressor": regressor}
    with progress(f"Predicting {file}") as tell:
        service = PredictDDL(registry=open_registry(registry), train=not no_train, tell=tell)
        answers = answer_batch(service, read_batch(file, cluster=cluster, defaults=defaults))
    refused = [item for item in answers if isinstance(item, Refusal)]
    if output is not None:
        write_atomically(output, "".join(json.dumps(item.to_dict()) + "\n" for item in answers))
        message(f"Wrote {len(answers)} answers to {output}")
    if json_output:
        write_json({"answers": [item.to_dict() for item in answers], "refused": len(refused)})
    elif output is None:
        _write_answers([item for item in answers if not isinstance(item, Refusal)])
    for item in refused:
        message(f"Refused {item.name}" + (f" (line {item.line})" if item.line else "") + f": {item.error}")
    if refused:
        raise typer.Exit(1)


def _write_answers(answers: list[Answer]) -> None:
    from ..units import format_duration

    rows = [
        (
            answer.name or answer.model,
            answer.precision,
            format_duration(answer.step_time_s),
            "?" if answer.training_time_s is None else format_duration(answer.training_time_s),
            f"{answer.epochs:g}",
            f"{answer.predictor.dataset_type} v{answer.predictor.version}",
            f"{answer.predictor.variant}, {answer.predictor.regressor}",
            str(answer.task),
            f"{answer.expected_error_percent:.0f}",
        )
        for answer in answers
    ]
    columns = (
        "request",
        "precision",
        ">step",
        ">run",
        ">epochs",
        "predictor",
        "regressor",
        "task",
        ">usual error %",
    )
    write_rows("", columns, rows)


app.command(epilog=predictddl_train.TRAIN_EXAMPLES)(predictddl_train.train)
app.command(name="registry", epilog=predictddl_train.REGISTRY_EXAMPLES)(predictddl_train.list_registry)
app.command(epilog=predictddl_collect.EXAMPLES)(predictddl_collect.collect)
