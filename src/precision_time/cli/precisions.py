"""`precision-time precisions`: what precisions there are, and which to take.

`precisions` and `precisions NAME` list them or say one in full: the sub-command `show` need not be named.
Plug-ins add to them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .catalogs import precisions
from .main import OneCommand, below, check_installed, loaded_command
from .options import NOTHING_FITS, JsonOption, ModelArgument, complete_precision, complete_words
from .output import progress, write_result
from .request_options import one_request, request_options

EXAMPLES = """\b
Examples:
  precision-time precisions
  precision-time precisions fp16-mixed:apex-o2 --yaml > policy.yaml
  precision-time precisions advise llama3-8b -d H100 -g 64 --zero 3 -b 1 --tokens 100B
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
_EVIDENCE = ("nearest", "measured", "published")
_HELP = ("-h", "--help")
_WORD = "precisions"

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
        first = args[0] if args else ""
        if not first or first.startswith("-"):
            shows = first not in _HELP
        else:
            shows = self.get_command(ctx, first) is None
            if shows:
                check_installed(f"{_WORD} {first}")
        if shows:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The core's, then those of plug-ins."""
        return [*super().list_commands(ctx), *(name for name in below(_WORD) if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None where there is none."""
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in below(_WORD):
            found = loaded_command(cmd_name, below(_WORD)[cmd_name])
        return found


app = typer.Typer(
    name=_WORD,
    cls=_ShowByDefault,
    help="List the precisions, or advise on one.",
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
