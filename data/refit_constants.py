"""What the cost model's constants owe to the rows it is scored on: refit them without the held-out rows.

    python data/refit_constants.py [--rows ROWS] [--folds FOLDS] [--of-a-cell ROWS] [--trees]

The folds of the report keep rows from the trees, not from the constants of the formulas, which were fitted to
steps of the whole corpus. Here, for every fold by model and by source:

* kernels (factors.toml, some 300 numbers): `calibrate_kernels.py` on the training rows;
* spread of the devices (stragglers.toml): `calibrate_stragglers.py` on the series of the training rows;
* host time per kernel (kernels.toml): the factor of `calibrate_host.py` that deviates least on those rows;
* single numbers that were read off named sources (READ_OFF): zero where all of those are held out.

Collectives are fitted to timings of collectives, not to steps, and stay. So do assumed constants, the choice
of the terms themselves, and the settings of the learner.

Held-out rows are priced with both sets, in a fresh process each; with --trees they are predicted as well, by
trees fitted on training rows priced likewise. Errors are of a sample of whole families. Written to
docs/reference/constants.json, which docs/papers.md quotes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import calibrate_host
import calibrate_kernels as kernels
import calibrate_stragglers as stragglers
from calibrate_kernels import Kernels, Names, Rows
from precision_time import __version__
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import PROTOCOLS, source_name
from precision_time.corpus.store import corpus_fingerprint, load_corpus
from precision_time.cost.constants import constants
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable, measured_table
from precision_time.learn.metrics import errors_percent
from precision_time_papers.evaluation.metrics import mean_over_groups
from precision_time_papers.evaluation.report import sample_families
from precision_time_papers.precision_aware import fit_to

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

RESULT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "constants.json"
HELD_OUT_BY = ("model", "source")
ROWS, FOLDS, OF_A_CELL = 4_000, 3, 6
KINDS = ("shipped", "refitted")
POWER = 3.0
"""How host and kernels combine in the cost model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOff:
    """A number that was read off the rows of named sources; zero: the term would not exist without them."""

    file: str
    path: tuple[str, ...]
    sources: frozenset[str]


READ_OFF = (
    ReadOff(
        file="stacks",
        path=("stack", "pytorch-adaptive", "host_per_tensor_s"),
        sources=frozenset({"pollux", "sia"}),
    ),
    ReadOff(
        file="stacks",
        path=("stack", "deepspeed-megatron", "host_per_layer_s"),
        sources=frozenset({"vtrain"}),
    ),
    ReadOff(file="stacks", path=("stack", "megatron", "host_per_layer_s"), sources=frozenset({"vtrain"})),
    ReadOff(
        file="host", path=("single_process_share",), sources=frozenset({"pytorch-gpu-benchmark"})
    ),
)  # fmt: skip

