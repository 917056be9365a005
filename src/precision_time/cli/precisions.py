"""`precision-time precisions advise`: which precision to take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .options import NOTHING_FITS, JsonOption, ModelArgument, complete_words, declared
from .output import progress, write_result
from .request_options import one_request, request_options

_EVIDENCE = ("nearest", "measured", "published")

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


@request_options()
@declared("advise")
def advise(
    model: ModelArgument,
    *,
    precision: str | None = None,
    risk_budget: BudgetOption = "0.25%",
    evidence: EvidenceOption = "nearest",
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Show precisions side by side: which to take.

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
