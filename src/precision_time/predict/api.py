"""`predict_time`: one call from a request to a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..diagnostics import Diagnostic, Severity
from ..learn.artifact import TrainedPredictor, shipped_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from ..request.request import Request
from ..request.signature import takes_request_fields
from .anchors import anchored
from .prediction import Prediction
from .predictor import RunLength, predict_job
from .remedies import suggest_fit


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
    job = request.resolve()
    answer = predict_job(
        job,
        trained,
        length=RunLength(
            dataset=request.dataset,
            dataset_samples=request.samples,
            epochs=request.epochs,
            steps=request.steps,
            tokens=request.tokens,
            input_samples_per_s=request.input_rate,
        ),
        coverage=request.coverage,
        calibration=anchored(request, trained, _calibration(request.calibration)),
    )
    if answer.fits:
        return answer
    remedy = Diagnostic("memory", Severity.WARNING, suggest_fit(request, job, trained))
    return replace(answer, diagnostics=(*answer.diagnostics, remedy))


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
    del changed_ns
    return as_calibration(path)