Changes = dict[tuple[str, tuple[str, ...]], Any]
"""New values by file and place in it; an empty place replaces the file."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What constants are fitted to, collected once of all rows."""

    kernels: Kernels
    rows: Rows
    names: tuple[str, ...]
    """Of the constants of kernels."""
    row_ids: Indices
    """Of the rows of the fit of kernels."""
    hosts: Sequence[calibrate_host.Priced]
    series: Sequence[stragglers.Series]

    @classmethod
    def of(cls, measurements: Sequence[Measurement], of_a_cell: int) -> Evidence:
        """Price what has to be priced, at most so many rows of a cell."""
        kernels.MAX_ROWS = of_a_cell
        kernels.MAX_ROWS_SURVEY = min(kernels.MAX_ROWS_SURVEY, of_a_cell)
        pairs = kernels.chosen(measurements)
        found, rows, names = kernels.collected(pairs)
        alone = [row for row, job in pairs if row.num_devices == 1 and job.stack.host_per_layer_s == 0.0]
        return cls(
            kernels=found,
            rows=rows,
            names=tuple(names.index),
            row_ids=rows.row_ids,
            hosts=list(calibrate_host.priced(alone)),
            series=stragglers.series_of(measurements),
        )

    def refitted(self, training: Sequence[Measurement]) -> Changes:
        """Constants that have seen the training rows only."""
        inside = {row.row_id for row in training}
        sources = {source_name(row) for row in training}
        changes: Changes = {("factors", ()): self._factors(inside)}
        by_source: defaultdict[str, list[stragglers.Series]] = defaultdict(list)
        for one in self.series:
            if inside & set(one.row_ids):
                by_source[one.source].append(one)
        slopes = [stragglers.source_slope(series) for series in by_source.values()]
        changes["stragglers", ("device_spread",)] = stragglers.combined(slopes)
        for compiler in ("none", "graph"):
            rows = [
                each
                for each in self.hosts
                if each.job.stack.compiler == compiler and each.row.row_id in inside
            ]
            if len(rows) >= calibrate_host.LEAST_ROWS:
                deviations = {
                    factor: calibrate_host.deviation(rows, factor, POWER) for factor in calibrate_host.FACTORS
                }
                shipped = float(constants("kernels")["compilers"][compiler]["host"])
                best = min(deviations, key=lambda factor: deviations[factor])
                changes["kernels", ("compilers", compiler, "host")] = shipped * best
        for item in READ_OFF:
            if not item.sources & sources:
                changes[item.file, item.path] = 0.0
        return changes

    def _factors(self, inside: set[int]) -> dict[str, Any]:
        """What kernels reach of peaks and bandwidths, of the training rows alone."""
        kept = np.isin(self.row_ids, list(inside))
        fit = kernels.Fit(*self._part(kept))
        for _ in range(kernels.ROUNDS):
            fit.run(fit.scale())
        found = kernels.tables(fit)
        return {**found[""], **{name: table for name, table in found.items() if name}}

    def _part(self, kept: NDArray[np.bool_]) -> tuple[Kernels, Rows, Names]:
        """Some of the rows, with the constants that they touch."""
        here, place = kept[self.kernels.row], np.cumsum(kept) - 1
        groups = {name: of[here] for name, of in self.kernels.parameters.items()}
        stacks = {name: of[kept] for name, of in self.rows.parameters.items()}
        used = np.unique(np.concatenate([*groups.values(), *stacks.values()]))
        used = used[used >= 0]
        number = np.full(len(self.names) + 1, -1, dtype=np.intp)
        number[used] = np.arange(len(used))
        names = kernels.Names()
        for index in used:
            names.of(self.names[index])
        columns = ("compute_s", "memory_s", "transpose_s", "latency_s", "times")
        return (
            kernels.Kernels(
                row=place[self.kernels.row[here]],
                **{name: getattr(self.kernels, name)[here] for name in columns},
                parameters={name: number[of] for name, of in groups.items()},
            ),
            kernels.Rows(
                **{
                    name: getattr(self.rows, name)[kept]
                    for name in ("measured_s", "busy_s", "host_s", "rest_s", "weight", "sources", "row_ids")
                },
                parameters={name: number[of] for name, of in stacks.items()},
            ),
            names,
        )


def priced_with(task: tuple[Changes, Sequence[int]]) -> MeasuredTable:
    """The rows of these numbers, priced with changed constants: to be called in a process of its own."""
    changes, wanted = task
    change_constants(changes)
    chosen = set(wanted)
    return measured_table([row for row in load_corpus() if row.row_id in chosen])


def change_constants(changes: Changes) -> None:
    """Give the formulas of this process other constants, before anything is priced."""
    for (file, path), value in changes.items():
        table: Any = constants(file)
        if not path:
            table.clear()
            table.update(value)
            continue
        for name in path[:-1]:
            table = table[name]
        table[path[-1]] = value


def priced(changes: Changes, rows: Sequence[Measurement]) -> MeasuredTable:
    """`priced_with` in a fresh process: what was priced before would be kept otherwise."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(priced_with, (changes, [row.row_id for row in rows])).result()


def scores(errors: Floats, sources: Sequence[str]) -> dict[str, float]:
    """Number, mean, median and mean over sources of errors [%]; NaN: not held out."""
    known = errors[~np.isnan(errors)]
    return {
        "n": int(len(known)),
        "mean_percent": float(known.mean()),
        "median_percent": float(np.median(known)),
        "sources_percent": mean_over_groups(errors, sources),
    }


def predicted_s(table: MeasuredTable, train: Indices, test: Indices) -> Floats:
    """The whole predictor's answers for the test rows, fitted on the training rows."""
    fitted = fit_to(table, table.jobs, train, trees=DEFAULT_SETTINGS, seed=0)
    return fitted.times(table.jobs.take(test)).step_time_s


