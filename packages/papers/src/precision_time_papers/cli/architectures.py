"""`precision-time papers similar` and `precision-time papers train-ghn`: architectures as vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import PREFIX, JsonOption, complete_model, complete_words
from precision_time.cli.output import message, progress, progress_bar, write_json, write_rows
from precision_time.cli.request_options import request_options
from precision_time.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from ..ghn.fit import Fitted

EXAMPLES = """\b
Examples:
  precision-time papers similar resnet50 --nearest 10
  precision-time papers similar my_package.models:small --json
  precision-time papers similar --map architectures.svg
"""
TRAIN_EXAMPLES = """\b
Examples:
  precision-time papers train-ghn --minutes 20 --out ghn.safetensors
  precision-time papers train-ghn --data images/ --checkpoint state.safetensors --out ghn.safetensors --json
  precision-time papers train-ghn --data tiny-imagenet/ --side 64 --out ghn-64.safetensors
"""
_SHOWN_NAMES = 3
_IMAGE_BATCH = 64


@request_options(only=("seq_len", "image_size"))
def architectures(
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A known name (`precision-time list models`), a timm or Hugging Face name, "
            "net.py:function, a "
            "config.json, an .onnx or a .pt2 file.",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None,
    nearest: Annotated[int, typer.Option("--nearest", metavar="K", help="How many relatives to list.")] = 5,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            dir_okay=False,
            help="Draw all known architectures to this .png or .svg, MODEL as a star (extra plots).",
        ),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """List the known architectures most like a model.

    Similarity is the cosine of embeddings by a graph hypernetwork (GHN-2), as standard deviations from
    the mean of all known architectures: 1 is the same graph, 0 nothing in common.
    """
    from ..ghn.known import known_embeddings
    from ..ghn.picture import check_map, write_map

    if model is None and map_file is None:
        raise ConfigError("Nothing to do. To fix: name a MODEL, or a file with --map.")
    if map_file is not None:
        check_map(map_file)
    answer = None if model is None else _answer(model, nearest, fields)
    if map_file is not None:
        marked = None if answer is None else (answer["model"], answer["embedding"])
        write_map(map_file, known_embeddings(), marked=marked)
        message(f"Wrote {map_file}")
    if json_output:
        write_json(_plain(answer, map_file))
    elif answer is not None:
        _show(answer)


def _answer(model: str, k: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    from precision_time.request.request import Request
    from precision_time.request.resolve import workload_of

    from ..ghn.embedding import embed
    from ..ghn.known import embedding_of, known_embeddings
    from ..ghn.known import nearest as nearest_to

    known = model in known_embeddings().row_of and not any(fields.values())
    if known:
        embedding = embedding_of(model)
    else:
        with progress(f"Reading {model}"):
            request = Request.of({"model": model, **fields}, prefix=PREFIX)
            embedding = embed(workload_of(request).graph)
    return {
        "model": model,
        "graph_hash": embedding.graph_hash,
        "weights_version": embedding.weights_version,
        "unknown_ops": dict(embedding.unknown),
        "embedding": embedding.vector,
        "nearest": nearest_to(model if known else embedding, k),
    }


def _plain(answer: dict[str, Any] | None, map_file: Path | None) -> dict[str, Any]:
    plain: dict[str, Any] = {} if map_file is None else {"map": str(map_file)}
    if answer is not None:
        plain |= answer
        plain["embedding"] = [float(value) for value in answer["embedding"]]
        plain["nearest"] = [asdict(neighbor) for neighbor in answer["nearest"]]
    return plain


def _show(answer: dict[str, Any]) -> None:
    rows = [
        (neighbor.name, neighbor.family, f"{neighbor.similarity:.3f}", _names(neighbor.same_as))
        for neighbor in answer["nearest"]
    ]
    write_rows(f"Nearest to {answer['model']}", ("architecture", "family", ">similarity", "same graph"), rows)
    if answer["unknown_ops"]:
        listed = ", ".join(f"{op} x{count}" for op, count in answer["unknown_ops"].items())
        message(f"Operators unknown to the vocabulary, skipped: {listed}")


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def train_ghn(
    *,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="digits|FOLDER",
            help="scikit-learn's digits, CIFAR-10's binary files, or a folder with one folder per class.",
            autocompletion=complete_words("digits"),
        ),
    ] = "digits",
    side: Annotated[
        int | None,
        typer.Option(
            "--side",
            help="Pixels of a side, as the data type has: CIFAR 32, Tiny-ImageNet 64. Default: 8 "
            "for the digits, 32 for a folder.",
        ),
    ] = None,
    image_batch: Annotated[
        int, typer.Option("--image-batch", help="Images per network and step.", min=1)
    ] = _IMAGE_BATCH,
    minutes: Annotated[float, typer.Option("--minutes", help="Budget of the training.")] = 20.0,
    steps: Annotated[
        int | None, typer.Option("--steps", help="Steps instead of minutes: the same give the same result.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of networks, images and first weights.")] = 0,
    networks: Annotated[int, typer.Option("--networks", help="Different networks to train on.")] = 1000,
    held_out: Annotated[
        int, typer.Option("--held-out", help="Networks of the test split; other splits have half as many.")
    ] = 100,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", dir_okay=False, help="File for the hypernetwork (safetensors)."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", dir_okay=False, help="Keep the state here, and go on from it."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Train a graph hypernetwork (torch).

    It is scored on networks and images that it has never seen, alongside untrained weights and chance.
    """
    for option, path in (("--out", out), ("--checkpoint", checkpoint)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(
                f"{option} {path}: its folder does not exist. To fix: create it, or name another."
            )
    try:
        from ..ghn.fit import fit_ghn
        from ..ghn.training import TrainSettings
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            package="torch", extra="precision-time-papers[torch]", purpose="train a hypernetwork"
        ) from error

    settings = TrainSettings(
        seed=seed, steps=steps, minutes=minutes, networks=networks, image_batch=image_batch
    )
    budget = f"--steps {steps}" if steps else f"--minutes {minutes:g}"
    if side is not None:
        budget += f" --side {side}"
    if image_batch != _IMAGE_BATCH:
        budget += f" --image-batch {image_batch}"
    with progress_bar("drawing held-out networks", remaining=True) as update:

        def show(now: Any) -> None:
            figures = f"loss {now.loss:.2f}, accuracy {now.accuracy:.2f}, held out {now.validation:.2f}"
            update(now.step, now.steps or 10 * now.step, figures)

        fitted = fit_ghn(
            data, settings, side=side, out=out, held_out_networks=held_out, checkpoint=checkpoint,
            progress=show,
            command=f"precision-time papers train-ghn --data {data} {budget} --seed {seed}",
        )  # fmt: skip
    _report(fitted, out, json_output)


def _report(fitted: Fitted, out: Path | None, json_output: bool) -> None:
    if json_output:
        write_json(
            {
                "out": None if out is None else str(out),
                "weights_version": fitted.weights.version,
                "steps": fitted.trained.state.done,
                "minutes": fitted.trained.state.elapsed_s / 60.0,
                "chance": fitted.images.chance,
                "validation_accuracy": fitted.trained.state.best_score,
                "scores": [asdict(score) for score in fitted.scores],
            }
        )
        return
    rows = [
        (
            score.split,
            str(score.networks),
            *(
                f"{100 * value:.1f}"
                for value in (score.predicted, score.best, score.untrained, score.random_ghn)
            ),
        )
        for score in fitted.scores
    ]
    columns = ("networks", ">number", ">predicted %", ">best %", ">untrained %", ">random GHN %")
    write_rows("Accuracy on images and networks never trained on", columns, rows)
    message(f"Chance is {100 * fitted.images.chance:.1f} %.")
    if out is not None:
        message(f"Wrote {out}")
