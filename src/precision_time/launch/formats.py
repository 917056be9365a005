"""The texts of launchers: command lines, JSON and YAML, written and read back as settings by key."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from ..io import read_yaml

Settings = Mapping[str, Any]
_NOTES = "_notes"
"""Key of a JSON file's notes: launchers read the keys they know."""


def write(form: str, command: str, settings: Settings, notes: Sequence[str], ending: str = "") -> str:
    """The text of settings.

    Args:
        form: flags, overrides, json or yaml.
        command: What starts a command line.
        settings: Values by key.
        notes: Lines of remarks.
        ending: What ends a command line.
    """
    if form == "json":
        return json.dumps({_NOTES: list(notes), **_nested(settings)}, indent=2) + "\n"
    remarks = "".join(f"# {line}\n" for line in notes)
    if form == "yaml":
        import yaml

        return remarks + str(yaml.safe_dump(_nested(settings), sort_keys=False))
    words = [_words(form, key, value) for key, value in settings.items()]
    return remarks + " \\\n    ".join([command, *words, *([ending] if ending else [])]) + "\n"


def _words(form: str, key: str, value: Any) -> str:
    if key.endswith(":"):
        return f"{key}{value}"
    if form == "overrides":
        return f"{key}={shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))}"
    return key if value is True else f"{key} {shlex.quote(str(value))}"


def _nested(settings: Settings) -> dict[str, Any]:
    """Keys with dots as mappings in mappings."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        inner = tree
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return tree


def read(form: str, text: str, keys: Sequence[str]) -> dict[str, Any]:
    """The settings of a text that are among the keys.

    Args:
        form: flags, overrides, json or yaml.
        text: A file's.
        keys: What to look for.

    Raises:
        ConfigError: If the text has no such form.
    """
    try:
        if form in ("json", "yaml"):
            tree = json.loads(text) if form == "json" else read_yaml(text)
            found = {key: _at(tree, key) for key in keys}
            return {key: value for key, value in found.items() if value is not None}
        tokens = shlex.split(text.replace("\\\n", " "), comments=True)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is no {form} text: {error}. To fix: give a file of the launcher.") from error
    found = _of_tokens(form, tokens, keys)
    return {key: value for key, value in found.items() if value != "null"}


def _at(tree: Any, key: str) -> Any:
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _of_tokens(form: str, tokens: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, token in enumerate(tokens):
        for key in keys:
            if key.endswith(":") and token.startswith(key):
                found[key] = token.removeprefix(key)
        name, equals, value = token.partition("=")
        if name in keys and (equals or form == "overrides"):
            found[name] = _value(value)
        elif name in keys:
            after = tokens[place + 1 : place + 2]
            bare = (
                not after
                or after[0].startswith("--")
                or after[0].endswith(tuple(k for k in keys if k[-1] == ":"))
            )
            found[name] = True if bare else _value(after[0])
    return found


def _value(word: str) -> Any:
    """A word as number or truth value where it is one."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
