"""Degrees that do divide: what a refusal offers instead of those that do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

_NEIGHBORS = 8
"""Divisors tried per axis, the nearest to the wanted degree."""


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return sorted({*small, *(number // value for value in small)})


def nearest_divisor(number: int, wanted: int, accept: Callable[[int], bool] | None = None) -> int:
    """The divisor of `number` nearest to `wanted` in ratio, the smaller of two; 1 if none is accepted.

    >>> nearest_divisor(96, 5)
    6
    """
    found = [value for value in divisors(number) if accept is None or accept(value)]
    return min(found, key=lambda value: _distance(value, wanted), default=1)


def nearest_multiple(step: int, wanted: int) -> int:
    """The multiple of `step` nearest to `wanted`, at least `step`.

    >>> nearest_multiple(8, 27)
    24
    """
    below = max(wanted // step, 1) * step
    return below if wanted - below <= below + step - wanted else below + step


def nearest_degrees(
    number: int, degrees: Mapping[str, int], accept: Mapping[str, Callable[[int], bool]] | None = None
) -> dict[str, int]:
    """The degrees nearest to those given whose product divides `number`; a degree of 1 stays 1.

    >>> nearest_degrees(6, {"tp": 4, "pp": 1})
    {'tp': 3, 'pp': 1}
    """
    rules = accept or {}
    candidates = [_candidates(number, wanted, rules.get(axis, _any)) for axis, wanted in degrees.items()]
    fitting = (choice for choice in product(*candidates) if number % math.prod(choice) == 0)
    best = min(fitting, key=lambda choice: sum(map(_distance, choice, degrees.values())))
    return dict(zip(degrees, best, strict=True))


def _candidates(number: int, wanted: int, accept: Callable[[int], bool]) -> list[int]:
    if wanted == 1:
        return [1]
    found = [value for value in divisors(number) if value == 1 or accept(value)]
    nearest = sorted(found, key=lambda value: _distance(value, wanted))[:_NEIGHBORS]
    return nearest if 1 in nearest else [*nearest, 1]


def _any(_: int) -> bool:
    return True


def _distance(value: int, wanted: int) -> float:
    return abs(math.log(value / wanted))
