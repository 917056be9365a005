"""`precision-time models`: the models that answer without torch."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonOption
from .output import message, write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time models --family cnn
  precision-time models --search llama --json
"""


def models(
    *,
    family: Annotated[str | None, typer.Option("--family", help="Only this architecture family.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Only names that contain this.")] = None,
    json_output: JsonOption = False,
) -> None:
    """List the models that answer without torch.

    Any other model is captured from its code, which needs the extra `capture`.
    """
    from ..workload.resolve import known_models

    names = known_models()
    if json_output:
        write_json({"models": list(names)})
        return
    write_rows("", ("model",), [(name,) for name in names])
    message(f"{len(names)} models")
