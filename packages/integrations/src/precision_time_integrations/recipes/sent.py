"""A recipe whose text was sent, by an agent or to a service: what it says, and the job that it asks for.

No file is opened: those that the recipe names are read if they were sent with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from precision_time.barrier import data_only
from precision_time.errors import ConfigError, shown
from precision_time.precision.catalog import is_policy_file
from precision_time.request.schema import RUN_LENGTHS
from precision_time.workload.resolve import check_named_in_data

from .documents import DOCUMENTS, MOST_BYTES, tree_of
from .files import read_text
from .recipe import Recipe, kind_of_text

_MOST_FILES = 16
_LONGEST_NAME = 200
_MODELS = ("model", "reference", "teacher")
SENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "maxLength": _LONGEST_NAME,
            "description": "Of the file, with its ending; none for a command.",
        },
        "text": {"type": "string", "maxLength": MOST_BYTES, "description": "What the file holds."},
        "files": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": _MOST_FILES,
            "description": "Texts of the files that it names, such as one of DeepSpeed, by those names.",
        },
        "fields": {
            "type": "object",
            "description": "Fields of the job in the place of what the recipe says, such as device.",
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
"""JSON schema of a recipe that is sent."""


def read_sent(sent: Mapping[str, Any], *, given: Mapping[str, Any]) -> dict[str, Any]:
    """How a recipe is understood, as JSON: the report, the fields of its job, and what it leaves open.

    Args:
        sent: `name`, `text` and `files`, as `SENT` has them, not yet checked.
        given: `fields`, checked.

    Returns:
        `project`, `report` (lines), `job` (fields of a request), `missing` (what an answer hangs on and
        nothing says) and `recipe`, the report part by part.

    Raises:
        ConfigError: If it is too long, of no project that is known, or cannot be read.
    """
    name, text, files = _checked(sent)
    with data_only():
        kind = kind_of_text(name, text)
        if not kind:
            if PurePath(name).suffix.lower() in DOCUMENTS:
                tree_of(name, text)  # says what is wrong with a broken one
            raise ConfigError(
                f"{name or 'The text'} is no recipe of a project that is known here, and no command that "
                "starts a training. To fix: send its whole text with the name that it has, its ending "
                "included; or say the job itself."
            )
        found = read_text(text, kind, lambda each: files.get(_plain(each)), name=name or "the command")
    recipe = _as_data(found)
    given = {field: value for field, value in given.items() if value is not None}
    job = recipe.job(given)
    missing = [each for each in ("model", "device") if not job.get(each)]
    if job.get("cluster"):
        missing = [each for each in missing if each != "device"]
    if not any(job.get(length) for length in RUN_LENGTHS):
        missing.append("|".join(RUN_LENGTHS))
    return {
        "project": recipe.project,
        "report": list(recipe.lines(given)),
        "job": job,
        "missing": missing,
        "recipe": recipe.to_dict(given),
    }


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _checked(sent: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    """Name, text and further files of a recipe.

    Raises:
        ConfigError: If they are not what they should be, or longer than any recipe.
    """
    name, text, files = sent.get("name") or "", sent.get("text"), sent.get("files") or {}
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"text={shown(text)} is no recipe. To fix: send what its file holds, as a text.")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ConfigError(
            f"name={shown(name)} is no name of a file. The rule: at most {_LONGEST_NAME} printable "
            "characters. To fix: send the last part of its path."
        )
    if not isinstance(files, Mapping) or not all(isinstance(each, str) for each in files.values()):
        raise ConfigError(f"files={shown(files)} is no object of texts by name. To fix: send one.")
    if len(files) > _MOST_FILES:
        raise ConfigError(
            f"files has {len(files)} entries. The rule: at most {_MOST_FILES}. To fix: send those that the "
            "recipe names."
        )
    size = len(text) + sum(map(len, files.values()))
    if size > MOST_BYTES:
        raise ConfigError(
            f"text has {size:,} characters, with those of its files. The rule: at most {MOST_BYTES:,}. To "
            "fix: send the recipe of one run."
        )
    return name, text, {_plain(str(each)): content for each, content in files.items()}


def _as_data(recipe: Recipe) -> Recipe:
    """The recipe without fields that name a file or code, each told as not understood."""
    named = {
        field: value
        for field, value in recipe.fields.items()
        if (field == "precision" and is_policy_file(value)) or (field in _MODELS and not _is_data(value))
    }
    if not named:
        return recipe
    told = (f"{field}={shown(value)}: a file or code, which is not opened" for field, value in named.items())
    return replace(
        recipe,
        fields={field: value for field, value in recipe.fields.items() if field not in named},
        unread=(*recipe.unread, *told),
    )


def _is_data(model: Any) -> bool:
    """Whether a model is named by a name."""
    try:
        check_named_in_data(model)
    except ConfigError:
        return False
    return True
