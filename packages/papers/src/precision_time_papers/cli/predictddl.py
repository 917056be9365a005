"""`precision-time papers predictddl`: one predictor per dataset type, for architectures never seen."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import PREFIX, JsonOption, ModelArgument, complete_words
from precision_time.cli.output import message, progress, write_json, write_rows
from precision_time.cli.request_options import one_request, request_options
from precision_time.io import write_atomically

from ..predictddl.contract import FIELDS

if TYPE_CHECKING:
    from precision_time.request.request import Request

    from ..ghn.weights import GhnWeights
    from ..predictddl.contract import Answer
    from ..predictddl.registry import Registry, TrainedType
    from ..predictddl.servers import ServersNeeded

PREDICT_EXAMPLES = """\b
Examples:
  precision-time papers predictddl predict resnet50 --device A100 --gpus 8 --batch-size 256
  precision-time papers predictddl predict resnet18 --dataset tiny-imagenet --device V100 --batch-size 64
  precision-time papers predictddl predict bert-large --inventory lab.yaml --batch-size 32 --json
"""
SERVERS_EXAMPLES = """\b
Examples:
  precision-time papers predictddl servers resnet50 --dataset imagenet --inventory lab.yaml --deadline 1d
  precision-time papers predictddl servers vgg16 --device V100 --gpus 4 -b 64 --deadline 2h --max-servers 16
"""
BATCH_EXAMPLES = """\b
Examples:
  precision-time papers predictddl batch requests.jsonl --inventory lab.yaml
  precision-time papers predictddl batch requests.yaml --out answers.jsonl
A request is {"model": "resnet50", "batch_size": 64, "cluster": {"device": "A100", "num_nodes": 2,
"devices_per_node": 8}, "dataset": "imagenet", "epochs": 90, "precision": "fp16-mixed"}.
With "deadline": "2h" (and "max_servers": 16) the answer is how many servers of each kind meet it.
"""
TRAIN_EXAMPLES = """\b
Examples:
  precision-time papers predictddl train
  precision-time papers predictddl train imagenet cifar --quick
  precision-time papers predictddl train translation --measurements my-runs.csv --alone
  precision-time papers predictddl train cifar --ghn ghn-cifar.safetensors
"""
REGISTRY_EXAMPLES = """\b
Examples:
  precision-time papers predictddl registry
  precision-time papers predictddl registry --delete cifar --predictor-version 2
"""


def complete_type(prefix: str) -> list[str]:
    """Dataset types that start with `prefix`."""
    from precision_time.request.datasets import dataset_types

    return [name for name in dataset_types() if name.startswith(prefix)]


_SHOWN = (
    *("device", "gpus", "nodes", "precision", "batch_size", "global_batch_size", "seq_len", "image_size"),
    *("dataset", "epochs", "custom"),
)
InventoryOption = Annotated[
    Path | None,
    typer.Option("--inventory", dir_okay=False, help="YAML file that describes the cluster."),
]
RegistryOption = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        file_okay=False,
        help="Folder of user-trained predictors. Default: your data folder.",
    ),
]
VariantOption = Annotated[
    str,
    typer.Option(
        "--variant",
        help="predictddl-precision; predictddl: as published, blind to precision; predictddl-size: that with "
        "FLOPs, parameters, activations and operators beside the embedding.",
        autocompletion=complete_words("predictddl", "predictddl-size", "predictddl-precision"),
    ),
]
RegressorOption = Annotated[
    str | None,
    typer.Option(
        "--regressor",
        help="linear, polynomial-2, svr or mlp. Default: what cross-validation chose.",
        autocompletion=complete_words("linear", "polynomial-2", "svr", "mlp"),
    ),
]
GhnOption = Annotated[
    Path | None,
    typer.Option(
        "--ghn",
        help="Hypernetwork of this dataset type: what `precision-time papers train-ghn` wrote, or its "
        "folder. "
        "Default: the shipped one, or the one that a predictor was trained with.",
    ),
]
NoTrainOption = Annotated[
    bool, typer.Option("--no-train", help="Never train a missing predictor; use the closest or refuse.")
]


def open_ghn(path: Path | None) -> GhnWeights | None:
    """The hypernetwork that is named, None for none."""
    from ..ghn.weights import find_weights

    return None if path is None else find_weights(path)


def open_registry(folder: Path | None) -> Registry:
    """The user's own registry, or that of a folder, over the shipped one."""
    from dataclasses import replace

    from ..predictddl.registry import Registry

    default = Registry.default()
    return default if folder is None else replace(default, own=folder)


