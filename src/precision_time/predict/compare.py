"""One question at several precisions: the same job side by side, at the same batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError, PrecisionTimeError
from ..precision.catalog import known_precisions
from .prediction import Prediction

ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The answers in the order asked, and why those that `all` includes could not be given."""

    predictions: tuple[Prediction, ...]
    skipped: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "predictions": [prediction.to_dict() for prediction in self.predictions],
            "skipped": [{"precision": name, "reason": reason} for name, reason in self.skipped.items()],
        }


def compare_precisions(model: Any, precisions: str | Sequence[str] = ALL, **arguments: Any) -> Comparison:
    """Predictions of one job at several precisions.

    Where no batch is given, the largest default that fits at every precision is taken for all of them:
    step times of different batches would say nothing about the precisions.

    Args:
        model: As `predict_time` takes it.
        precisions: Names in any usual spelling; "all" for every policy that the device can run.
        arguments: The other arguments of `predict_time`.

    Raises:
        ConfigError: If no precision is named, or a named one cannot be; as `predict_time` otherwise.
    """
    every = precisions == ALL
    names = known_precisions() if every else tuple(precisions)
    if not names:
        raise ConfigError("No precision is named. To fix: name at least one, such as fp16-mixed, or 'all'.")
    answers, skipped = _answers(model, names, arguments, every)
    batches = {answer.micro_batch_size for answer in answers}
    if len(batches) > 1:
        common = min(batches)
        answers, _ = _answers(
            model, [a.precision for a in answers], {**arguments, "batch_size": common}, every
        )
        said = f"Batch size not given: {common:g} per device, the largest that fits at every precision."
        answers = [replace(answer, assumptions=(*answer.assumptions, said)) for answer in answers]
    return Comparison(predictions=tuple(answers), skipped=skipped)


def _answers(
    model: Any, names: Sequence[str], arguments: dict[str, Any], every: bool
) -> tuple[list[Prediction], dict[str, str]]:
    """One prediction per name; with `every`, names that fail are left out unless all of them do."""
    from .api import predict_time

    answers: list[Prediction] = []
    skipped: dict[str, str] = {}
    first_error: PrecisionTimeError | None = None
    for name in names:
        try:
            answers.append(predict_time(model, precision=name, **arguments))
        except PrecisionTimeError as error:
            if not every:
                raise
            first_error = first_error or error
            skipped[name] = str(error)
    if not answers and first_error is not None:
        raise first_error
    return answers, skipped
