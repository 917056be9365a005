"""`precision-time train`: fit the learned correction on the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, RayOption
from .output import message, progress, write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time train --output predictor
  precision-time train --output predictor --quick --seed 7
"""

_SCORES = ("mape_percent", "median_ape_percent", "p90_ape_percent")


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
    ray: RayOption = None,
    json_output: JsonOption = False,
) -> None:
    """Fit the predictor on the shipped corpus.

    The same corpus and seed give the same files.
    """
    from importlib.resources import files

    from ..learn.metrics import summarize
    from ..learn.training import train as fit
    from ..ray_executor import open_executor

    folder = output or Path(str(files("precision_time.learn").joinpath("data")))
    with open_executor(ray) as map_fn, progress("Fitting") as report:
        result = fit(seed=seed, quick=quick, progress=report, map_fn=map_fn)
        result.predictor.save(folder)
    measured_s = result.table.measured_s
    summaries = {
        protocol: summarize(measured_s, held_out.step_time_s)
        for protocol, held_out in result.held_out.items()
    }
    scores = {protocol: summary.to_dict() for protocol, summary in summaries.items() if summary is not None}
    if json_output:
        write_json({"output": str(folder), "seed": seed, "rows": len(result.table), "held_out": scores})
        return
    rows = [
        (protocol, str(score["n"]), *(f"{score[name]:.1f}" for name in _SCORES))
        for protocol, score in scores.items()
    ]
    write_rows("", ("held out by", ">rows", ">MAPE %", ">median %", ">p90 %"), rows)
    message(f"Wrote the predictor to {folder}")
