"""The parts of a running service, and how routes get at them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import Depends
from starlette.requests import Request as HttpRequest

from precision_time.learn.artifact import chosen_predictor
from precision_time.predict.api import predict
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request

from .answered import Answered
from .batching import Predictions
from .clusters import ReadyPoints, cluster_fields
from .long_work import LongWork
from .settings import Settings
from .uploads import Uploads

if TYPE_CHECKING:
    from precision_time.workload.graph import OpGraph

    from .store.store import Store


_Part = TypeVar("_Part")


def _whole(request: Request) -> Prediction:
    """An answer with all its words, the remedy included: whoever waits for it reads them."""
    return predict(request).whole()


class Service:
    """What one worker process holds; everything that must outlive it is in the store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        # Apart from long work, behind which it would wait.
        self._remedies = LongWork(processes=1, time_limit_s=settings.time_limit_s)
        self.predictions = Predictions(
            partial(self._remedies.run, _whole), time_limit_s=settings.time_limit_s
        )
        self.long_work = LongWork(processes=settings.processes, time_limit_s=settings.time_limit_s)
        self.uploads = Uploads(store)
        self.ready_points = ReadyPoints()
        self.answered = Answered()
        self.parts: dict[Callable[[], Any], Any] = {}
        """What routes of other parts keep, by what made it."""
        self.ready = False
        self._served = self._certificate()

    async def warm_up(self) -> None:
        """Load the predictor, so that the first call does not wait for it."""
        await to_thread.run_sync(chosen_predictor, None)
        self.ready = True

    async def cluster_fields(self, name: Any) -> dict[str, Any]:
        """What a stored cluster says of its jobs: defaults, hardware, and the points that move their answers.

        Raises:
            NotFoundError: If there is none.
        """
        return await cluster_fields(name, self)

    async def uploaded_graph(self, name: str) -> OpGraph:
        """The operators of an uploaded model.

        Raises:
            NotFoundError: If there is none.
        """
        return await self.uploads.graph(name)

    def certificate_renewed(self) -> bool:
        """Whether the file of the certificate is another one than at the start, which is served."""
        return self._certificate() not in (self._served, None)

    def _certificate(self) -> tuple[int, int] | None:
        """What changes when the file is replaced; None where it is not there at this moment."""
        try:
            found = None if self.settings.tls_cert is None else self.settings.tls_cert.stat()
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_ino)

    def part(self, make: Callable[[], _Part]) -> _Part:
        """What `make` gives, made once: routes keep it for as long as this service runs."""
        if make not in self.parts:
            self.parts[make] = make()
        found: _Part = self.parts[make]
        return found

    def close(self) -> None:
        """End threads and processes, close the store."""
        self.predictions.close()
        self._remedies.close()
        self.long_work.close()
        self.store.close()


async def service_of(request: HttpRequest) -> Service:
    """The service that answers a call; async, or FastAPI would ask another thread for it."""
    found: Service = request.app.state.service
    return found


ServiceDependency = Annotated[Service, Depends(service_of)]
