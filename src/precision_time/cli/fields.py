"""`precision-time list fields`: what can be said of a job and of its run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Meta

from ..errors import UnknownNameError
from .catalogs import write_catalog
from .options import JsonOption, declared


@declared("fields")
def fields(
    word: str | None = None,
    *,
    json_output: JsonOption = False,
) -> None:
    """List the fields of a job, which --set takes.

    Those of a whole run last. Some are options of the commands that take a job as well, and all can be typed
    as such: --lora-rank 8 is --set lora_rank=8.
    """
    known = list(field_entries())
    wanted = None if word is None else word.lower().replace("-", "_")
    found = [entry for entry in known if wanted is None or wanted in entry["name"]]
    if word is not None and not found:
        raise UnknownNameError(
            kind="field",
            name=word,
            known=[entry["name"] for entry in known],
            hint="All fields: precision-time list fields.",
        )
    columns = ("name", "type", "rule", "default", "help")
    rows = [tuple(entry[column] for column in columns) for entry in found]
    write_catalog("fields", found, ("field", *columns[1:-1], "what it is"), rows, json_output)


def field_entries() -> Iterator[dict[str, Any]]:
    """Every field that the command line takes, in words."""
    from ..fields import choices_of, plain_type
    from ..planning.run.schema import RunOptions
    from ..request.schema import RequestFields
    from .request_options import SHOWN, SHOWN_TYPES, shown_default

    for part, named in (("job", RequestFields.model_fields), ("run", RunOptions.model_fields)):
        for name, info in named.items():
            option = info.option
            if option is None or name == "model":
                continue
            kind = plain_type(info.annotation)
            typed = option.metavar or SHOWN_TYPES.get(kind, "TEXT")
            yield {
                "name": name,
                "part": part,
                "type": "yes|no" if kind is bool else "|".join(choices_of(info.annotation)) or typed,
                "rule": _rule(info.marks),
                "default": option.default or shown_default(info.default),
                "help": option.help,
                "option": name in SHOWN,
            }


def _rule(marks: tuple[Any, ...]) -> str:
    """The bounds of a number."""
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    bounds = [
        f"{words[bound]} {value:.12g}"
        for mark in marks
        if isinstance(mark, Meta)
        for bound in words
        if (value := getattr(mark, bound)) is not None
    ]
    return " ".join(bounds)
