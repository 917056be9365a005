"""Lines on jobs that nobody runs like this: epochs of seconds, batches and data rates beyond what is known.

The answer stays what it is. Figures and their sources: `data/plausible.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..arrays import Bools, Floats
from ..cost.input import sample_kind
from ..cost.job import Job
from ..io import packaged_toml
from ..units import format_duration, format_si


def unusual(job: Job, samples: Floats, step_time_s: Floats, epoch_time_s: Floats | None) -> dict[str, Bools]:
    """Which of n jobs that differ in their batch alone are unusual, and in what, shape (n,) each.

    Args:
        job: One of them.
        samples: Per step.
        step_time_s: Of a step.
        epoch_time_s: Of an epoch; None where it is unknown.
    """
    figures, workload = _figures(), job.workload
    known = figures["batch"].get(workload.family)
    node_bytes_per_s = samples / step_time_s * _sample_bytes(job) / job.cluster.num_nodes
    nothing = np.zeros(len(samples), dtype=bool)
    return {
        "short-epoch": nothing if epoch_time_s is None else epoch_time_s < figures["epoch"]["least_s"],
        "huge-batch": nothing if known is None else samples * _units(job, known) > known["most"],
        "data-rate": node_bytes_per_s > figures["store"]["node_bytes_per_s"],
    }


def _figures() -> Mapping[str, Any]:
    """Read when the first job is answered, not when the package is imported."""
    return packaged_toml(__package__, "data/plausible.toml")


def _sample_bytes(job: Job) -> float:
    return float(_figures()["sample_bytes"].get(sample_kind(job.workload), 0.0))


def _units(job: Job, known: Mapping[str, Any]) -> int:
    return (job.workload.graph.seq_len or 1) if known["unit"] == "tokens" else 1


def implausible(job: Job, step_time_s: float, epoch_time_s: float | None) -> Iterator[tuple[str, str]]:
    """Code and text of what is unusual about a job's size.

    Args:
        job: What was predicted.
        step_time_s: Its step time.
        epoch_time_s: Its epoch; None where it is unknown.
    """
    figures, samples = _figures(), job.layout.global_batch_size
    epoch = None if epoch_time_s is None else np.array([epoch_time_s])
    found = unusual(job, np.array([samples]), np.array([step_time_s]), epoch)
    if found["short-epoch"].any():
        assert epoch_time_s is not None
        yield (
            "short-epoch",
            f"An epoch takes {format_duration(epoch_time_s)}: start-up, evaluation and reading the data take "
            "longer. Fewer devices finish about as soon.",
        )
    if found["huge-batch"].any():
        known = figures["batch"][job.workload.family]
        yield (
            "huge-batch",
            f"{samples * _units(job, known):,.0f} {known['unit']} per step; no run of this kind is known to "
            f"have trained with more than {known['most']:,} ({known['source']}): larger batches hardly save "
            "steps.",
        )
    if found["data-rate"].any():
        node_bytes_per_s = samples / step_time_s * _sample_bytes(job) / job.cluster.num_nodes
        planned = figures["store"]["node_bytes_per_s"]
        yield (
            "data-rate",
            f"The devices of a node take {format_si(node_bytes_per_s, 'B/s')} of samples; large stores are "
            f"planned for {format_si(planned, 'B/s')} per node. Data on local disks or in memory is assumed.",
        )
