"""Jobs of public traces, with the steps that were measured of what they run."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from precision_time.arrays import Floats, Ints
from precision_time.corpus.measurement import Measurement
from precision_time.io import packaged_toml

from .simulation import Arrivals

_TABLE: Mapping[str, Any] = packaged_toml(__package__, "data/traces.toml")
CASES: Mapping[str, Mapping[str, Any]] = _TABLE["case"]
"""Clusters with the traces replayed on them."""
HELD_OUT = ("pollux", "sia", "gavel", "shockwave", "lucid", "synergy")
"""Sources that no replayed prediction has seen: of the traces, and others with the same scripts."""
_MODELS: Mapping[str, str] = _TABLE["model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Jobs of one trace on one cluster whose steps were measured; of n jobs on p pools."""

    case: str
    number: int
    arrivals: Arrivals
    rows: Ints
    """The measured run of each job on each pool, -1 where there is none, shape (n, p)."""
    steps: Floats
    """At the batch of that run, shape (n, p)."""
    left_out: int
    """Jobs of the trace without a measured run on any pool."""

    def durations(self, step_time_s: Floats) -> Floats:
        """Durations for step times of the measured runs, shape (n, p); infinite where there is none."""
        return np.where(self.rows < 0, np.inf, self.steps * step_time_s[self.rows])


def trace_rows() -> list[dict[str, str]]:
    """The jobs of all traces (packages/papers/studies/queue_traces.py)."""
    text = files(__package__).joinpath("data/traces.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def workloads_of(case: str, measurements: Sequence[Measurement], measured_s: Floats) -> list[Workload]:
    """The workloads of a case.

    Args:
        case: A name of CASES.
        measurements: Measured runs.
        measured_s: Their step times, shape (rows,).
    """
    facts = CASES[case]
    table = _by_setting(measurements)
    jobs: dict[int, list[dict[str, str]]] = defaultdict(list)
    for row in trace_rows():
        if row["trace"] == facts["trace"]:
            jobs[int(row["workload"])].append(row)
    return [_workload(case, number, some, table, measurements, measured_s) for number, some in jobs.items()]


def _workload(
    case: str,
    number: int,
    jobs: Sequence[Mapping[str, str]],
    table: Mapping[tuple[Any, ...], Sequence[int]],
    measurements: Sequence[Measurement],
    measured_s: Floats,
) -> Workload:
    facts, found = CASES[case], []
    known: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    for job in jobs:
        gpus = min(int(job["gpus"]), facts.get("most_gpus", int(job["gpus"])))
        key = (gpus, job["application"], job["global_batch"], job["steps"])
        if key not in known:
            pools = facts["pools"]
            known[key] = [_row(job, gpus, pool, table, measurements, measured_s) for pool in pools]
        chosen = known[key]
        if any(row >= 0 for row, _ in chosen):
            found.append((float(job["arrival_s"]), gpus, chosen))
    rows = np.array([[row for row, _ in chosen] for *_, chosen in found], dtype=np.intp)
    steps = np.array([[count for _, count in chosen] for *_, chosen in found])
    true_s = np.where(rows < 0, np.inf, steps * measured_s[rows])
    return Workload(
        case=case,
        number=number,
        arrivals=Arrivals(
            arrival_s=np.array([arrival for arrival, *_ in found]),
            gpus=np.array([gpus for _, gpus, _ in found], dtype=np.intp),
            true_s=true_s,
            capacity=np.array([pool["nodes"] * pool["devices_per_node"] for pool in facts["pools"]]),
        ),
        rows=rows,
        steps=steps,
        left_out=len(jobs) - len(found),
    )


def _by_setting(measurements: Sequence[Measurement]) -> dict[tuple[Any, ...], list[int]]:
    """Rows by source, model, device, devices and hosts."""
    table: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, item in enumerate(measurements):
        if item.layout is not None and item.global_batch_size:
            table[item.source, item.model, item.device, item.num_devices, item.num_nodes].append(place)
    return table


def _row(
    job: Mapping[str, str],
    gpus: int,
    pool: Mapping[str, Any],
    table: Mapping[tuple[Any, ...], Sequence[int]],
    measurements: Sequence[Measurement],
    measured_s: Floats,
) -> tuple[int, float]:
    """The measured run of a job on a pool on as few hosts as it can, and its steps there; -1 for none.

    The batch per GPU is the nearest that was measured, and the steps such that the run sees as many samples.
    Of several runs it is the one with the median time.
    """
    model = _MODELS.get(job["application"])
    hosts = -(-gpus // pool["devices_per_node"])
    rows = table.get((pool["source"], model, pool["device"], gpus, hosts), ())
    whole = float(job["global_batch"])
    if not rows or gpus > pool["nodes"] * pool["devices_per_node"]:
        return -1, np.nan
    off = np.array([abs(np.log((measurements[row].global_batch_size or 1.0) / whole)) for row in rows])
    nearest = [row for row, each in zip(rows, off, strict=True) if each <= off.min() + 1e-9]
    row = sorted(nearest, key=lambda place: (measured_s[place], place))[len(nearest) // 2]
    return row, float(job["steps"]) * whole / (measurements[row].global_batch_size or 1.0)
