"""Single predictions, gathered: calls that wait while one batch is computed are the next batch.

An answer costs less beside others (docs/devdocs/service.md), and one thread computes all of them, so
that the event loop stays free. Nothing waits for a batch to fill. What to ask for where a job does not fit
takes twenty times as long as an answer: it is worked out in another process, so that no other call waits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from precision_time.barrier import data_only
from precision_time.diagnostics import Diagnostic, Severity
from precision_time.errors import PrecisionTimeError
from precision_time.predict.api import predict_each
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request

from .problems import BusyError, TimeLimitError

Answer = Prediction | PrecisionTimeError
_Found = TypeVar("_Found")
MOST_AT_ONCE = 16
"""Calls in a batch."""
_SLICE = 128
"""Jobs of a call that are answered before others are."""
WITHOUT_REMEDY = Diagnostic(
    "memory",
    Severity.WARNING,
    "What to ask for instead was not worked out: the service is busy. To fix: come again.",
)


class Predictions:
    """Answers requests in a thread of its own."""

    def __init__(self, remedied: Callable[[Request], Awaitable[Prediction]], *, time_limit_s: float) -> None:
        """With what it needs.

        Args:
            remedied: Answers a request that does not fit, saying what to ask for instead.
            time_limit_s: After which a thread that does not come back is replaced.
        """
        self._remedied = remedied
        self._time_limit_s = time_limit_s
        self._thread = _thread()
        self._turn = asyncio.Lock()
        self._waiting: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
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
        if not isinstance(answer, Prediction):
            raise answer
        if answer.fits:
            return answer
        try:
            return await self._remedied(request)
        except BusyError:
            return answer.remarking(WITHOUT_REMEDY)

    async def predict_each(self, requests: Sequence[Request]) -> list[Answer]:
        """The answer to each request of one call, or why it has none; other calls are answered in between."""
        found: list[Answer] = []
        for start in range(0, len(requests), _SLICE):
            found += await self._computed(_answers, requests[start : start + _SLICE])
        return found

    async def _work(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                # Of the others the caller has gone.
                some = [(request, future) for request, future in some if not future.done()]
                try:
                    answers = await self._computed(_answers, [request for request, _ in some])
                except Exception as error:  # noqa: BLE001 - unforeseen: each call must hear of it
                    for _, future in some:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(some, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._working = False

    async def _computed(self, function: Callable[..., _Found], *arguments: Any) -> _Found:
        """`function(*arguments)` in the thread, in its turn.

        Raises:
            TimeLimitError: If the thread does not come back; another one answers the calls that wait.
        """
        await self._turn.acquire()
        # Beyond a caller who goes: until then the thread is not free.
        return await asyncio.shield(asyncio.ensure_future(self._in_thread(function, *arguments)))

    async def _in_thread(self, function: Callable[..., _Found], *arguments: Any) -> _Found:
        try:
            computed = asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
            done, _ = await asyncio.wait([computed], timeout=self._time_limit_s)
            if done:
                return computed.result()
            self._thread.shutdown(wait=False)
            self._thread = _thread()
            raise TimeLimitError(
                f"No answer within {self._time_limit_s:g} s. The rule: longer work is given up. To fix: ask "
                "for less at once, or let the operator raise the limit (--time-limit)."
            )
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the thread; what waits is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="predictions")


def _answers(requests: Sequence[Request]) -> list[Answer]:
    with data_only():  # words are written here, too: not while the other calls wait
        found = predict_each(requests, remedies=False)
        return [answer.whole() if isinstance(answer, Prediction) else answer for answer in found]
