"""The corpus as the report needs it: priced as it is, and priced as predictors without a fact would price it.

Pricing the corpus takes minutes, so the result is kept in the user's cache folder: arrays only, keyed by the
corpus and by the code and data of the whole package.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...corpus.jobs import job_of
from ...corpus.measurement import Measurement
from ...corpus.store import corpus_fingerprint
from ...cost.group import group_key, group_of_jobs
from ...cost.job import Job
from ...cost.roofline import kernel_model_of, kernel_seconds, rates_of
from ...io import package_hash
from ...learn.table import JobTable, MeasuredTable, job_table, measured_table
from ...precision.catalog import get_policy
from ...precision.lowered import LoweredStep
from ...precision.lowering import lower
from ...precision.policy import DType

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Tell = Callable[[str], None]

_LARGE = 1e6
"""Tiles and inner length of products that no shape slows down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedCorpus:
    """Measured runs with four ways to price them, row by row."""

    table: MeasuredTable
    fp32: JobTable
    """The same jobs as if all of them ran in fp32: nothing in it tells their precision."""
    fp32_wire: JobTable
    """Narrow gradients sent as fp32; all else as it is."""
    shape_ratio: Floats
    """Kernel seconds without tiles, waves and inner lengths over those with them, shape (n,)."""

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: Ints) -> PricedCorpus:
        """Some of the rows."""
        return PricedCorpus(
            table=take(self.table, rows),
            fp32=self.fp32.take(rows),
            fp32_wire=self.fp32_wire.take(rows),
            shape_ratio=self.shape_ratio[rows],
        )


def take(table: MeasuredTable, rows: Ints) -> MeasuredTable:
    """Some of the rows of a table."""
    return replace(
        table,
        jobs=table.jobs.take(rows),
        measurements=tuple(table.measurements[row] for row in rows),
        measured_s=table.measured_s[rows],
        sync_s=table.sync_s[rows],
    )


def priced_corpus(
    measurements: Sequence[Measurement], *, tell: Tell = lambda _: None, folder: Path | None = None
) -> PricedCorpus:
    """Price the measurements in every way, or read the cache.

    Args:
        measurements: Runs; those that cannot be priced are counted in `table.rejected`.
        tell: Called with a word on what is being done.
        folder: Where priced tables are kept; None keeps none.
    """
    path = None
    if folder is not None:
        path = folder / f"priced-{_key(measurements)}.npz"
        found = _read(path, measurements)
        if found is not None:
            return found
    priced = _price(measurements, tell)
    if path is not None:
        write_arrays(path, _arrays(priced))
        prune(path.parent, "priced-*.npz")
    return priced


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an `.npz` whole or not at all; a cache that cannot be written is done without."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)


def read_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of an `.npz`; None where there is none that can be read."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def prune(folder: Path, pattern: str, *, keep: int = 3) -> None:
    """Delete the oldest files or folders of files that match, all but `keep`: they are of older versions."""
    try:
        found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        for path in found[:-keep]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError:
        # Another report may be pruning the same folder; what is left goes the next time.
        return


def _key(measurements: Sequence[Measurement]) -> str:
    return f"{corpus_fingerprint(measurements)}-{package_hash()}"


def _price(measurements: Sequence[Measurement], tell: Tell) -> PricedCorpus:
    tell("pricing the corpus")
    table = measured_table(measurements, _counter(tell, "pricing the corpus", len(measurements)))
    jobs = [job_of(item) for item in table.measurements]
    fp32 = get_policy("fp32")
    what = "pricing the corpus as fp32"
    blind = _repriced(table.jobs, jobs, [replace(job, precision=fp32) for job in jobs], tell, what)
    what = "pricing the corpus with fp32 on the wire"
    wide = _repriced(table.jobs, jobs, [_wide_wire(job) for job in jobs], tell, what)
    tell("pricing the corpus without shapes")
    return PricedCorpus(table=table, fp32=blind, fp32_wire=wide, shape_ratio=_shape_ratio(jobs))


