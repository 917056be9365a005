"""Jobs as Slurm remembers them: `sacct --json`, `sacct --parsable2` and `squeue --json`, of any version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from precision_time.errors import ConfigError, printable

_ASK_S = 120.0
_MOST_CHARACTERS = 400_000_000
_COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "State", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "Partition", "Cluster",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """One job of a cluster; times in seconds since 1970, None where there is none yet."""

    job_id: int
    array_id: int | None
    """Of the array that it is a task of: the number that `sbatch` printed."""
    name: str
    cluster: str
    partition: str
    state: str
    """COMPLETED, TIMEOUT, FAILED, CANCELLED, RUNNING, PENDING ..."""
    submitted_s: float | None
    started_s: float | None
    ended_s: float | None
    limit_s: float | None

    @property
    def elapsed_s(self) -> float | None:
        """From start to end."""
        if self.started_s is None or self.ended_s is None or self.state in ("RUNNING", "PENDING"):
            return None
        return self.ended_s - self.started_s


def ended_jobs(since: str = "now-30days") -> tuple[list[SlurmJob], str]:
    """Jobs of this user, ended ones among them, and what said so.

    Args:
        since: As `--starttime` of `sacct` has it.

    Raises:
        ConfigError: If there is no Slurm here, or it answers nothing that can be read.
    """
    said = []
    for words, read, name in (
        (["sacct", "--json", f"--starttime={since}"], jobs_of_json, "sacct --json"),
        (
            ["sacct", "--allocations", "--noheader", "--parsable2", f"--starttime={since}",
             f"--format={','.join(_COLUMNS)}"],
            jobs_of_rows,
            "sacct --parsable2",
        ),
        (["squeue", "--json", "--states=all", "--me"], jobs_of_json, "squeue (what slurmctld remembers)"),
    ):  # fmt: skip
        text, problem = _output(words)
        if text is not None:
            try:
                return read(text), name
            except ConfigError as error:
                problem = str(error)
        said.append(f"{words[0]}: {problem}")
    raise ConfigError(
        f"Slurm's history cannot be read: {printable('; '.join(said), longest=600)}. The rule: accounting by "
        "slurmdbd, or jobs that slurmctld remembers. To fix: run this where sacct or squeue answer."
    )


def waiting_jobs() -> list[SlurmJob]:
    """Jobs of this user that wait or run.

    Raises:
        ConfigError: If `squeue` does not answer.
    """
    text, problem = _output(["squeue", "--json", "--me"])
    if text is None:
        raise ConfigError(f"squeue does not answer: {problem}. To fix: run this where squeue answers.")
    return [job for job in jobs_of_json(text) if job.state in ("PENDING", "RUNNING")]


def _output(words: Sequence[str]) -> tuple[str | None, str]:
    """What a command prints; None and why not."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False
        )
    except FileNotFoundError:
        return None, "not installed"
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_ASK_S:g} s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return done.stdout, ""


def jobs_of_json(text: str) -> list[SlurmJob]:
    """Jobs in the JSON of `sacct` or `squeue`, from 22.05 on.

    Raises:
        ConfigError: If it is something else.
    """
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("too long: give a later --since")
        listed = json.loads(text)["jobs"]
        return [_of_json(job) for job in listed if isinstance(job, dict)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"This is no JSON of sacct or squeue: {error!r:.200}. To fix: give its output."
        ) from error


def _of_json(job: Mapping[str, Any]) -> SlurmJob:
    times = _inner(job, "time")
    state = job.get("job_state", (job.get("state") or {}))
    if isinstance(state, dict):
        state = state.get("current", "")
    association = _inner(job, "association")
    array = _inner(job, "array")
    limit = _number(times.get("limit", job.get("time_limit")))
    return SlurmJob(
        job_id=int(job["job_id"]),
        array_id=_whole(array.get("job_id", job.get("array_job_id"))),
        name=str(job.get("name") or ""),
        cluster=str(job.get("cluster") or association.get("cluster") or ""),
        partition=str(job.get("partition") or ""),
        state=str((state[0] if state else "") if isinstance(state, list) else state).partition(" ")[0],
        submitted_s=_number(times.get("submission", job.get("submit_time"))),
        started_s=_number(times.get("start", job.get("start_time"))),
        ended_s=_number(times.get("end", job.get("end_time"))),
        limit_s=None if limit is None else limit * 60.0,
    )


def _inner(job: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = job.get(name)
    return found if isinstance(found, dict) else {}


def _whole(value: Any) -> int | None:
    found = _number(value)
    return None if found is None else int(found)


def _number(value: Any) -> float | None:
    """A number, or the object that newer versions have for one; None for 0, endless and what is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
    )


def jobs_of_rows(text: str) -> list[SlurmJob]:
    """Jobs in the rows of `sacct --parsable2`, whose columns are ours.

    Raises:
        ConfigError: If a row has other columns.
    """
    found = []
    for row in text.splitlines():
        cells = row.split("|")
        if len(cells) != len(_COLUMNS):
            raise ConfigError(
                f"A row of sacct has {len(cells)} columns, not {len(_COLUMNS)}: "
                f"{printable(row, longest=100)}. "
                "To fix: names of jobs without |."
            )
        named = dict(zip(_COLUMNS, cells, strict=True))
        if not named["JobIDRaw"].isdigit():
            continue  # a step of a job
        limit, array = named["TimelimitRaw"], named["JobID"].partition("_")
        found.append(
            SlurmJob(
                job_id=int(named["JobIDRaw"]),
                array_id=int(array[0]) if array[1] and array[0].isdigit() else None,
                name=named["JobName"],
                cluster=named["Cluster"],
                partition=named["Partition"],
                state=named["State"].partition(" ")[0],
                submitted_s=_time(named["Submit"]),
                started_s=_time(named["Start"]),
                ended_s=_time(named["End"]),
                limit_s=int(limit) * 60.0 if limit.isdigit() else None,
            )
        )
    return found


def _time(text: str) -> float | None:
    """Seconds since 1970 of a local time; None for `Unknown` and `None`."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
