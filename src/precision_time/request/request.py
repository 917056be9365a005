"""`Request`: a training job to predict.

Keyword arguments, command-line options, job files, table rows and measured runs are all requests, and
`Request.resolve` is the only builder of a `Job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from ..cost.job import Job
from ..workload.workload import Workload
from .resolve import job_of_request
from .schema import GLOBAL_BATCHES, RUN_LENGTHS, RequestFields, over


class Request(RequestFields):
    """A training job to predict. `model` is all that is needed; every gap is filled and reported."""

    def with_(self, **changes: Any) -> Self:
        """The same request with other values; layout options by their own names.

        A length of the run or a global batch takes the place of one in other words.
        """
        given = self.given()
        for names in (RUN_LENGTHS, GLOBAL_BATCHES):
            if any(changes.get(name) is not None for name in names):
                given = {name: value for name, value in given.items() if name not in names}
        return self.of(over(given, changes))

    def to_dict(self) -> dict[str, Any]:
        """`given`, ready for JSON: an object that only Python can pass is named by its type."""
        return {name: _jsonable(value) for name, value in self.given().items()}

    def resolve(self, *, named_only: bool = False, workload: Workload | None = None) -> Job:
        """The job, with every gap filled and listed in its diagnostics.

        Args:
            named_only: Take models from the catalogs only: nothing that data names is imported or run.
            workload: What the model is, where it is known already.

        Raises:
            UnknownNameError: Model, device, precision or stack that no catalog holds.
            ConfigError: Counts, batches or a precision that do not fit together.
            LayoutError: Degrees that do not divide the devices or the model.
            CaptureError: A model that cannot be turned into an operator graph.
        """
        return job_of_request(self, named_only=named_only, workload=workload)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else type(value).__name__
