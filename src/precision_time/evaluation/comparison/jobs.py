"""Jobs within the corpus, as predictors see them that must run the job itself.

A job is one model of one shape at one precision, in one software, on one type of device of one system, laid
out over the same model-parallel degrees, as one source measured it. What varies within it are devices, nodes,
the global batch and the number of micro batches: its configurations.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement
from ...papers.per_job import Configurations

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredJob:
    """One job and the rows of each of its configurations."""

    key: str
    number: int
    """Index among the jobs of the table."""
    rows: tuple[Ints, ...]
    """Rows of each configuration, the first being the run that a predictor gets to see, k entries."""
    configurations: Configurations
    """The k configurations."""


def job_key(item: Measurement) -> str:
    """Equal for rows of one job."""
    layout = item.layout
    degrees = () if layout is None else (layout.tp, layout.pp, layout.cp, layout.ep, layout.zero_stage)
    checkpointing = "" if layout is None else layout.checkpointing.value
    parts = (
        item.source.split("-v", maxsplit=1)[0],
        item.model,
        json.dumps(dict(item.sizes), sort_keys=True, default=str),
        item.seq_len,
        item.dataset or item.task,
        item.precision,
        item.precision_variant,
        item.optimizer,
        item.stack.profile,
        item.device,
        item.system,
        degrees,
        checkpointing,
    )
    return " | ".join(str(part) for part in parts)


def configuration_of(item: Measurement) -> tuple[int, int, float, int]:
    """Devices, nodes, global batch, micro batches: equal for repeats within a job."""
    return item.num_devices, item.num_nodes, item.global_batch_size or 0.0, item.num_micro_batches or 1


def measured_jobs(rows: Sequence[Measurement]) -> tuple[MeasuredJob, ...]:
    """The jobs of a table, in the order in which they first occur.

    Args:
        rows: Measurements; indices of the result are places in it.
    """
    grouped: dict[str, dict[tuple[int, int, float, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, item in enumerate(rows):
        grouped[job_key(item)][configuration_of(item)].append(index)
    return tuple(_job(key, number, found) for number, (key, found) in enumerate(grouped.items()))


def job_numbers(jobs: Sequence[MeasuredJob], count: int) -> Ints:
    """Number of the job of each of `count` rows."""
    numbers = np.full(count, -1, dtype=np.intp)
    for job in jobs:
        numbers[np.concatenate(job.rows)] = job.number
    return numbers


def _job(key: str, number: int, found: dict[tuple[int, int, float, int], list[int]]) -> MeasuredJob:
    ordered = sorted(found)
    columns = np.array(ordered, dtype=np.float64)
    batches = np.maximum(columns[:, 2], 1e-9)
    return MeasuredJob(
        key=key,
        number=number,
        rows=tuple(np.array(found[name], dtype=np.intp) for name in ordered),
        configurations=Configurations(
            devices=columns[:, 0],
            nodes=columns[:, 1],
            global_batch=batches,
            largest_batch=float(batches.max()),
        ),
    )
