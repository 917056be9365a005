"""Votes for what people do where a question leaves it open, read from data/practice/*.toml."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ..cache import data
from ..io import packaged_toml
from ..records import dataclass

CLASSES = ("family", "method", "kind", "scale", "room", "chip")
"""What votes are told apart by, besides the stack and the year."""
STACK = "stack"
ANY = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """What some people of one class do."""

    votes: float
    stack: str
    fields: Mapping[str, Any]
    source: str
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of `CLASSES`; one that is missing is any."""
    year: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Votes:
    """All votes: for the stack, and for each point by point and stack."""

    stacks: tuple[Vote, ...]
    settings: Mapping[tuple[str, str], tuple[Vote, ...]]


@data
def shipped_votes() -> Votes:
    """The votes of counted.toml and recipes.toml."""
    stacks: list[Vote] = []
    settings: dict[tuple[str, str], list[Vote]] = defaultdict(list)
    for point, vote in itertools.chain(counted_votes(practice_file("counted")), recipe_votes()):
        if point == STACK:
            stacks.append(vote)
        else:
            settings[point, vote.stack].append(vote)
    return Votes(stacks=tuple(stacks), settings={key: tuple(votes) for key, votes in settings.items()})


def counted_votes(tables: Mapping[str, Any]) -> Iterator[tuple[str, Vote]]:
    """Votes of tables as data/practice.py counts them, each with its point.

    Args:
        tables: By point: `columns`, and `rows` in their order; a class that is "*" is any.
    """
    for point, table in tables.items():
        for row in table["rows"]:
            named = dict(zip(table["columns"], row, strict=True))
            yield (
                point,
                Vote(
                    votes=named["votes"],
                    stack=named[STACK],
                    fields=named.get("fields", {}),
                    source=f"{named['publishers']} publishers of measured runs",
                    classes={name: (named[name],) for name in CLASSES if named.get(name, ANY) != ANY},
                    year=named.get("year"),
                ),
            )


def recipe_votes() -> Iterator[tuple[str, Vote]]:
    """Votes of recipes.toml, each with its point."""
    for recipe in practice_file("recipes")["recipe"]:
        common: dict[str, Any] = {
            "stack": recipe["stack"],
            "source": recipe["source"],
            "classes": {
                name: tuple([value] if isinstance(value, str) else value)
                for name in CLASSES
                if (value := recipe.get(name)) is not None
            },
            "year": recipe.get("year"),
        }
        if votes := recipe.get("votes", 0.0):
            yield STACK, Vote(votes=votes, fields={}, **common)
        for point, counts in recipe.get("settings", {}).items():
            total = sum(count for count, _ in counts)
            for count, fields in counts:
                yield point, Vote(votes=recipe.get("weight", 1.0) * count / total, fields=fields, **common)


def classes_table() -> Mapping[str, Any]:
    """Classes of questions: classes.toml."""
    return practice_file("classes")


def stacks_table() -> Mapping[str, Any]:
    """What stacks can do, and the open points: stacks.toml."""
    return practice_file("stacks")


def practice_file(name: str) -> Mapping[str, Any]:
    """One of the files of practice, by its name."""
    return packaged_toml(__package__, f"data/practice/{name}.toml")
