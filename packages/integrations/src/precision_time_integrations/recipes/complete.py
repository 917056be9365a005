"""What a recipe leaves to others: DeepSpeed's JSON, included files, tables of launchers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.launch.emit import facts_of_config
from precision_time.launch.table import launcher_of

from ..commands.accelerate import zero_by_name
from ..commands.arguments import Arguments, of_launcher, put_facts
from ..online.sharding import config_fields
from ..projects import parts
from .documents import Given, Stated, read_document
from .reader import Draft, read_given
from .recipe import Recipe, Said, place_of
from .vocabulary import RecipeVocabulary

Files = Callable[[str], str | None]
"""Text of a file by the name that a recipe has for it; None where it is not there."""
_OF_FACTS = {"micro_batch": "batch_size", "local_batch": "batch_size", "global_batch": "global_batch_size"}
_MOST_INCLUDES = 4


def read_values(
    vocabulary: RecipeVocabulary,
    given: Given,
    files: Files,
    *,
    source: str,
    text: str = "",
    gpus: int | None = None,
    before: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    unread: Sequence[str] = (),
) -> Recipe:
    """What the values of a recipe say, with the files that they name.

    Args:
        vocabulary: Of its project.
        given: Values by key.
        files: Reads files that it names.
        source: For the report.
        text: Of the whole file, for tables of launchers that read it.
        gpus: Devices of the job, where they are known.
        before: Fields that hold, whatever the recipe says.
        below: Fields that hold where it is silent.
        unread: What could not be read before.
    """
    missing = [*unread]
    merged = _with_includes(vocabulary, given, files, missing)

    def more(draft: Draft) -> None:
        devices = gpus or draft.fields.get("gpus")
        if vocabulary.launcher:
            _layout(draft, vocabulary.launcher, text, devices)
        for key in vocabulary.files:
            value = draft.given.get(key)
            if value is not None and value.word.endswith(".json"):
                _deepspeed(draft, key, files, devices)

    return read_given(
        vocabulary, merged, source=source, before=before, below=below, more=more, unread=missing
    )


def _with_includes(
    vocabulary: RecipeVocabulary, given: Given, files: Files, unread: list[str]
) -> dict[str, Stated]:
    """The values with those of the files that they are based on below them."""
    found = dict(given)
    for _ in range(_MOST_INCLUDES):
        named = {key: found.pop(key) for key in vocabulary.includes if key in found}
        for key, value in named.items():
            text = files(value.word) if value.word.endswith((".yml", ".yaml")) else None
            if text is None:
                unread.append(
                    f"{place_of(value.line, value.file)}{key}={value.word}: the file {value.word} "
                    "that it is based on is not there to be read"
                )
                continue
            below = {
                key: replace(each, file=value.word) for key, each in read_document(value.word, text).items()
            }
            found = {**below, **found}
    for key in vocabulary.includes:
        if key in found:
            value = found.pop(key)
            unread.append(
                f"{place_of(value.line, value.file)}{key}={value.word}: more than {_MOST_INCLUDES} files "
                "that are based on one another are not read"
            )
    return found


def _layout(draft: Draft, launcher: str, text: str, gpus: int | None) -> None:
    """Layout, batch, precision and sizes, by the table of a launcher."""
    known = {key: value.word for key, value in draft.given.items() if not value.unknown and value.word}
    found = Arguments()
    try:
        if launcher in ("deepspeed", "accelerate", "fsdp"):
            put_facts(found, facts_of_config(launcher, _without_auto(text)), gpus)
        else:
            of_launcher(parts("arguments")[draft.vocabulary.name], known, (), gpus, found)
    except (PrecisionTimeError, ValueError, TypeError, ArithmeticError) as error:
        found.unread.append(f"the layout of {draft.vocabulary.title}: {error}")
    draft.unread += found.unread
    draft.fields |= {name: value for name, value in found.fields.items() if name not in draft.fields}
    sizes = found.fields.get("sizes", {})
    for setting in launcher_of(launcher).settings:
        names = (setting.key, setting.key.lstrip("-").replace("-", "_"))
        key = next((each for each in names if each in draft.given and each not in draft.used), None)
        if key is None:
            continue
        name = _OF_FACTS.get(setting.fact, setting.fact)
        if name in sizes:
            draft.say(key, **{f"sizes.{name}": sizes[name]})
        else:
            draft.say(key, **({name: draft.fields[name]} if name in draft.fields else {}))


def _without_auto(text: str) -> str:
    """DeepSpeed's JSON without what is "auto", which the trainer fills in."""
    try:
        tree = json.loads(text)
    except ValueError:
        return text

    def kept(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: kept(value) for key, value in part.items() if value != "auto"}
        return part

    return json.dumps(kept(tree))


def _deepspeed(draft: Draft, key: str, files: Files, gpus: int | None) -> None:
    """A DeepSpeed configuration that the recipe names."""
    path = draft.given[key].word
    text = files(path)
    if text is None:
        stage = zero_by_name(path)
        if stage is None:
            draft.complain(key, "is not there to be read: its ZeRO stage is not known")
            draft.open.add("zero_stage")  # the default of the project is not assumed in its place
            return
        draft.fields["zero_stage"] = stage
        draft.say(key, zero_stage=stage)
        draft.unread.append(f"{path} is not there to be read: ZeRO {stage} by its name")
        return
    try:
        fields = config_fields(json.loads(text), devices=gpus or 1)
    except (ConfigError, ValueError) as error:
        draft.complain(key, str(error))
        return
    for name in ("batch_size", "num_microbatches"):
        if name in draft.fields:
            fields.pop(name, None)
    if draft.fields.get("adapter") or "precision" in draft.fields:
        fields.pop("precision", None)
    draft.fields |= fields
    draft.say(key)
    draft.read += [
        Said(key=f"{name}", value=str(value), fields={name: value}, file=path)
        for name, value in fields.items()
    ]
