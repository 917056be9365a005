"""Rules as data: ordered tables of patterns over the columns of a row; the first that fits decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ..cache import data
from ..errors import CorpusError
from ..io import packaged_toml
from ..records import dataclass
from .schema import Row

_NAMED = re.compile(r"<(\w+)>")
"""In a pattern: another one by its name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for the rows whose columns match all of `when`."""

    when: Mapping[str, re.Pattern[str]]
    values: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, text: Callable[[str], str]) -> bool:
        """Whether every pattern is found in its column; `text` gives a column's cell."""
        return all(pattern.search(text(column)) for column, pattern in self.when.items())


def first_match(table: str, row: Row) -> Mapping[str, Any] | None:
    """The values of the first rule of `table` that fits the row, or None."""
    return next(iter(all_matches(table, row)), None)


def all_matches(table: str, row: Row) -> tuple[Mapping[str, Any], ...]:
    """The values of every rule of `table` that fits the row, in order."""
    return tuple(rule.values for rule in load_rules(table, curated=row.curated) if rule.fits(row.text))


@data
def load_rules(table: str, *, curated: bool = False) -> tuple[Rule, ...]:
    """The rules of the array of tables `table`, in order."""
    general, ours = _document("rules"), _document("curation")
    if table not in general and table not in ours:
        raise CorpusError(f"corpus/data/rules.toml has no table {table!r}. To fix: reinstall the package.")
    named = general["patterns"]
    rules = []
    for entry in (*(ours.get(table, ()) if curated else ()), *general.get(table, ())):
        values = {key: value for key, value in entry.items() if key != "when"}
        when = {
            column: re.compile(_NAMED.sub(lambda match: f"(?:{named[match[1]]})", pattern), re.IGNORECASE)
            for column, pattern in entry.get("when", {}).items()
        }
        rules.append(Rule(when=when, values=values))
    return tuple(rules)


def load_table(table: str) -> Mapping[str, Any]:
    """A plain table of corpus/data/rules.toml."""
    value: Mapping[str, Any] = _document("rules")[table]
    return value


def round_year(row: Row) -> float | None:
    """When the benchmark round that a row of our own corpus comes from was submitted; None for other rows."""
    year = _document("curation")["rounds"].get(row.text("source")) if row.curated else None
    return None if year is None else float(year)


def _document(name: str) -> Mapping[str, Any]:
    return packaged_toml(__package__, f"data/{name}.toml")
