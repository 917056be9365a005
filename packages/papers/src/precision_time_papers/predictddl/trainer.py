"""The offline trainer: measured runs of one dataset type to a predictor of every variant."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.own import own_measurements, read_priced_steps
from precision_time.corpus.splits import SplitBy, group_numbers
from precision_time.corpus.store import load_corpus
from precision_time.cost.job import Job
from precision_time.errors import ConfigError, PrecisionTimeError, UnknownNameError
from precision_time.learn.measured import MeasuredTable, measured_table
from precision_time.learn.table import JobTable
from precision_time.request.datasets import dataset_types
from precision_time_papers.predictddl.datasets import type_of_workload

from ..ghn.weights import WIDTH, GhnWeights
from .columns import (
    BLIND,
    EMBEDDING_AND_SUMS,
    PRECISION,
    SIZE,
    SUMS,
    VARIANTS,
    cluster_columns,
    inputs_of,
    picked,
    precision_columns,
)
from .embeddings import PROBE, ghn_version, job_embeddings, probe_embeddings
from .fitting import LEAST_GROUPS, LEAST_ROWS, Examples, FitSettings, choose
from .registry import Registry, TrainedType
from .regressors import Floats

Progress = Callable[[str], None]
TARGETS: Mapping[str, tuple[str, ...]] = {
    BLIND: ("log", "raw"),
    SIZE: ("log",),
    PRECISION: ("log", "ratio"),
}
"""Targets that each variant is offered: only the last one reads the cost model."""
USUAL_TARGET: Mapping[str, str] = {
    BLIND: "log",
    SIZE: "log",
    PRECISION: "ratio",
    SUMS: "log",
    EMBEDDING_AND_SUMS: "log",
}
"""The one that nearly always wins: all that is tried where many fits are made."""
WHOLE_EMBEDDING: Mapping[str, Any] = {"ranks": (WIDTH,), "embedding_weight": 1.0}
"""Settings of `predictddl-size`: all columns of the embedding together count as one input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRuns:
    """Measured runs of any type."""

    measurements: tuple[Measurement, ...]
    own: Mapping[int, Job] = field(default_factory=dict)
    """As of `TypeRuns`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeRuns:
    """Measured runs of one dataset type."""

    dataset_type: str
    measurements: tuple[Measurement, ...]
    num_architectures: int
    own: Mapping[int, Job] = field(default_factory=dict)
    """Jobs of the user's own steps among them, by `row_id`: their devices and models may be in no catalog."""

    @property
    def enough(self) -> bool:
        """Whether a predictor can be trained and cross-validated on them."""
        return len(self.measurements) >= LEAST_ROWS and self.num_architectures >= LEAST_GROUPS

    def refusal(self) -> str:
        """Why not."""
        return (
            f"{len(self.measurements)} data-parallel runs of {self.num_architectures} architectures are "
            f"known for {self.dataset_type!r}, and it takes {LEAST_ROWS} of {LEAST_GROUPS}"
        )


def rows_by_type(
    measurements: Sequence[Measurement], own: Mapping[int, Job] | None = None
) -> dict[str, TypeRuns]:
    """The runs that PredictDDL learns from, by dataset type: usable, data parallel, of known parts.

    Args:
        measurements: Any runs.
        own: As of `TypeRuns`.
    """
    jobs = own or {}
    found: dict[str, list[Measurement]] = {name: [] for name in dataset_types()}
    for item in measurements:
        job = jobs.get(item.row_id) or _job(item)
        if job is not None and is_data_parallel(job):
            kind = type_of_workload(job.workload)
            if kind in found:
                found[kind].append(item)
    return {
        name: TypeRuns(
            dataset_type=name,
            measurements=tuple(items),
            num_architectures=len(np.unique(group_numbers(items, by=SplitBy.MODEL))) if items else 0,
            own={item.row_id: jobs[item.row_id] for item in items if item.row_id in jobs},
        )
        for name, items in found.items()
    }


