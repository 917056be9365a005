"""Ended jobs against what was predicted of them, and what follows for `--quantile` and `--margin`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .jobs import SlurmJob
from .submissions import Submission

FEWEST = 20
"""Jobs below which nothing is suggested: 19 of 20 in time need twenty to be seen."""
_SAME_JOB_S = 3600.0
"""Job numbers begin again: a job of the record was submitted within this time of Slurm's."""
_RAN_OUT = "TIMEOUT"
_SHORTEST_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedJob:
    """One ended job with its prediction."""

    job_id: int
    name: str
    state: str
    elapsed_s: float
    """Of a job that ran out of time: its limit, which the run exceeds."""
    limit_s: float | None
    predicted_s: float
    """Median."""
    share: float
    """Predicted probability of a run that is no longer."""

    @property
    def ratio(self) -> float:
        """Elapsed over predicted."""
        return self.elapsed_s / self.predicted_s


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What the ended jobs say of the predictions."""

    source: str
    jobs: tuple[EndedJob, ...]
    """Completed ones, and those that ran out of time."""
    left_out: tuple[str, ...]
    """Jobs with a prediction that say nothing of it, each with why; so many at most."""
    num_left_out: int
    median_ratio: float | None
    """Elapsed over predicted median."""
    inside: float | None
    """Share of the jobs that lie between the predicted 10 and 90 %, which 80 % should."""
    in_time: float | None
    """Share that ended within the predicted quantile that was wanted."""
    quantile: float
    """That was wanted."""
    suggested_quantile: float | None
    """Under which so many would have ended in time; None for fewer than `FEWEST` jobs, or where none does."""
    suggested_margin: float | None
    """With the quantile as it is; None for fewer than `FEWEST` jobs."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        jobs = [asdict(job) | {"ratio": job.ratio} for job in self.jobs]
        return asdict(self) | {"jobs": jobs}


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveJob:
    """A job that waits or runs, with its prediction."""

    job_id: int
    name: str
    state: str
    starts_in_s: float | None
    """Slurm's own estimate; None where it has none, and for one that runs."""
    elapsed_s: float
    remaining_s: float
    """Predicted: the median of runs that are longer than what has elapsed."""
    limit_left_s: float | None


def _prediction_of(job: SlurmJob, record: dict[int, list[Submission]]) -> tuple[float, ...] | None:
    """Quantiles of a job's run at `SHARES`; None where nothing was predicted."""
    for each in record.get(job.array_id or job.job_id, ()):
        same = not each.cluster or not job.cluster or each.cluster == job.cluster
        if same and job.submitted_s is not None and abs(job.submitted_s - each.submitted_s) < _SAME_JOB_S:
            return each.quantiles_s
    return None


def _by_number(record: Sequence[Submission]) -> dict[int, list[Submission]]:
    found: dict[int, list[Submission]] = {}
    for each in reversed(record):
        found.setdefault(each.job_id, []).append(each)
    return found


def history_of(
    jobs: Sequence[SlurmJob], record: Sequence[Submission], *, quantile: float, source: str = ""
) -> History:
    """Ended jobs against their predictions.

    Args:
        jobs: As Slurm remembers them.
        record: What was kept when they were submitted.
        quantile: Share of jobs that are wanted in time.
        source: Of the jobs, for the words.
    """
    numbered = _by_number(record)
    found: list[EndedJob] = []
    left_out: list[str] = []
    for job in jobs:
        if (predicted := _prediction_of(job, numbered)) is None:
            continue
        elapsed_s = job.elapsed_s
        if elapsed_s is None or job.state not in ("COMPLETED", _RAN_OUT):
            left_out.append(f"{job.job_id} {job.name}: {job.state}")
            continue
        elapsed_s = max(elapsed_s, _SHORTEST_S)
        found.append(
            EndedJob(
                job_id=job.job_id,
                name=job.name,
                state=job.state,
                elapsed_s=elapsed_s,
                limit_s=job.limit_s,
                predicted_s=predicted[len(predicted) // 2],
                # A job that ran out of time would have taken longer: nobody knows how much.
                share=1.0 if job.state == _RAN_OUT else _share(predicted, elapsed_s),
            )
        )
    return _summary(found, left_out, quantile, source, {job.job_id: job for job in jobs}, numbered)


def _share(quantiles_s: Sequence[float], seconds: float) -> float:
    return float(
        np.interp(seconds, quantiles_s, np.linspace(0.0, 1.0, len(quantiles_s)), left=0.0, right=1.0)
    )


def _summary(
    found: Sequence[EndedJob],
    left_out: Sequence[str],
    quantile: float,
    source: str,
    jobs: dict[int, SlurmJob],
    numbered: dict[int, list[Submission]],
) -> History:
    count = len(found)
    shares = sorted(job.share for job in found)
    place = math.ceil((count + 1) * quantile)
    suggested = shares[place - 1] if count >= FEWEST and place <= count else None
    margin = None
    if count >= FEWEST and place <= count:
        ratios = sorted(
            math.inf
            if job.state == _RAN_OUT
            else job.elapsed_s / _quantile_s(jobs[job.job_id], numbered, quantile)
            for job in found
        )
        margin = max(ratios[place - 1] - 1.0, 0.0)
    return History(
        source=source,
        jobs=tuple(found),
        left_out=tuple(left_out[:100]),
        num_left_out=len(left_out),
        median_ratio=float(np.median([job.ratio for job in found])) if found else None,
        inside=sum(0.1 <= share <= 0.9 for share in shares) / count if found else None,
        in_time=sum(share <= quantile for share in shares) / count if found else None,
        quantile=quantile,
        suggested_quantile=None if suggested is None or suggested >= 1.0 else max(suggested, 0.5),
        suggested_margin=None if margin is None or math.isinf(margin) else margin,
    )


def _quantile_s(job: SlurmJob, numbered: dict[int, list[Submission]], quantile: float) -> float:
    predicted = _prediction_of(job, numbered)
    assert predicted is not None
    return float(np.interp(quantile, np.linspace(0.0, 1.0, len(predicted)), predicted))


def live_jobs(jobs: Sequence[SlurmJob], record: Sequence[Submission], *, now_s: float) -> list[LiveJob]:
    """Jobs that wait or run and have a prediction.

    Args:
        jobs: As `squeue` lists them.
        record: What was kept when they were submitted.
        now_s: Seconds since 1970.
    """
    numbered = _by_number(record)
    found: list[LiveJob] = []
    for job in jobs:
        if (predicted := _prediction_of(job, numbered)) is None:
            continue
        running = job.state == "RUNNING" and job.started_s is not None
        elapsed_s = max(now_s - (job.started_s or now_s), 0.0) if running else 0.0
        shares = np.linspace(0.0, 1.0, len(predicted))
        gone = _share(predicted, elapsed_s)
        median_s = float(np.interp(0.5 + 0.5 * gone, shares, predicted))
        found.append(
            LiveJob(
                job_id=job.job_id,
                name=job.name,
                state=job.state,
                starts_in_s=None if running or job.started_s is None else max(job.started_s - now_s, 0.0),
                elapsed_s=elapsed_s,
                remaining_s=max(median_s - elapsed_s, 0.0),
                limit_left_s=None if job.limit_s is None else max(job.limit_s - elapsed_s, 0.0),
            )
        )
    return found
