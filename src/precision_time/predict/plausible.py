"""Lines on jobs that nobody runs like this: epochs of seconds, batches and data rates beyond what is known.

The answer stays what it is. Figures and their sources: `data/plausible.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..cost.input import sample_kind
from ..cost.job import Job
from ..io import packaged_toml
from ..units import format_duration, format_si


def implausible(job: Job, step_time_s: float, epoch_time_s: float | None) -> Iterator[tuple[str, str]]:
    """Code and text of what is unusual about a job's size.

    Args:
        job: What was predicted.
        step_time_s: Its step time.
        epoch_time_s: Its epoch; None where it is unknown.
    """
    # Read when the first job is answered, not when the package is imported.
    figures: Mapping[str, Any] = packaged_toml(__package__, "data/plausible.toml")
    workload, samples = job.workload, job.layout.global_batch_size
    if epoch_time_s is not None and epoch_time_s < figures["epoch"]["least_s"]:
        yield (
            "short-epoch",
            f"An epoch takes {format_duration(epoch_time_s)}: start-up, evaluation and reading the data take "
            "longer. Fewer devices finish about as soon.",
        )
    known = figures["batch"].get(workload.family)
    if known is not None:
        size = samples * ((workload.graph.seq_len or 1) if known["unit"] == "tokens" else 1)
        if size > known["most"]:
            yield (
                "huge-batch",
                f"{size:,.0f} {known['unit']} per step; no run of this kind is known to have trained with "
                f"more than {known['most']:,} ({known['source']}): larger batches hardly save steps.",
            )
    size_bytes = figures["sample_bytes"].get(sample_kind(workload), 0.0)
    node_bytes_per_s = samples / step_time_s * size_bytes / job.cluster.num_nodes
    planned = figures["store"]["node_bytes_per_s"]
    if node_bytes_per_s > planned:
        yield (
            "data-rate",
            f"The devices of a node take {format_si(node_bytes_per_s, 'B/s')} of samples; large stores are "
            f"planned for {format_si(planned, 'B/s')} per node. Data on local disks or in memory is assumed.",
        )
