"""`sbatch` with a time limit from a prediction: what is run, and what a user is told."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precision_time import __version__
from precision_time.errors import ConfigError, PrecisionTimeError, in_one_line
from precision_time.io import open_input
from precision_time.units import format_duration

from ..commands.configs import files_below
from ..commands.shell import MOST_CHARACTERS
from ..estimate import JobEstimate
from .devices import names_file, read_names
from .limits import (
    MARGIN,
    QUANTILE,
    TimeLimit,
    check_quantile,
    partition_limit_s,
    run_quantile,
    time_limit,
    too_short,
)
from .options import CommandLine, Resources, command_line, resources, without
from .script import Answer, estimate_script
from .submissions import SHARES, Submission, job_of_output, keep

_MOST_STDIN_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitOptions:
    """How a time limit is chosen."""

    quantile: float = QUANTILE
    margin: float = MARGIN
    replace_time: bool = False
    """Put the predicted limit in the place of one that was stated."""
    names: Path | None = None
    """File of names of devices."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request in the place of those of the script."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A call of `sbatch`, and what is said of it."""

    words: tuple[str, ...]
    """Behind `sbatch`."""
    limit: TimeLimit | None
    """None where nothing could be predicted."""
    estimate: JobEstimate | None
    """None where the script was not read."""
    set_s: int | None
    """The limit that is set; None where the job keeps its own or none."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    stdin: bytes | None = None
    """The script, where it came by stdin."""
    job_name: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "command": ["sbatch", *self.words],
            "time_s": self.set_s,
            "limit": None if self.limit is None else self.limit.to_dict(),
            "estimate": None if self.estimate is None else self.estimate.to_dict(),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def prepare(
    words: Sequence[str],
    options: SubmitOptions,
    *,
    stdin: Callable[[int], bytes] | None = None,
    answer: Answer | None = None,
) -> Prepared:
    """What `sbatch` is called with. Whatever goes wrong with the prediction, the job is submitted unchanged.

    Args:
        words: Behind `sbatch`.
        options: How the limit is chosen.
        stdin: Reads the script where no file is named.
        answer: A service that predicts; None to predict here.

    Raises:
        ConfigError: If an option of ours breaks its rule, or one of sbatch lacks its value.
    """
    check_quantile(options.quantile, options.margin)
    line = command_line(words)
    piped = stdin(_MOST_STDIN_BYTES) if not line.script and line.value("wrap") is None and stdin else None
    environment = dict(os.environ)
    asked = Resources()
    try:
        text = _script(line, piped)
        asked = resources(text, line=line, environment=environment)
        found, estimate = _limit(text, line, options, asked, environment, answer)
    except (PrecisionTimeError, OSError) as error:
        return _unchanged(words, line, piped, asked, in_one_line(error))
    notes = [*estimate.notes, *(f"not read: {words}" for words in estimate.unread)]
    if found.seconds is None:
        return _unchanged(words, line, piped, asked, found.why, estimate, notes)
    warnings = list(found.warnings)
    seconds: int | None = found.seconds
    if asked.time_s is not None and not options.replace_time:
        seconds = None
        warnings = [too_short(estimate, asked.time_s, quantile=options.quantile)]
    rest = (
        without(line.words, "time") if seconds is not None and asked.time_s is not None else list(line.words)
    )
    tail = [line.script, *line.arguments] if line.script else []
    first = [f"--time={found.text}"] if seconds is not None else []
    return Prepared(
        words=(*first, *rest, *tail),
        limit=found,
        estimate=estimate,
        set_s=seconds,
        warnings=tuple(filter(None, warnings)),
        notes=tuple(notes),
        stdin=piped,
        job_name=asked.job_name or Path(line.script).name,
    )


