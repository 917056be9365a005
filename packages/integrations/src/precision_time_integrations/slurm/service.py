"""What a service answers to a plugin of Slurm: a time limit for a script and the options of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .devices import names_file, read_names
from .limits import MARGIN, QUANTILE, TimeLimit, time_limit
from .options import CommandLine
from .script import estimate_script

COMMENT = "precision-time"
"""First word of the comment that the plugin gives a job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedLimit:
    """A time limit as the service says it; `seconds` stands first, for readers that know no JSON."""

    seconds: int | None
    """To set; None where nothing was predicted."""
    text: str
    """The same as Slurm writes it; empty where there is none."""
    why: str
    """The prediction behind it, or why there is none and what to add to the script."""
    comment: str
    """For the job's administrative comment: `precision-time p10=... p50=... p90=... p95=... q=...` [s]; empty
    where there is none."""
    warnings: tuple[str, ...]
    probability: float | None
    """That the run ends within it."""
    quantile: float
    margin: float
    predicted_s: Mapping[str, float]
    fields: Mapping[str, Any]
    """Of the job, as they were read."""
    notes: tuple[str, ...]
    unread: tuple[str, ...]


def served_limit(
    script: str,
    *,
    options: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    job: Mapping[str, Any] | None = None,
    quantile: float = QUANTILE,
    margin: float = MARGIN,
    longest_s: float | None = None,
) -> ServedLimit:
    """The time limit of a job. No file that the script names is read, and nothing of it is executed.

    Args:
        script: Its text.
        options: By the long names of sbatch: nodes, ntasks, gres, partition, constraint ...
        arguments: Of the script.
        job: Fields of the request in the place of those of the script.
        quantile: Probability that it ends within the limit.
        margin: Added share.
        longest_s: MaxTime of the partition.

    Raises:
        ConfigError: If quantile or margin break their rules.
    """
    given = dict(job or {})
    device = given.pop("device", None)
    estimate = estimate_script(
        script,
        given=given,
        device=None if device is None else str(device),
        options=options or {},
        line=CommandLine(options=(), words=(), arguments=tuple(arguments)),
        names=read_names(names_file()),
    )
    limit = time_limit(
        estimate,
        quantile=quantile,
        margin=margin,
        longest_s=longest_s,
        partition=str((options or {}).get("partition", "")),
    )
    return ServedLimit(
        seconds=limit.seconds,
        text=limit.text,
        why=limit.why,
        comment=comment_of(limit),
        warnings=limit.warnings,
        probability=limit.probability,
        quantile=quantile,
        margin=margin,
        predicted_s=limit.predicted_s,
        fields=estimate.fields,
        notes=estimate.notes,
        unread=estimate.unread,
    )


def comment_of(limit: TimeLimit) -> str:
    """The prediction in a comment of a job, as `history` reads it.

    >>> half = {"p50": 40.2}
    >>> comment_of(TimeLimit(seconds=60, text="", why="", quantile=0.9, margin=0.0, predicted_s=half))
    'precision-time p50=40 q=0.9'
    """
    if limit.seconds is None:
        return ""
    words = [
        f"{name}={seconds:.0f}"
        for name, seconds in limit.predicted_s.items()
        if name in ("p10", "p50", "p90", "p95")
    ]
    return " ".join([COMMENT, *words, f"q={limit.quantile:g}"])
