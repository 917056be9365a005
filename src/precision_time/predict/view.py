"""One row of a table of answers as a `Prediction`: what is more than a number is made when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..corpus.measurement import Measurement
from ..corpus.store import corpus_store
from ..cost.job import Job
from ..diagnostics import Diagnostic
from ..learn.artifact import TrainedPredictor
from ..learn.table import JobTable
from ..records import dataclass
from .answer import Answers
from .headline import Interval
from .prediction import NearestMeasurement, Prediction
from .remarks import missing_length, remarks_of
from .remedies import suggest_fit

_PLAIN = (
    *("batch_size", "global_batch_size", "step_time_s", "throughput", "memory_bytes_per_device"),
    "analytical_step_time_s",
)
"""Columns that are fields of a `Prediction` as they are."""
_SHOWN = 3
"""Nearest runs."""
_LEAST_SIMILARITY = 0.05


def _some(value: float) -> float | None:
    return None if math.isnan(value) else value


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


def prediction_of(answers: Answers, row: int) -> Prediction:
    """One answer; what is not a number of a column is made when it is read."""
    job, has = answers.jobs.row(row), {name: float(values[row]) for name, values in answers.columns.items()}
    workload, device = job.workload, job.cluster.device
    whole = {name: _whole(has[name]) for name in ("steps_per_epoch", "total_steps")}
    some = {name: _some(has[name]) for name in ("mfu", "epoch_time_s", "total_time_s", "device_hours")}
    coverage = float(answers.coverage[row])
    run = None
    if whole["total_steps"] is not None:
        run = Interval(low_s=has["total_low_s"], high_s=has["total_high_s"], coverage=coverage)
    return Prediction.made(
        _Reader(answers=answers, row=row, job=job),
        model=workload.name,
        device=device.name,
        gpus=job.cluster.num_devices,
        nodes=job.cluster.num_nodes,
        precision=job.precision.name,
        stack=job.stack.profile,
        interval=Interval(low_s=has["interval_low_s"], high_s=has["interval_high_s"], coverage=coverage),
        throughput_unit=workload.throughput_unit,
        fits=bool(has["fits"]),
        device_memory_bytes=device.usable_bytes,
        total_interval=run,
        params=float(workload.graph.params),
        **{name: has[name] for name in _PLAIN},
        **whole,
        **some,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reader:
    """Makes the fields of a `Prediction` that are more than a number."""

    answers: Answers
    row: int
    job: Job

    def __call__(self, name: str) -> Any:
        return getattr(self, name)()

    def terms(self) -> dict[str, float]:
        return {name: s for name, s in self.answers.named("terms.", self.row).items() if s > 0.0}

    def memory_terms(self) -> dict[str, float]:
        found = self.answers.named("memory_terms.", self.row)
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def link_seconds(self) -> dict[str, float]:
        found = ((axis, float(s[self.row])) for axis, s in self.answers.link_seconds.items())
        return {axis: seconds for axis, seconds in found if seconds > 0.0}

    def nearest_measurements(self) -> tuple[NearestMeasurement, ...]:
        here = self.answers.times.jobs.take(slice(self.row, self.row + 1))
        return nearest_measurements(here, self.answers.predictor)

    def request(self) -> Mapping[str, Any]:
        requests = self.answers.requests
        return requests[self.answers.jobs.group[self.row]].to_dict() if requests else {}

    def total_time_missing(self) -> str:
        missing = np.isnan(self.answers.columns["total_steps"][self.row])
        return missing_length(self.answers, self.row, self.job) if missing else ""

    def remarks(self) -> tuple[Diagnostic, ...]:
        return remarks_of(self.answers, self.row, self.job)

    def remedy(self) -> str:
        answers = self.answers
        if not answers.remedies or answers.columns["fits"][self.row]:
            return ""
        return suggest_fit(answers.requests[answers.jobs.group[self.row]], self.job, answers.predictor)


def nearest_measurements(table: JobTable, predictor: TrainedPredictor) -> tuple[NearestMeasurement, ...]:
    """The measured runs nearest to the one job of `table`, best first, each configuration once."""
    index = predictor.measurements
    [rows], [similarity] = index.runs.nearest(table, _SHOWN * 4)
    shown: dict[tuple[object, ...], NearestMeasurement] = {}
    for row, alike in zip(rows, similarity, strict=True):
        if alike < _LEAST_SIMILARITY or len(shown) == _SHOWN:
            break
        identity = int(index.measurement_ids[row])
        run = index.own.get(identity) or _measured_run(identity)
        fields: dict[str, Any] = {
            **{name: getattr(run, name) for name in ("model", "device", "precision")},
            "gpus": run.num_devices,
            "global_batch_size": float(run.global_batch_size or 0.0),
            "stack": run.stack.profile,
        }
        if (key := tuple(fields.values())) in shown:
            continue
        shown[key] = NearestMeasurement(
            **fields,
            measured_step_time_s=run.step_time_s,
            predicted_step_time_s=float(index.predicted_s[row]),
            similarity=float(alike),
            source=run.source,
            source_ref=run.source_ref,
            precision_inferred=run.precision_inferred,
        )
    return tuple(shown.values())


def _measured_run(row_id: int) -> Measurement:
    return corpus_store().get(row_id)