def read_runs(files: Mapping[str, Path], *, alone: bool = False) -> tuple[KnownRuns, Counter[str]]:
    """All known runs: the corpus, the user's own store, and files of measured steps.

    Args:
        files: By what they are called; as `read_priced_steps` takes them.
        alone: Only the files.

    Returns:
        Runs, and why how many rows of the files are none.

    Raises:
        CorpusError: If a file is not one of measured steps.
        ConfigError: If no step of a file can be priced.
    """
    measurements = [] if alone else list(load_corpus(local=True))
    own: dict[int, Job] = {}
    rejected: Counter[str] = Counter()
    first = 1 + max((-item.row_id for item in measurements), default=0)
    for name, file in files.items():
        steps, reasons = read_priced_steps(file, origin=name)
        found = own_measurements(steps, name, first_id=max(first, 1) + len(own))
        own |= {item.row_id: step.job for item, step in zip(found, steps, strict=True)}
        measurements += found
        rejected += reasons
    return KnownRuns(measurements=tuple(measurements), own=own), rejected


def settings_of(variant: str, settings: FitSettings, targets: tuple[str, ...]) -> FitSettings:
    """What is tried for a variant: the targets given, and how it takes the embedding."""
    return replace(settings, targets=targets, **(WHOLE_EMBEDDING if variant == SIZE else {}))


def trainable(runs: KnownRuns, wanted: Sequence[str]) -> list[TypeRuns]:
    """The runs of the dataset types named, or of all types that have enough.

    Raises:
        UnknownNameError: If a type is unknown.
        ConfigError: If a named type has too few runs, or no type has enough.
    """
    for name in wanted:
        if name not in dataset_types():
            raise UnknownNameError(
                kind="dataset type",
                name=name,
                known=dataset_types(),
                hint=f"To fix: use one of {', '.join(dataset_types())}.",
            )
    found = rows_by_type(runs.measurements, runs.own)
    for name in wanted:
        if not found[name].enough:
            raise ConfigError(f"No predictor can be trained: {found[name].refusal()}. To fix: add runs.")
    chosen = [rows for name, rows in found.items() if rows.enough and (not wanted or name in wanted)]
    if not chosen:
        raise ConfigError(
            f"None of the {len(runs.measurements)} known runs make a dataset type that can be trained: it "
            f"takes {LEAST_ROWS} data-parallel runs of {LEAST_GROUPS} architectures. To fix: add runs."
        )
    return chosen


def is_data_parallel(job: Job) -> bool:
    """Whether every device holds the whole model: PredictDDL's requests are of no other kind."""
    return job.layout.tp == job.layout.pp == job.layout.cp == 1


def train_type(
    rows: TypeRuns,
    *,
    table: MeasuredTable | None = None,
    settings: FitSettings | None = None,
    variants: Sequence[str] = VARIANTS,
    ghn: GhnWeights | None = None,
    progress: Progress = lambda _: None,
) -> TrainedType:
    """Fit every variant for one dataset type.

    Args:
        rows: Its measured runs.
        table: The same runs, priced already.
        settings: What is tried.
        variants: Which of them are fitted.
        ghn: Hypernetwork that embeds the architectures, kept with the predictor; None for the shipped one.
        progress: Called with a text on what is being done.

    Raises:
        ConfigError: If there are too few runs or architectures.
        MissingExtraError: If scikit-learn is not installed.
    """
    if not rows.enough:
        raise ConfigError(f"No predictor can be trained: {rows.refusal()}. To fix: add measured runs.")
    if table is None:
        progress(f"pricing {len(rows.measurements)} runs")
        own = [item for item in rows.measurements if item.row_id in rows.own]
        table = measured_table([item for item in rows.measurements if item.row_id not in rows.own])
        if own:
            table = table.with_own([rows.own[item.row_id] for item in own], own)
    jobs = [rows.own.get(item.row_id) or job_of(item) for item in table.measurements]
    names, values = input_columns(jobs, table.jobs, ghn=ghn, progress=progress)
    used = settings or FitSettings()
    fitted = {}
    for variant in variants:
        examples = examples_of(variant, table, names, values)
        progress(f"{rows.dataset_type}, {variant}")
        fitted[variant] = choose(examples, settings_of(variant, used, TARGETS[variant]), progress)
    return TrainedType(
        dataset_type=rows.dataset_type,
        variants=fitted,
        probe=probe_embeddings(ghn),
        card=_card(rows, table, used, ghn),
        ghn=ghn,
    )


