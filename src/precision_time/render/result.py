"""What every answer can do, once it says its blocks: text, notebook, JSON, one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from ..plain import from_plain, to_plain
from .blocks import TEXT_WIDTH, Block
from .html import fragment
from .terminal import text_of_blocks


class Result:
    """What every answer can do once it says its blocks; base of frozen dataclasses (with `repr=False`)."""

    __slots__ = ()
    DERIVED: ClassVar[tuple[str, ...]] = ()
    """Properties that `to_dict` has beside the fields."""

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterable[Block]:
        """The page.

        Args:
            width: Columns of the page [characters].
            why: All that is known, rather than what matters most.
        """
        raise NotImplementedError

    def notebook(self) -> Iterable[Block]:
        """What a notebook shows: the page, unless it has a shorter one."""
        return self.blocks()

    def in_one_line(self) -> str:
        """What it says, in a line."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        fields: dict[str, Any] = to_plain(self)
        return fields | {name: getattr(self, name) for name in self.DERIVED}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """The way back from `to_dict`; fields that it leaves out are as if they had not been given.

        Raises:
            ConfigError: If it is no such dictionary.
        """
        return from_plain(cls, given)

    def __repr__(self) -> str:
        """One line; `str` is the page, `to_dict` has every field."""
        return f"<{type(self).__name__} {self.in_one_line()}>"

    def __str__(self) -> str:
        """The page that the command line prints."""
        return text_of_blocks(self.blocks())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(self.notebook())
