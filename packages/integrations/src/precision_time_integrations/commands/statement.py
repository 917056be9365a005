"""What a user says of a job in so many words: `#PRECISION_TIME model=resnet50 epochs=90`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from precision_time.errors import ConfigError, nearest_names, shown
from precision_time.planning.run.schema import RunOptions
from precision_time.request.schema import ALIASES, RequestFields
from precision_time.request.sweep import RUN

COMMENT = "#PRECISION_TIME"
VARIABLE = "PRECISION_TIME_JOB"
_REMEDY = f"To fix: write it like `{COMMENT} model=resnet50 batch_size=256 epochs=90`."
_NOT_STATED = frozenset({"cluster", "example_inputs", "forward", "loss", "trust"})


def stated_fields(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a request, and options of the whole run, that a statement sets.

    Args:
        text: NAME=VALUE words, or a JSON object.

    Raises:
        ConfigError: If it is neither, or names what no field is called.
    """
    fields: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for name, value in _pairs(text).items():
        key = ALIASES.get(name, name)
        if key == RUN and isinstance(value, Mapping):
            run |= RunOptions.of(value).given()
        elif key in RunOptions.model_fields:
            run[key] = value
        elif key in RequestFields.model_fields.keys() - _NOT_STATED:
            fields[key] = value
        else:
            known = {*RequestFields.model_fields, *RunOptions.model_fields}
            near = nearest_names(name, known)
            guess = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"{COMMENT} names {shown(name)}, which is no field of a job.{guess} {_REMEDY}")
    return fields, run


def _pairs(text: str) -> dict[str, Any]:
    """Names and values; a value that is no JSON is a word.

    Raises:
        ConfigError: If a word is no NAME=VALUE.
    """
    try:
        if text.lstrip().startswith("{"):
            found: dict[str, Any] = json.loads(text)
            return found
        words = shlex.split(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{shown(text)} cannot be read as a statement of a job: {error}. {_REMEDY}"
        ) from error
    pairs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"{shown(word)} of a statement of a job is not NAME=VALUE. {_REMEDY}")
        try:
            pairs[name.replace("-", "_")] = json.loads(value)
        except (ValueError, RecursionError):
            pairs[name.replace("-", "_")] = value
    return pairs


def statement_in(comments: Iterable[str], environment: Mapping[str, str] | None) -> str:
    """The words of all `#PRECISION_TIME` lines, or of PRECISION_TIME_JOB where there is no such line."""
    lines = [
        line.removeprefix(COMMENT).lstrip(":").strip()
        for line in comments
        if line.startswith(COMMENT) and line[len(COMMENT) : len(COMMENT) + 1] in ("", " ", "\t", ":")
    ]
    return " ".join(lines) or (environment or {}).get(VARIABLE, "")
