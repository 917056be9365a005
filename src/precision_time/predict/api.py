"""`predict_time`: one call from a request to a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..corpus.own import is_measured_file
from ..learn.artifact import TrainedPredictor, shipped_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from ..learn.calibration.fit import calibrate_file
from ..request.request import Request
from ..request.signature import takes_request_fields
from .anchors import anchored
from .prediction import Prediction
from .predictor import RunLength, predict_job


@takes_request_fields()
def predict_time(model: Any, **options: Any) -> Prediction:
    """How long one training step, one epoch and the whole run take.

    Args:
        model: Known name (`precision-time models`), timm or Hugging Face name, `module:function`, path
            of a config.json, .onnx or .pt2 file, an `nn.Module` (with `example_inputs`), a Hugging
            Face config object, an exported program, an operator graph; or a `Request`.
        options: Fields of `Request`, all optional; whatever is not given is filled in and reported.

    Returns:
        Step time as a sum of named terms, interval, epoch and total time, throughput, MFU, memory,
        the nearest measured runs, and what was assumed.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: Counts, batches, lengths or a precision that do not fit together.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    return predict(as_request(model, options))


def predict(request: Request, *, predictor: TrainedPredictor | None = None) -> Prediction:
    """The answer to one request.

    Args:
        request: What is asked.
        predictor: The trained predictor; None for the one that ships.
    """
    trained = predictor or shipped_predictor()
    return predict_job(
        request.resolve(),
        trained,
        length=RunLength(
            dataset_samples=request.samples,
            epochs=request.epochs,
            steps=request.steps,
            input_samples_per_s=request.input_rate,
        ),
        coverage=request.coverage,
        calibration=anchored(request, trained, _calibration(request.calibration)),
    )


def as_request(model: Any, options: Mapping[str, Any]) -> Request:
    """The request of a call: a model and options, or a request and changes of it."""
    if isinstance(model, Request):
        return model.with_(**options) if options else model
    return Request.of({"model": model, **options})


def _calibration(given: Any) -> Calibration | None:
    """A calibration is read once as long as its file stays the same."""
    if not isinstance(given, str | Path):
        return as_calibration(given)
    path = Path(given)
    return _calibration_of(path, path.stat().st_mtime_ns) if path.is_file() else as_calibration(path)


@lru_cache(maxsize=16)
def _calibration_of(path: Path, changed_ns: int) -> Calibration | None:
    """Of a calibration, or of a file of measured steps."""
    del changed_ns
    if not is_measured_file(path):
        return as_calibration(path)
    return calibrate_file(path, shipped_predictor()).calibration
