"""A record of what was submitted with which prediction: one JSON line for each job, in the data folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from precision_time.errors import PrecisionTimeError
from precision_time.io import data_folder
from precision_time.plain import from_plain

_MOST_BYTES = 50_000_000
_SUBMITTED = re.compile(r"(?:Submitted batch job )?(\d+)(?:;(\S+))?(?: on cluster (\S+))?")
SHARES = tuple(number / 20 for number in range(21))
"""Where the distribution of the run is kept: 0, 5 ... 100 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """One job and what was predicted of it."""

    job_id: int
    cluster: str
    """As sbatch names it; empty for the default one."""
    submitted_s: float
    """Seconds since 1970."""
    name: str
    quantile: float
    margin: float
    limit_s: float | None
    """That was set; None where the job kept its own or none."""
    quantiles_s: tuple[float, ...]
    """Predicted seconds of the run at `SHARES`."""
    request: Mapping[str, Any]
    version: str = ""

    def share_within(self, seconds: float) -> float:
        """Predicted probability that the run ends within so many seconds."""
        return share_of(self.quantiles_s, seconds)

    def quantile_s(self, share: float) -> float:
        """Predicted seconds within which the run ends with a probability."""
        place = min(max(share, 0.0), 1.0) * (len(self.quantiles_s) - 1)
        low = int(place)
        high = min(low + 1, len(self.quantiles_s) - 1)
        return self.quantiles_s[low] + (place - low) * (self.quantiles_s[high] - self.quantiles_s[low])


def share_of(quantiles_s: tuple[float, ...], seconds: float) -> float:
    """Probability by quantiles at even shares, straight lines between them."""
    if seconds <= quantiles_s[0]:
        return 0.0
    for place, (low, high) in enumerate(zip(quantiles_s, quantiles_s[1:], strict=False)):
        if seconds < high:
            return (place + (seconds - low) / (high - low)) / (len(quantiles_s) - 1)
    return 1.0


def submissions_file() -> Path:
    """Where the record is."""
    return data_folder() / "slurm" / "submissions.jsonl"


def job_of_output(text: str) -> tuple[int, str] | None:
    """Number and cluster of a job in what `sbatch` prints, with `--parsable` or without; None without one."""
    found = _SUBMITTED.search(text)
    return None if found is None else (int(found[1]), found[2] or found[3] or "")


def keep(submission: Submission, path: Path | None = None) -> None:
    """Add a job to the record.

    Raises:
        OSError: If it cannot be written.
    """
    target = path or submissions_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(submission), default=str) + "\n")


def read_submissions(path: Path | None = None) -> tuple[list[Submission], int]:
    """The record, and how many of its lines cannot be read; the latest part of one that is too long."""
    target = path or submissions_file()
    if not target.is_file():
        return [], 0
    with target.open("rb") as file:
        file.seek(max(target.stat().st_size - _MOST_BYTES, 0))
        lines = file.read(_MOST_BYTES).decode("utf-8", errors="replace").splitlines()
    found, broken = [], 0
    for line in lines:
        try:
            each: Submission = from_plain(Submission, json.loads(line))
            if len(each.quantiles_s) < 2:
                raise ValueError("no distribution")
            found.append(each)
        except (ValueError, TypeError, RecursionError, PrecisionTimeError):
            broken += bool(line.strip())
    return found, broken
