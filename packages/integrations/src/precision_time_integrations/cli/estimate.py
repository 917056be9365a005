"""`precision-time estimate`: how long the jobs of a file of another program run, and for what money."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import NOTHING_FITS, JsonOption, complete_model
from precision_time.cli.output import message, progress, write_json, write_rows
from precision_time.cli.request_options import given_options, request_options
from precision_time.planning.run.schema import RunOptions
from precision_time.units import format_duration

if TYPE_CHECKING:
    from ..estimate import JobEstimate

EXAMPLES = """\b
Examples:
  precision-time estimate task.yaml
  precision-time estimate job.sh --steps 100k
  precision-time estimate qlora.yml -d RTX4090
  precision-time estimate manifest.yaml --model llama3-8b --tokens 1B --json
"""
_NO_ANSWER = 2
_COLUMNS = ("job", "model", "devices", ">step", ">expected", ">90 % within", ">cost")


@request_options(also=lambda: RunOptions.model_fields, shown=())
def estimate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A SkyPilot task, a Slurm script, Kubernetes manifests, or a recipe of another project.",
            show_default=False,
        ),
    ],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="What is trained, where the file does not say; as the argument of `predict`.",
            autocompletion=complete_model,
        ),
    ] = None,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Estimate the jobs of a SkyPilot, Slurm or Kubernetes file, or the run of a recipe.

    How long they run, and for what money. Options stand in the place of what the file says.
    How a recipe is understood is said first; what was not understood is listed with the answer. Exits with 2
    where no job has an answer, with 3 where none fits in memory.
    """
    from ..job_files import estimate_file

    given = given_options({"model": model, **fields})
    with progress(f"Reading {file.name}"):
        found = estimate_file(file, given=given)
    if json_output:
        write_json({"jobs": [job.to_dict() for job in found]})
    else:
        _show(found)
    if all(job.step is None for job in found):
        raise typer.Exit(_NO_ANSWER)
    if not any(job.fits for job in found):
        raise typer.Exit(NOTHING_FITS)


def _show(found: Sequence[JobEstimate]) -> None:
    """The table of the jobs, then what is missing and what was not understood, each text once."""
    for line in (line for job in found for line in job.report):
        message(line)
    answered = [job for job in found if job.step is not None]
    if answered:
        write_rows(f"{found[0].source}: time and cost", _COLUMNS, [_row(job) for job in answered])
    many = len(found) > 1
    said = set()
    for number, job in enumerate(found, 1):
        which = f"{job.name or job.source} ({number} of {len(found)}): " if many else ""
        warnings = () if job.step is None else (job.run or job.step).warnings
        for kind, texts in (
            ("", (job.reason,) if job.reason else ()),
            ("Not read: ", () if job.report else job.unread),
            ("Note: ", job.notes),
            ("Warning: ", warnings),
        ):
            for text in texts:
                if (kind, text) not in said:
                    said.add((kind, text))
                    message(f"{which}{kind}{text}")


def _row(job: JobEstimate) -> tuple[str, ...]:
    assert job.step is not None
    within = job.duration_s(0.9)
    hosts = f"{job.step.gpus} x {job.step.device}" + (
        f", {job.step.nodes} hosts" if job.step.nodes > 1 else ""
    )
    return (
        job.name or "-",
        job.step.model,
        hosts,
        format_duration(job.step.step_time_s) if job.step.fits else "does not fit",
        "-" if job.run is None or not job.fits else format_duration(job.run.total_s),
        "-" if within is None or not job.fits else format_duration(within),
        "-" if job.cost_usd is None or not job.fits else f"${job.cost_usd:,.2f}",
    )
