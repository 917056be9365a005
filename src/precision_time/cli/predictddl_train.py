"""`precision-time predictddl train` and `registry`: what is trained, and what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption
from .output import message, progress, write_json, write_rows
from .predictddl_options import RegistryOption, complete_type, open_registry

if TYPE_CHECKING:
    from ..papers.predictddl.registry import TrainedType

TRAIN_EXAMPLES = """\b
Examples:
  precision-time predictddl train
  precision-time predictddl train imagenet cifar --quick
  precision-time predictddl train translation --csv my-runs.csv --alone
"""
REGISTRY_EXAMPLES = """\b
Examples:
  precision-time predictddl registry
  precision-time predictddl registry --delete cifar --version 2
"""


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
        typer.Option("--csv", dir_okay=False, help="Measured runs of your own; may be repeated."),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Learn from the files given and nothing else.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings are tried.")] = False,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Train predictors on the corpus and your own runs.

    Each becomes a new version of its dataset type.
    """
    from ..papers.predictddl.fitting import QUICK, FitSettings
    from ..papers.predictddl.trainer import read_runs, train_and_save, trainable

    if alone and not csv:
        raise typer.BadParameter("--alone needs a --csv.")
    where = open_registry(registry)
    settings = QUICK if quick else FitSettings()
    done: list[dict[str, Any]] = []
    with progress("Training") as show:
        show("reading the runs")
        runs, unread = read_runs(csv or [], alone=alone)
        for rows in trainable(runs, types or []):
            done.append(_trained_row(train_and_save(where, rows, settings=settings, progress=show)))
    if json_output:
        write_json({"registry": str(where.own), "trained": done, "unread_rows": unread})
        return
    columns = ("type", ">version", "variant", "regressor", ">median %", ">MAPE %", ">p90 %")
    write_rows("", columns, _score_rows(done))
    if unread:
        message(f"{unread} rows of the files describe no configuration and were left out.")
    message(f"Wrote to {where.own}")


def list_registry(
    *,
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="TYPE", help="Remove a version.", autocompletion=complete_type),
    ] = None,
    version: Annotated[int | None, typer.Option("--version", help="Which one.")] = None,
    registry: RegistryOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the trained predictors, or delete one of yours."""
    where = open_registry(registry)
    if delete is not None:
        if version is None:
            raise typer.BadParameter("--delete needs a --version.")
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
