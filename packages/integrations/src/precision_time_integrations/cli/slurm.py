"""`precision-time slurm`: ended jobs against their predictions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, progress, write_json, write_rows
from precision_time.units import format_duration

if TYPE_CHECKING:
    from ..slurm.history import History, LiveJob

EXAMPLES = """\b
Examples:
  precision-time slurm history
  precision-time slurm history --since 2026-11-01 --quantile 0.9 --json
"""
_MOST_ROWS = 30


def history(
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="As --starttime of sacct has it.")
    ] = "now-30days",
    quantile: Annotated[
        float, typer.Option("--quantile", help="Share of jobs that should end within their limits.")
    ] = 0.95,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Record of submissions.  [default: slurm/submissions.jsonl in the data folder]",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare ended jobs with what was predicted of them.

    Reads sacct (--json, else --parsable2), or squeue where there is no accounting, and the record that
    `precision-time slurm submit` keeps. Says how long jobs took relative to the prediction, how many ended in
    time, and which --quantile would have been right; of jobs that wait or run, what is left.
    """
    from ..slurm.history import history_of, live_jobs
    from ..slurm.jobs import ended_jobs, waiting_jobs
    from ..slurm.limits import check_quantile
    from ..slurm.submissions import read_submissions

    check_quantile(quantile, 0.0)
    kept, broken = read_submissions(record)
    if broken:
        message(f"Warning: {broken} lines of the record cannot be read.")
    with progress("Reading the history"):
        jobs, source = ended_jobs(since)
        found = history_of(jobs, kept, quantile=quantile, source=source)
        live = live_jobs(waiting_jobs(), kept, now_s=time.time())
    if json_output:
        from dataclasses import asdict

        write_json({**found.to_dict(), "live": [asdict(job) for job in live]})
    else:
        _write(found, live)


def _write(found: History, live: list[LiveJob]) -> None:
    rows = [
        (
            str(job.job_id),
            job.name,
            job.state.lower(),
            format_duration(job.predicted_s),
            format_duration(job.elapsed_s),
            f"{job.ratio:.2f}",
            "-" if job.limit_s is None else format_duration(job.limit_s),
        )
        for job in found.jobs[-_MOST_ROWS:]
    ]
    if rows:
        columns = ("Job", "Name", "State", ">Predicted", ">Took", ">Ratio", ">Limit")
        write_rows(f"{len(found.jobs)} ended jobs with a prediction, from {found.source}", columns, rows)
    else:
        typer.echo(f"No ended job with a prediction in {found.source}.")
    if found.median_ratio is not None:
        typer.echo(
            f"Median of took / predicted: {found.median_ratio:.2f}. Between the predicted 10 and 90 %: "
            f"{found.inside:.0%} (80 % should be). "
            f"Within the {found.quantile:.3g} quantile: {found.in_time:.0%}."
        )
        typer.echo(_suggestion(found))
    if found.num_left_out:
        typer.echo(f"{found.num_left_out} jobs that did not complete are left out.")
    if live:
        columns = ("Job", "Name", "State", ">Starts in", ">Elapsed", ">Left", ">Left of the limit")
        write_rows("", columns, [_live_row(job) for job in live])


def _live_row(job: LiveJob) -> tuple[str, ...]:
    return (
        str(job.job_id),
        job.name,
        job.state.lower(),
        "-" if job.starts_in_s is None else format_duration(job.starts_in_s),
        format_duration(job.elapsed_s),
        format_duration(job.remaining_s),
        "-" if job.limit_left_s is None else format_duration(job.limit_left_s),
    )


def _suggestion(found: History) -> str:
    """What to type next time."""
    from ..slurm.history import FEWEST

    if len(found.jobs) < FEWEST:
        return f"For a suggestion at least {FEWEST} ended jobs are needed."
    if found.suggested_quantile is not None:
        return f"--quantile {found.suggested_quantile:.3f} would have let {found.quantile:.0%} end in time."
    if found.suggested_margin is not None:
        return (
            f"--quantile {found.quantile:g} --margin {found.suggested_margin:.2f} would have let "
            f"{found.quantile:.0%} end in time."
        )
    return "No limit would have let so many end in time: too many jobs ran out of theirs."
