"""One request at several precisions: the same job side by side, at the same batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..diagnostics import Diagnostic, Severity
from ..errors import ConfigError, PrecisionTimeError
from ..precision.catalog import known_precisions
from ..request.request import Request
from ..request.signature import takes_request_fields
from .anchors import check_precision_named
from .api import as_request, predict
from .prediction import Prediction

ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A request that was left out of a comparison."""

    request: Mapping[str, Any]
    """Its fields, as `Prediction.request` has them."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionComparison:
    """The answers in the order asked, and the requests that have none."""

    predictions: tuple[Prediction, ...]
    skipped: tuple[Skipped, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, of one shape however many there are."""
        return {
            "predictions": [prediction.to_dict() for prediction in self.predictions],
            "skipped": [asdict(each) for each in self.skipped],
        }

    def plot(self, axes: Any = None) -> Any:
        """The steps as bars side by side, with intervals; see `Prediction.plot`."""
        from .plot import plot

        return plot(self.predictions, axes=axes)

    def __repr__(self) -> str:
        """One line for each prediction; `str` is the page, `to_dict` has every field."""
        from .page import in_one_line

        lines = [f"  {in_one_line(each)}" for each in self.predictions]
        left_out = f", {len(self.skipped)} left out" if self.skipped else ""
        return "\n".join([f"<{type(self).__name__} of {len(lines)} predictions{left_out}:", *lines]) + ">"

    def __str__(self) -> str:
        """The page that `precision-time predict` prints."""
        from .page import to_text

        return to_text(self.predictions)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .html import to_html

        return to_html(self.predictions)


@takes_request_fields(without=("precision",))
def compare_precisions(
    model: Any, precisions: str | Sequence[str] = ALL, **options: Any
) -> PrecisionComparison:
    """Predictions of one job at several precisions.

    Where no batch is given, the largest default that fits at every precision is taken for all of them:
    step times of different batches would say nothing about the precisions.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        precisions: Names in any usual spelling; "all" for every policy that the device can run.
        options: Fields of `Request`, all optional.

    Raises:
        ConfigError: If no precision is named, or a named one is invalid; as `predict_time` otherwise.
    """
    every = precisions == ALL
    names = known_precisions() if every else tuple(precisions)
    if not names:
        raise ConfigError("No precision is named. To fix: name at least one, such as fp16-mixed, or 'all'.")
    request = as_request(model, options)
    if len(names) > 1:
        check_precision_named(request.anchors)
    answers, skipped = _answers(request, names, every)
    if len({answer.batch_size for answer in answers}) > 1:
        common = min(answer.batch_size for answer in answers)
        answers, _ = _answers(request.with_(batch_size=common), [a.precision for a in answers], every)
        text = f"Batch size not given: {common:g} per device, the largest that fits at every precision."
        assumed = Diagnostic("default-batch", Severity.ASSUMPTION, text)
        answers = [replace(answer, diagnostics=(*answer.diagnostics, assumed)) for answer in answers]
    return PrecisionComparison(predictions=tuple(answers), skipped=skipped)


def compare_requests(requests: Sequence[Request]) -> PrecisionComparison:
    """Predictions of requests whose `precision` may name several, separated by commas, or "all"."""
    found = [_compared(request) for request in requests]
    return PrecisionComparison(
        predictions=tuple(answer for each in found for answer in each.predictions),
        skipped=tuple(left for each in found for left in each.skipped),
    )


def _compared(request: Request) -> PrecisionComparison:
    given = request.precision
    names = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    if names is not None and [name.lower() for name in names] == [ALL]:
        return compare_precisions(request)
    if names is not None and len(names) != 1:
        return compare_precisions(request, names)
    return PrecisionComparison(predictions=(predict(request),))


def _answers(
    request: Request, names: Sequence[str], every: bool
) -> tuple[list[Prediction], tuple[Skipped, ...]]:
    """One prediction per name; with `every`, names that fail are left out unless all of them do."""
    answers: list[Prediction] = []
    skipped: list[Skipped] = []
    first_error: PrecisionTimeError | None = None
    for name in names:
        asked = request.with_(precision=name)
        try:
            answers.append(predict(asked))
        except PrecisionTimeError as error:
            if not every:
                raise
            first_error = first_error or error
            skipped.append(Skipped(request=asked.to_dict(), reason=str(error)))
    if not answers and first_error is not None:
        raise first_error
    return answers, tuple(skipped)
