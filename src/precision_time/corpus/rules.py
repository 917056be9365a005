"""Rules as data: ordered tables of patterns over the columns of a row; the first that fits decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from ..errors import CorpusError
from ..io import packaged_toml


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for the rows whose columns match all of `when`."""

    when: Mapping[str, re.Pattern[str]]
    values: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, text: Callable[[str], str]) -> bool:
        """Whether every pattern is found in its column; `text` gives a column's cell."""
        return all(pattern.search(text(column)) for column, pattern in self.when.items())


def first_match(table: str, text: Callable[[str], str]) -> Mapping[str, Any] | None:
    """The values of the first rule of `table` that fits the row, or None."""
    return next(iter(all_matches(table, text)), None)


def all_matches(table: str, text: Callable[[str], str]) -> tuple[Mapping[str, Any], ...]:
    """The values of every rule of `table` that fits the row, in file order."""
    return _all_matches(table, tuple(text(column) for column in _columns(table)))


@lru_cache(maxsize=65536)
def _all_matches(table: str, cells: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
    """As `all_matches`: rows agree in most columns, so most answers are remembered."""
    text = dict(zip(_columns(table), cells, strict=True)).__getitem__
    return tuple(rule.values for rule in load_rules(table) if rule.fits(text))


@cache
def _columns(table: str) -> tuple[str, ...]:
    return tuple(sorted({column for rule in load_rules(table) for column in rule.when}))


@cache
def load_rules(table: str) -> tuple[Rule, ...]:
    """The rules of the array of tables `table` in corpus/data/rules.toml, in file order."""
    document = _document()
    if table not in document:
        raise CorpusError(f"corpus/data/rules.toml has no table {table!r}. To fix: reinstall the package.")
    named = document["patterns"]
    rules = []
    for entry in document[table]:
        values = {key: value for key, value in entry.items() if key != "when"}
        when = {
            column: re.compile(_expand(pattern, named), re.IGNORECASE)
            for column, pattern in entry.get("when", {}).items()
        }
        rules.append(Rule(when=when, values=values))
    return tuple(rules)


@cache
def load_table(table: str) -> Mapping[str, Any]:
    """A plain table of corpus/data/rules.toml."""
    value: Mapping[str, Any] = _document()[table]
    return value


def _document() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/rules.toml")


def _expand(pattern: str, named: Mapping[str, str]) -> str:
    """`pattern` with every <name> replaced by the named pattern."""
    return re.sub(r"<(\w+)>", lambda match: f"(?:{named[match[1]]})", pattern)
