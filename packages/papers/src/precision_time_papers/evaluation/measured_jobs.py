"""Jobs within the corpus, as predictors that must run the job itself see them.

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

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name

from ..contract import Ints
from ..per_job import Configurations

LEAST_OFFERED = 8
"""Configurations that a job must offer to predictors that sample it."""
LEAST_COUNTS = 2
"""Device counts among them."""
LEAST_RUNS, MOST_RUNS = 4, 7
"""Sample runs of a job: half of what is offered, within these; Ernest's own example has seven."""
_JOBS_SHARE = 0.6
_MOST_OF_A_JOB = 40
"""Configurations of a job in a sample."""
_MODELS_OF_A_SETTING = 12
"""Models, at the least, among the rows of one setting in a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredJob:
    """One job and the rows of each of its configurations."""

    key: str
    number: int
    """Index among the jobs of the table."""
    rows: tuple[Ints, ...]
    """Rows of each configuration, k entries; a sample run gives the first."""
    configurations: Configurations
    """The k configurations."""


def workload_key(item: Measurement) -> str:
    """Equal for rows of one model and shape, at one precision, in one software, from one source."""
    sizes = json.dumps(dict(item.sizes), sort_keys=True, default=str)
    parts = (
        *(source_name(item), item.model, sizes, item.seq_len, item.dataset or item.task),
        *(item.precision, item.precision_variant, item.optimizer, item.stack.profile),
    )
    return " | ".join(map(str, parts))


def job_key(item: Measurement) -> str:
    """Equal for rows of one job."""
    layout = item.layout
    degrees = () if layout is None else (layout.tp, layout.pp, layout.cp, layout.ep, layout.zero_stage)
    checkpointing = "" if layout is None else layout.recompute.value
    return " | ".join(map(str, (workload_key(item), item.device, item.system, degrees, checkpointing)))


def configuration_of(item: Measurement) -> tuple[int, int, float, int]:
    """Devices, nodes, global batch, micro batches: equal for repeats within a job."""
    return item.num_devices, item.num_nodes, item.global_batch_size or 0.0, item.num_microbatches or 1


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


def can_be_sampled(job: MeasuredJob, offered: Ints) -> bool:
    """Whether a predictor that samples can be fitted: enough configurations on enough device counts."""
    counts = np.unique(job.configurations.devices[offered])
    return len(offered) >= LEAST_OFFERED and len(counts) >= LEAST_COUNTS


def run_limit(offered: int) -> int:
    """Sample runs of a job that offers so many configurations.

    >>> run_limit(8), run_limit(11), run_limit(400)
    (4, 5, 7)
    """
    return min(max(LEAST_RUNS, offered // 2), MOST_RUNS)


def sampled_jobs(rows: Sequence[Measurement], count: int, *, of_setting: int = 0) -> list[Measurement]:
    """About `count` rows: up to six tenths of jobs that can be sampled, one row of each configuration.

    The rest is drawn from all other rows. All rows when there are no more than `count`.

    Args:
        rows: To draw from.
        count: How many.
        of_setting: So many of them of one setting (source, precision, software, dataset): without them no
            setting of a small sample has enough runs for a predictor that is fitted within one.
    """
    if count >= len(rows):
        return list(rows)
    draw = np.random.default_rng(0)
    jobs = [job for job in measured_jobs(rows) if can_be_sampled(job, np.arange(len(job.rows)))]
    taken = _of_one_setting(rows, of_setting)
    count_of_jobs = _JOBS_SHARE * count + len(taken)
    for place in draw.permutation(len(jobs)):
        if len(taken) >= count_of_jobs:
            break
        found = jobs[place].rows
        kept = np.unique(np.linspace(0, len(found) - 1, min(len(found), _MOST_OF_A_JOB)).round().astype(int))
        taken += [int(found[index][0]) for index in kept]
    rest = np.setdiff1d(np.arange(len(rows)), taken)
    taken += draw.choice(rest, size=max(count - len(taken), 0), replace=False).tolist()
    return [rows[index] for index in sorted(set(taken))]


def _of_one_setting(rows: Sequence[Measurement], count: int) -> list[int]:
    """Places of about `count` data-parallel rows of the setting with most models, all rows of a few models.

    One row of each model first would be as many operator graphs to price.
    """
    settings: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, item in enumerate(rows):
        layout = item.layout
        if count and (layout is None or layout.tp * layout.pp * layout.cp * layout.ep == 1):
            parts = (source_name(item), item.precision, item.precision_variant, item.stack.profile)
            settings[*map(str, parts), item.dataset or str(item.task)][item.model].append(index)
    if not settings:
        return []
    models = max(settings.values(), key=len)
    taken: list[int] = []
    for found in sorted(models.values(), key=len, reverse=True):
        taken += found[: max(count // _MODELS_OF_A_SETTING, 1)]
        if len(taken) >= count:
            break
    return taken
