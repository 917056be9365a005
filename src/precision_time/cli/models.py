"""`precision-time models`: the models that answer without torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..units import format_si
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

    found = [
        info
        for info in known_models()
        if (family is None or info.family == family.lower())
        and (search is None or search.lower() in info.name.lower())
    ]
    if json_output:
        write_json({"models": [asdict(info) for info in found]})
        return
    rows = [
        (
            info.name,
            info.family,
            format_si(info.params, ""),
            format_si(info.forward_flops, "FLOP"),
            info.source,
        )
        for info in found
    ]
    write_rows("", ("model", "family", ">parameters", ">forward per sample", "source"), rows)
    families = sorted({info.family for info in known_models()})
    message(f"{len(found)} models. Families: {', '.join(families)}")
