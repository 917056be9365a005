"""`precision-time precisions advise`: which precision to take."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .options import NOTHING_FITS, JsonOption, ModelArgument, declared, option_of
from .output import progress, write_result
from .request_options import one_request, request_options

BudgetOption = Annotated[str, option_of("advise", "risk_budget")]
EvidenceOption = Annotated[str, option_of("advise", "evidence")]


@request_options()
@declared("advise")
def advise(
    model: ModelArgument,
    *,
    precision: str | None = None,
    risk_budget: str = "0.25%",
    evidence: str = "nearest",
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
