"""What is remembered: every cache of the package is one of these, is bounded and cleared with the others.

* `memo(maxsize)`: work of which the same may be asked again. The least recently used is forgotten.
* `data`: what ships or stays as it is while the process runs, read once, and tables that follow from it.
* `derived`: what follows from one object, and is gone when it is.

None has a lock of ours, so that no thread waits for another, and a forked child finds none held: two threads
that ask for the same at once may both work it out. Children keep what their parent knew, which saves 50 ms of
each one's first answer; who holds what cannot be shared, as a connection, says so by `forks.in_forked_child`.
Functions are pure: what is forgotten is found again, the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Owner = TypeVar("Owner", bound="Deriving")
_MOST_DATA = 256
_MOST_DERIVED = 128
"""Of one object."""
_KEPT: dict[str, Any] = {}
"""Every `memo` and `data` by module and name."""


def memo(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep the newest results of a function of hashable arguments."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        kept: Any = functools.lru_cache(maxsize=maxsize)(function)
        _KEPT[f"{function.__module__}.{function.__qualname__}"] = kept
        return kept  # type: ignore[no-any-return]

    return decorate


def data(function: Callable[P, T]) -> Callable[P, T]:
    """Keep what a function reads of what ships or stays, by the names of ours that it is given, if any."""
    return memo(_MOST_DATA)(function)


class Deriving:
    """Base of frozen classes of which `derived` functions are asked; what they found is not pickled."""

    __slots__ = ("_derived",)
    _derived: dict[Any, Any]


def derived(function: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Keep what a function of one object (and of few hashable choices) finds with that object."""

    @functools.wraps(function)
    def kept(owner: Owner, /, *args: P.args, **named: P.kwargs) -> T:
        key = (function, args, *named.items()) if named else (function, args)
        try:
            return owner._derived[key]  # type: ignore[no-any-return]  # noqa: SLF001
        except AttributeError:
            object.__setattr__(owner, "_derived", {})
        except KeyError:
            pass
        found = function(owner, *args, **named)
        known = owner._derived  # noqa: SLF001
        if len(known) >= _MOST_DERIVED:
            known.clear()
        return known.setdefault(key, found)  # type: ignore[no-any-return]

    return kept


def entries() -> Mapping[str, int]:
    """How many results each function keeps, by module and name."""
    return {name: kept.cache_info().currsize for name, kept in _KEPT.items()}


def clear(*functions: Callable[..., Any]) -> None:
    """Forget what these functions keep, or all but what hangs on objects."""
    for kept in functions or tuple(_KEPT.values()):
        kept.cache_clear()  # type: ignore[attr-defined]
