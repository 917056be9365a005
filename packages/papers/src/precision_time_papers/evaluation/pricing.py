"""The corpus as evaluation needs it: priced as it is, and priced as predictors without a fact would price it.

Pricing the corpus takes minutes, so the result is kept in the cache folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.cost.job import Job, Jobs
from precision_time.cost.roofline import kernel_model_of, kernel_seconds, rates_of
from precision_time.executor import Executor, in_chunks
from precision_time.learn.measured import MeasuredTable, measured_table
from precision_time.learn.table import JOB_ARRAYS, JobTable, groups_of, job_table
from precision_time.precision.catalog import get_policy
from precision_time.precision.lowered import LoweredStep
from precision_time.precision.lowering import lower
from precision_time.precision.policy import DType
from precision_time.workload.graph import OpGraph

from ..contract import FeatureTable, Floats, Ints, JobViews, NamedColumns
from .cache import ArrayCache, Arrays, cache_key
from .measured_jobs import job_numbers, measured_jobs

Progress = Callable[[str], None]

_CHUNK = 1000
"""Rows per task: about a second."""
_LARGE = 1e6
"""Tiles and inner length of GEMMs that no shape slows down."""


def silent(_: str) -> None:
    """A progress callback that shows nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedCorpus:
    """Measured runs with four ways to price them, row by row."""

    table: MeasuredTable
    fp32: JobTable
    """The same jobs as if all of them ran in fp32: nothing in it depends on the precision."""
    fp32_wire: JobTable
    """Low-precision gradients sent as fp32; all else as it is."""
    shape_ratio: Floats
    """Kernel seconds without tiles, waves and inner lengths over those with them, shape (n,)."""

    def __len__(self) -> int:
        return len(self.table)


def priced_corpus(
    measurements: Sequence[Measurement], *, progress: Progress = silent, folder: Path | None = None
) -> PricedCorpus:
    """Price the measurements in every way, or read the cache.

    Args:
        measurements: Runs; those that cannot be priced are counted in `table.rejected`.
        progress: Called with a line on what is being done.
        folder: Where priced tables are kept; None keeps none.
    """
    cache = ArrayCache(folder=folder, kind="priced", key=cache_key(measurements))
    return _from_arrays(cache.get("corpus", lambda: _price(measurements, progress)), measurements)


def _price(measurements: Sequence[Measurement], progress: Progress) -> Arrays:
    progress("pricing the corpus")
    table = measured_table(measurements, _counter(progress, "pricing the corpus", len(measurements)))
    jobs = [job_of(item) for item in table.measurements]
    fp32, what = get_policy("fp32"), "pricing the corpus as fp32"
    blind = _repriced(table.jobs, jobs, [replace(job, precision=fp32) for job in jobs], progress, what)
    what = "pricing the corpus with fp32 on the wire"
    wire = _repriced(table.jobs, jobs, [_fp32_wire(job) for job in jobs], progress, what)
    progress("pricing the corpus without shapes")
    arrays: Arrays = {
        "names": np.array(table.jobs.names),
        "rows": np.array([item.row_id for item in table.measurements], dtype=np.int64),
        "measured_s": table.measured_s,
        "sync_s": table.sync_s,
        "shape_ratio": _shape_ratio(jobs),
        "rejected.reasons": np.array(list(table.rejected) or [""]),
        "rejected.counts": np.array(list(table.rejected.values()) or [0]),
    }
    for view, priced in (("native", table.jobs), ("fp32", blind), ("wire", wire)):
        arrays |= _job_arrays(priced, view)
    return arrays


def _from_arrays(arrays: Arrays, measurements: Sequence[Measurement]) -> PricedCorpus:
    names = tuple(str(name) for name in arrays["names"])
    by_id = {item.row_id: item for item in measurements}
    native, fp32, wire = (_jobs_of(arrays, names, view) for view in ("native", "fp32", "wire"))
    pairs = zip(arrays["rejected.reasons"].tolist(), arrays["rejected.counts"].tolist(), strict=True)
    return PricedCorpus(
        table=MeasuredTable(
            jobs=native,
            measurements=tuple(by_id[row] for row in arrays["rows"].tolist()),
            measured_s=arrays["measured_s"],
            sync_s=arrays["sync_s"],
            rejected=Counter({str(reason): int(count) for reason, count in pairs if count}),
        ),
        fp32=fp32,
        fp32_wire=wire,
        shape_ratio=arrays["shape_ratio"],
    )