def held_out_by(
    protocol: str,
    rows: Sequence[Measurement],
    evidence: Evidence,
    shipped: MeasuredTable,
    folds: int,
    *,
    trees: bool,
) -> dict[str, Any]:
    """Errors with shipped and with refitted constants over the folds of a protocol.

    Args:
        protocol: What is held out.
        rows: All rows: what is held out of the constants.
        evidence: What constants are fitted to.
        shipped: The sample, priced with shipped constants.
        folds: How many.
        trees: Whether the whole predictor is fitted as well; every fold then prices the whole sample.
    """
    names = [f"{what}, {kind}" for what in ("formulas", "ours")[: 1 + trees] for kind in KINDS]
    errors = {name: np.full(len(shipped), np.nan) for name in names}
    twins = shipped.jobs.twins()
    place = {item.row_id: index for index, item in enumerate(shipped.measurements)}
    changed: list[dict[str, Any]] = []
    for number, fold in enumerate(PROTOCOLS[protocol].split(rows, 0, folds)):
        _tell(f"{protocol}, fold {number + 1}: refitting")
        changes = evidence.refitted([rows[index] for index in fold.train])
        _tell(f"{protocol}, fold {number + 1}: pricing")
        test = np.array([place[rows[i].row_id] for i in fold.test if rows[i].row_id in place], dtype=np.intp)
        train = np.flatnonzero(~np.isin(twins, twins[test]))
        wanted = shipped if trees else shipped.take(test)
        other = priced(changes, wanted.measurements)
        by_id = {item.row_id: index for index, item in enumerate(other.measurements)}
        other = other.take(np.array([by_id[item.row_id] for item in wanted.measurements], dtype=np.intp))
        for table, kind in ((shipped, KINDS[0]), (other, KINDS[1])):
            own = test if trees or kind == KINDS[0] else np.arange(len(test))
            measured_s = shipped.measured_s[test]
            errors[f"formulas, {kind}"][test] = errors_percent(measured_s, table.jobs.analytical_s[own])
            if trees:
                errors[f"ours, {kind}"][test] = errors_percent(measured_s, predicted_s(table, train, test))
        changed.append(
            {
                "held_out_rows": len(fold.test),
                "held_out_sources": sorted({source_name(rows[i]) for i in fold.test})
                if protocol == "source"
                else [],
                "changes": {
                    ".".join((file, *path)): value for (file, path), value in changes.items() if path
                },
            }
        )
        _tell(
            f"{protocol}, fold {number + 1}: "
            + str({k: scores(v, _sources(shipped)) for k, v in errors.items()})
        )
    return {
        "folds": changed,
        "errors": {name: scores(values, _sources(shipped)) for name, values in errors.items()},
    }


def refitted_on_all(
    rows: Sequence[Measurement], evidence: Evidence, shipped: MeasuredTable
) -> dict[str, float]:
    """Errors of the formulas with constants refitted in the same way, nothing held out.

    What differs from the shipped ones is the way alone: fewer rows of a cell, numbers picked by a rule.
    """
    other = priced(evidence.refitted(rows), shipped.measurements)
    by_id = {item.row_id: index for index, item in enumerate(other.measurements)}
    order = np.array([by_id[item.row_id] for item in shipped.measurements], dtype=np.intp)
    return scores(errors_percent(shipped.measured_s, other.jobs.analytical_s[order]), _sources(shipped))


def _sources(table: MeasuredTable) -> list[str]:
    return [source_name(item) for item in table.measurements]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Refit, price, score, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="runs that are priced and predicted")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument(
        "--of-a-cell", type=int, default=OF_A_CELL, help="most rows of a cell in the fit of kernels"
    )
    parser.add_argument("--trees", action="store_true", help="fit and score the whole predictor, too")
    options = parser.parse_args()
    rows = [row for row in load_corpus() if row.usable]
    _tell("collecting what constants are fitted to")
    evidence = Evidence.of(rows, options.of_a_cell)
    _tell("pricing with shipped constants")
    shipped = priced({}, sample_families(rows, options.rows))
    sizes = f"--rows {options.rows} --folds {options.folds} --of-a-cell {options.of_a_cell}"
    result: dict[str, Any] = {
        "command": f"python data/refit_constants.py {sizes}{' --trees' * options.trees}",
        "version": __version__,
        "corpus": corpus_fingerprint(rows),
        "rows": len(shipped),
        "sources": len(set(_sources(shipped))),
        "fitted_on": {
            "kernels": len(evidence.row_ids),
            "host": len(evidence.hosts),
            "stragglers": len(evidence.series),
        },
        "held_out_by": {},
    }
    _tell("refitting on all rows")
    result["refitted_on_all"] = refitted_on_all(rows, evidence, shipped)
    for name in HELD_OUT_BY:
        found = held_out_by(name, rows, evidence, shipped, options.folds, trees=options.trees)
        result["held_out_by"][name] = found
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
