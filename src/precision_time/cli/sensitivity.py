"""`precision-time sensitivity`: how each number of a job moves its time."""

from __future__ import annotations

from typing import Any

from .options import JsonOption, ModelArgument
from .output import progress, write_json, write_rows
from .request_options import one_request, request_options

EXAMPLES = """\b
Examples:
  precision-time sensitivity resnet50 -d A100 -g 16 -b 256
  precision-time sensitivity llama3-8b -d H100 -g 64 -p fp8-mixed --json
"""
_COLUMNS = ("number", "what it is", ">value", ">half of it", ">twice of it", ">elasticity")


@request_options()
def sensitivity(model: ModelArgument, *, json_output: JsonOption = False, **fields: Any) -> None:
    """Show how each number moves the time of a job.

    Each is halved and doubled, alone; shown is the change of the time per sample. Elasticity: percent of time
    for one percent more.
    """
    from ..predict.sensitivity import sensitivity as sensitivity_of

    request = one_request(model, fields)
    with progress(f"Predicting {model}"):
        found = sensitivity_of(request)
    if json_output:
        write_json({"sensitivity": [row.to_dict() for row in found]})
        return
    write_rows(
        f"Time per sample of {request.model}, what moves it most first",
        _COLUMNS,
        [
            (
                row.name,
                row.words,
                f"{row.value:.4g}",
                _change(row.at_half),
                _change(row.at_double),
                f"{row.elasticity:+.2f}",
            )
            for row in found
        ],
    )


def _change(change: float | None) -> str:
    return "-" if change is None else f"{change:+.1%}"
