"""Tables of launchers: which fact goes where, and what cannot be said there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..cache import data
from ..io import packaged_toml
from ..records import dataclass
from .facts import PLAIN, Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One flag, or one key of a file."""

    key: str
    """A flag, or names joined by dots; one that ends in a colon takes its value as a word behind it."""
    source: str
    """File of the launcher that reads it."""
    fact: str = ""
    """What it says; empty for a constant."""
    value: Any = None
    """The constant."""
    values: Mapping[str, Any] | None = None
    """What stands for each value of the fact; others are not said here, and an empty text is said by leaving
    the key out. None: the value itself."""
    covers: tuple[str, ...] = ()
    """Further facts that are said with it."""
    when: Mapping[str, Any] | None = None
    """Facts that must hold."""
    always: bool = False
    """Said even if the fact is plain."""

    def said(self, facts: Facts) -> Any:
        """Its value for these facts; None where it is left out."""
        if not holds(self.when, facts):
            return None
        if not self.fact:
            return self.value
        if self.fact not in facts:
            return None
        value = facts[self.fact]
        if self.values is not None:
            return self.values.get(str(value).lower())
        plain = not self.always and self.fact in PLAIN and value == PLAIN[self.fact]
        return None if plain or (not self.always and value in (None, "", 0, False)) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a launcher cannot say."""

    fact: str
    text: str
    """With facts in braces."""
    kind: Literal["error", "note"] = "note"
    values: tuple[str, ...] = ()
    """Values that it is about; none for all that are not plain."""
    covers: tuple[str, ...] = ()
    """Further facts that the text is about."""
    when: Mapping[str, Any] | None = None

    def about(self, facts: Facts) -> bool:
        """Whether it holds for these facts."""
        value = facts.get(self.fact)
        named = (
            str(value).lower() in self.values
            if self.values
            else value not in (None, PLAIN.get(self.fact, 0), "")
        )
        return named and holds(self.when, facts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A launcher at one version."""

    name: str
    title: str
    version: str
    source: str
    """Repository, commit or package, and date."""
    format: Literal["flags", "overrides", "json", "yaml"]
    file: str
    """Usual name of the file."""
    stacks: tuple[str, ...]
    """Software stacks that it runs, the usual one first; none where it runs any."""
    command: str
    """How it is started, with facts in braces; the first lines of flags, a note elsewhere."""
    settings: tuple[Setting, ...]
    limits: tuple[Limit, ...]
    models: Mapping[str, Mapping[str, str]]
    """Its own names of models, as further facts."""
    unnamed: Mapping[str, str]
    """The same where it has none."""
    ending: str
    """What ends a command line."""
    implied: tuple[Mapping[str, Any], ...]
    """Facts that a file of this launcher says by being one, or by having a key, by rules."""
    choices: Mapping[str, tuple[Mapping[str, Any], ...]]
    """Further facts by rules: the value, or the fact, of the first that holds."""

    def with_choices(self, facts: Facts) -> dict[str, Any]:
        """The facts with what this launcher derives from them."""
        found = {**facts, **self.models.get(str(facts.get("model")), self.unnamed)}
        for name, rules in self.choices.items():
            rule = next(rule for rule in rules if holds(rule.get("when"), found))
            found[name] = found[rule["fact"]] if "fact" in rule else rule["value"]
        return found


def holds(when: Mapping[str, Any] | None, facts: Facts) -> bool:
    """Whether facts have the values of a condition: one, one of several, or above or below a number.

    >>> holds({"zero_stage": [2, 3], "pp": ">1"}, {"zero_stage": 3, "pp": 4})
    True
    """
    return all(_holds(wanted, facts.get(name)) for name, wanted in (when or {}).items())


def _holds(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, list):
        return any(_holds(each, value) for each in wanted)
    if isinstance(wanted, str) and wanted[:1] in "<>" and wanted[1:]:
        least, most = (float(wanted[1:]), value or 0) if wanted[0] == ">" else (value or 0, float(wanted[1:]))
        return bool(least < most)
    return bool(value == wanted)


@data
def launcher_of(name: str) -> Launcher:
    """The table of a launcher of `LAUNCHERS`."""
    table = dict(packaged_toml(__package__, f"data/{name}.toml"))
    settings = tuple(Setting(**{**row, "covers": tuple(row.get("covers", ()))}) for row in table.pop("set"))
    limits = tuple(
        Limit(**{**row, "values": tuple(row.get("values", ())), "covers": tuple(row.get("covers", ()))})
        for row in table.pop("limit", ())
    )
    return Launcher(
        name=name,
        settings=settings,
        limits=limits,
        models=table.pop("model", {}),
        unnamed=table.pop("unnamed", {}),
        stacks=tuple(table.pop("stacks", ())),
        ending=table.pop("ending", ""),
        implied=tuple(table.pop("implied", ())),
        choices={fact: tuple(rules) for fact, rules in table.pop("choice", {}).items()},
        **table,
    )
