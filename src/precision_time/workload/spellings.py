"""Names as people type them: other spellings of a known model, and what is nearest to an unknown one.

A rule of `[[rewrites]]` in `data/aliases.toml` changes a part that says nothing of the shape (`-instruct`, a
release date); what is left may differ from a known name in its separators only (`resnet-50`, `llama-3.1-8b`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher

from ..cache import data
from .families.tables import read_toml

_SEPARATOR = re.compile(r"(?<!\d)[-_]|[-_](?!\d)")
"""A separator that is not between two digits: without it a name reads the same."""

_WORD = re.compile(r"[^\W\d_]+|[\d.]*\d[bmk]?(?![a-z])|\d+")
_SIZE_WORDS = frozenset({"base", "big", "huge", "large", "medium", "mini", "small", "tiny", "giant", "net"})
_ONE_OFF = 0.87
"""Share of the letters in place from which a name is a slip of the keyboard."""
_OFFERED = 4
_ALIKE = 0.8
"""Of a misspelled name or word: share of its letters that are in place."""
_LONGEST_NAME = 100
"""Characters of a name that are compared with known ones."""


def squashed(name: str) -> str:
    """A normalized name without the separators that people leave out or put in.

    >>> squashed("llama-3.1-8b"), squashed("llama3-18b"), squashed("vit-b-16")
    ('llama3.1-8b', 'llama3-18b', 'vitb16')
    """
    return _SEPARATOR.sub("", name)


def worded(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a normalized name in no order, and its bare numbers in theirs.

    >>> worded("llama3.2-vision-11b") == worded("llama-3.2-11b-vision"), worded("llama-2-3b")
    (True, (('3b', 'llama'), ('2',)))
    """
    words = _WORD.findall(name)
    numbers = tuple(word for word in words if word[0].isdigit() and not word[-1].isalpha())
    return tuple(sorted(word for word in words if word not in numbers)), numbers


def by_spelling(names: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Squashed spelling -> what it stands for, of pairs of both; a spelling of two models stands for none."""
    found: dict[str, str] = {}
    for name, meant in names:
        key = squashed(name)
        found[key] = meant if found.get(key, meant) == meant else ""
    return {key: meant for key, meant in found.items() if meant}


def respelled(name: str, find: Callable[[str], str | None]) -> str | None:
    """The known model that a normalized, unknown name spells in another way; None where there is none."""
    meant = find(name)
    for pattern, plain in _rewrites():
        if meant is not None:
            break
        changed = pattern.sub(plain, name)
        if changed != name:
            name, meant = changed, find(changed)
    return meant


@data
def _rewrites() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rule["from"]), rule["to"]) for rule in read_toml("aliases.toml")["rewrites"])


def nearest_models(name: str, known: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The kind of a normalized, unknown name, and the known names of that kind that are nearest to it.

    The kind is the first word that known names begin with (`llama5-8b` is a llama), or nearly so. Of a name
    of no known kind only what is spelled nearly the same is offered.
    """
    name = name[:_LONGEST_NAME]
    by_kind: dict[str, list[str]] = {}
    for candidate in known:
        by_kind.setdefault(next(iter(_WORD.findall(candidate)), ""), []).append(candidate)
    kinds = _kinds(name, by_kind)
    candidates = [candidate for kind in kinds for candidate in by_kind[kind]]
    ranked = sorted(candidates, key=lambda candidate: -_likeness(name, candidate))
    if not candidates:
        alike = ((_ratio(name, candidate), candidate) for candidate in known)
        ranked = [candidate for ratio, candidate in sorted(alike, reverse=True) if ratio >= _ALIKE]
    offered: dict[str, str] = {}
    for candidate in ranked:
        offered.setdefault(known[candidate], candidate)
    return next(iter(kinds), ""), tuple(offered.values())[:_OFFERED]


def _ratio(name: str, other: str) -> float:
    """Share of the letters in place where it can be `_ALIKE`; lengths and letters alone bound it."""
    if 2.0 * min(len(name), len(other)) < _ALIKE * (len(name) + len(other)):
        return 0.0
    matcher = SequenceMatcher(None, name, other)
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0


def _kinds(name: str, known: Iterable[str]) -> list[str]:
    """Known first words that the first word of a name is, or nearly is; else those that another word is."""
    words = _WORD.findall(name)
    if not words:
        return []
    first = words[0]
    if first in known:
        return [first, *(kind for kind in known if kind != first and _grown(first, kind))]
    near = [kind for kind in known if _same_kind(first, kind)]
    later = (word for word in words[1:] if word.isalpha() and len(word) >= 3 and word not in _SIZE_WORDS)
    return near or [word for word in later if word in known][:1]


def _same_kind(word: str, other: str) -> bool:
    """Whether a word is another with a letter more or less at its end, or misspelled."""
    if min(len(word), len(other)) < 3 or word[0] != other[0]:
        return False
    misspelled = min(len(word), len(other)) >= 4 and SequenceMatcher(None, word, other).ratio() >= _ALIKE
    return _grown(word, other) or misspelled


def _grown(word: str, other: str) -> bool:
    """Whether one of two words is the other and one letter more (yolo, yolov)."""
    short, long = sorted((word, other), key=len)
    return len(short) >= 3 and long.startswith(short) and len(long) == len(short) + 1


def _likeness(name: str, candidate: str) -> float:
    """Share of letters in place and of common words; more for a slip, and for what goes on from `name`."""
    words, others = set(_WORD.findall(name)), set(_WORD.findall(candidate))
    common = len(words & others) / max(len(words | others), 1)
    starts = squashed(candidate).startswith(squashed(name))
    letters = SequenceMatcher(None, squashed(name), squashed(candidate)).ratio()
    return letters + common + starts + (letters >= _ONE_OFF)
