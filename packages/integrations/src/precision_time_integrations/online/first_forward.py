"""The inputs of the first training step, seen as the model is called: no batch is read twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def on_first_forward(model: Any, call: Callable[[Any], None]) -> Callable[[], None]:
    """Call something before the first forward pass of a module in training mode.

    Args:
        model: A `torch.nn.Module`, wrapped or not.
        call: Takes what the module is called with: a mapping of names, or a tuple where it has no names.

    Returns:
        What stops waiting for it.
    """

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module.training:
            handle.remove()  # first: `call` runs a copy of the module
            call(_batch(module, args, kwargs))

    handle = model.register_forward_pre_hook(before, with_kwargs=True)
    return handle.remove  # type: ignore[no-any-return]


def _batch(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not kwargs:
        return args
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # compiled: it has no signature
        return args or kwargs
    return {**dict(zip(names, args, strict=False)), **kwargs}
