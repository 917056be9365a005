"""The job that a request resolves to, without whatever else the request may mean."""

from __future__ import annotations

from typing import Any

from ..cost.job import Jobs
from ..learn.artifact import shipped_predictor
from ..predict.answer import answer
from ..request.request import Request


def own_job_s(model: Any, **options: Any) -> float:
    """What the shipped predictor says of the step of a request's own job [s]: arguments as `predict_time`.

    `predict_time` says the middle of all that a request leaves open (`predict.scenarios`).
    """
    job = Request.of({"model": model, **options}).resolve()
    return float(answer(Jobs.of([job]), shipped_predictor()).figures["step_time_s"][0])
