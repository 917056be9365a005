"""`precision-time train`: fit the learned correction on the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption
from .output import message, progress, write_json

EXAMPLES = """\b
Examples:
  precision-time train --output predictor
  precision-time train --output predictor --quick --seed 7
"""


def train(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            file_okay=False,
            help="Folder for the fitted predictor; default: the package's own.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same predictor.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer trees: a trial run, not for use.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Fit the predictor on the shipped corpus.

    The same corpus and seed give the same files.
    """
    from ..learn.training import train as fit

    with progress("Fitting the predictor"):
        report = fit(output=output, seed=seed, quick=quick)
    if json_output:
        write_json(report.to_dict())
        return
    for name, value in report.to_dict().items():
        message(f"{name}: {value}")
