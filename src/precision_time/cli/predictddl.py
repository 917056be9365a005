"""`precision-time predictddl`: one predictor per dataset type, for architectures never seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..io import write_atomically
from ..papers.predictddl.contract import FIELDS
from . import predictddl_collect, predictddl_train
from .options import JsonOption, ModelArgument
from .output import message, progress, write_json, write_rows
from .predictddl_options import (
    InventoryOption,
    NoTrainOption,
    RegistryOption,
    RegressorOption,
    VariantOption,
    open_registry,
)
from .request_options import PREFIX, one_request, request_options

if TYPE_CHECKING:
    from ..papers.predictddl.contract import Answer

HELP = "Predict architectures never seen (PredictDDL)."
EXAMPLES = """\b
Examples:
  precision-time predictddl predict resnet50 --device A100 --gpus 8 --batch-size 256
  precision-time predictddl predict vgg16 --dataset tiny-imagenet --inventory lab.yaml --batch-size 64 --json
  precision-time predictddl batch requests.jsonl --inventory lab.yaml --output answers.jsonl
  precision-time predictddl train translation --csv my-runs.csv
  precision-time predictddl registry
  scontrol show node | precision-time predictddl collect --slurm -
"""
_PREDICT = """\b
Examples:
  precision-time predictddl predict resnet50 --device A100 --gpus 8 --batch-size 256
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
@request_options(only=FIELDS)
def predict(
    model: ModelArgument,
    *,
    inventory: InventoryOption = None,
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Of the predictor; default: newest.")
    ] = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Predict the training time of one model."""
    from ..hardware.inventory_file import read_inventory
    from ..papers.predictddl.controller import PredictDDL
    from ..papers.predictddl.requests import PredictDDLRequest

    given: dict[str, Any] = {"variant": variant, "regressor": regressor, "version": version}
    if inventory is not None:
        given["cluster"] = read_inventory(inventory)
    request = PredictDDLRequest.of({**one_request(model, fields).given(), **given}, prefix=PREFIX)
    with progress(f"Predicting {model}") as show:
        service = PredictDDL(registry=open_registry(registry), train=not no_train, progress=show)
        answer = service.predict(request)
    if json_output:
        write_json(answer.to_dict())
        return
    _write_answers([answer])
    for note in answer.substitutions:
        message(f"Note: {note}")
    if answer.unknown_ops:
        listed = ", ".join(f"{name} x{count}" for name, count in answer.unknown_ops.items())
        message(f"Note: operators that the embedding skips: {listed}")


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
    from ..papers.predictddl.contract import Refusal
    from ..papers.predictddl.controller import PredictDDL, answer_batch
    from ..papers.predictddl.requests import read_batch

    cluster = None if inventory is None else read_inventory(inventory)
    defaults = {"variant": variant, "regressor": regressor}
    with progress(f"Predicting {file}") as show:
        service = PredictDDL(registry=open_registry(registry), train=not no_train, progress=show)
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
            "?" if answer.epochs is None else f"{answer.epochs:g}",
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
