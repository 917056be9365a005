"""`precision-time import`: logs and exports of other tools as measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption, output_file
from precision_time.cli.output import message, progress, write_json, write_rows

if TYPE_CHECKING:
    from precision_time.predict.prediction import Prediction

    from ..importers.api import Imported
    from ..importers.contract import ImportedRun, MeasuredRun

EXAMPLES = """\b
Examples:
  precision-time import train.log
  precision-time import train.log --set device=H100-SXM5-80GB --set gpus=8 --compare
  precision-time import runs/ --set device=A100 --out measured.csv
  precision-time import out/trainer_state.json --json
  precision-time calibrate measured.csv --out cluster.json
"""


def import_(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Logs, exports, or folders of them.", show_default=False),
    ] = None,
    *,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="What wrote the files. Default: found out for each."),
    ] = None,
    formats: Annotated[bool, typer.Option("--formats", help="List the formats instead.")] = False,
    stated: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A field of the job that the files do not say, or say wrongly; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None, output_file("--out", "-o", text="Write the runs to this .csv, which calibrate reads.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Predict each run, and show both times.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Read logs and exports of training runs as measurements.

    The time of a step is the median of the steady ones: what came first after a start, warm-up, compilation,
    evaluation, stalls and other batch sizes are left out, and it is said how many steps were used.
    """
    from precision_time.errors import ConfigError

    from ..importers.api import import_runs, measured_runs, remedy, write_measurements
    from ..importers.contract import given_fields

    if formats:
        _list_formats(json_output=json_output)
        return
    if not paths:
        raise ConfigError("import takes files or folders. To fix: precision-time import train.log.")
    with progress("Reading") as say:
        found = import_runs(
            paths, form=form, given=given_fields(stated or ()), each=lambda path: say(path.name)
        )
    measured = {id(item.run): item for item in measured_runs(found.runs)}
    answers = {key: _predicted(item) for key, item in measured.items()} if compare else {}
    complete = [item for item in measured.values() if item.complete]
    if out is not None:
        write_measurements(out, list(measured.values()))
    if json_output:
        write_json(
            {
                "runs": [_to_dict(run, measured.get(id(run)), answers.get(id(run))) for run in found.runs],
                "skipped": list(found.skipped),
                "other_files": found.others,
                "output": None if out is None else str(out),
            }
        )
    else:
        _write(found, measured, answers, compare=compare)
    for text in found.skipped:
        message(f"Left out: {text}")
    missing = sorted({name for item in measured.values() for name in item.missing})
    if missing and not json_output:
        message(
            f"{len(measured) - len(complete)} of {len(measured)} runs do not say {', '.join(missing)}: "
            f"{remedy(missing)}."
        )
    if out is not None:
        message(f"Wrote {len(complete)} of {len(found.runs)} runs to {out}")


def _list_formats(*, json_output: bool) -> None:
    from ..importers.registry import importers

    if json_output:
        write_json({"formats": {item.name: item.description for item in importers()}})
    else:
        write_rows("", ("format", "what it reads"), [(item.name, item.description) for item in importers()])


def _predicted(item: MeasuredRun) -> Prediction | str:
    """The prediction of a run, or why it has none."""
    from precision_time.errors import PrecisionTimeError, in_one_line
    from precision_time.predict.api import predict
    from precision_time.request.request import Request

    if not item.complete:
        return f"{', '.join(item.missing)} not known"
    try:
        return predict(Request.of(item.request_fields()))
    except PrecisionTimeError as error:
        return in_one_line(error)


def _to_dict(run: ImportedRun, item: MeasuredRun | None, answer: Prediction | str | None) -> dict[str, Any]:
    from dataclasses import asdict

    steady = None if item is None else {**asdict(item.steady), "spread": item.steady.spread}
    return {
        "name": run.name,
        "origin": run.origin,
        "format": run.importer,
        "fields": dict(run.fields),
        "missing": list(run.missing if item is None else item.missing),
        "notes": list(run.notes),
        "reports": len(run.steps),
        "steady": steady,
        "terms_s": dict(run.terms_s),
        **({} if answer is None else {"predicted": answer if isinstance(answer, str) else answer.to_dict()}),
    }


def _write(
    found: Imported,
    measured: dict[int, MeasuredRun],
    answers: dict[int, Prediction | str],
    *,
    compare: bool,
) -> None:
    columns = ["run", "format", "job", ">steps used", ">step", "5 to 95 %"]
    columns += [">predicted", ">error"] if compare else []
    rows = [_row(run, measured.get(id(run)), answers.get(id(run)), compare=compare) for run in found.runs]
    write_rows("", columns, rows)
    for run in found.runs:
        item, answer = measured.get(id(run)), answers.get(id(run))
        said = [*run.notes]
        if item is None:
            said.append("no times of steps")
        elif item.steady.left_out:
            said.append(item.steady.text)
        if isinstance(answer, str):
            said.append(f"not predicted: {answer}")
        if said:
            typer.echo(f"{run.name}: {'; '.join(said).rstrip('.')}.")
        if run.terms_s:
            _write_terms(run, answer)


def _write_terms(run: ImportedRun, answer: Prediction | str | None) -> None:
    """What a step of a trace is made of, beside the prediction where there is one."""
    from precision_time.units import format_duration

    from ..importers.comparison import compared_terms

    predicted = None if answer is None or isinstance(answer, str) else answer
    terms = compared_terms(run, {} if predicted is None else predicted.terms)
    shown = [
        (
            term.title,
            "" if term.measured_s is None else format_duration(term.measured_s),
            "" if term.predicted_s is None else format_duration(term.predicted_s),
        )
        for term in terms
    ]
    columns = ("term", ">measured", ">predicted")
    width = 2 if predicted is None else 3
    write_rows(f"A step of {run.name}", columns[:width], [row[:width] for row in shown])


def _row(
    run: ImportedRun, item: MeasuredRun | None, answer: Prediction | str | None, *, compare: bool
) -> Sequence[str]:
    from precision_time.units import format_duration

    fields = run.fields
    batch = next(
        (f"{name}={fields[name]}" for name in ("batch_size", "global_batch_size") if name in fields), ""
    )
    known = fields.keys() & {"gpus", "device"}
    devices = f"on {fields.get('gpus', '?')} x {fields.get('device', '?')}" if known else ""
    job = " ".join(
        str(part) for part in (fields.get("model", "?"), devices, fields.get("precision", ""), batch) if part
    )
    if item is None:
        return (run.name, run.importer, job, "0", "", "", *(("", "") if compare else ()))
    steady = item.steady
    cells = [run.name, run.importer, job, f"{steady.steps_used} of {steady.steps_logged}",
             format_duration(steady.step_time_s),
             f"{format_duration(steady.low_s)} to {format_duration(steady.high_s)}"]  # fmt: skip
    if compare and answer is not None and not isinstance(answer, str):
        error = answer.step_time_s / steady.step_time_s - 1.0
        cells += [format_duration(answer.step_time_s), f"{error:+.0%}"]
    elif compare:
        cells += ["", ""]
    return cells
