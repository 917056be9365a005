"""Names as people type them: other spellings of a known model, found by rules instead of one entry each.

A rule of `[[rewrites]]` in `data/aliases.toml` changes a part that says nothing of the shape (`-instruct`, a
release date); what is left may differ from a known name in its separators only (`resnet-50`, `llama-3.1-8b`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from .families.tables import read_toml

_SEPARATOR = re.compile(r"(?<!\d)[-_]|[-_](?!\d)")
"""A separator that is not between two digits: without it a name reads the same."""


def squashed(name: str) -> str:
    """A normalized name without the separators that people leave out or put in.

    >>> squashed("llama-3.1-8b"), squashed("llama3-18b"), squashed("vit-b-16")
    ('llama3.1-8b', 'llama3-18b', 'vitb16')
    """
    return _SEPARATOR.sub("", name)


def by_spelling(names: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Squashed spelling -> what it stands for, of pairs of both; a spelling of two models stands for none."""
    found: dict[str, str] = {}
    for name, meant in names:
        key = squashed(name)
        found[key] = meant if found.get(key, meant) == meant else ""
    return {key: meant for key, meant in found.items() if meant}


def respelled(name: str, find: Callable[[str], str | None]) -> str | None:
    """The known model that a normalized, unknown name spells in another way; None where there is none.

    Args:
        name: What was given, normalized.
        find: The known model of a spelling, or None.
    """
    meant = find(name)
    for pattern, plain in _rewrites():
        if meant is not None:
            break
        changed = pattern.sub(plain, name)
        if changed != name:
            name, meant = changed, find(changed)
    return meant


@cache
def _rewrites() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rule["from"]), rule["to"]) for rule in read_toml("aliases.toml")["rewrites"])