def _counter(tell: Tell, what: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        tell(f"{what}, {done} of {total} rows")

    return count


def _wide_wire(job: Job) -> Job:
    if job.cluster.num_devices == 1 or job.precision.reduce.num_bytes >= DType.FP32.num_bytes:
        return job
    return replace(job, precision=replace(job.precision, reduce=DType.FP32))


def _repriced(known: JobTable, jobs: Sequence[Job], others: Sequence[Job], tell: Tell, what: str) -> JobTable:
    """`known` with the rows whose job has changed priced again."""
    changed = np.array(
        [index for index, (job, other) in enumerate(zip(jobs, others, strict=True)) if job != other],
        dtype=np.intp,
    )
    if not len(changed):
        return known
    new = job_table([others[index] for index in changed], _counter(tell, what, len(changed)))
    columns = {}
    for name in ("features", "analytical_s", "compute_s", "exposed_s"):
        column = getattr(known, name).copy()
        column[changed] = getattr(new, name)
        columns[name] = column
    return JobTable(names=known.names, **columns)


def _shape_ratio(jobs: Sequence[Job]) -> Floats:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        groups[group_key(job)].append(index)
    ratio = np.ones(len(jobs))
    for indices in groups.values():
        group = group_of_jobs([jobs[index] for index in indices])
        device = group.cluster.device
        step = lower(group.workload.graph, group.precision, device.arch)
        samples, rates, model = group.micro_batch_size[:, None], rates_of([device]), kernel_model_of(group)
        with_shapes = kernel_seconds(step, samples, rates, model).sum(axis=1)
        ratio[indices] = kernel_seconds(_shapeless(step), samples, rates, model).sum(axis=1) / with_shapes
    return ratio


def _shapeless(step: LoweredStep) -> LoweredStep:
    """The same work in products so large and so square that no tile, wave or inner length is left over."""
    large = np.full_like(step.m, _LARGE)
    return replace(step, m=large, n=large, k=large * _LARGE, count=np.ones_like(step.m))


def _arrays(priced: PricedCorpus) -> dict[str, NDArray[Any]]:
    table = priced.table
    arrays: dict[str, NDArray[Any]] = {
        "names": np.array(table.jobs.names),
        "rows": np.array([item.row_id for item in table.measurements], dtype=np.int64),
        "measured_s": table.measured_s,
        "sync_s": table.sync_s,
        "shape_ratio": priced.shape_ratio,
        "rejected.reasons": np.array(list(table.rejected) or [""]),
        "rejected.counts": np.array(list(table.rejected.values()) or [0]),
    }
    for view, jobs in (("own", table.jobs), ("fp32", priced.fp32), ("wire", priced.fp32_wire)):
        for name in ("features", "analytical_s", "compute_s", "exposed_s"):
            arrays[f"{view}.{name}"] = getattr(jobs, name)
    return arrays


def _read(path: Path, measurements: Sequence[Measurement]) -> PricedCorpus | None:
    arrays = read_arrays(path)
    if arrays is None:
        return None
    names = tuple(str(name) for name in arrays["names"])
    by_id = {item.row_id: item for item in measurements}
    views = {
        view: JobTable(
            names=names,
            **{
                name: arrays[f"{view}.{name}"]
                for name in ("features", "analytical_s", "compute_s", "exposed_s")
            },
        )
        for view in ("own", "fp32", "wire")
    }
    pairs = zip(arrays["rejected.reasons"].tolist(), arrays["rejected.counts"].tolist(), strict=True)
    return PricedCorpus(
        table=MeasuredTable(
            jobs=views["own"],
            measurements=tuple(by_id[row] for row in arrays["rows"].tolist()),
            measured_s=arrays["measured_s"],
            sync_s=arrays["sync_s"],
            rejected=Counter({str(reason): int(count) for reason, count in pairs if count}),
        ),
        fp32=views["fp32"],
        fp32_wire=views["wire"],
        shape_ratio=arrays["shape_ratio"],
    )
