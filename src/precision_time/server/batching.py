"""Single predictions, gathered: calls that wait while one batch is computed are the next batch.

An answer costs less beside others (docs/devdocs/018-service.md), and one thread computes all of them, so that
the event loop stays free. Nothing waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ..errors import PrecisionTimeError
from ..predict.api import predict_each
from ..predict.prediction import Prediction
from ..request.captured import named_models_only
from ..request.request import Request

Answer = Prediction | PrecisionTimeError
MOST_AT_ONCE = 16
"""Calls in a batch: as few as still come with what to ask for where a job does not fit."""


class Predictions:
    """Answers requests in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predictions")
        self._waiting: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._working = False

    async def predict(self, request: Request) -> Prediction:
        """The answer to one request.

        Raises:
            PrecisionTimeError: As `predict_time`.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if not self._working:
            self._working = True
            # Apart from the call that started it: that one may be given up while others wait.
            task = asyncio.get_running_loop().create_task(self._work(), context=contextvars.Context())
            task.add_done_callback(_raised)
        answer = await future
        if isinstance(answer, Prediction):
            return answer
        raise answer

    async def predict_each(self, requests: Sequence[Request]) -> list[Answer]:
        """The answer to each request of one call, or why it has none."""
        return await self._computed(requests)

    async def _work(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                some = [(request, future) for request, future in some if not future.done()]
                try:
                    answers = await self._computed([request for request, _ in some])
                except Exception as error:  # noqa: BLE001 - unforeseen: each call must hear of it
                    for _, future in some:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(some, answers, strict=True):
                    if not future.done():  # the caller may have gone
                        future.set_result(answer)
        finally:
            self._working = False

    async def _computed(self, requests: Sequence[Request]) -> list[Answer]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _answers, requests)

    def close(self) -> None:
        """End the thread; what waits is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _answers(requests: Sequence[Request]) -> list[Answer]:
    with named_models_only():
        return list(predict_each(requests))


def _raised(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