def _job_arrays(jobs: JobTable, view: str) -> Arrays:
    """A table, and what is smaller of its jobs, as arrays for one file."""
    found = {f"{view}.{name}": getattr(jobs, name) for name in JOB_ARRAYS}
    if jobs.smaller is None or jobs.halves is None:
        return found
    return found | {f"{view}.halves": jobs.halves} | _job_arrays(jobs.smaller, f"{view}.smaller")


def _jobs_of(arrays: Arrays, names: tuple[str, ...], view: str) -> JobTable:
    """The table that `_job_arrays` wrote."""
    columns: dict[str, Any] = {name: arrays[f"{view}.{name}"] for name in JOB_ARRAYS}
    jobs = JobTable(names=names, **columns)
    halves = arrays.get(f"{view}.halves")
    if halves is None:
        return jobs
    return replace(jobs, halves=halves, smaller=_jobs_of(arrays, names, f"{view}.smaller"))


def priced_twice(
    measurements: Sequence[Measurement], *, blind: Sequence[bool] | None = None, over: Executor = map
) -> FeatureTable:
    """Measurements priced at their own precision and as fp32; those that cannot be priced are left out.

    Args:
        measurements: Runs.
        blind: Which of them blind predictors are asked of; for the others the view `fp32` is `native`. All
            when None.
        over: What prices the parts, each of the same models.
    """
    asked = [True] * len(measurements) if blind is None else blind
    ordered = sorted(zip(measurements, asked, strict=True), key=lambda pair: pair[0].model)
    parts = list(over(_priced_twice, in_chunks(ordered, _CHUNK)))
    tables, as_fp32 = zip(*((table, fp32) for table, fp32 in parts if len(table)), strict=True)
    native = JobTable.together([table.jobs for table in tables])
    measured = MeasuredTable(
        jobs=native,
        measurements=tuple(item for table in tables for item in table.measurements),
        measured_s=np.concatenate([table.measured_s for table in tables]),
        sync_s=np.concatenate([table.sync_s for table in tables]),
        rejected=sum((table.rejected for table, _ in parts), Counter()),
    )
    return FeatureTable(measured=measured, jobs=JobViews.of(native, JobTable.together(as_fp32)))


def _priced_twice(pairs: Sequence[tuple[Measurement, bool]]) -> tuple[MeasuredTable, JobTable]:
    table = measured_table([item for item, _ in pairs])
    asked = {id(item) for item, blind in pairs if blind}
    jobs, fp32 = [job_of(item) for item in table.measurements], get_policy("fp32")
    others = [
        replace(job, precision=fp32) if id(item) in asked else job
        for job, item in zip(jobs, table.measurements, strict=True)
    ]
    return table, _repriced(table.jobs, jobs, others, silent, "")


def feature_table(priced: PricedCorpus) -> FeatureTable:
    """The table of predictors that read nothing but priced jobs."""
    return FeatureTable(measured=priced.table, jobs=JobViews.of(priced.table.jobs, priced.fp32))


def full_feature_table(priced: PricedCorpus, *, progress: Progress = silent) -> FeatureTable:
    """The table of all predictors: with embeddings, cluster columns, ids and graphs."""
    progress("reading the jobs")
    jobs = [job_of(item) for item in priced.table.measurements]
    return table_of_jobs(priced.table, priced.fp32, jobs, progress=progress)


