"""The jobs of the corpus that CherryPick is replayed on, and the tables of what it took.

A job here is one model of one shape at one precision in one software, as one source measured it; its
configurations are type and number of devices, nodes, batch. Cost is money per sample where every type of
device of the job has a price (`hardware/prices/offers.py`), device-seconds per sample elsewhere. The
deadline is the median time per sample of the configurations, which half of them meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.hardware.prices.offers import usd_per_device_hour
from precision_time.learn.measured import MeasuredTable
from precision_time.render.document import Metric
from precision_time.render.table import CellValue, Table, columns_of

from ..cherrypick.replay import MOST_RUNS, WITHIN, Replayed, ReplayJob
from ..contract import Floats, column
from .measured_jobs import workload_key

Key = tuple[str | float, ...]

LEAST_CONFIGURATIONS = 12
SECONDS_PER_HOUR = 3600.0
_FEATURES = (
    *("log_devices", "log_nodes", "log_global_batch_size", "log_peak", "log_bandwidth", "log_memory"),
)
_SHOWN = 20


def replay_jobs(table: MeasuredTable, predicted_s: Floats) -> tuple[ReplayJob, ...]:
    """Every job with at least LEAST_CONFIGURATIONS measured configurations.

    Args:
        table: Measured runs.
        predicted_s: Step times of a predictor that was fitted without the architecture of each row,
            shape (n,); rows that it did not predict (NaN) are left out.
    """
    grouped: dict[str, dict[Key, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, item in enumerate(table.measurements):
        if not np.isnan(predicted_s[index]):
            grouped[workload_key(item)][_configuration(item)].append(index)
    features = np.stack([column(table.jobs, name) for name in _FEATURES], axis=1)
    return tuple(
        _replay_job(table, list(found.values()), features, predicted_s)
        for _, found in sorted(grouped.items())
        if len(found) >= LEAST_CONFIGURATIONS
    )


def replay_table(found: Sequence[Replayed]) -> Table:
    """The jobs with most configurations."""
    shown = sorted(found, key=lambda item: -item.configurations)[:_SHOWN]
    rows: list[tuple[CellValue, ...]] = [
        (
            *(item.key, item.precision, item.configurations, item.good),
            *(item.random_runs, item.search_runs, item.stopped_runs),
            None if np.isnan(item.stopped_regret_percent) else item.stopped_regret_percent,
            *(item.chosen_runs, item.chosen_regret_percent, "yes" if item.chosen_meets else "no"),
        )
        for item in shown
    ]
    return Table(
        title=f"Best configuration of a job: the {len(shown)} jobs with most configurations",
        columns=columns_of(
            "job | precision | >configurations | >good ones | >random: runs | >CherryPick: runs | "
            ">until its stop rule | >regret then % | >ours: runs in its order | "
            ">regret of its choice % | choice meets deadline"
        ),
        rows=tuple(rows),
        note="Good: meets the deadline at most 5 % above the least cost. Runs: until a good one was found.",
    )


def summary_table(found: Sequence[Replayed]) -> Table:
    """Over all jobs."""
    meets = [item.chosen_regret_percent for item in found if item.chosen_meets]
    regrets = [item.stopped_regret_percent for item in found if not np.isnan(item.stopped_regret_percent)]
    by_rule = [item.rule_regret_percent for item in found if item.rule_meets]
    none: tuple[CellValue, ...] = (None, None, None, None)
    rows: list[tuple[CellValue, ...]] = [
        ("random search", *_summary([item.random_runs for item in found]), *none),
        (
            "largest batch per device, fewest devices",
            *_summary([float(item.rule_runs) for item in found]),
            *_summary(by_rule),
            100.0 * len(by_rule) / len(found),
        ),
        ("CherryPick", *_summary([item.search_runs for item in found]), *none),
        (
            "CherryPick, by its stop rule",
            *_summary([i.stopped_runs for i in found]),
            *_summary(regrets),
            None,
        ),
        ("ours, then runs in its order", *_summary([float(item.chosen_runs) for item in found]), *none),
        ("ours, choosing outright", 0, 0, 0, *_summary(meets), 100.0 * len(meets) / len(found)),
    ]
    return Table(
        title=f"Best configuration of a job: the {len(found)} jobs of {LEAST_CONFIGURATIONS} and more",
        columns=columns_of(
            "search | >runs, mean | >median | >p90 | >regret %, mean | >median regret % | "
            ">p90 regret % | >choices that meet the deadline %"
        ),
        rows=tuple(rows),
        note=f"Runs until within {(WITHIN - 1.0) * 100.0:.0f} % of the best, for every search at most "
        f"{MOST_RUNS}. Ours was fitted without any row of the job's architecture. Regrets of a choice, ours "
        "or the rule's, are of those that meet the deadline, the median time per sample of the job's "
        f"configurations. Cost is money for the {sum(item.priced for item in found)} jobs whose devices all "
        "have a price, device-seconds for the others; within one type the two order alike.",
    )


def replay_metrics(found: Sequence[Replayed]) -> dict[str, Metric]:
    """The summary as numbers."""
    meeting = [item.chosen_regret_percent for item in found if item.chosen_meets]
    each = [(item.random_runs, item.rule_runs, item.search_runs, item.chosen_runs) for item in found]
    means = np.mean(each, axis=0)
    names = ("random_runs", "rule_runs", "cherrypick_runs", "ours_ordered_runs")
    values = {"jobs": float(len(found)), **dict(zip(names, means.tolist(), strict=True))}
    values["ours_outright_meets_percent"] = 100.0 * len(meeting) / len(found)
    if meeting:
        values["ours_outright_regret_percent"] = float(np.mean(meeting))
    return {f"cherrypick.{name}": Metric(value=value) for name, value in values.items()}


def replay_headline(found: Sequence[Replayed]) -> str:
    """The searches in one sentence."""
    each: dict[str, list[float]] = {
        "random search": [item.random_runs for item in found],
        "largest batch per device, fewest devices": [float(item.rule_runs) for item in found],
        "CherryPick": [item.search_runs for item in found],
        "our predictor's order": [float(item.chosen_runs) for item in found],
    }
    words = (f"{name} {np.mean(runs):.1f} (median {np.median(runs):.1f})" for name, runs in each.items())
    return f"Runs until within 5 % of the best, mean over {len(found)} jobs: {', '.join(words)}."


def drawn_replay_rows(rows: Sequence[Measurement], *, jobs: int, others: int) -> list[Measurement]:
    """A sample that can be replayed: all configurations of some jobs, one run of each, and other rows.

    Args:
        rows: Measured runs.
        jobs: How many jobs of at least LEAST_CONFIGURATIONS configurations.
        others: How many rows of other jobs, for a predictor to learn from.
    """
    grouped: dict[str, dict[Key, int]] = defaultdict(dict)
    keys = [workload_key(item) for item in rows]
    for index, item in enumerate(rows):
        grouped[keys[index]].setdefault(_configuration(item), index)
    large = [key for key, found in grouped.items() if len(found) >= LEAST_CONFIGURATIONS]
    draw = np.random.default_rng(0)
    chosen = [large[place] for place in draw.permutation(len(large))[:jobs]]
    taken = [index for key in chosen for index in grouped[key].values()]
    rest = np.flatnonzero(~np.isin(keys, large))
    taken += draw.choice(rest, size=min(others, len(rest)), replace=False).tolist()
    return [rows[index] for index in sorted(taken)]


def _configuration(item: Measurement) -> Key:
    layout = item.layout
    degrees = (1, 1, 1, 0) if layout is None else (layout.tp, layout.pp, layout.cp, layout.zero_stage)
    batch = (item.global_batch_size or 0.0, item.num_microbatches or 1)
    return (item.device, item.system, item.num_devices, item.num_nodes, *batch, *degrees)


def _replay_job(
    table: MeasuredTable, rows: list[list[int]], features: Floats, predicted_s: Floats
) -> ReplayJob:
    first = table.measurements[rows[0][0]]
    devices = np.array([table.measurements[found[0]].num_devices for found in rows], dtype=np.float64)
    batch = np.array([table.measurements[found[0]].global_batch_size or 1.0 for found in rows])
    prices = [usd_per_device_hour(table.measurements[found[0]].device) for found in rows]
    known = [price / SECONDS_PER_HOUR for price in prices if price is not None]
    # Money per second, or devices where a type has no price: cost is time x that.
    rate = devices * np.array(known) if len(known) == len(rows) else devices
    measured = np.array([float(np.median(table.measured_s[found])) for found in rows]) / batch
    predicted = np.array([float(np.median(predicted_s[found])) for found in rows]) / batch
    return ReplayJob(
        key=f"{first.model}, {first.stack.profile}, {source_name(first)}",
        precision=first.precision,
        features=np.stack([features[found[0]] for found in rows]),
        time=measured,
        cost=measured * rate,
        predicted_time=predicted,
        predicted_cost=predicted * rate,
        deadline=float(np.median(measured)),
        devices=devices,
        batch_per_device=batch / devices,
        priced=len(known) == len(rows),
    )


def _summary(values: Sequence[float]) -> tuple[CellValue, CellValue, CellValue]:
    """Mean, median, ninetieth percentile."""
    if not values:
        return None, None, None
    return float(np.mean(values)), float(np.median(values)), float(np.percentile(values, 90))
