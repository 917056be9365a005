"""Fit the spreads of `cost/stragglers.py` to weak-scaling series of the corpus and write stragglers.toml.

    python data/calibrate_stragglers.py [--write]

A series is one configuration of one source on growing numbers of devices: the same model, precision, stack
and layout, the same work per device, only the data-parallel degree differs. Within a series the cost
model explains what communication adds; the rest that grows with the devices is put to stragglers:

    log(measured / modeled) = level of the series + spread * z(N) + error

with z the expected maximum of N normal variables, the modeled time without stragglers. Only rows count
whose exposed communication is modeled small. A source's slope is the median over all pairs of sizes of its
series. What the network model misses adds to a slope and hardly ever takes from it, so the spread is the
weighted lower quartile of the sources' slopes and of the published figure (PRIOR).
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.corpus.store import load_corpus
from precision_time.cost import stragglers
from precision_time.cost.job import Jobs
from precision_time.cost.step import price
from precision_time.cost.stragglers import expected_maximum
from precision_time.cost.terms import EXPOSED_TERMS
from precision_time.errors import PrecisionTimeError
from precision_time.parallel.layout import Layout

Floats = NDArray[np.float64]

DATA = Path(stragglers.__file__).parent / "data" / "stragglers.toml"
PRIOR = 0.09 / expected_maximum(65536)
"""PRISM (arXiv 2510.15596): about 9 % of variation of the step time at 64k GPUs."""
PRIOR_WEIGHT = 1.0
MOST_WEIGHT = 1.0
"""A source counts at most like one run on 8 and on 700 devices."""
MOST_EXPOSED = 0.05
"""Of the modeled step: beyond it errors of the network model would pass for stragglers."""
QUARTILE = 0.25
LEAST_STEP = 0.2
LEAST_DEVICES = 8
"""Smaller runs do not measure scaling, but the difference between one device and several."""
TASKS = frozenset({"lm-pretrain", "lm-finetune"})
"""Transformers: their steps are long beside latencies, and no input pipeline slows them."""
_OF_SCALE = frozenset({"dp", "dp_shard", "bucket_bytes"})
_LAYOUT = tuple(item.name for item in fields(Layout) if item.name not in _OF_SCALE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One configuration on several numbers of devices."""

    source: str
    name: str
    devices: Floats
    """Expected maximum of as many normal variables as the runs have devices."""
    log_ratio: Floats
    """Logarithm of measured over modeled seconds."""
    row_ids: tuple[int, ...]
    """Of its runs."""