@request_options(only=FIELDS, shown=_SHOWN)
def predict(
    model: ModelArgument,
    *,
    inventory: InventoryOption = None,
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    version: Annotated[
        int | None, typer.Option("--predictor-version", help="Of the predictor; default: newest.")
    ] = None,
    ghn: GhnOption = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Predict the training time of one model."""
    from precision_time_integrations.inventory.file import read_inventory

    from ..predictddl.controller import PredictDDL
    from ..predictddl.requests import PredictDDLRequest

    given: dict[str, Any] = {"variant": variant, "regressor": regressor, "version": version}
    asked = one_request(model, fields)
    if inventory is not None:
        given["cluster"] = read_inventory(inventory)
        asked = asked.with_(cluster=given["cluster"])
    request = PredictDDLRequest.of({**asked.given(), **given}, prefix=PREFIX)
    with progress(f"Predicting {model}") as show:
        service = PredictDDL(
            registry=open_registry(registry), ghn=open_ghn(ghn), train=not no_train, progress=show
        )
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
    message(f"Note: {_other_answer(asked)}")


@request_options(only=FIELDS, shown=_SHOWN)
def servers(
    model: ModelArgument,
    *,
    deadline: Annotated[
        str,
        typer.Option("--deadline", metavar="TIME", help="Such as 30m, 2h or 1.5d.", show_default=False),
    ],
    most: Annotated[
        int | None,
        typer.Option("--max-servers", metavar="N", min=1, help="Servers of each kind; default: all."),
    ] = None,
    inventory: InventoryOption = None,
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    ghn: GhnOption = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """How many servers of each kind finish by a deadline.

    The smallest number whose interval meets it, or the nearest miss. Exits with 1 if no kind meets it.
    """
    from precision_time_integrations.inventory.file import read_inventory

    from ..predictddl.controller import PredictDDL
    from ..predictddl.requests import PredictDDLRequest
    from ..predictddl.servers import servers_needed

    given: dict[str, Any] = {
        **one_request(model, fields).given(),
        **{"variant": variant, "regressor": regressor, "deadline": deadline, "max_servers": most},
    }
    if inventory is not None:
        given["cluster"] = read_inventory(inventory)
    request = PredictDDLRequest.of(given, prefix=PREFIX)
    with progress(f"Servers for {model}") as show:
        service = PredictDDL(
            registry=open_registry(registry), ghn=open_ghn(ghn), train=not no_train, progress=show
        )
        found = servers_needed(service, request)
    if json_output:
        write_json(found.to_dict())
    else:
        _write_servers(found)
    if not any(kind.meets for kind in found.kinds):
        raise typer.Exit(1)


def _write_servers(needed: ServersNeeded) -> None:
    from precision_time.units import format_duration

    rows = []
    for kind in needed.kinds:
        found, server = kind.found, f"{kind.devices_per_server:g} x {kind.device}"
        if found is None:
            rows.append((server, "-", "-", "-", f"refused: {kind.error}"))
            continue
        low, high = (
            format_duration(bound) if bound < math.inf else "none" for bound in (found.low_s, found.high_s)
        )
        verdict = "meets" if kind.meets else f"misses; the nearest of 1 to {kind.tried}"
        rows.append(
            (
                server,
                str(found.servers),
                format_duration(found.training_time_s),
                f"{format_duration(found.low_s)} - {high}",
                verdict,
            )
        )
    columns = (
        "server",
        ">servers",
        ">training",
        ">interval",
        f"deadline {format_duration(needed.deadline_s)}",
    )
    write_rows("", columns, rows)
    notes = (note for kind in needed.kinds if kind.answer for note in kind.answer.substitutions)
    for note in dict.fromkeys(notes):
        message(f"Note: {note}")


def _other_answer(request: Request) -> str:
    """What the predictor of this package says of the same job: the two differ, and which to trust is said."""
    from precision_time.predict.api import predict as predict_request
    from precision_time.units import format_duration

    own = predict_request(request)
    low, high = (format_duration(bound) for bound in (own.interval.low_s, own.interval.high_s))
    return (
        f"`precision-time predict` says {format_duration(own.step_time_s)} per step "
        f"({own.interval.coverage:.0%} interval {low} - {high}) and is more accurate (reference/predictors); "
        "PredictDDL stands here as published."
    )


def batch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines, or a JSON or YAML list.", show_default=False)
    ],
    *,
    inventory: InventoryOption = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", dir_okay=False, help="JSON lines with the answers.")
    ] = None,
    variant: VariantOption = "predictddl-precision",
    regressor: RegressorOption = None,
    ghn: GhnOption = None,
    no_train: NoTrainOption = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict the training times of many requests.

    A line that is refused says why, the others are answered.

    Exits with 1 if any request was refused.
    """
    from precision_time_integrations.inventory.file import read_inventory

    from ..predictddl.contract import Answer, Refusal
    from ..predictddl.controller import PredictDDL, answer_batch
    from ..predictddl.requests import read_batch
    from ..predictddl.servers import ServersNeeded

    cluster = None if inventory is None else read_inventory(inventory)
    defaults = {"variant": variant, "regressor": regressor}
    with progress(f"Predicting {file}") as show:
        service = PredictDDL(
            registry=open_registry(registry), ghn=open_ghn(ghn), train=not no_train, progress=show
        )
        answers = answer_batch(service, read_batch(file, cluster=cluster, defaults=defaults))
    refused = [item for item in answers if isinstance(item, Refusal)]
    if output is not None:
        write_atomically(output, "".join(json.dumps(item.to_dict()) + "\n" for item in answers))
        message(f"Wrote {len(answers)} answers to {output}")
    if json_output:
        write_json({"answers": [item.to_dict() for item in answers], "refused": len(refused)})
    elif output is None:
        _write_answers([item for item in answers if isinstance(item, Answer)])
        for item in answers:
            if isinstance(item, ServersNeeded):
                message(f"{item.name}:")
                _write_servers(item)
    for item in refused:
        message(f"Refused {item.name}" + (f" (line {item.line})" if item.line else "") + f": {item.error}")
    if refused:
        raise typer.Exit(1)


def _write_answers(answers: list[Answer]) -> None:
    from precision_time.units import format_duration

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


def train(
    types: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TYPE]...", help="Dataset types; all by default.", autocompletion=complete_type
        ),
    ] = None,
    *,
    csv: Annotated[
        list[Path] | None,
        typer.Option(
            "--measurements",
            dir_okay=False,
            help="Your measured runs, or a campaign's store; may be repeated.",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Learn from the files given and nothing else.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings are tried.")] = False,
    ghn: GhnOption = None,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Train predictors on the corpus and your own runs.

    Each becomes a new version of its dataset type.
    """
    from ..campaign.campaign_steps import steps_file
    from ..predictddl.fitting import QUICK, FitSettings
    from ..predictddl.trainer import read_runs, train_and_save, trainable

    if alone and not csv:
        raise typer.BadParameter("--alone needs --measurements.")
    where = open_registry(registry)
    settings = QUICK if quick else FitSettings()
    weights = open_ghn(ghn)
    done: list[dict[str, Any]] = []
    with progress("Training") as show, ExitStack() as stack:
        show("reading the runs")
        files = {path.name: stack.enter_context(steps_file(path)) for path in csv or ()}
        runs, unread = read_runs(files, alone=alone)
        for rows in trainable(runs, types or []):
            trained = train_and_save(where, rows, settings=settings, ghn=weights, progress=show)
            done.append(_trained_row(trained))
    if json_output:
        write_json({"registry": str(where.own), "trained": done, "unread_rows": dict(unread)})
        return
    columns = ("type", ">version", "variant", "regressor", ">median %", ">MAPE %", ">p90 %")
    write_rows("", columns, _score_rows(done))
    for reason, count in unread.most_common():
        message(f"Left out {count} rows: {reason}")
    message(f"Wrote to {where.own}")


def list_registry(
    *,
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="TYPE", help="Remove a version.", autocompletion=complete_type),
    ] = None,
    version: Annotated[int | None, typer.Option("--predictor-version", help="Which one.")] = None,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the trained predictors, or delete one of yours."""
    where = open_registry(registry)
    if delete is not None:
        if version is None:
            raise typer.BadParameter("--delete needs a --predictor-version.")
        gone = where.delete(delete, version)
        if json_output:
            write_json({"deleted": str(gone)})
        else:
            message(f"Deleted {gone}")
        return
    entries = where.entries()
    if json_output:
        write_json(
            {
                "own": str(where.own),
                "versions": [
                    {
                        "type": entry.dataset_type, "version": entry.version, "shipped": entry.shipped,
                        "folder": str(entry.folder), "problem": entry.problem, "card": entry.card,
                    }
                    for entry in entries
                ],
            }
        )  # fmt: skip
        return
    rows = [
        (
            entry.dataset_type,
            str(entry.version),
            "package" if entry.shipped else "own",
            str(entry.card.get("rows", "")),
            str(entry.card.get("architectures", "")),
            str(entry.card.get("created", "")),
            entry.problem or "",
        )
        for entry in entries
    ]
    write_rows("", ("type", ">version", "from", ">rows", ">architectures", "created", "problem"), rows)
    message(f"Your own: {where.own}")


def _trained_row(trained: TrainedType) -> dict[str, Any]:
    return {
        "type": trained.dataset_type,
        "version": trained.version,
        "rows": trained.card["rows"],
        "architectures": trained.card["architectures"],
        "variants": {
            name: {"best": model.best, "scores": dict(model.scores)}
            for name, model in trained.variants.items()
        },
    }


def _score_rows(done: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = []
    for item in done:
        for variant, body in item["variants"].items():
            for kind, score in body["scores"].items():
                chosen = f"{kind} (chosen)" if kind == body["best"] else kind
                figures = (score["median_ape_percent"], score["mape_percent"], score["p90_ape_percent"])
                cells = (f"{figure:.1f}" for figure in figures)
                rows.append((item["type"], str(item["version"]), variant, chosen, *cells))
    return rows
