"""`precision-time run`: how long a whole training takes, from the start of the job to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..client.remote import chosen
from ..planning.run.schema import RunOptions
from ..request.sweep import PHASES, RUN
from .options import NOTHING_FITS, JsonOption, ModelArgument, output_file
from .output import message, progress, write_result
from .request_options import PREFIX, request_and_others, request_options

EXAMPLES = """\b
Examples:
  precision-time run llama2-7b -d A100-SXM4-80GB -g 512 --tokens 2T
  precision-time run resnet50 -d 8xA100 -b 256 --epochs 90 --evaluation-every 626 --evaluation-samples 50k
  precision-time run llama3-70b -d H100-SXM5-80GB -g 2048 --tokens 15T --tp 8 --pp 4 --async-checkpoints
  precision-time run bert.yaml --plot run.svg
  precision-time run llama3-8b -d H100-SXM5-80GB -g 16 --tokens 10B --spot --json
"""


@request_options(also=lambda: RunOptions.model_fields)
def run(
    model: ModelArgument,
    *,
    plot: Annotated[
        Path | None,
        output_file("--plot", text="Draw phases and distribution of the total to this .svg, .png or .html."),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Predict how long a whole training takes.

    The sum of start-up, compilation, steps, evaluation, checkpoints, and what failures cost, with an
    interval by simulation. Its length is --tokens, --epochs or --steps, or the phases of a job file. Exits
    with 3 where the job does not fit in memory.
    """
    from ..planning.run.api import run_of

    if plot is not None:
        from ..planning.run.picture import KINDS, write_picture
        from ..render.picture import check_picture

        check_picture(plot, kinds=KINDS)
    stated = {name: fields.pop(name) for name in RunOptions.model_fields if name in fields}
    request, in_file = request_and_others(model, fields, (PHASES, RUN))
    of_file = RunOptions.of(in_file.get(RUN) or {}).given()
    given = {name: value for name, value in stated.items() if value is not None}
    options = RunOptions.of({**of_file, **given}, prefix=PREFIX)
    with progress(f"Predicting {model}"):
        answer = run_of if (server := chosen()) is None else server.run_of
        found = answer(request, options, in_file.get(PHASES))
    write_result(found, json_output=json_output)
    if plot is not None:
        write_picture(found, plot)
        message(f"Wrote {plot}")
    if not found.fits:
        raise typer.Exit(NOTHING_FITS)
