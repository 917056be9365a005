"""Health, readiness and figures of the service."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter
from starlette.responses import Response

from precision_time import __version__

from ..bodies import json_response
from ..metrics import exposition
from ..problems import PROBLEMS, UnavailableError
from ..service import ServiceDependency

router = APIRouter(tags=["operations"])


def _says(example: dict[str, Any], description: str) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    return {200: {"description": description, "content": content}}


@router.get(
    "/health/live",
    summary="Whether the process answers",
    responses={**_says({"status": "live"}, "It does."), **PROBLEMS},
)
async def live(service: ServiceDependency) -> Response:
    """Restart the process where this fails: it does not answer, or serves a certificate that was renewed."""
    if service.certificate_renewed():
        raise UnavailableError(
            "The certificate was renewed. To fix: restart the service, which reads it then."
        )
    return json_response({"status": "live"})


@router.get(
    "/health/ready",
    summary="Whether calls can be answered",
    responses={**_says({"status": "ready", "version": __version__}, "They can."), **PROBLEMS},
)
async def ready(service: ServiceDependency) -> Response:
    """Send no calls where this fails: the predictor is not loaded yet, or the store is away."""
    if not service.ready:
        raise UnavailableError("The predictor is not loaded yet. To fix: wait a second.")
    await to_thread.run_sync(service.store.ping)
    return json_response({"status": "ready", "version": __version__})


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    responses={200: {"description": "In Prometheus' text format.", "content": {"text/plain": {}}}},
)
async def metrics() -> Response:
    """Calls by route and status, their seconds, predictions made, of all workers of this machine."""
    text, kind = await to_thread.run_sync(exposition)
    return Response(text, headers={"content-type": kind})
