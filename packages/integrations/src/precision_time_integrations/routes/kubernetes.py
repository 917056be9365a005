"""Kubernetes: an API server asks of each job that is created, and is told what to write into it."""

from __future__ import annotations

import asyncio
import logging

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time_server.routing import (
    PREDICTIONS,
    PROBLEMS,
    ServiceDependency,
    body,
    json_object,
    json_response,
)

from ..kubernetes.admission import (
    KIND,
    MOST_BYTES,
    VERSION,
    allowed,
    answer_review,
    is_asked,
    read_review,
)

router = APIRouter(prefix="/v1/kubernetes", tags=["kubernetes"])
LIMIT_S = 2.0
"""Of one answer: whoever creates a job waits for it."""
_ADMISSIONS = 4
"""Threads that answer API servers, apart from all others: their time is short."""
_log = logging.getLogger("precision_time_server")
_VERSION = {"apiVersion": {"const": VERSION}, "kind": {"const": KIND}}
_QUESTION = {
    "type": "object",
    "required": ["apiVersion", "kind", "request"],
    "properties": {
        **_VERSION,
        "request": {
            "type": "object",
            "required": ["uid", "operation"],
            "properties": {
                "uid": {"type": "string"},
                "operation": {"enum": ["CREATE", "UPDATE", "DELETE", "CONNECT"]},
                "object": {"type": ["object", "null"], "description": "The job, as it is to be created."},
                "dryRun": {"type": "boolean", "description": "Makes no difference: nothing is stored."},
            },
        },
    },
}
_ANSWER = {
    "type": "object",
    "required": ["apiVersion", "kind", "response"],
    "properties": {
        **_VERSION,
        "response": {
            "type": "object",
            "required": ["uid", "allowed"],
            "properties": {
                "uid": {"type": "string"},
                "allowed": {"const": True},
                "patchType": {"const": "JSONPatch"},
                "patch": {"type": "string", "contentEncoding": "base64"},
                "warnings": {"type": "array", "items": {"type": "string", "maxLength": 256}},
            },
            "additionalProperties": False,
        },
    },
}
_EXAMPLE_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "resnet50",
        "namespace": "research",
        "annotations": {
            "precision-time.dev/job": '{"model": "resnet50", "precision": "bf16-mixed", "batch_size": 256, '
            '"epochs": 90}'
        },
    },
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
                "containers": [
                    {
                        "name": "train",
                        "image": "example.com/team/train",
                        "command": ["torchrun", "--nproc_per_node=8", "train.py"],
                        "resources": {"limits": {"nvidia.com/gpu": "8"}},
                    }
                ],
            }
        }
    },
}


def _admissions() -> CapacityLimiter:
    return CapacityLimiter(_ADMISSIONS)


@router.post(
    "/admission",
    summary="Answer an API server of Kubernetes",
    responses={
        200: {
            "description": "An AdmissionReview with a response, whose patch is base64 of a JSON Patch.",
            "content": {"application/json": {"schema": _ANSWER}},
        },
        **PROBLEMS,
    },
    openapi_extra=body(
        _QUESTION,
        job={
            "apiVersion": VERSION,
            "kind": KIND,
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "operation": "CREATE",
                "object": _EXAMPLE_JOB,
                "dryRun": False,
            },
        },
    ),
)
async def admission(request: HttpRequest, service: ServiceDependency) -> Response:
    """A mutating admission webhook: every job is allowed, and a job that can be predicted gets annotations.

    They hold seconds, their interval, money and the version; a job without a limit of time gets one, too.
    Within 2 seconds, or the job is allowed as it is. Nothing of the object is run, and no file is read.
    """
    review = read_review(await json_object(request, most_bytes=MOST_BYTES))
    if not is_asked(review):
        return json_response(allowed(review.uid))
    try:
        async with asyncio.timeout(LIMIT_S):
            found = await to_thread.run_sync(
                answer_review, review, abandon_on_cancel=True, limiter=service.part(_admissions)
            )
    except TimeoutError:
        return json_response(allowed(review.uid, warnings=[f"not predicted within {LIMIT_S:g} s"]))
    except Exception:  # a job is never held up by a mistake of ours
        _log.exception("an admission review was not answered")
        return json_response(allowed(review.uid, warnings=["not predicted: unexpected error"]))
    PREDICTIONS.inc()
    return json_response(found)
