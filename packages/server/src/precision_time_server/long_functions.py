"""What `service.long_work` runs: functions of a module, whose arguments and answers are pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from precision_time.planning.decision.api import plan
from precision_time.planning.layouts.api import find_layouts
from precision_time.planning.run.api import run_of
from precision_time.planning.run.phases import phases_of
from precision_time.planning.run.schema import RunOptions
from precision_time.predict.compare import answer_all
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request

from .problems import TooLargeError


def answers_of(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """The answers to requests that are compared with each other, in their order, ready for JSON.

    Raises:
        PrecisionTimeError: If a name is unknown, or no request can be answered.
    """
    return [
        each.to_dict() if isinstance(each, Prediction) else asdict(each)
        for each in answer_all(requests).answers
    ]


def run_of_call(
    request: Request, options: Mapping[str, Any], phases: Sequence[Mapping[str, Any]] | None, most: int
) -> dict[str, Any]:
    """A whole run, ready for JSON.

    Args:
        request: Of its steps.
        options: Of `RunOptions`.
        phases: As `predict_run` takes them.
        most: Phases, with those that several values of a field make.

    Raises:
        TooLargeError: If there are more phases.
        PrecisionTimeError: As `predict_run`.
    """
    if phases is not None and (count := len(phases_of(request, phases))) > most:
        raise TooLargeError(
            f"The phases hold {count:,} parts. The rule: at most {most:,} of one call. To fix: name fewer "
            "values, or let the operator raise the limit (--limit jobs=N)."
        )
    return run_of(request, RunOptions.of(options), phases).to_dict()


def plan_of_call(model: Any, options: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A plan, ready for JSON.

    Args:
        model: As `plan` takes it.
        options: Its other arguments.
        most: Jobs that may be timed.

    Raises:
        PrecisionTimeError: As `plan`; if there are more jobs.
    """
    return plan(model, **options, workers=1, max_jobs=most).to_dict()


def layouts_of_call(request: Request, fix: Sequence[str], top: int, most: int) -> dict[str, Any]:
    """A search for layouts, ready for JSON.

    Raises:
        PrecisionTimeError: As `find_layouts`; if there are more than `most` layouts.
    """
    return find_layouts(request, fix=fix, top=top, max_layouts=most).to_dict()
