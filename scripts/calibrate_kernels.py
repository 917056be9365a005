"""Fit the utilizations of the roofline (`cost/data/kernels.toml`) to the measured steps of the corpus.

    python scripts/calibrate_kernels.py [--sample ROWS] [--write]

A step without communication is its kernels, the optimizer and the host: measured = sum of x_c * seconds_c,
where seconds_c are those of the shipped roofline per operator class c. The x_c are found by non-negative
least squares of the relative error (Lawson and Hanson, 1974). x = 1: the class is right as it stands;
x = 2: the roofline makes it twice too fast; x = 0: other classes explain its rows.

Rows: one device, or a measured wait for communication (which is taken off); no compiler, no checkpointing,
no model parallelism, the host no more than half of the step. Each row weighs `Measurement.weight` over the
root of the number of rows of its source and model. Nothing is random but `--sample`, which is seeded.

`--write` divides the utilizations by x, held to [1/3, 3] and to the caps below; a class without a
coefficient (x = 0, or hardly any rows) stays. Of a product class only the compute rate is scaled.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from precision_time.corpus.jobs import UnsupportedRow, job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.cost.compute import compute_costs
from precision_time.cost.job import Job, JobGroup, group_key, group_of_jobs
from precision_time.cost.roofline import load_kernel_model
from precision_time.cost.step import price
from precision_time.errors import PrecisionTimeError
from precision_time.parallel.layout import Checkpointing
from precision_time.precision.lowering import DTYPES, OP_CLASSES, lower
from precision_time.precision.policy import DType
from precision_time.workload.graph import PRODUCT_CLASSES

Floats = NDArray[np.float64]

DATA = Path(__file__).resolve().parents[1] / "src" / "precision_time" / "cost" / "data" / "kernels.toml"
MATRIX, WIDE = "matrix", "wide"
"""Products in types of matrix units, and in fp32 and fp64: the two columns of [compute]."""
OPTIMIZER, HOST = "optimizer", "host"
BOUND = 3.0
CAPS = {MATRIX: 1.0, WIDE: 1.5, "memory": 1.0}
"""No class above its peak, but for fp32 convolutions (Winograd saves up to 2.25 times the products)."""
CACHED = {"rnn": 3.0}
"""Classes whose weights stay in the cache may pass the memory bandwidth."""
_MAX_HOST_SHARE = 0.5
_LEAST_ROWS = 30
_LEAST_SHARE = 0.02
"""A row speaks for a class that takes at least this share of its step."""
_WIDE = np.array([dtype in (DType.FP32, DType.FP64) for dtype in DTYPES])


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """What the fit sees of R rows."""

    columns: tuple[str, ...]
    seconds: Floats
    """Of the shipped roofline, shape (R, columns)."""
    measured_s: Floats
    """Compute seconds, shape (R,)."""
    analytical_s: Floats
    """Compute part of the analytical step, the host only where kernels do not hide it."""
    weights: Floats
    sources: NDArray[np.str_]


def eligible(row: Measurement) -> bool:
    """Whether the compute seconds of a row are known and plain."""
    layout = row.layout
    return (
        row.usable
        and layout is not None
        and (row.num_devices == 1 or row.sync_time_s is not None)
        and layout.checkpointing is Checkpointing.NONE
        and layout.tp * layout.pp * layout.cp == 1
        and row.stack.compiler == "none"
    )


def priced(rows: Sequence[Measurement]) -> tuple[list[Measurement], list[Job]]:
    """The rows that can be priced, and their jobs."""
    kept: list[Measurement] = []
    jobs: list[Job] = []
    for row in rows:
        try:
            jobs.append(job_of(row))
        except (UnsupportedRow, PrecisionTimeError):
            continue
        kept.append(row)
    return kept, jobs


def class_seconds(group: JobGroup) -> dict[str, Floats]:
    """Seconds of one optimizer step by column, shape (C,) each."""
    step = lower(group.workload.graph, group.precision)
    costs = compute_costs(step, group, load_kernel_model())
    repeats = group.layout.num_micro_batches
    wide = _WIDE[step.dtype]
    found: dict[str, Floats] = {}
    for index, op_class in enumerate(OP_CLASSES):
        here = step.op_class == index
        parts = {f".{MATRIX}": here & ~wide, f".{WIDE}": here & wide}
        for ending, mask in (parts if op_class in PRODUCT_CLASSES else {"": here}).items():
            found[op_class.value + ending] = costs.kernels_s[:, mask].sum(axis=1) * repeats
    terms = price(group).terms
    found[OPTIMIZER] = terms["optimizer_s"] + terms["unscale_s"] + terms["host_sync_s"]
    found[HOST] = costs.facts["host_s"] * repeats + terms["trainer_s"]
    return found


def design(rows: Sequence[Measurement], jobs: Sequence[Job]) -> Design:
    """The table of the fit; rows that the host rules are left out."""
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        groups[group_key(job)].append(index)
    blocks, analytical, order = [], [], []
    columns: tuple[str, ...] = ()
    for indices in groups.values():
        group = group_of_jobs([jobs[index] for index in indices])
        found = class_seconds(group)
        columns = tuple(found)
        blocks.append(np.stack([*found.values()], axis=1))
        analytical.append(price(group).compute_s)
        order.extend(indices)
    back = np.argsort(order)
    seconds, compute_s = np.concatenate(blocks)[back], np.concatenate(analytical)[back]
    measured = np.array([row.step_time_s - (row.sync_time_s or 0.0) for row in rows])
    keep = (measured > 0.0) & (seconds[:, columns.index(HOST)] < _MAX_HOST_SHARE * measured)
    votes = Counter((row.source, row.model) for row in rows)
    weights = np.array([row.weight / np.sqrt(votes[row.source, row.model]) for row in rows])
    return Design(
        columns=columns,
        seconds=seconds[keep],
        measured_s=measured[keep],
        analytical_s=compute_s[keep],
        weights=weights[keep],
        sources=np.array([row.source for row in rows])[keep],
    )


def fit(table: Design) -> Floats:
    """Coefficient of each column by weighted non-negative least squares of the relative error."""
    relative = table.seconds / table.measured_s[:, None] * table.weights[:, None]
    coefficients: Floats = nnls(relative, table.weights)[0]
    return coefficients


def errors(ratio: Floats) -> str:
    """Mean |ratio - 1| and the spread of log(ratio), of predicted over measured."""
    return f"{100 * np.abs(ratio - 1.0).mean():14.1f} {np.log(np.maximum(ratio, 1e-9)).std():14.2f}"


def report(table: Design, coefficients: Floats) -> None:
    """Coefficients, then errors before and after, over all rows and by source."""
    print(f"{'class':24s} {'x':>6s} {'rows':>6s} {'share of step':>14s}")
    shares = table.seconds / table.measured_s[:, None]
    for index, name in enumerate(table.columns):
        rows = int((shares[:, index] >= _LEAST_SHARE).sum())
        if rows:
            print(f"{name:24s} {coefficients[index]:6.2f} {rows:6d} {shares[:, index].mean():14.3f}")
    before = table.analytical_s / table.measured_s
    after = table.seconds @ coefficients / table.measured_s
    titles = ("before: mean %", "sd log", "after: mean %", "sd log")
    print(f"\n{'source':24s} {'rows':>6s} " + " ".join(f"{title:>14s}" for title in titles))
    for source in ("all", *sorted(set(table.sources))):
        chosen = (table.sources == source) | (source == "all")
        print(f"{source:24s} {chosen.sum():6d} {errors(before[chosen])} {errors(after[chosen])}")


def scaled(table: Design, coefficients: Floats, data: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """New text of each utilization that changes: "compute.gemm" -> "[1.00, 0.95]"."""
    speaking = (table.seconds / table.measured_s[:, None] >= _LEAST_SHARE).sum(axis=0)
    factor = {
        name: float(np.clip(1.0 / x, 1.0 / BOUND, BOUND))
        for name, x, rows in zip(table.columns, coefficients, speaking, strict=True)
        if x > 0.0 and rows >= _LEAST_ROWS
    }
    changed: dict[str, str] = {}
    for name, pair in data["compute"].items():
        assert isinstance(pair, list)
        new = [
            min(value * factor.get(f"{name}.{kind}", 1.0), max(CAPS[kind], value))
            for kind, value in zip((MATRIX, WIDE), pair, strict=True)
        ]
        changed[f"compute.{name}"] = f"[{new[0]:.2f}, {new[1]:.2f}]"
    for name, value in data["memory"].items():
        assert isinstance(value, float)
        if name in factor:
            changed[f"memory.{name}"] = f"{min(value * factor[name], CACHED.get(name, CAPS['memory'])):.2f}"
    return changed


def rewritten(text: str, changed: Mapping[str, str]) -> str:
    """The TOML text with the changed values in their lines; everything else stays as it is."""
    section, lines = "", []
    for line in text.splitlines():
        if found := re.fullmatch(r"\[(\w+)\]", line.strip()):
            section = found[1]
        name, _, value = line.partition(" = ")
        new = changed.get(f"{section}.{name}") if value else None
        lines.append(line if new is None else f"{name} = {new}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Price the rows, fit, report, write if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, help="fit on this many rows drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of --sample")
    parser.add_argument("--write", action="store_true", help="scale the utilizations in kernels.toml")
    arguments = parser.parse_args()
    rows = [row for row in load_corpus() if eligible(row)]
    if arguments.sample is not None and arguments.sample < len(rows):
        drawn = np.random.default_rng(arguments.seed).choice(len(rows), arguments.sample, replace=False)
        rows = [rows[index] for index in sorted(drawn)]
    table = design(*priced(rows))
    coefficients = fit(table)
    report(table, coefficients)
    if arguments.write:
        text = DATA.read_text(encoding="utf-8")
        changed = scaled(table, coefficients, tomllib.loads(text))
        DATA.write_text(rewritten(text, changed), encoding="utf-8")
        print(f"\nWrote {DATA.name}: {', '.join(f'{name} = {value}' for name, value in changed.items())}")


if __name__ == "__main__":
    main()
