"""`precision-time list words`: what the words of an answer mean."""

from __future__ import annotations

import re

import typer

from ..errors import UnknownNameError
from ..io import packaged
from .options import JsonOption, declared
from .output import write_json


@declared("glossary")
def glossary(
    word: str | None = None,
    *,
    json_output: JsonOption = False,
) -> None:
    """Define the words that an answer prints."""
    entries = entries_of(glossary_text())
    found = {name: text for name, text in entries.items() if word is None or word.lower() in name.lower()}
    if word is not None and not found:
        raise UnknownNameError(
            kind="word", name=word, known=entries, hint="All words: precision-time list words."
        )
    if json_output:
        write_json(found)
        return
    typer.echo("\n\n".join(f"{name}\n  {' '.join(text.split())}" for name, text in found.items()))


def glossary_text() -> str:
    """The glossary as Markdown; docs/glossary.md is a copy of it."""
    return packaged(__package__, "data/glossary.md").read_text(encoding="utf-8")


def entries_of(text: str) -> dict[str, str]:
    """Word to definition."""
    return {
        name.strip(): definition.strip()
        for name, definition in re.findall(r"^### ([^\n]+)\n\n(.+?)(?=\n##|\Z)", text, re.M | re.S)
    }
