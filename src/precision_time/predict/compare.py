"""Many requests at once: lists, all combinations of several values, one job at several precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..diagnostics import Diagnostic, Severity
from ..errors import ConfigError, PrecisionTimeError, UnknownNameError
from ..request.grid import grid_of, grid_of_requests
from ..request.request import Request
from ..request.signature import takes_request_fields
from ..request.sweep import ALL, combinations_of
from .anchors import check_precision_named
from .api import answers_to
from .prediction import Prediction, Skipped
from .predictions import Predictions, plain_fields

if TYPE_CHECKING:
    from .sweep import Swept

AnswersTo = Callable[[Sequence[Request]], Predictions]
"""As `answers_to`."""
_SAME_BATCH = ("precision", "gpus", "nodes")
"""Fields in which jobs may differ and are still compared at one batch per device."""


@overload
def predict_many(requests: Iterable[Request | Mapping[str, Any] | Skipped]) -> Predictions: ...
@overload
def predict_many(
    requests: Iterable[Request | Mapping[str, Any]],
    *,
    out: str | Path,
    ray: str | None = None,
    workers: int | None = None,
) -> Swept: ...
def predict_many(
    requests: Iterable[Any],
    *,
    out: str | Path | None = None,
    ray: str | None = None,
    workers: int | None = None,
) -> Predictions | Swept:
    """The answers to many requests; what they share is priced and looked up once.

    Args:
        requests: Requests, or mappings of their fields. One that cannot be answered is in `skipped` of the
            result with its reason; the others are answered.
        out: Write the answers to this .csv, .jsonl or .parquet file instead, in constant memory. A call that
            was ended goes on when it is made again.
        ray: With `out`: None, "local", or the address of a Ray cluster.
        workers: With `out`: processes; None for one per core, at most 8.
    """
    if out is not None:
        from .sweep import write_sweep

        return write_sweep(grid_of_requests([*requests]), Path(out), ray=ray, workers=workers)
    asked = [each if isinstance(each, Request | Skipped) else _read(each) for each in requests]
    return _among(asked, answers_to([each for each in asked if isinstance(each, Request)]))


@takes_request_fields()
def sweep(
    model: Any,
    *,
    out: str | Path | None = None,
    ray: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Any:
    """The answers to all combinations of the values given.

    A field that holds a number, a name, a choice or a switch takes a list of them or a text such as
    "8,16,64", and a number a range: "16..256" doubles, "16..256:16" goes in steps of 16. `precision="all"`
    stands for every policy. Where no batch is given, jobs that differ in precision and number of devices
    alone are compared at the largest default that fits all of them.

    Args:
        model: As `predict_time` takes it; a list for several.
        out: Write the answers to this .csv, .jsonl or .parquet file: any number of them, in constant memory,
            each as if it were asked alone. A call that
            was ended goes on when it is made again.
        ray: With `out`: None, "local", or the address of a Ray cluster.
        workers: With `out`: processes; None for one per core, at most 8.
        options: Fields of `Request`, all optional.

    Returns:
        The answers (`Predictions`); combinations that cannot be are in `skipped` with the reason. With `out`,
        what was written (`Swept`).

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: If a value breaks its rule, or no combination can be answered.
    """
    if out is not None:
        from .sweep import write_sweep

        if workers is None and ray is None and not isinstance(model, str | Path | list | tuple):
            workers = 1  # a module stays where it is
        return write_sweep(grid_of({"model": model, **options}), Path(out), ray=ray, workers=workers)
    return answer_all(combinations_of({"model": model, **options}))


@takes_request_fields()
def sweep_tables(
    model: Any, *, ray: str | None = None, workers: int | None = 1, **options: Any
) -> Iterator[dict[str, Any]]:
    """`sweep` of any size as tables, one after another: columns by name, some thousand rows each.

    None of them is kept. Each row is answered as if it were asked alone, or says in `error` why it cannot be.

    Args:
        model: As `predict_time` takes it; a list for several; or a list of requests or mappings.
        ray: None, "local", or the address of a Ray cluster.
        workers: Processes; None for one per core, at most 8.
        options: Fields of `Request`, all optional; each takes several values.
    """
    from .sweep import sweep_tables as tables

    several = isinstance(model, list | tuple) and all(isinstance(each, Request | Mapping) for each in model)
    asked = grid_of_requests(model) if several and not options else grid_of({"model": model, **options})
    return tables(asked, ray=ray, workers=workers)


@takes_request_fields(without=("precision",))
def compare_precisions(model: Any, precisions: str | Sequence[str] = ALL, **options: Any) -> Predictions:
    """Predictions of one job at several precisions: `sweep` over `precision` alone.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        precisions: Names in any usual spelling; "all" for every policy that the device can run.
        options: Fields of `Request`, all optional.

    Raises:
        ConfigError: If no precision is named or none can be run; as `predict_time` otherwise.
    """
    if not precisions:
        raise ConfigError("No precision is named. To fix: name at least one, such as fp16-mixed, or 'all'.")
    given = {**model.given(), **options} if isinstance(model, Request) else {"model": model, **options}
    named = precisions if isinstance(precisions, str) else list(precisions)
    return answer_all(combinations_of({**given, "precision": named}))


def answer_all(
    asked: Sequence[Request | Skipped],
    *,
    strict: bool = True,
    each: AnswersTo | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """The answers to requests that are compared with each other.

    Args:
        asked: The requests; those that broke a rule are passed on.
        strict: Refuse names that no catalog holds, and a question without a single answer.
        each: What answers; None for `answers_to`.
        progress: Of `answers_to`, where that answers.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: If no request can be answered.
    """
    requests = [each for each in asked if isinstance(each, Request)]
    if strict:
        _check_anchors(requests)
    answers = each or (answers_to if progress is None else partial(answers_to, progress=progress))
    found = _at_one_batch(requests, answers(requests), answers)
    errors = [each.raised for each in found.skipped]
    unknown = [each for each in errors if isinstance(each, UnknownNameError)]
    if strict and (unknown or (errors and not len(found))):
        raise (unknown or errors)[0]
    return _among(asked, found)


def _among(asked: Sequence[Request | Skipped], found: Predictions) -> Predictions:
    """The answers to the requests that could be asked, among those that could not."""
    rest = iter(found.order)
    return replace(found, order=tuple(each if isinstance(each, Skipped) else next(rest) for each in asked))


def _check_anchors(requests: Sequence[Request]) -> None:
    """Anchors that go with jobs of several precisions must say which was measured."""
    precisions: dict[str, set[str]] = {}
    for request in requests:
        if request.anchors:
            asked = precisions.setdefault(repr(request.anchors), set())
            asked.add(repr(request.precision))
            if len(asked) > 1:
                check_precision_named(request.anchors)


def _at_one_batch(requests: Sequence[Request], found: Predictions, answers: AnswersTo) -> Predictions:
    """The same, where no batch was given at the largest default that fits all that are compared.

    Step times of different batches would say nothing about the precisions.
    """
    alike: dict[str, dict[int, float]] = {}
    for place, (request, answer) in enumerate(zip(requests, found.answers, strict=True)):
        if isinstance(answer, Prediction) and not _says_batch(request):
            rest = {name: value for name, value in answer.request.items() if name not in _SAME_BATCH}
            alike.setdefault(repr(rest), {})[place] = answer.batch_size
    smaller: dict[int, tuple[Request, Diagnostic]] = {}
    for batches in alike.values():
        common = min(batches.values())
        counts = {requests[place].gpus for place in batches}
        where = "at every precision" if len(counts) == 1 else "in every case that is compared"
        text = f"Batch size not given: {common:g} per device, the largest that fits {where}."
        assumed = Diagnostic("default-batch", Severity.ASSUMPTION, text)
        if len({*batches.values()}) > 1:
            smaller |= {place: (requests[place].with_(batch_size=common), assumed) for place in batches}
    if not smaller:
        return found
    both = Predictions.together([found, answers([request for request, _ in smaller.values()])])
    order = list(both.order[: len(requests)])
    for (place, (_, assumed)), answer in zip(smaller.items(), both.answers[len(requests) :], strict=True):
        order[place] = (
            answer.remarking(assumed)
            if isinstance(answer, Prediction)
            else Skipped.of(requests[place], answer.raised)
        )
    return replace(both, order=tuple(order))


def _says_batch(request: Request) -> bool:
    given = request.given()
    return any(
        given.get(name) is not None for name in ("batch_size", "global_batch_size", "global_batch_tokens")
    )


def _read(given: Mapping[str, Any]) -> Request | Skipped:
    try:
        return Request.of(given)
    except PrecisionTimeError as error:
        return Skipped(request=plain_fields(given), reason=str(error))
