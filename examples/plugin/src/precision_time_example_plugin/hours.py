"""The command `precision-time example hours`."""

from __future__ import annotations

from typing import Annotated

import typer

from precision_time import predict_time

EXAMPLES = "Example: precision-time example hours resnet50 --epochs 90"


def hours(
    model: Annotated[str, typer.Argument(help="A known model.")],
    epochs: Annotated[float, typer.Option(help="Passes over the data set.")] = 1.0,
) -> None:
    """Print the hours of a run on one A100."""
    total_s = predict_time(model, device="A100", epochs=epochs).total_time_s
    typer.echo("unknown" if total_s is None else f"{total_s / 3600:.1f} h")
