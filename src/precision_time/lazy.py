"""Tables of which one answer needs a few rows: each row is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

Raw = TypeVar("Raw")
Made = TypeVar("Made")


class LazyTable(Mapping[str, Made], Generic[Raw, Made]):
    """What `make(name, raw)` gives for each row of a mapping, kept once it is made.

    >>> table = LazyTable({"a": "1", "b": "not read"}, lambda _, text: int(text))
    >>> table["a"], "b" in table, list(table)
    (1, True, ['a', 'b'])
    """

    def __init__(self, raw: Mapping[str, Raw], make: Callable[[str, Raw], Made]) -> None:
        self._raw, self._make = raw, make
        self._made: dict[str, Made] = {}

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            self._made[name] = self._make(name, self._raw[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)
