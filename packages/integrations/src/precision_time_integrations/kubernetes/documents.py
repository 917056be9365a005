"""Manifests as texts: YAML streams and JSON in, YAML out, and the objects inside lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from precision_time.errors import ConfigError, printable
from precision_time.io import read_yaml_documents

MOST_BYTES = 16 * 2**20
"""Of one text."""
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*(?:[ :=,][A-Za-z0-9_/.-]+)*")
"""Texts that stay texts without quotes in every reader of YAML."""
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", ".nan"})
"""Read as something else by YAML 1.1, as Kubernetes does."""


def read_documents(text: str, *, source: str = "the text") -> list[Any]:
    """The documents of a text of manifests, as `kubectl apply -f` takes it: YAML with `---`, or JSON.

    Args:
        text: At most 16 MiB with 10,000 documents.
        source: Where it comes from, for messages.

    Raises:
        ConfigError: If it cannot be read, or holds more.
    """
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"{source} is larger than {MOST_BYTES // 2**20} MiB. The rule: that much at once. To fix: "
            "split it."
        )
    try:
        return read_yaml_documents(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{source} is not valid YAML: {printable(reason)}. To fix: correct it.") from None


def write_documents(documents: Iterable[Any]) -> str:
    """The documents as YAML, each after `---`; comments and the layout of what was read are lost."""
    import yaml

    return "".join(
        "---\n"
        + yaml.dump(
            each,
            Dumper=_dumper(),
            sort_keys=False,
            default_flow_style=False,
            width=10_000,
            allow_unicode=True,
        )
        for each in documents
    )


def objects(document: Any) -> Iterator[Any]:
    """The objects of a document: itself, or the items of a list (`kind: List`, `JobList`)."""
    items = document.get("items") if isinstance(document, Mapping) else None
    if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
        for item in items:
            yield from objects(item)
    else:
        yield document


def _dumper() -> Any:
    """Quotes every text that some reader of YAML takes for a number, a date or a truth value."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # what was referred to twice is written twice: `kubectl` shows it so as well

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002
            super().increase_indent(flow, False)

    def text(dumper: Any, value: str) -> Any:
        if "\n" in value and not re.search(r"[ \t]\n|[^\S\n]$|^[ \t\n]|[^\x09\x0a\x20-\x7e]", value):
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        quote = "'" if '"' in value and value.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else quote)

    Dumper.add_representer(str, text)
    return Dumper