def table_of_jobs(
    measured: MeasuredTable, fp32: JobTable, jobs: Sequence[Job], *, progress: Progress = silent
) -> FeatureTable:
    """The table of all predictors, of measured runs whose jobs are known.

    Args:
        measured: Priced runs.
        fp32: The same priced as if all ran in fp32.
        jobs: Their jobs, in this order.
        progress: Called with a line on what is being done.
    """
    from precision_time_papers.predictddl.datasets import type_of_workload

    from ..predictddl.columns import cluster_columns
    from ..predictddl.embeddings import job_embeddings
    from ..predictddl.trainer import is_data_parallel

    measurements = measured.measurements
    graphs, architecture = _numbered_graphs(jobs)
    types = [type_of_workload(job.workload) for job in jobs]
    progress("embedding the architectures")
    embedding, cluster = (
        NamedColumns(names=names, values=values)
        for names, values in (job_embeddings(jobs), cluster_columns(jobs))
    )
    ids = {
        "job": job_numbers(measured_jobs(measurements), len(measurements)),
        "dataset": _numbers(types),
        "architecture": architecture,
        "setting": np.where(
            [is_data_parallel(job) for job in jobs],
            _numbers([_setting(item, kind) for item, kind in zip(measurements, types, strict=True)]),
            -1,
        ).astype(np.intp),
    }
    views = JobViews.of(measured.jobs, fp32, embedding=embedding, cluster=cluster, ids=ids)
    return FeatureTable(measured=measured, jobs=views, graphs=graphs)


def _setting(item: Measurement, dataset_type: str) -> str:
    """What the inputs of PredictDDL cannot tell apart, and what it trains a predictor for."""
    parts = (source_name(item), item.precision, item.precision_variant, item.stack.profile, dataset_type)
    return " | ".join(map(str, parts))


def _numbers(names: Sequence[str]) -> Ints:
    """Number of each name, shape (n,)."""
    return np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.intp)


def _numbered_graphs(jobs: Sequence[Job]) -> tuple[tuple[OpGraph, ...], Ints]:
    """Distinct graphs and the number of each job's; loading keeps one object per graph."""
    graphs = {id(job.workload.graph): job.workload.graph for job in jobs}
    numbers = {key: number for number, key in enumerate(graphs)}
    return tuple(graphs.values()), np.array([numbers[id(job.workload.graph)] for job in jobs], dtype=np.intp)


def _counter(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        progress(f"{what}, {done} of {total} rows")

    return count


def _fp32_wire(job: Job) -> Job:
    if job.cluster.num_devices == 1 or job.precision.reduce.num_bytes >= DType.FP32.num_bytes:
        return job
    return replace(job, precision=replace(job.precision, reduce=DType.FP32))


def _repriced(
    known: JobTable, jobs: Sequence[Job], others: Sequence[Job], progress: Progress, what: str
) -> JobTable:
    """`known` with the rows whose job has changed priced again."""
    changed = np.array(
        [index for index, (job, other) in enumerate(zip(jobs, others, strict=True)) if job != other],
        dtype=np.intp,
    )
    if not len(changed):
        return known
    new = job_table([others[index] for index in changed], _counter(progress, what, len(changed)))
    kept = np.setdiff1d(np.arange(len(jobs)), changed)
    return JobTable.together([known.take(kept), new]).take(np.argsort(np.concatenate([kept, changed])))


def _shape_ratio(jobs: Sequence[Job]) -> Floats:
    ratio = np.ones(len(jobs))
    for indices in groups_of(jobs):
        group = Jobs.alike([jobs[index] for index in indices])
        device = group.cluster.device
        step = lower(group.workload.graph, group.precision, device.arch)
        samples, rates, model = group.micro_batch_size[:, None], rates_of(device), kernel_model_of(group)
        with_shapes = kernel_seconds(step, samples, rates, model).sum(axis=1)
        ratio[indices] = kernel_seconds(_shapeless(step), samples, rates, model).sum(axis=1) / with_shapes
    return ratio


def _shapeless(step: LoweredStep) -> LoweredStep:
    """The same work in GEMMs so large and so square that no tile, wave or inner length is left over."""
    large = np.full_like(step.m, _LARGE)
    return replace(step, m=large, n=large, k=large * _LARGE, count=np.ones_like(step.m))
