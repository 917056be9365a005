"""Remember results by the identity of a large immutable argument, which would be slow to hash."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

_Key = TypeVar("_Key")
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")
_SIZE = 512


def cache_by_identity(
    function: Callable[Concatenate[_Key, _Rest], _Result],
) -> Callable[Concatenate[_Key, _Rest], _Result]:
    """`function` with its last results kept, by which object its first argument is and what the others equal.

    The first argument is kept alive with its result, so that its identity cannot be reused.

    Args:
        function: Pure; positional arguments only, the ones after the first hashable.
    """
    kept: OrderedDict[tuple[Hashable, ...], tuple[_Key, _Result]] = OrderedDict()

    @wraps(function)
    def remembered(first: _Key, /, *rest: _Rest.args, **named: _Rest.kwargs) -> _Result:
        key = (id(first), *rest, *sorted(named.items()))
        if key in kept:
            kept.move_to_end(key)
            return kept[key][1]
        result = function(first, *rest, **named)
        kept[key] = (first, result)
        if len(kept) > _SIZE:
            kept.popitem(last=False)
        return result

    return remembered