def train_and_save(
    registry: Registry,
    rows: TypeRuns,
    *,
    settings: FitSettings | None = None,
    ghn: GhnWeights | None = None,
    progress: Progress = lambda _: None,
) -> TrainedType:
    """Train one dataset type and write it as a new version; see `train_type` and `Registry.save`."""
    return registry.save(train_type(rows, settings=settings, ghn=ghn, progress=progress))


def input_columns(
    jobs: Sequence[Job],
    priced: JobTable | None,
    *,
    ghn: GhnWeights | None = None,
    progress: Progress = lambda _: None,
) -> tuple[tuple[str, ...], Floats]:
    """Everything that a variant may read of jobs.

    Args:
        jobs: n jobs.
        priced: The same, priced; None where no precision feature is wanted.
        ghn: Hypernetwork; None for the shipped one.
        progress: Called with a text on what is being done.

    Returns:
        Names and values, shape (n, n_columns).
    """
    done = itertools.count(1)
    embedded = job_embeddings(
        jobs,
        lambda _: progress(f"embedding job {next(done)} of {len(jobs)}"),
        annotated=priced is not None,
        ghn=ghn,
    )
    parts = [embedded, cluster_columns(jobs)]
    if priced is not None:
        parts.append(precision_columns(priced))
    names = tuple(name for part, _ in parts for name in part)
    return names, np.column_stack([values for _, values in parts])


def examples_of(
    variant: str,
    table: MeasuredTable,
    names: Sequence[str],
    values: Floats,
    rows: NDArray[np.intp] | None = None,
) -> Examples:
    """What a variant learns from.

    Args:
        variant: One of VARIANTS, or a baseline of `columns.py`.
        table: Measured runs.
        names: Columns of `values`.
        values: Inputs of the runs, shape (n, n_columns).
        rows: Some of the rows; None for all.
    """
    wanted = inputs_of(variant, names)
    chosen = np.arange(len(table)) if rows is None else rows
    items = [table.measurements[row] for row in chosen]
    return Examples(
        x=picked(names, values[chosen], wanted),
        names=wanted,
        seconds=table.measured_s[chosen],
        analytical_s=table.jobs.analytical_s[chosen] if variant == PRECISION else None,
        groups=group_numbers(items, by=SplitBy.MODEL),
        weights=np.array([item.weight for item in items]),
    )


def _job(item: Measurement) -> Job | None:
    if not item.usable:
        return None
    try:
        return job_of(item)
    except PrecisionTimeError:
        return None


def _card(
    rows: TypeRuns, table: MeasuredTable, settings: FitSettings, ghn: GhnWeights | None
) -> dict[str, Any]:
    sources = Counter(item.source for item in table.measurements)
    return {
        "created": datetime.now(UTC).date().isoformat(),
        "rows": len(table),
        "architectures": rows.num_architectures,
        "sources": dict(sources.most_common()),
        "rejected": dict(table.rejected),
        "devices": sorted({item.device for item in table.measurements}),
        "ghn_version": ghn_version(ghn),
        "probe": list(PROBE),
        "folds": settings.folds,
        "seed": settings.seed,
        "chosen_by": "mean |log(predicted / measured)| on held-out architectures, on the folds of the scores",
    }
