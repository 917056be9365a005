"""The jobs of a queue: what a job file says of each, beside the fields of a request."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, shown
from precision_time.planning.run.schema import RunOptions
from precision_time.request.files import FileJob, read_jobs
from precision_time.request.request import Request
from precision_time.schemas.job_files import QUEUE_FIELDS
from precision_time.units import duration_s

_RUN = "run"
CHOSEN_FIELDS = ("device", "gpus", "precision")
"""Fields in which a job may name several values: the queue chooses one of each."""
_PLACED_FIELDS = ("nodes", "node_type", "cluster", "inter_node", "intra_node", "network", "custom")
"""Fields that the cluster file says."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_ZERO = re.compile(r"0+(\.0+)?\s*\w*")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueJob:
    """One job; times are seconds from the start of the plan."""

    name: str
    requests: tuple[Request, ...]
    """One for each combination of the devices, counts and precisions that it allows."""
    submit_s: float = 0.0
    """It starts no earlier."""
    deadline_s: float | None = None
    weight: float = 1.0
    """How much its lateness or completion counts against that of the others."""
    run: RunOptions
    """What its run costs beside the steps."""
    tenant: str = ""
    """Whose job it is: tenants have equal shares of the cluster where fairness is asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """The jobs, and the moment that their times count from."""

    jobs: tuple[QueueJob, ...]
    start: datetime | None
    """None where neither the caller nor a job names a date."""
    notes: tuple[str, ...] = ()


def queue_of(
    given: str | Path | Sequence[Mapping[str, Any]], *, start: str | datetime | None = None
) -> Queue:
    """The jobs of a file, or of mappings of fields to values.

    Args:
        given: A job file (`request.files.read_jobs`) or its jobs. Each has the fields of a request and, all
            optional, `name`, `submit` and `deadline` (a duration from the start of the plan such as 36h, or a
            date with or without time), `weight`, `tenant` and `run` (a mapping of `RunOptions`); `device`,
            `gpus` and `precision` may be lists.
        start: When the plan starts; None is now, and matters only where jobs name dates.

    Raises:
        ConfigError: If a job breaks a rule; names the job.
    """
    if isinstance(given, str | Path):
        where = f"{given}, "
        jobs = read_jobs(given)
    else:
        where = ""
        jobs = [FileJob(place=f"job {number}", fields=fields) for number, fields in enumerate(given, 1)]
    if not jobs:
        raise ConfigError("The queue holds no job. To fix: give at least one, with `model`.")
    dated = any(_is_date(job.fields.get(name)) for job in jobs for name in ("submit", "deadline"))
    begins = _moment("start", start) if start is not None else datetime.now().replace(microsecond=0)
    found: list[QueueJob] = []
    notes: list[str] = []
    for job in jobs:
        try:
            found.append(_queue_job(job, begins, notes))
        except ConfigError as error:
            raise ConfigError(f"{where}{job.place}: {error}") from None
    names = [job.name for job in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}two jobs are named {twice!r}. To fix: give each a name of its own.")
    begins_known = begins if dated or start is not None else None
    return Queue(jobs=tuple(found), start=begins_known, notes=tuple(notes))


def _queue_job(job: FileJob, start: datetime, notes: list[str]) -> QueueJob:
    taken = (*QUEUE_FIELDS, _RUN)
    own = {name: job.fields[name] for name in taken if job.fields.get(name) is not None}
    fields = {name: value for name, value in job.fields.items() if name not in taken}
    placed = [name for name in _PLACED_FIELDS if fields.get(name) is not None]
    if placed:
        raise ConfigError(
            f"{placed[0]} is said by the cluster file, not by a job of a queue. To fix: leave it out, or "
            "name the devices that the job may run on as `device`."
        )
    if fields.get("phases") is not None:
        raise ConfigError("phases are not planned in a queue. To fix: give each phase as a job of its own.")
    requests = FileJob(place=job.place, fields=fields).requests()
    for name in {name for request in requests for name in request.given()} - {*CHOSEN_FIELDS}:
        values = [request.given().get(name) for request in requests]
        if any(value != values[0] for value in values):
            raise ConfigError(
                f"{name} has several values. The rule: a queue chooses among {', '.join(CHOSEN_FIELDS)} "
                "only. To fix: give one value, or a job for each."
            )
    name = str(own.get("name", job.place or "job 1"))
    submit_s = _time_s("submit", own["submit"], start) if "submit" in own else 0.0
    if submit_s < 0.0:
        notes.append(f"{name} was submitted before the plan starts: it can start at once.")
        submit_s = 0.0
    return QueueJob(
        name=name,
        requests=tuple(requests),
        submit_s=submit_s,
        deadline_s=_deadline_s(own["deadline"], start, submit_s, own) if "deadline" in own else None,
        weight=_weight(own.get("weight", 1.0)),
        run=_run_options(own.get(_RUN, {})),
        tenant=str(own.get("tenant", "")),
    )


def _deadline_s(given: Any, start: datetime, submit_s: float, own: Mapping[str, Any]) -> float:
    deadline_s = _time_s("deadline", given, start)
    if deadline_s <= 0.0:
        raise ConfigError(
            f"deadline {given} is not after the start of the plan, {start}. The rule: a deadline lies ahead. "
            "To fix: name a later one."
        )
    if deadline_s <= submit_s:
        raise ConfigError(
            f"deadline {given} is not after submit {own['submit']}. The rule: a job is submitted before its "
            "deadline. To fix: correct one of them."
        )
    return deadline_s


def _time_s(name: str, given: Any, start: datetime) -> float:
    """Seconds from the start of the plan; a duration counts from there."""
    if _is_date(given):
        return (_moment(name, given) - start).total_seconds()
    if _ZERO.fullmatch(str(given).strip()):
        return 0.0
    try:
        return duration_s(name, given)
    except ConfigError:
        raise ConfigError(
            f"{name} {shown(given)} is neither a duration nor a date. To fix: write it like 36h (from the "
            "start of the plan) or 2030-05-24 18:00."
        ) from None


def _is_date(given: Any) -> bool:
    return isinstance(given, date) or (isinstance(given, str) and _DATE.fullmatch(given.strip()) is not None)


def _moment(name: str, given: Any) -> datetime:
    """A date in the time zone of this machine where it names none; a day alone is its first second."""
    if isinstance(given, datetime):
        moment = given
    elif isinstance(given, date):
        moment = datetime(given.year, given.month, given.day)
    else:
        try:
            moment = datetime.fromisoformat(str(given).strip())
        except ValueError:
            raise ConfigError(
                f"{name} {shown(given)} is not a date. To fix: write it like 2030-05-24 or 2030-05-24 18:00."
            ) from None
    return moment.astimezone().replace(tzinfo=None) if moment.tzinfo is not None else moment


def _run_options(given: Any) -> RunOptions:
    options = RunOptions.of(given) if isinstance(given, Mapping) else None
    if options is None or options.critical_batch is not None:
        raise ConfigError(
            f"run={shown(given)} must be a mapping, and without critical_batch: a queue changes no batch. To "
            "fix: write it like run: {start_up: 5m, failures: false}."
        )
    return options


def _weight(given: Any) -> float:
    try:
        weight = float(given)
    except (TypeError, ValueError):
        weight = math.nan
    if isinstance(given, bool) or not (math.isfinite(weight) and 0.0 < weight <= 1e6):
        raise ConfigError(
            f"weight={shown(given)} must be a number above 0, at most a million. To fix: 2 counts twice."
        )
    return weight
