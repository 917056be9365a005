"""YAML, TOML and JSON documents as values by dotted key, each with its line; all of it bounded."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from precision_time.errors import ConfigError
from precision_time.io import read_yaml

DOCUMENTS = (".yaml", ".yml", ".toml", ".json")
MOST_BYTES = 1_000_000
"""Of one document; recipes are kilobytes."""
_MOST_VALUES = 20_000
_DEEPEST = 20
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_MOST_REFERENCES = 8
"""References to references, followed."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a key says."""

    value: Any
    """Text, a number, a switch, None, or a list of these."""
    line: int = 0
    """Where it stands; 0 where no line is known."""
    unknown: str = ""
    """Why only a run could tell; empty where the value is known."""
    file: str = ""
    """Where the line is, if not in the file that was asked about."""

    @property
    def word(self) -> str:
        """As a command line has it: `true`, `16`, `q_proj,v_proj`; empty where nothing is stated."""
        if self.value is None:
            return ""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if isinstance(self.value, list):
            return ",".join(Stated(item).word for item in self.value)
        return str(self.value).strip()


Given = Mapping[str, Stated]
"""By dotted key, in the order of the file."""


def read_document(name: str, text: str) -> dict[str, Stated]:
    """The values of a document, references within it resolved.

    Args:
        name: Of the file: its ending says the format.
        text: Its content.

    Raises:
        ConfigError: If it is too long, is not of its format, holds no mapping, or stands for more values than
            a recipe has.
    """
    tree = tree_of(name, text)
    lines = _lines(name, text, tree)
    found = {key: Stated(value, lines.get(key, 0)) for key, value in _flat(tree)}
    return {key: _resolved(value, found) for key, value in found.items()}


def tree_of(name: str, text: str) -> Mapping[str, Any]:
    """The mapping of a document.

    Raises:
        ConfigError: As `read_document`.
    """
    kind = PurePath(name).suffix.lower()
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"{name} is longer than {MOST_BYTES:,} characters: it is no recipe. To fix: name one."
        )
    try:
        if kind == ".toml":
            tree: Any = tomllib.loads(text)
        elif kind == ".json":
            tree = json.loads(text)
        else:
            tree = read_yaml(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{name} is not a valid {kind or 'YAML'} file: {reason}. To fix: correct it."
        ) from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{name} holds no mapping of keys to values. To fix: name the file of one run.")
    return tree


def _flat(tree: Mapping[str, Any], prefix: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    """Values by dotted key in the order of the document; mappings in lists by their place.

    >>> _flat({"a": {"b": 1}, "c": [{"d": 2}], "e": [3, 4]})
    [('a.b', 1), ('c.0.d', 2), ('e', [3, 4])]
    """
    found: list[tuple[str, Any]] = []
    if depth > _DEEPEST:
        raise ConfigError(f"{prefix[:40]}... is nested more than {_DEEPEST} levels deep. To fix: flatten it.")
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += _flat(value, f"{name}.", depth + 1)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for place, item in enumerate(value):
                inner = item if isinstance(item, Mapping) else {"": item}
                found += _flat(inner, f"{name}.{place}.", depth + 1)
        else:
            found.append((name, value))
        if len(found) > _MOST_VALUES:
            raise ConfigError(f"The file holds more than {_MOST_VALUES:,} values. To fix: name a recipe.")
    return found


def _resolved(value: Stated, found: Mapping[str, Stated]) -> Stated:
    """A value whose `${key}` stands for another key of the file."""
    text = value.value
    for _ in range(_MOST_REFERENCES):
        if not isinstance(text, str) or "${" not in text:
            break
        whole = _REFERENCE.fullmatch(text)
        if whole and whole[1] in found:
            text = found[whole[1]].value
            continue
        names = _REFERENCE.findall(text)
        if not names or any(name not in found for name in names):
            break
        text = _REFERENCE.sub(lambda part: found[part[1]].word, text)
    if isinstance(text, str) and "${" in text:
        return Stated(text, value.line, "a variable that only a run knows")
    return Stated(text, value.line)


def _lines(name: str, text: str, tree: Mapping[str, Any]) -> Mapping[str, int]:
    """The line of each key."""
    kind = PurePath(name).suffix.lower()
    if kind == ".toml":
        return dict(_toml_lines(text))
    if kind == ".json":
        return dict(_json_lines(text, tree))
    return dict(_yaml_lines(text))


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    table, places = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*(\[{1,2})\s*([^\]#]+?)\s*\]", line):
            table = re.sub(r"[\"'\s]", "", head[2]) + "."
            if head[1] == "[[":
                places[table] = places.get(table, -1) + 1
                table += f"{places[table]}."
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            name = table + re.sub(r"[\"']", "", key[1])
            yield name, number
            for inner in re.findall(r"[{,]\s*([\w-]+)\s*=", line):
                yield f"{name}.{inner}", number


def _json_lines(text: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Keys in the order of the document, each searched behind the one before."""
    place, line, counted = 0, 1, 0

    def walk(part: Any, prefix: str) -> Iterator[tuple[str, int]]:
        nonlocal place, line, counted
        pairs = part.items() if isinstance(part, Mapping) else enumerate(part)
        for key, value in pairs:
            name = f"{prefix}{key}"
            if isinstance(part, Mapping):
                wanted = re.compile(rf"(?<!\\){re.escape(json.dumps(key))}\s*:")
                if match := wanted.search(text, place):
                    line += text.count("\n", counted, match.start())
                    place, counted = match.end(), match.start()
                yield name, line
            if isinstance(value, Mapping | list):
                yield from walk(value, f"{name}.")

    yield from walk(tree, "")


def _yaml_lines(text: str) -> Iterator[tuple[str, int]]:
    """By the marks of nodes; what stands behind an alias has the line where it was written."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def walk(node: Any, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
        if depth > _DEEPEST:
            return
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = f"{prefix}{key.value}" if isinstance(key.value, str) else prefix
                yield name, key.start_mark.line + 1
                yield from walk(value, f"{name}.", depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            for place, value in enumerate(node.value):
                yield from walk(value, f"{prefix}{place}.", depth + 1)

    yield from walk(yaml.compose(text, Loader=loader), "", 0)
