"""Calls that take the fields of `Request` as keyword arguments: their signature and their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

from .request import Request
from .schema import RequestFields
from .validation import Field

_Function = TypeVar("_Function", bound=Callable[..., Any])
_POSITIONAL = "model"


def takes_request_fields(
    *,
    without: Iterable[str] = (),
    only: Iterable[str] = (),
    also: Mapping[str, Field] | None = None,
) -> Callable[[_Function], _Function]:
    """Give a function with `**options` the signature and the argument help that the fields have.

    Args:
        without: Fields that the function does not take.
        only: The fields that it takes; all others when empty.
        also: Further fields that it takes.
    """
    left_out, kept = {_POSITIONAL, *without}, set(only)

    def decorate(function: _Function) -> _Function:
        own = inspect.signature(function)
        given = [item for item in own.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {
            name: info
            for name, info in RequestFields.model_fields.items()
            if name not in left_out and name not in own.parameters and (not kept or name in kept)
        } | dict(also or {})
        fields = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=info.default,
                annotation=info.annotation,
            )
            for name, info in taken.items()
        ]
        order = sorted([*given, *fields], key=lambda item: item.kind)
        lines = [f"    {name}: {option.help}" for name, info in taken.items() if (option := info.option)]

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **options)

        call.__signature__ = own.replace(parameters=order)  # type: ignore[attr-defined]
        call.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n" + "\n".join(lines)
        return call  # type: ignore[return-value]

    return decorate


def as_request(model: Any, options: Mapping[str, Any]) -> Request:
    """The request of a call: a model and options, or a request and changes of it."""
    if isinstance(model, Request):
        return model.with_(**options) if options else model
    return Request.of({"model": model, **options})
