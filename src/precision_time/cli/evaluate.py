"""`precision-time evaluate`: score the predictor on a measurement file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError
from .options import JsonOption, PredictorOption, declared
from .output import message, progress, write_json, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping


_SCORES = ("mape_percent", "median_ape_percent", "p90_ape_percent", "interval_coverage")


@declared("evaluate")
def evaluate(
    file: Path | None = None,
    *,
    measurements: Path | None = None,
    device: str | None = None,
    group_by: list[str] | None = None,
    predictor: PredictorOption = None,
    rows: Path | None = None,
    json_output: JsonOption = False,
) -> None:
    """Score the predictor on measured runs.

    Nothing is fitted on the file; a predictor of your own may have learned from its rows before. Rows that
    cannot be predicted are counted with their reason, never dropped.
    """
    from ..learn.artifact import chosen_predictor
    from ..learn.evaluation import evaluate_csv

    given = [path for path in (file, measurements) if path is not None]
    if len(given) != 1:
        raise ConfigError("Name one FILE of measured steps. To fix: precision-time evaluate runs.csv.")
    scored, groups = chosen_predictor(predictor), tuple(group_by or ())
    with progress(f"Predicting the rows of {given[0]}"):
        found = evaluate_csv(
            given[0], device=device, group_by=groups, rows_out=rows, predictor=scored, workers=None
        )
    report = found.to_dict()
    if json_output:
        write_json(report)
    else:
        _write_report(report)
    for remedy in report["remedies"]:
        message(f"To fix: {remedy}")
    if rows is not None:
        message(f"Wrote {rows}")


def _write_report(report: Mapping[str, Any]) -> None:
    scores = (">n", ">MAPE %", ">median %", ">p90 %", ">in interval")
    write_rows("", ("group", *scores), [_row("all", report)])
    for column, groups in report["groups"].items():
        typer.echo()
        write_rows("", (column, *scores), [_row(value, summary) for value, summary in groups.items()])
    if report["n_unsupported"]:
        typer.echo()
        reasons = [(reason, str(count)) for reason, count in report["unsupported_reasons"].items()]
        write_rows(f"Not predicted: {report['n_unsupported']}", ("reason", ">rows"), reasons)


def _row(name: str, scores: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (scores.get(key) for key in _SCORES)
    return (name, str(scores["n"]), *("-" if number is None else f"{number:.3g}" for number in numbers))
