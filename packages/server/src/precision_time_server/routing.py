"""What route files of other parts import of the server: nothing else of it is theirs.

A part declares its routes in the group `precision_time.routes`, each an `APIRouter`. What it keeps as long as
a service runs is `service.part(make)`.
"""

from __future__ import annotations

from .bodies import json_object, json_response
from .jobs import checked, resolved
from .metrics import PREDICTIONS
from .openapi import answer, arguments_part, body, job_part
from .problems import PROBLEMS, NotFoundError, TooLargeError, problem_of
from .service import Service, ServiceDependency
from .store.store import Store

__all__ = [
    "PREDICTIONS",
    "PROBLEMS",
    "NotFoundError",
    "Service",
    "ServiceDependency",
    "Store",
    "TooLargeError",
    "answer",
    "arguments_part",
    "body",
    "checked",
    "job_part",
    "json_object",
    "json_response",
    "problem_of",
    "resolved",
]
