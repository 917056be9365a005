"""What the host costs a step: time to start kernels, and time of a core per sample that is fed.

    python data/calibrate_host.py [--sample ROWS]

Launches: rows of one device whose host time is launches alone. A step is the longer of host and kernels,
softened by a power p, and the optimizer. For each factor on the shipped `host` (kernels.toml) and each p, the
mean absolute deviation of log(measured / formula) from the median of the row's source, architecture and
precision: host time that is too short shows as steps that do not get shorter where the formula says so. For
`none` 1.00 should be the least at every p; p = 2 is a little below 3, and takes 12 % where one side is half
of the other, which no queue of kernels explains.

Feed: rows with real input whose samples have a kind (input.toml). `least` is the smallest time of a core per
sample over the rows of a stack, at the cores that the formulas take: no feed needs more. `flat` is the median
over configurations that several precisions or devices ran within 10 % while the formulas of the devices
differ by more than 40 %: what such rows take is the feed (or the launches, where `host` says so).

Nothing is random but `--sample`, which is seeded. Nothing is written: figures go into the data files by hand.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.compute import compute_costs
from precision_time.cost.input import feed_of, sample_kind
from precision_time.cost.job import Job, Jobs, group_key
from precision_time.cost.roofline import kernel_model_of
from precision_time.cost.step import price
from precision_time.errors import PrecisionTimeError
from precision_time.precision.lowering import lower

FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5)
POWERS = (2.0, 3.0, 4.0, 6.0, 100.0)
"""The last one is the plain maximum."""
_FLAT, _APART = 1.1, 1.4
LEAST_ROWS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """One measured step and the parts of its formula [s]."""

    row: Measurement
    job: Job
    busy_s: float
    """Kernels and exposed communication."""
    host_s: float
    rest_s: float
    """Update, overflow check, stragglers."""


def priced(rows: Sequence[Measurement]) -> Iterator[Priced]:
    """The rows that can be priced, without a feed."""
    kept: list[tuple[Measurement, Job]] = []
    for row in rows:
        try:
            kept.append((row, job_of(row)))
        except PrecisionTimeError:
            continue
    groups: defaultdict[Hashable, list[tuple[Measurement, Job]]] = defaultdict(list)
    for row, job in kept:
        unfed = replace(job, stack=replace(job.stack, loader=""))
        groups[group_key(unfed)].append((row, job))
    for members in groups.values():
        first = [replace(job, stack=replace(job.stack, loader="")) for _, job in members]
        group = Jobs.alike(first)
        step = lower(group.workload.graph, group.precision, group.cluster.device.arch)
        compute = compute_costs(step, group, kernel_model_of(group))
        costs = price(group)
        host_s = np.broadcast_to(compute.host_s, (len(group),)) * group.layout.num_microbatches
        rest = ("optimizer_s", "unscale_s", "host_sync_s", "trainer_s", "offload_s", "straggler_s")
        rest_s = np.sum([costs.terms[name] for name in rest], axis=0)
        busy_s = costs.step_time_s - rest_s - costs.terms["host_stall_s"]
        for index, (row, job) in enumerate(members):
            yield Priced(
                row=row, job=job, busy_s=busy_s[index], host_s=float(host_s[index]), rest_s=rest_s[index]
            )


def launches(found: Sequence[Priced]) -> None:
    """The table of factors and powers, by compiler."""
    alone = [each for each in found if each.row.num_devices == 1 and each.job.stack.host_per_layer_s == 0.0]
    for compiler in sorted({each.job.stack.compiler for each in alone}):
        rows = [each for each in alone if each.job.stack.compiler == compiler]
        if len(rows) < LEAST_ROWS:
            continue
        print(f"\n{compiler}: {len(rows)} rows; factor on `host` across, power down")
        print("       " + "".join(f"{factor:8.2f}" for factor in FACTORS))
        for power in POWERS:
            print(f"{power:7g}" + "".join(f"{deviation(rows, factor, power):8.4f}" for factor in FACTORS))


def deviation(rows: Sequence[Priced], factor: float, power: float) -> float:
    """Mean absolute deviation of log(measured / formula) from the median of each context."""
    logs: defaultdict[Hashable, list[float]] = defaultdict(list)
    for each in rows:
        host, busy = each.host_s * factor, each.busy_s
        top = max(host, busy)
        step_s = top * ((host / top) ** power + (busy / top) ** power) ** (1.0 / power) + each.rest_s
        key = (each.row.source, each.job.cluster.device.arch, each.row.precision)
        logs[key].append(float(np.log(each.row.step_time_s / step_s)))
    return float(np.mean(np.concatenate([np.abs(np.array(v) - np.median(v)) for v in logs.values()])))


def feeds(found: Sequence[Priced]) -> None:
    """Milliseconds of a core per sample that rows with real input allow, by kind, loader and stack."""
    table: defaultdict[tuple[str, str, str], list[Priced]] = defaultdict(list)
    for each in found:
        kind = sample_kind(each.job.workload)
        if kind and each.job.stack.real_input:
            table[kind, each.job.stack.loader, each.job.stack.profile].append(each)
    print("\nfeed [ms of a core per sample]")
    print(f"{'kind':10} {'loader':8} {'stack':18} {'rows':>5} {'least':>7} {'flat':>7} {'host':>5}  shipped")
    for (kind, loader, profile), rows in sorted(table.items()):
        values = [_core_ms(each) for each in rows]
        flat = list(_flat(rows))
        shipped = feed_of(rows[0].job.workload, rows[0].job.cluster, rows[0].job.stack).core_s * 1e3
        middle = f"{np.median([_core_ms(each) for each in flat]):7.2f}" if flat else "      -"
        host = f"{np.mean([each.host_s > each.busy_s for each in flat]):5.0%}" if flat else "    -"
        print(
            f"{kind:10} {loader:8} {profile:18} {len(rows):5} {min(values):7.2f} {middle} {host}  {shipped:g}"
        )


def _core_ms(each: Priced) -> float:
    feed = feed_of(each.job.workload, each.job.cluster, each.job.stack)
    return each.row.step_time_s * feed.cores / each.job.layout.global_batch_size * 1e3


def _flat(rows: Sequence[Priced]) -> Iterator[Priced]:
    """Rows of a source, model and device count that take the same time per sample under unlike devices."""
    groups: defaultdict[Hashable, list[Priced]] = defaultdict(list)
    for each in rows:
        groups[each.row.source, each.row.model, each.row.num_devices].append(each)
    for members in groups.values():
        if len(members) < 2:  # noqa: PLR2004
            continue
        batches = np.array([each.job.layout.global_batch_size for each in members])
        measured = np.array([each.row.step_time_s for each in members]) / batches
        formula = np.array([each.busy_s for each in members]) / batches
        if measured.max() < _FLAT * measured.min() and formula.max() > _APART * formula.min():
            yield from members


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, help="rows per source, at random")
    sample = parser.parse_args().sample
    sources: defaultdict[str, list[Measurement]] = defaultdict(list)
    for row in load_corpus():
        if row.usable and row.weight > 0.0:
            sources[row.source].append(row)
    rng = np.random.default_rng(0)
    rows = [
        members[index]
        for members in sources.values()
        for index in sorted(rng.permutation(len(members))[: sample or len(members)])
    ]
    found = list(priced(rows))
    print(f"{len(found)} rows")
    launches(found)
    feeds(found)


if __name__ == "__main__":
    main()
