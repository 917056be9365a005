"""What the commands of `precision-time predictddl` share: options with completion, and the registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import complete_words

if TYPE_CHECKING:
    from ..papers.predictddl.registry import Registry


def complete_type(prefix: str) -> list[str]:
    """Dataset types that start with `prefix`."""
    from ..papers.predictddl.datasets import dataset_types

    return [name for name in dataset_types() if name.startswith(prefix)]


InventoryOption = Annotated[
    Path | None,
    typer.Option("--inventory", dir_okay=False, help="YAML file that describes the cluster."),
]
RegistryOption = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        file_okay=False,
        help="Folder of your own trained predictors. Default: your data folder.",
    ),
]
VariantOption = Annotated[
    str,
    typer.Option(
        "--variant",
        help="predictddl-precision, or predictddl: as published, blind to precision.",
        autocompletion=complete_words("predictddl", "predictddl-precision"),
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
NoTrainOption = Annotated[
    bool, typer.Option("--no-train", help="Never train a missing predictor; use the closest or refuse.")
]


def open_registry(folder: Path | None) -> Registry:
    """The user's own registry, or that of a folder, over the shipped one."""
    from dataclasses import replace

    from ..papers.predictddl.registry import Registry

    default = Registry.default()
    return default if folder is None else replace(default, own=folder)
