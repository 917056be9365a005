"""Slurm's way of naming many hosts at once: `gpu[01-04,07],login1`."""

from __future__ import annotations

import re
from itertools import product

from ..errors import CatalogError

_MOST = 1_000_000
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
        hosts += ["".join(parts) for parts in product(*choices)]
        if len(hosts) > _MOST:
            raise _broken(text, f"it names more than {_MOST:,} hosts")
    return hosts


def _range(piece: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in piece.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise _broken(text, f"{part!r} is not a range of numbers")
        if int(last) - int(first) > _MOST:
            raise _broken(text, f"it names more than {_MOST:,} hosts")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _broken(text: str, why: str) -> CatalogError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return CatalogError(f"The host list {shown!r} cannot be read: {why}. To fix: write it like gpu[01-04].")