def series_of(rows: Sequence[Measurement]) -> list[Series]:
    """Every series of at least two sizes that the model can price."""
    groups: dict[Hashable, dict[int, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.layout is not None and row.task in TASKS and row.num_devices >= LEAST_DEVICES:
            groups[_key(row, row.layout)][row.num_devices].append(row)
    found = (_series(by_size) for by_size in groups.values() if len(by_size) > 1)
    return [series for series in found if series is not None]


def _key(row: Measurement, layout: Layout) -> Hashable:
    return (
        row.source,
        row.model,
        tuple(sorted((name, str(value)) for name, value in row.sizes.items())),
        row.device,
        row.system.split(" x")[0] if row.num_nodes > 1 else row.system,
        row.precision,
        row.precision_variant,
        row.seq_len,
        row.scope,
        row.stack,
        tuple(getattr(layout, name) for name in _LAYOUT),
    )


def _series(by_size: Mapping[int, Sequence[Measurement]]) -> Series | None:
    devices, ratios = [], []
    for size, rows in sorted(by_size.items()):
        logs = [value for row in rows if (value := _log_ratio(row)) is not None]
        if logs:
            devices.append(expected_maximum(size))
            ratios.append(float(np.median(logs)))
    if len(ratios) < 2:
        return None
    first = next(iter(by_size.values()))[0]
    sizes = ",".join(map(str, sorted(by_size)))
    return Series(
        source=first.source,
        name=f"{first.model} {first.device} {first.precision} x{sizes}",
        devices=np.array(devices),
        log_ratio=np.array(ratios),
        row_ids=tuple(row.row_id for rows in by_size.values() for row in rows),
    )


def _log_ratio(row: Measurement) -> float | None:
    """Measured over modeled time of a row that communicates little enough; else None."""
    if row.measured_step_time_s is None or row.quality is not Quality.FINE:
        return None
    try:
        job = job_of(row)
        costs = price(Jobs.at(replace(job, stragglers=False)))
    except PrecisionTimeError:
        return None
    modeled_s = float(costs.step_time_s[0])
    exposed_s = sum(float(seconds[0]) for name, seconds in costs.terms.items() if name in EXPOSED_TERMS)
    if exposed_s > MOST_EXPOSED * modeled_s:
        return None
    return float(np.log(row.measured_step_time_s / modeled_s))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slope:
    """What the series of some sources say of one spread."""

    value: float
    weight: float
    """Sum of squares of z within the series, at most MOST_WEIGHT: how much the source has to say."""
    series: int


def source_slope(series: Sequence[Series]) -> Slope:
    """Weighted median of the slopes between any two sizes of the series of one source (Theil and Sen)."""
    slopes, weights, squares = [], [], 0.0
    for one in series:
        x, y = one.devices, one.log_ratio
        squares += float(((x - x.mean()) ** 2).sum())
        for i, j in combinations(range(len(x)), 2):
            if x[j] - x[i] > LEAST_STEP:
                slopes.append((y[j] - y[i]) / (x[j] - x[i]))
                weights.append((x[j] - x[i]) ** 2 / len(x))
    if not slopes:
        return Slope(value=0.0, weight=0.0, series=0)
    return Slope(value=_quantile(slopes, weights, 0.5), weight=min(squares, MOST_WEIGHT), series=len(series))


def combined(slopes: Sequence[Slope]) -> float:
    """Weighted lower quartile of the sources' slopes and of the published figure."""
    values, weights = [slope.value for slope in slopes], [slope.weight for slope in slopes]
    return max(_quantile([*values, PRIOR], [*weights, PRIOR_WEIGHT], QUARTILE), 0.0)


def _quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The first value, in rising order, at which that share of the weight is reached."""
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order])
    return float(values[order[int(np.searchsorted(reached, reached[-1] * share))]])


def write(slopes: Mapping[str, Slope]) -> None:
    """Write stragglers.toml."""
    lines = [
        "# Written by data/calibrate_stragglers.py; do not edit.",
        "# Spread of the devices' step times, relative to the step: slope of log(measured / modeled) over",
        "# the expected maximum of as many normal variables, in weak-scaling series of transformers in the",
        f"# corpus whose exposed communication is modeled below {MOST_EXPOSED:.0%} of the step; weighted",
        "# lower quartile of the sources and the published figure: PRISM, arXiv 2510.15596, 9 % at 64k GPUs.",
        f"device_spread = {combined(list(slopes.values())):.4f}",
        "",
        "# Slope of every source, its weight, its series, and the spread fitted without it.",
        "[prior]",
        f"device_spread = {PRIOR:.4f}",
        f"weight = {PRIOR_WEIGHT:g}",
    ]
    for source, slope in slopes.items():
        rest = combined([other for name, other in slopes.items() if name != source])
        lines += [
            "[[fit]]",
            f'source = "{source}"',
            f"slope = {slope.value:.4f}",
            f"weight = {slope.weight:.2f}",
            f"series = {slope.series}",
            f"without = {rest:.4f}",
        ]
    DATA.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Read the corpus, fit, hold every source out, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write stragglers.toml")
    arguments = parser.parse_args()
    by_source: dict[str, list[Series]] = defaultdict(list)
    for one in series_of(load_corpus()):
        by_source[one.source].append(one)
        steps = " ".join(f"{value:+.3f}" for value in one.log_ratio - one.log_ratio[0])
        sys.stdout.write(f"{one.source:20s} {one.name[:70]:70s} {steps}\n")
    slopes = {source: source_slope(series) for source, series in sorted(by_source.items())}
    sys.stdout.write(f"spread: {combined(list(slopes.values())):.4f}\n")
    for source, slope in slopes.items():
        sys.stdout.write(f"  {source:20s} {slope.value:+.4f} {slope.weight:.2f} {slope.series}\n")
    if arguments.write:
        write(slopes)


if __name__ == "__main__":
    main()
