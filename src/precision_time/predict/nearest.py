"""The measured runs of the corpus that are most like a job."""

from __future__ import annotations

from ..corpus.measurement import Measurement
from ..corpus.store import corpus_store
from ..learn.artifact import TrainedPredictor
from ..learn.table import JobTable
from .prediction import NearestMeasurement

_SHOWN = 3
_LEAST_SIMILARITY = 0.05


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
        key = (
            run.model,
            run.device,
            run.num_devices,
            run.precision,
            run.global_batch_size,
            run.stack.profile,
        )
        if key in shown:
            continue
        shown[key] = NearestMeasurement(
            model=run.model,
            device=run.device,
            gpus=run.num_devices,
            precision=run.precision,
            global_batch_size=float(run.global_batch_size or 0.0),
            stack=run.stack.profile,
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
