"""`precision-time precisions search`: which layers to train in which type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from precision_time.cli.options import NOTHING_FITS, JsonOption, ModelArgument, complete_words, output_file
from precision_time.cli.output import message, progress_bar, write_result
from precision_time.cli.precisions import BudgetOption, EvidenceOption
from precision_time.cli.request_options import one_request, request_options
from precision_time.errors import ConfigError

EXAMPLES = """\b
Examples:
  precision-time precisions search bert-large -d H100 -g 8 -b 16 --risk-budget 0.1% --out policy.yaml
  precision-time precisions search llama3-8b -d H100 -g 64 --zero-stage 3 -b 1 --layers 4 --recipe delayed
  precision-time precisions search llama3-8b -d H100 -g 64 --zero-stage 3 -b 1 --phases 82%,18% --out job.yaml
  precision-time precisions search bert-large -d A100 -p fp32 --types tf32,bf16 --method reinforcement
"""
_METHODS = ("dynamic-programming", "exhaustive", "reinforcement")


@request_options()
def search(
    model: ModelArgument,
    *,
    risk_budget: BudgetOption = "0.25%",
    evidence: EvidenceOption = "nearest",
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="|".join(_METHODS),
            help="How to search. Default: exhaustive up to 512 schedules, dynamic-programming beyond.",
            autocompletion=complete_words(*_METHODS),
        ),
    ] = None,
    types: Annotated[
        str,
        typer.Option(
            "--types",
            metavar="T[,T2...]",
            help="Types beside that of --precision, such as fp8. Default: what the device multiplies faster.",
            show_default=False,
        ),
    ] = "",
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Of fp8 or fp4: current, delayed, blockwise ... Default: current.",
        ),
    ] = None,
    layers: Annotated[
        int, typer.Option("--layers", metavar="N", help="Ranges that a stack of blocks is divided into.")
    ] = 1,
    phases: Annotated[
        str,
        typer.Option(
            "--phases",
            metavar="S1,S2[,...]",
            help="Shares of the run, such as 82%,18%: each gets its own schedule.",
            show_default=False,
        ),
    ] = "",
    over_time: Annotated[
        str,
        typer.Option(
            "--over-time",
            metavar="published|uniform",
            help="Which part of a run leaves which part of the loss gap.",
        ),
    ] = "published",
    seed: Annotated[int, typer.Option("--seed", help="Of --method reinforcement.")] = 0,
    out: Annotated[
        Path | None,
        output_file("--out", "-o", text="Write a policy file; with --phases, a job file (.yaml)."),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Find which layers to train in which type.

    For least time under a budget of risk.
    --precision is the reference that layers keep or leave. The times are the predictor's; the risks of layers
    are measured or published loss gaps, which are taken to add up. Exits with 3 where nothing fits.
    """
    from ..precisions.search import search_precisions

    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise ConfigError(f"--out {out}: it is written as YAML. To fix: a name that ends in .yaml.")
    request = one_request(model, fields)
    with progress_bar(f"schedules of {model}") as show:
        found = search_precisions(
            request,
            risk_budget=risk_budget,
            method=method,
            types=types,
            recipe=recipe,
            evidence=evidence,
            layers=layers,
            phases=phases,
            over_time=over_time,
            seed=seed,
            progress=show,
        )
    if out is not None:
        found.write(out)
    write_result(found, json_output=json_output)
    if out is not None:
        message(f"Wrote {out}.")
    if not found.fits:
        raise typer.Exit(NOTHING_FITS)
