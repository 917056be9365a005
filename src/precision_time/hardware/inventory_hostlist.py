"""Slurm's way of naming many hosts at once: `gpu[01-04,07],login1`."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from ..errors import CatalogError, shown

_MOST = 200_000
_MOST_DIGITS = 18
_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expand_hostlist(text: str) -> list[str]:
    """Every host that a host list names, in its order.

    Args:
        text: Names and ranges; numbers keep their leading zeros.

    Raises:
        CatalogError: If a bracket is open or a range is none.

    >>> expand_hostlist("gpu[08-10,12],login1")
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    hosts: list[str] = []
    for item in filter(None, _OUTER_COMMA.split(text.strip())):
        plain = _BRACKETS.sub("", item)
        if "[" in plain or "]" in plain:
            raise _broken(text, "a bracket is not closed, so the list was cut off")
        pieces = _BRACKETS.split(item)
        choices = [[piece] if place % 2 == 0 else _range(piece, text) for place, piece in enumerate(pieces)]
        if len(hosts) + prod(map(len, choices)) > _MOST:
            raise _broken(text, f"it names more than {_MOST:,} hosts")
        hosts += ["".join(parts) for parts in product(*choices)]
    return hosts


def _range(piece: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in piece.split(","):
        first, _, last = part.partition("-")
        last = last or first
        is_number = all(end.isdecimal() and len(end) <= _MOST_DIGITS for end in (first, last))
        if not is_number or int(first) > int(last):
            raise _broken(text, f"{part!r} is no range of numbers")
        if len(numbers) + int(last) - int(first) >= _MOST:
            raise _broken(text, f"it names more than {_MOST:,} hosts")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _broken(text: str, why: str) -> CatalogError:
    return CatalogError(
        f"The host list {shown(text)} cannot be read: {why}. To fix: write it like gpu[01-04]."
    )
