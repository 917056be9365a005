"""What every answer can do, once it says its blocks: text, notebook, JSON, one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from ..diagnostics import Diagnostic, Severity, texts_of
from ..errors import ConfigError, required_module, shown
from ..plain import from_plain, to_plain
from .blocks import TEXT_WIDTH, Block
from .html import fragment
from .terminal import text_of_blocks

_FRAMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "pandas": ("frames", {}),
    "polars": ("polars", {"strict": False}),  # else 1 beside 0.5 in a column is an error
}
"""Libraries of data frames: extra of this project that brings it, options of its `DataFrame`."""


class Result:
    """What every answer can do once it says its blocks; base of frozen dataclasses (with `repr=False`)."""

    __slots__ = ()
    DERIVED: ClassVar[tuple[str, ...]] = ()
    """Properties that `to_dict` has beside the fields."""
    LEADING: ClassVar[tuple[str, ...]] = ()
    """Keys that `to_dict` has first, in this order: what decides."""

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
        found = fields | {name: getattr(self, name) for name in self.DERIVED}
        return {name: found[name] for name in self.LEADING} | found

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


class Remarked(Result):
    """A result that says what was filled in and what to act on."""

    __slots__ = ()
    if TYPE_CHECKING:
        diagnostics: tuple[Diagnostic, ...]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return texts_of(self.diagnostics, Severity.ASSUMPTION)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to act on, in words."""
        return texts_of(self.diagnostics, Severity.WARNING)


class Tabular(Result):
    """A result of many rows."""

    __slots__ = ()

    def columns(self) -> dict[str, list[Any]]:
        """One list for each column."""
        raise NotImplementedError

    def to_frame(self, backend: Literal["pandas", "polars"] | None = None) -> Any:
        """The columns as a data frame.

        Args:
            backend: pandas or polars; None for the one that is installed, pandas first.

        Raises:
            ConfigError: If the backend is another one.
            MissingExtraError: If neither is installed, or the one that is asked for is not.
        """
        name = backend or ("polars" if not find_spec("pandas") and find_spec("polars") else "pandas")
        if name not in _FRAMES:
            raise ConfigError(f"backend {shown(name)} makes no data frames. To fix: {' or '.join(_FRAMES)}.")
        extra, options = _FRAMES[name]
        module = required_module(name, package=name, extra=extra, purpose="make data frames")
        return module.DataFrame(self.columns(), **options)
