"""AdmissionReview of Kubernetes (admission.k8s.io/v1): what an API server asks a webhook, and the answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_time.errors import ConfigError, printable, shown

from .annotations import annotated, patch_of
from .kinds import KINDS, at, items, kind_of

VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
MOST_BYTES = 8 * 2**20
"""Of a review: an API server takes objects of up to 3 MiB, and sends a changed one twice."""
_LONGEST_UID = 256
_LONGEST_WARNING, _MOST_WARNINGS = 240, 8
"""API servers cut what is longer than 256 characters, and 4096 of all warnings together."""
_OWN_GROUPS = frozenset(kind.group for kind in KINDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Review:
    """One question of an API server."""

    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    subresource: str
    object: Mapping[str, Any]
    """Empty where something is deleted."""


def read_review(body: Any) -> Review:
    """The question in a body.

    Raises:
        ConfigError: If it is no AdmissionReview of version v1 with a request and its uid.
    """
    remedy = "To fix: admissionReviewVersions: [v1] in the MutatingWebhookConfiguration."
    if not isinstance(body, Mapping) or (body.get("apiVersion"), body.get("kind")) != (VERSION, KIND):
        given = (body.get("apiVersion"), body.get("kind")) if isinstance(body, Mapping) else body
        raise ConfigError(f"The body is {shown(given)}. The rule: an {KIND} of {VERSION}. {remedy}")
    request = at(body, "request")
    uid, operation = request.get("uid"), request.get("operation")
    if not isinstance(uid, str) or not 0 < len(uid) <= _LONGEST_UID:
        raise ConfigError(
            f"request.uid is {shown(uid)}. The rule: a text, which the answer repeats. {remedy}"
        )
    if operation not in ("CREATE", "UPDATE", "DELETE", "CONNECT"):
        raise ConfigError(f"request.operation is {shown(operation)}. The rule: CREATE and the like. {remedy}")
    return Review(
        uid=uid,
        operation=operation,
        subresource=at(request, "subResource", kind=str),
        object=at(request, "object"),
    )


def is_asked(review: Review) -> bool:
    """Whether there is a job to predict: one that is created, and not by the controller of another one."""
    return (
        review.operation == "CREATE"
        and not review.subresource
        and kind_of(review.object) is not None
        and not _is_part(review.object)
    )


def _is_part(document: Mapping[str, Any]) -> bool:
    """Whether a controller made the object for a job that was predicted itself (a Job of a JobSet ...)."""
    try:
        owners = items(document, "metadata", "ownerReferences")
    except ConfigError:
        return False
    groups = {
        str(owner.get("apiVersion", "")).partition("/")[0] for owner in owners if owner.get("controller")
    }
    return bool(groups & _OWN_GROUPS)


def answer_review(review: Review) -> dict[str, Any]:
    """The answer to a question that `is_asked`: the job is allowed, with what is predicted of it as a patch.

    What cannot be predicted is allowed as it is, and the warning says why; a job without accelerators that
    states no training is allowed without one.
    """
    found = annotated(review.object)
    if found is None:
        return allowed(review.uid)
    patch = patch_of(review.object, found.changes)
    return allowed(review.uid, patch=patch, warnings=found.warnings if found.trains else ())


def allowed(
    uid: str, *, patch: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """An answer that allows what was asked.

    Args:
        uid: Of the question.
        patch: Operations of a JSON Patch.
        warnings: Shown by `kubectl` to whoever asked.
    """
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        text = json.dumps(patch, separators=(",", ":"), allow_nan=False)
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(text.encode()).decode()}
    if warnings:
        response["warnings"] = [_warning(text) for text in warnings[:_MOST_WARNINGS]]
    return {"apiVersion": VERSION, "kind": KIND, "response": response}


def _warning(text: str) -> str:
    line = " ".join(printable(f"precision-time: {text}").split())
    return line if len(line) <= _LONGEST_WARNING else f"{line[: _LONGEST_WARNING - 4]} ..."
