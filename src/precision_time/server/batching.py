"""Single predictions, gathered: calls that wait while one batch is computed are the next batch.

An answer costs less beside others (docs/devdocs/018-service.md), and one thread computes all of them, so that
the event loop stays free. Nothing waits for a batch to fill. What to ask for where a job does not fit takes ten
times as long as an answer: it is worked out for one job at a time, when no other call waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import PrecisionTimeError
from ..predict.api import predict, predict_each
from ..predict.prediction import Prediction
from ..request.captured import named_models_only
from ..request.request import Request

Answer = Prediction | PrecisionTimeError
_Found = TypeVar("_Found")
_Waiting = deque[tuple[Request, "asyncio.Future[Answer]"]]
MOST_AT_ONCE = 16
"""Calls in a batch."""


class Predictions:
    """Answers requests in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predictions")
        self._waiting: _Waiting = deque()
        self._unfitting: _Waiting = deque()
        """Jobs that do not fit, whose callers wait for what to ask for instead."""
        self._working = False

    async def predict(self, request: Request) -> Prediction:
        """The answer to one request.

        Raises:
            PrecisionTimeError: As `predict_time`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((request, future))
        if not self._working:
            self._working = True
            # Apart from the call that started it: that one may be given up while others wait.
            self._task = loop.create_task(self._work(), context=contextvars.Context())
        answer = await future
        if isinstance(answer, Prediction):
            return answer
        raise answer

    async def predict_each(self, requests: Sequence[Request]) -> list[Answer]:
        """The answer to each request of one call, or why it has none; other calls are answered in between."""
        found: list[Answer] = []
        for start in range(0, len(requests), _SLICE):
            found += await self._computed(_answers, requests[start : start + _SLICE])
        return found

    async def _work(self) -> None:
        try:
            while self._waiting or self._unfitting:
                if self._waiting:
                    await self._answer_some()
                else:
                    await self._remedy_one()
        finally:
            self._working = False

    async def _answer_some(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
        some = [(request, future) for request, future in some if not future.done()]  # its caller has gone
        try:
            answers = await self._computed(_answers, [request for request, _ in some])
        except Exception as error:  # noqa: BLE001 - unforeseen: each call must hear of it
            for _, future in some:
                _settle(future, error)
            return
        for (request, future), answer in zip(some, answers, strict=True):
            if isinstance(answer, Prediction) and not answer.fits:
                self._unfitting.append((request, future))
            else:
                _settle(future, answer)

    async def _remedy_one(self) -> None:
        request, future = self._unfitting.popleft()
        if not future.done():
            try:
                _settle(future, await self._computed(_answer_with_remedy, request))
            except Exception as error:  # noqa: BLE001 - expected or not, the call hears of it
                _settle(future, error)

    async def _computed(self, function: Callable[..., _Found], *arguments: Any) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the thread; what waits is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)


_SLICE = 64
"""Jobs of a call that are answered before others are."""


def _settle(future: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if future.done():  # the caller has gone
        return
    if isinstance(answer, Exception) and not isinstance(answer, PrecisionTimeError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _answers(requests: Sequence[Request]) -> list[Answer]:
    with named_models_only():
        return list(predict_each(requests, remedies=False))


def _answer_with_remedy(request: Request) -> Prediction:
    with named_models_only():
        return predict(request)
