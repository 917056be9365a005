"""`create_app`: the service as an ASGI application."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from precision_time import __version__
from precision_time.errors import ConfigError
from precision_time.plugins import left_out, loaded

from . import openapi, problems
from .guard import Guard
from .routes import (
    calibrations,
    catalogs,
    clusters,
    comparisons,
    evaluations,
    layouts,
    measurements,
    models,
    operations,
    page,
    plans,
    predictions,
    runs,
    timelines,
)
from .service import Service
from .settings import Settings
from .store.store import open_store

_SWITCH_S = 0.001
"""The event loop waits this long for the thread that computes, each time: a fifth of Python's default."""
_OBJECTS = 200_000
"""New objects before a search for cycles: as of the command line, searches took a tenth of an answer."""
ROUTES = (
    operations,
    predictions,
    comparisons,
    runs,
    plans,
    layouts,
    timelines,
    catalogs,
    models,
    clusters,
    measurements,
    calibrations,
    evaluations,
)
"""Of the server itself, in the order of the reference; those of plug-ins follow, then the page."""


def routers() -> tuple[APIRouter, ...]:
    """All routes: the server's, those of plug-ins (group `routes`), the page."""
    added = []
    for plugin, given in loaded("routes").items():
        if isinstance(given, APIRouter):
            added.append(given)
        else:
            left_out("routes", plugin, ConfigError(f"{type(given).__name__} is no APIRouter"))
    return (*(group.router for group in ROUTES), *added, page.router)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; its store is opened and the predictor loaded when it starts.

    Args:
        settings: None for the defaults.
    """
    chosen = settings or Settings.of({})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = Service(chosen, open_store(chosen.store.get_secret_value(), quotas=chosen.quotas))
        app.state.service = service
        try:
            await service.warm_up()
            gc.collect()
            gc.freeze()  # the predictor stays: searches for cycles need not walk it
            gc.set_threshold(_OBJECTS, 10, 10)
            sys.setswitchinterval(_SWITCH_S)
            yield
        finally:
            service.close()

    app = FastAPI(
        title="precision-time",
        version=__version__,
        description="How long a training step or run takes, at every precision, before a GPU is rented.",
        lifespan=lifespan,
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
    )
    app.state.settings = chosen
    problems.install(app)
    found = routers()
    openapi.install(app, found)
    for each in found:
        app.include_router(each)
    app.add_middleware(Guard, settings=chosen)
    if chosen.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=chosen.cors_origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
        )
    return app


def app_of_environment() -> FastAPI:
    """The application of a worker process, whose settings are in its environment."""
    return create_app(Settings.from_environment())