def _limit(
    text: str,
    line: CommandLine,
    options: SubmitOptions,
    asked: Resources,
    environment: Mapping[str, str],
    answer: Answer | None,
) -> tuple[TimeLimit, JobEstimate]:
    folder = Path(line.value("chdir") or ".")
    estimate = estimate_script(
        text,
        given={name: value for name, value in options.given.items() if name != "device"},
        device=options.given.get("device"),
        line=line,
        environment=environment,
        files=files_below(folder),
        names=read_names(names_file(options.names)),
        answer=answer,
    )
    limit = time_limit(
        estimate,
        quantile=options.quantile,
        margin=options.margin,
        longest_s=partition_limit_s(asked.partition),
        partition=asked.partition,
    )
    return limit, estimate


def _unchanged(
    words: Sequence[str],
    line: CommandLine,
    piped: bytes | None,
    asked: Resources,
    why: str,
    estimate: JobEstimate | None = None,
    notes: Sequence[str] = (),
) -> Prepared:
    return Prepared(
        words=tuple(words),
        limit=None,
        estimate=estimate,
        set_s=None,
        warnings=(f"No time limit is predicted, the job is submitted unchanged. {why}",),
        notes=tuple(notes),
        stdin=piped,
        job_name=asked.job_name or Path(line.script).name,
    )


def _script(line: CommandLine, piped: bytes | None) -> str:
    """The text of the job.

    Raises:
        ConfigError: If there is none, or it cannot be read.
    """
    if (wrapped := line.value("wrap")) is not None:
        return f"#!/bin/sh\n{wrapped}\n"
    if piped is not None:
        return piped[: MOST_CHARACTERS + 1].decode("utf-8", errors="replace")
    if not line.script:
        raise ConfigError("sbatch is given no script. To fix: precision-time slurm submit job.sh.")
    try:
        with open_input(line.script) as file:
            return file.read(MOST_CHARACTERS + 1).decode("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{line.script} cannot be read: {error.strerror}. To fix: name the script."
        ) from error


def submit(prepared: Prepared, *, record: bool = True) -> tuple[int, bytes, bytes, str]:
    """Run `sbatch`, and keep what was predicted of the job.

    Args:
        prepared: What to run.
        record: Whether to add the job to the record of submissions.

    Returns:
        Exit code, stdout and stderr of `sbatch`, and a warning if the record could not be written.

    Raises:
        ConfigError: If there is no `sbatch`.
    """
    try:
        done = subprocess.run(
            ["sbatch", *prepared.words],  # noqa: S607 - the user's own Slurm
            input=prepared.stdin,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "There is no sbatch here. The rule: it submits the job. To fix: run this where Slurm's commands "
            "are, or add --dry-run."
        ) from error
    found = job_of_output(done.stdout.decode("utf-8", errors="replace"))
    run = prepared.estimate.run if prepared.estimate is not None else None
    problem = ""
    if (
        done.returncode == 0
        and record
        and found is not None
        and run is not None
        and prepared.limit is not None
    ):
        try:
            keep(
                Submission(
                    job_id=found[0],
                    cluster=found[1],
                    submitted_s=time.time(),
                    name=prepared.job_name,
                    quantile=prepared.limit.quantile,
                    margin=prepared.limit.margin,
                    limit_s=prepared.set_s,
                    quantiles_s=tuple(run_quantile(run, share) for share in SHARES),
                    request=dict(run.request),
                    version=__version__,
                )
            )
        except OSError as error:
            problem = f"The prediction is not kept for `precision-time slurm history`: {error}."
    return done.returncode, done.stdout, done.stderr, problem


def page(prepared: Prepared) -> list[str]:
    """Lines for people: the limit and why, notes, warnings."""
    found: list[str] = []
    if prepared.limit is not None:
        what = f"--time={prepared.limit.text}" if prepared.set_s is not None else "Predicted"
        chance = prepared.limit.probability
        ends = "" if chance is None or prepared.set_s is None else f" Ends within it with {chance:.0%}."
        found.append(f"{what}: {prepared.limit.why}{ends}")
        low, high = prepared.limit.predicted_s.get("p10"), prepared.limit.predicted_s.get("p90")
        if low is not None and high is not None:
            found.append(f"Eight of ten such runs take {format_duration(low)} to {format_duration(high)}.")
    found += [f"Note: {note}." for note in prepared.notes]
    return [*found, *(f"Warning: {warning}" for warning in prepared.warnings)]
