"""Arguments of a project's own program or script, with the recipe that they name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from precision_time.request.recipes import project_of

from ..commands.arguments import style_of
from ..commands.expand import is_known, told
from ..commands.launchers import Launch, programs
from .complete import Files, read_values
from .documents import Stated, read_document, tree_of
from .recipe import Recipe
from .torchtitan import registry_of
from .vocabulary import vocabulary

STARTS_ITSELF = ("lightning", "nemo1")
"""Trainers that start their processes themselves, and are told how many to expect of a launcher."""
_CONFIGS = ("job.config_file", "config", "c", "config_file", "cfg", "recipe")
_ENDINGS = (".toml", ".yaml", ".yml", ".json")
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/-]*=")
_ARRAY = re.compile(r"\$\{?\w+\[[@*]\]\}?|\$\{?\w*(ARGS|OPTS|OPTIONS)\}?|\$[@*]", re.IGNORECASE)
"""A word that may be several options."""
_MODE = re.compile(r"activation-checkpoint:")
"""Of torchtitan: no option, and no value of the one before."""
_NUMBER = re.compile(r"-\.?\d[\d_.]*(e[-+]?\d+)?", re.IGNORECASE)


def options_of(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Values by name, underscores for dashes, and the words that belong to no option.

    >>> options_of(["train.yaml", "--target-modules", "q_proj", "v_proj", "--bf16", "lr=1", "--lr=2"])
    ({'target_modules': 'q_proj,v_proj', 'bf16': 'true', 'lr': '2'}, ['train.yaml'])
    """
    found: dict[str, str] = {}
    alone: list[str] = []
    name = ""
    taken: list[str] = []

    def close() -> None:
        nonlocal name, taken
        if name:
            value = ",".join(taken) or "true"
            if name.startswith("no_") and not taken:
                name, value = name.removeprefix("no_"), "false"
            found[name] = value
        name, taken = "", []

    for word in words:
        if word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word):
            close()
            flag, equals, value = word.partition("=")
            name = flag.lstrip("-").replace("-", "_")
            if equals:
                found[name], name = value, ""
        elif _OVERRIDE.match(word):
            close()
            key, _, value = word.partition("=")
            found[key.lstrip("+~")] = value
        elif name:
            taken.append(word)
        else:
            alone.append(word)
    close()
    return found, alone


def recipe_of_launch(
    launch: Launch, files: Files, *, line: int, gpus: int | None, below: Mapping[str, Any] | None = None
) -> tuple[str, Recipe] | None:
    """What a project's program or script is told, with the recipe that it names.

    Args:
        launch: The command, its launchers taken off.
        files: Reads the files that it names.
        line: Of the command.
        gpus: Devices of the job, where they are known.
        below: Fields that a configuration of the launcher says.

    Returns:
        The project and its recipe; None where the command is of no project that has a vocabulary of recipes.

    Raises:
        ConfigError: If a file that it names cannot be read as one.
    """
    unread = [f"{told(word)}: known only when it runs" for word in launch.words if _is_array(word)]
    words = [word for word in launch.words if not (_MODE.match(word) or _is_array(word))]
    options, alone = options_of(words)
    for word in filter(_MODE.match, launch.words):
        options["activation_checkpoint.mode"] = word.partition(":")[2]
    own = programs().get(launch.script) or _of_script(launch.script)
    given, of_file = _named(options, alone, files, unread)
    if own and (name := options.pop("config", None)) is not None:
        unread.append(f"config {told(name)}: a recipe of its own, which is not here: give its file")
    style = style_of(launch.script, words, {**{key: value.word for key, value in given.items()}, **options})
    project = own.get("project", "") or of_file or _of_options(options) or style
    chosen = vocabulary(project)
    if not chosen.own:
        return None
    last = re.split(r"[./]", launch.script.removesuffix(".py"))[-1]
    said = of_verb(own, [*words, last])
    unread += said.pop("note", [])
    before = {**own.get("fields", {}), **said}
    if project == "torchtitan" and (registry := registry_of(options, files)) is not None:
        path, _, built = registry
        given = {**{key: replace(value, file=path) for key, value in built.given.items()}, **given}
        unread += [f"{path} {each}" for each in built.unread]
        del options["config"]
    counts = gpus is not None and project not in STARTS_ITSELF
    recipe = read_values(
        chosen,
        {**given, **{key: _value(value, line) for key, value in options.items()}},
        files,
        source="command",
        gpus=gpus,
        before={"gpus": gpus, **before} if counts else before,
        below=below,
        unread=unread,
    )
    return project, recipe


def _named(
    options: dict[str, str], alone: Sequence[str], files: Files, unread: list[str]
) -> tuple[dict[str, Stated], str]:
    """The values of the files that a command names, and the project that they are of."""
    given: dict[str, Stated] = {}
    project = ""
    named = [options.pop(key) for key in _CONFIGS if options.get(key, "").endswith(_ENDINGS)]
    for word in dict.fromkeys([*(each for each in alone if each.endswith(_ENDINGS)), *named]):
        path = _below_here(word)
        text = files(path)
        if text is None:
            unread.append(f"the file {told(path)} is not there to be read")
            continue
        project = project or project_of(tree_of(path, text))
        for key, value in read_document(path, text).items():
            given[key.replace("-", "_")] = replace(value, file=path)
    return given, project


def _is_array(word: str) -> bool:
    """Whether a word may be several options, which only a run knows."""
    return not is_known(word) and _ARRAY.fullmatch(told(word)) is not None


def _below_here(path: str) -> str:
    """A path below the folder in which the command is started."""
    return re.sub(r"\A\$(PWD|\{PWD\}|\(pwd\))/+", "", told(path)) if not is_known(path) else path


def _value(word: str, line: int) -> Stated:
    if not is_known(word):
        return Stated(told(word), line, "known only when it runs")
    lowered = {"True": True, "False": False, "None": None, "null": None}
    return Stated(lowered.get(word, word), line)


def _of_script(script: str) -> Mapping[str, Any]:
    """The project whose own script or module this is."""
    for table in programs().values():
        if any(re.fullmatch(pattern, script) for pattern in table.get("scripts", ())):
            return table
    return {}


def _of_options(options: Mapping[str, str]) -> str:
    """The project of which enough options are given."""
    return next(
        (
            table["project"]
            for table in programs().values()
            if any(all(name in options for name in names) for names in table.get("options", ()))
        ),
        "",
    )


def of_verb(own: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """What words behind the program say: `trl dpo`, `tune run lora_finetune_single_device`.

    Fields of a request; `note`, what is not modeled of them.
    """
    found: dict[str, Any] = {}
    for word in words:
        for pattern, fields in own.get("says", {}).items():
            if re.fullmatch(pattern, word):
                found |= fields
    return found
