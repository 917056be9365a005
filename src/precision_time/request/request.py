"""`Request`: a training job to predict.

Keyword arguments, command-line options, job files, table rows and measured runs are all requests, and
`Request.resolve` is the only builder of a `Job`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from ..cost.job import Job
from ..workload.workload import Workload
from .resolve import job_of_request
from .schema import ALIASES, GLOBAL_BATCHES, RUN_LENGTHS, LayoutOptions, RequestFields
from .validation import config_error


class Request(RequestFields):
    """A training job to predict. `model` is all that is needed; every gap is filled and reported."""

    @classmethod
    def of(cls, given: Mapping[str, Any], *, prefix: str = "") -> Self:
        """A request from names and values.

        Args:
            given: Field to value, layout options among them; None stands for not given.
            prefix: What stands before a field where the user wrote it: `--` for options.

        Raises:
            ConfigError: If a field is unknown or a value breaks its rule; names both as the user did.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            names = {*cls.model_fields, *LayoutOptions.model_fields} - {"layout"}
            said = {ALIASES.get(name, name): name for name in given}
            raise config_error(
                error,
                fields=names,
                spelled=lambda name: _spelled(said.get(name, name), prefix),
                as_text=bool(prefix),
            ) from None

    def with_(self, **changes: Any) -> Self:
        """The same request with other values; layout options by their own names.

        A length of the run or a global batch takes the place of one in other words.
        """
        given = self.given()
        for names in (RUN_LENGTHS, GLOBAL_BATCHES):
            if any(changes.get(name) is not None for name in names):
                given = {name: value for name, value in given.items() if name not in names}
        return self.of({**given, **changes})

    def given(self) -> dict[str, Any]:
        """The fields that were set, layout options among them, as a job file holds them."""
        fields = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        layout = fields.pop("layout", None)
        if isinstance(layout, LayoutOptions):
            fields |= {
                name: getattr(layout, name)
                for name in LayoutOptions.model_fields
                if name in layout.model_fields_set
            }
        return {name: _plain(value) for name, value in fields.items()}

    def to_dict(self) -> dict[str, Any]:
        """`given`, ready for JSON: an object that only Python can pass is named by its type."""
        return {name: _jsonable(value) for name, value in self.given().items()}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What `repr` shows: the fields that were set."""
        yield from self.given().items()

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


def _plain(value: Any) -> Any:
    """Choices as their word, paths as text."""
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else type(value).__name__


def _spelled(name: str, prefix: str) -> str:
    return f"{prefix}{name.replace('_', '-')}" if prefix else name
