"""`precision-time slurm submit`: submit a job with a time limit from a prediction."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, progress, write_json
from precision_time.client.remote import Server, chosen
from precision_time.errors import ConfigError

EXAMPLES = """\b
Examples:
  precision-time slurm submit job.sh
  precision-time slurm submit --quantile 0.9 --partition=gpu --gres=gpu:a100:8 job.sh --epochs 90
  precision-time slurm submit --dry-run job.sh
  jobid=$(precision-time slurm submit --parsable job.sh)
"""
_RETRIES = 0
"""A user waits for `sbatch`: a service that is away is not asked twice."""
_OWN = (
    "--quantile",
    "--margin",
    "--replace-time",
    "--dry-run",
    "--json",
    "--device",
    "--names",
    "--set",
    "--server",
)


def sbatch(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SBATCH OPTIONS] SCRIPT [ARGUMENTS]", help="As sbatch takes them; they are handed on."
        ),
    ] = None,
    *,
    quantile: Annotated[
        float, typer.Option("--quantile", help="Probability that the job ends within its limit, 0 to 1.")
    ] = 0.95,
    margin: Annotated[
        float, typer.Option("--margin", help="Share added for what the script does beside its training.")
    ] = 0.1,
    replace_time: Annotated[
        bool, typer.Option("--replace-time", help="Put the predicted limit in the place of a stated one.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Device, where the job's gres does not name it."),
    ] = None,
    devices: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="TOML file of what the names of gres, constraints and partitions stand for.  "
            "[default: PRECISION_TIME_SLURM, else slurm.toml in the data folder or /etc/precision-time]",
            show_default=False,
        ),
    ] = None,
    stated: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A field of the job in the place of the script's, such as epochs=90; may be repeated.",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="URL", help="Service that predicts; one that is away changes nothing."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the call of sbatch, submit nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Submit a Slurm job with a predicted time limit.

    Reads the script's #SBATCH lines, its launcher (torchrun, srun, accelerate, deepspeed ...) and the
    arguments of the training, or a line `#PRECISION_TIME model=... batch_size=... epochs=...`. A limit that
    the job states stays. Where nothing can be predicted, the job is submitted unchanged, with one warning.

    Exit code and stdout are those of sbatch. Options of precision-time stand before those of sbatch.
    """
    from ..commands.statement import stated_fields
    from ..slurm.submit import SubmitOptions, page, prepare, submit

    given, run = stated_fields(shlex.join(stated)) if stated else ({}, {})
    options = SubmitOptions(
        quantile=quantile,
        margin=margin,
        replace_time=replace_time,
        names=devices,
        given={**given, **run, **({} if device is None else {"device": device})},
    )
    after = _checked(words or [])
    asked = Server(url=server, say=message) if server else chosen()
    asked = None if asked is None else replace(asked, retries=_RETRIES)
    with progress("Predicting the job"):
        prepared = prepare(
            after,
            options,
            stdin=sys.stdin.buffer.read,
            answer=None if asked is None else lambda request, about: asked.run_of(request, about, None),
        )
    for line in page(prepared):
        message(line)
    if dry_run:
        if json_output:
            write_json(prepared.to_dict())
        else:
            typer.echo(shlex.join(["sbatch", *prepared.words]))
        return
    code, out, said, problem = submit(prepared)
    if problem:
        message(f"Warning: {problem}")
    if said:
        typer.echo(said.decode("utf-8", errors="replace"), err=True, nl=False)
    if json_output:
        text = out.decode("utf-8", errors="replace")
        write_json({**prepared.to_dict(), "exit_code": code, "stdout": text})
    elif out:
        typer.echo(out.decode("utf-8", errors="replace"), nl=False)
    if code:
        raise typer.Exit(code)


def _checked(words: Sequence[str]) -> list[str]:
    """The words for sbatch.

    Raises:
        ConfigError: If an option of ours stands among them.
    """
    from ..slurm.options import command_line

    line: Any = command_line(words)
    for word in line.words:
        if word.partition("=")[0] in _OWN:
            raise ConfigError(
                f"{word} stands behind an option of sbatch. The rule: options of precision-time come first. "
                f"To fix: precision-time slurm submit {word} ... job.sh."
            )
    return list(words)
