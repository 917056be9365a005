"""A sample of the corpus for quick comparisons: some jobs that can be sampled, thinned, and other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...corpus.measurement import Measurement
from .held_out import enough
from .jobs import measured_jobs

QUICK_ROWS = 900
_JOBS_SHARE = 0.6
_OF_A_JOB = 40
"""Configurations of a job at most."""


def sampled_jobs(rows: Sequence[Measurement], count: int) -> list[Measurement]:
    """About `count` rows: up to six tenths of jobs that can be sampled, one row of each configuration.

    The rest is drawn from all other rows.

    Args:
        rows: Runs.
        count: How many; all when there are no more.
    """
    if count >= len(rows):
        return list(rows)
    draw = np.random.default_rng(0)
    jobs = [job for job in measured_jobs(rows) if enough(job, np.arange(len(job.rows)))]
    taken: list[int] = []
    for place in draw.permutation(len(jobs)):
        if len(taken) >= _JOBS_SHARE * count:
            break
        found = jobs[place].rows
        spread = np.unique(np.linspace(0, len(found) - 1, min(len(found), _OF_A_JOB)).round().astype(int))
        taken += [int(found[index][0]) for index in spread]
    left = np.setdiff1d(np.arange(len(rows)), taken)
    taken += draw.choice(left, size=max(count - len(taken), 0), replace=False).tolist()
    return [rows[index] for index in sorted(taken)]
