"""`precision-time precisions`: what precisions there are, which to take, and schedules of them.

`precisions` and `precisions NAME` list them or say one in full: the sub-command `show` need not be named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from .catalogs import precisions
from .main import OneCommand
from .options import NOTHING_FITS, JsonOption, ModelArgument, complete_precision, complete_words, output_file
from .output import message, progress, progress_bar, write_result
from .request_options import one_request, request_options

EXAMPLES = """\b
Examples:
  precision-time precisions
  precision-time precisions fp16-mixed:apex-o2 --yaml > policy.yaml
  precision-time precisions advise llama3-8b -d H100 -g 64 --zero 3 -b 1 --tokens 100B
  precision-time precisions search llama3-8b -d H100 -g 64 --zero 3 -b 1 --risk-budget 0.1% --out policy.yaml
"""
SHOW_EXAMPLES = """\b
Examples:
  precision-time precisions show
  precision-time precisions show fp16-mixed:apex-o2 --yaml > policy.yaml
  precision-time precisions O2 --json
"""
ADVISE_EXAMPLES = """\b
Examples:
  precision-time precisions advise resnet50 -d A100 -g 8 -b 256 --epochs 90
  precision-time precisions advise llama3-8b -d H100 -g 64 --zero 3 -b 1 --tokens 100B --json
  precision-time precisions advise bert-large -d H100 -g 8 -p tf32,bf16-mixed,fp8-mixed
"""
SEARCH_EXAMPLES = """\b
Examples:
  precision-time precisions search bert-large -d H100 -g 8 -b 16 --risk-budget 0.1% --out policy.yaml
  precision-time precisions search llama3-8b -d H100 -g 64 --zero 3 -b 1 --layers 4 --recipe delayed
  precision-time precisions search llama3-8b -d H100 -g 64 --zero 3 -b 1 --phases 82%,18% --out job.yaml
  precision-time precisions search bert-large -d A100 -p fp32 --types tf32,bf16 --method reinforcement
"""
_METHODS = ("dynamic-programming", "exhaustive", "greedy", "reinforcement")
_EVIDENCE = ("nearest", "measured", "published")
_HELP = ("-h", "--help")

BudgetOption = Annotated[
    str,
    typer.Option(
        "--risk-budget",
        metavar="SHARE",
        help="Largest relative gap of the loss: 0.25% or 0.0025.",
        show_default=True,
    ),
]
EvidenceOption = Annotated[
    str,
    typer.Option(
        "--evidence",
        metavar="|".join(_EVIDENCE),
        help="Which loss gaps count; nearest: of models nearest in size.",
        autocompletion=complete_words(*_EVIDENCE),
    ),
]


class _ShowByDefault(typer.core.TyperGroup):
    """A group whose command `show` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with `show` before those that name no command."""
        if not args or (args[0] not in self.commands and args[0] not in _HELP):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="precisions",
    cls=_ShowByDefault,
    help="List the precisions, advise on one, or search a schedule of them.",
    epilog=EXAMPLES,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": [*_HELP], "max_content_width": 100},
)
app.command("show", cls=OneCommand, epilog=SHOW_EXAMPLES)(precisions)


@app.command(cls=OneCommand, epilog=ADVISE_EXAMPLES)
@request_options()
def advise(
    model: ModelArgument,
    *,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            "-p",
            metavar="P[,P2...]|all",
            help="Precisions to compare. Default: all that the device can do.",
            autocompletion=complete_precision,
        ),
    ] = None,
    risk_budget: BudgetOption = "0.25%",
    evidence: EvidenceOption = "nearest",
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Show every precision side by side, and say which to take.

    Time, memory, numerical risk with its source; with a length of the run (--tokens, --epochs, --steps) also
    run time, cost and energy. Exits with 3 where nothing fits.
    """
    from ..planning.precisions.advice import advise_precisions

    request = one_request(model, fields)
    options = {} if precision is None else {"precisions": precision}
    with progress(f"Predicting {model}"):
        found = advise_precisions(request, risk_budget=risk_budget, evidence=evidence, **options)
    write_result(found, json_output=json_output)
    if not any(row.fits for row in found.rows):
        raise typer.Exit(NOTHING_FITS)


@app.command(cls=OneCommand, epilog=SEARCH_EXAMPLES)
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
    """Find which layers to train in which type for least time under a budget of risk.

    --precision is the reference that layers keep or leave. The times are the predictor's; the risks of layers
    are measured or published loss gaps, which are taken to add up. Exits with 3 where nothing fits.
    """
    from ..planning.precisions.search import search_precisions

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
