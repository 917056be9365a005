"""`precision-time explain`: what a precision changes, how numbers count, what slows a measured step down."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import ConfigError
from ..explain.precision import EXPLAINED_FIELDS
from ..explain.precision import explain as explain_request
from ..units import duration_s
from .options import JsonOption, ModelArgument, declared
from .output import progress, write_json, write_result, write_rows
from .request_options import given_options, one_request, request_options

_COLUMNS = ("number", "what it is", ">value", ">half of it", ">twice of it", ">elasticity")


@request_options()
@declared("explain")
def explain(
    model: ModelArgument,
    *,
    what: Literal["precision", "numbers"] | None = None,
    measured: str | None = None,
    utilization: float | None = None,
    data_wait: str | None = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Show what a precision changes, or how each number counts.

    Of a precision: FLOPs, bytes, kernels and casts of one training step per op class, compared with fp32. Of
    the numbers of a job: each is halved and doubled, alone; shown is the change of the time per sample.
    Elasticity: percent of time for one percent more.

    Of a step that was measured: causes by probability, each with the time it would give and a check to run.
    """
    if measured is not None:
        if what is not None:
            raise ConfigError("--measured and --what are two questions. To fix: leave one of them out.")
        _explain_measured(model, fields, measured, utilization, data_wait, json_output=json_output)
        return
    if utilization is not None or data_wait is not None:
        raise ConfigError(
            "--utilization and --data-wait belong to a measured step. To fix: add --measured 2.1s."
        )
    if what == "numbers":
        _explain_numbers(model, fields, json_output=json_output)
        return
    beyond = [name for name in given_options(fields) if name not in EXPLAINED_FIELDS]
    if beyond:
        raise ConfigError(
            f"{', '.join(beyond)}: what a precision changes does not depend on it. To fix: leave it out, or "
            "ask for --what numbers."
        )
    request = one_request(model, fields)
    with progress(f"Lowering {model}"):
        explanation = explain_request(request)
    write_result(explanation, json_output=json_output)


def _explain_measured(
    model: str,
    fields: dict[str, Any],
    measured: str,
    utilization: float | None,
    data_wait: str | None,
    *,
    json_output: bool,
) -> None:
    """What could make a step take as long as it was measured to."""
    from ..explain.doctor import diagnose

    request = one_request(model, fields)
    with progress(f"Diagnosing {model}"):
        found = diagnose(
            request,
            measured_s=duration_s("--measured", measured),
            data_wait_s=None if data_wait is None else duration_s("--data-wait", data_wait),
            utilization=None if utilization is None else utilization / 100.0,
        )
    write_result(found, json_output=json_output)


def _explain_numbers(model: str, fields: dict[str, Any], *, json_output: bool) -> None:
    """How much the time moves with each number of the job."""
    from ..predict.changes import sensitivity

    request = one_request(model, fields)
    with progress(f"Predicting {model}"):
        found = sensitivity(request)
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
