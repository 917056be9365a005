"""`read_recipe`: what a file or a command of another project trains. Nothing is executed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError
from precision_time.io import open_input
from precision_time.request.recipes import COMMAND, PYTHON, SHELL

from ..commands.configs import files_below
from ..commands.launchers import programs
from ..commands.read import ReadCommand, read_command
from ..slurm.script import SlurmScript, read_script
from .arguments import of_verb
from .complete import Files, read_values
from .documents import MOST_BYTES, Stated, read_document
from .recipe import Recipe, Said
from .sources import Source, SourceCall, read_source
from .torchtitan import read_configuration
from .vocabulary import RecipeVocabulary, vocabulary

_TRAINER = re.compile(r"(?:\w+\.)?(?:\w*Trainer|trainer_cls)")
"""Calls that make a trainer."""
_SBATCH = re.compile(r"^#SBATCH\s", re.MULTILINE)
_SHELL_LINE = re.compile(r"^([ \t]*)[%!](?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
"""Of a notebook: a line for its shell, with those that a backslash joins to it."""


def read_recipe(source: str, kind: str) -> Recipe:
    """What a recipe says: the plug-in `recipe` of the group `importers`.

    Args:
        source: A file, or a command line.
        kind: As `precision_time.request.recipes.kind_of` has it.

    Raises:
        ConfigError: If it cannot be read, or does not say what is trained.
    """
    if kind == COMMAND:
        return read_text(source, COMMAND, files_below(Path.cwd()), name="the command")
    path = Path(source)
    try:
        with open_input(path) as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} cannot be read: {error}. To fix: check path and encoding.") from error
    return read_text(text, kind, files_below(path.parent), name=source)


def read_text(text: str, kind: str, files: Files, *, name: str) -> Recipe:
    """`read_recipe` of a text.

    Args:
        text: The content.
        kind: As of `read_recipe`.
        files: Reads the files that it names.
        name: Of the file, for the report and for errors.

    Raises:
        ConfigError: As `read_recipe`.
    """
    if kind == PYTHON:
        return _of_source(name, text, files)
    if kind in (COMMAND, SHELL):
        return _of_command(name, text, files)
    return read_values(vocabulary(kind), read_document(name, text), files, source=name, text=text)


def _of_command(name: str, text: str, files: Files) -> Recipe:
    """Of a script or a line of a shell, on the devices that its `#SBATCH` lines ask for."""
    script = read_script(text, files=files) if _SBATCH.search(text) else None
    read = script.command if script is not None else read_command(text, files=files)
    if not read.fields and read.recipe is None:
        why = "; ".join(read.unread[:3]) or "nothing in it starts a training"
        raise ConfigError(
            f"{name} cannot be read: {why}. To fix: name the file or the command of one training."
        )
    recipe = recipe_of_command(read, name)
    return recipe if script is None else _as_granted(recipe, script)


def _as_granted(recipe: Recipe, script: SlurmScript) -> Recipe:
    """The recipe with the devices that Slurm grants, where it names none itself."""
    granted = {
        key: script.fields[key]
        for key in ("device", "gpus", "nodes")
        if key in script.fields and key not in recipe.fields
    }
    said = tuple(Said(key="#SBATCH", value="", fields={key: value}) for key, value in granted.items())
    return replace(
        recipe,
        fields={**recipe.fields, **granted},
        read=(*recipe.read, *said),
        assumed=tuple(dict.fromkeys((*recipe.assumed, *script.notes))),
        unread=tuple(dict.fromkeys((*recipe.unread, *script.unread))),
    )


def recipe_of_command(read: ReadCommand, name: str) -> Recipe:
    """A command that was read, with its report."""
    if read.recipe is not None:
        said = read.recipe.read + _by_launcher(
            read, {field for each in read.recipe.read for field in each.fields}
        )
        return replace(read.recipe, source=name, read=said, assumed=(*read.recipe.assumed, *read.notes))
    return Recipe(
        source=name,
        project=f"{read.style} arguments" if read.style else "a command",
        fields=read.fields,
        run=read.run_options,
        read=_by_launcher(read, set()),
        assumed=read.notes,
        unread=read.unread,
    )


def _by_launcher(read: ReadCommand, said: set[str]) -> tuple[Said, ...]:
    """Fields that the launcher or a statement says."""
    return tuple(
        Said(key=read.launcher or "command", value="", fields={field: value})
        for field, value in read.fields.items()
        if field not in said and (read.recipe is None or field in ("gpus", "nodes") or field in read.stated)
    )


def _of_source(name: str, text: str, files: Files) -> Recipe:
    """Of a Python script, by its syntax tree."""
    source = read_source(name, code_of_notebook(name, text) if name.endswith(".ipynb") else text)
    chosen = _vocabulary_of(source)
    if chosen is None:
        raise ConfigError(
            f"{name} names a file alone, and nothing of Unsloth, TRL, transformers, NeMo or torchtitan that "
            "trains is called in it. The rule: a script would begin to train, so it is run only as "
            "file.py:object. To fix: give the command that starts it, or the model that it builds, such as "
            f"{name}:build."
        )
    if chosen.name == "nemo2":
        return _of_nemo(name, source, chosen, files)
    if chosen.name == "torchtitan":
        built = read_configuration(name, text)
        return read_values(chosen, built.given, files, source=name, unread=built.unread)
    trainers = [call for call in source.calls if _TRAINER.fullmatch(call.name)]
    if len(trainers) > 1:
        lines = ", ".join(str(call.line) for call in trainers)
        raise ConfigError(
            f"{name} makes {len(trainers)} trainers (lines {lines}): which one is asked is not known. To "
            "fix: give a script of one of them."
        )
    given: dict[str, Stated] = {}
    for call in source.calls:
        prefix = next(
            (head for pattern, head in chosen.calls.items() if re.fullmatch(pattern, call.name)), None
        )
        if prefix is not None:
            given |= _values(call, prefix, given)
    if chosen.name != "unsloth":
        given = _plain_names(given)
    said = _of_trainer(trainers)
    unread = said.pop("note", [])
    found = read_values(chosen, given, files, source=name, before=said, unread=unread)
    notes = tuple(f"{option}: the default of the script's own option" for option in sorted(source.defaults))
    return replace(found, assumed=(*found.assumed, *notes))


def code_of_notebook(name: str, text: str) -> str:
    """The code of a notebook, its commands for the notebook itself left out, a cell after the other.

    Raises:
        ConfigError: If it is none.
    """
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        parts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{name} is no notebook ({error}). To fix: name one, or a script.") from None
    kept = [part for part in parts if not part.lstrip().startswith("%%")]
    return "\n".join(_SHELL_LINE.sub(r"\1pass", part) for part in kept)


def _values(call: SourceCall, prefix: str, before: Mapping[str, Stated]) -> dict[str, Stated]:
    """Arguments of a call by key; a model that is loaded again for inference says nothing new."""
    found = {f"{prefix}{key}": value for key, value in call.values.items()}
    if prefix and any(key in before for key in found):
        return {}
    first = call.values.get("0")
    if (
        first is not None
        and isinstance(first.value, str)
        and not first.unknown
        and _TRAINER.fullmatch(call.name)
    ):
        found.setdefault("model", first)
    return {key: value for key, value in found.items() if not (prefix == "" and key.isdigit())}


def _plain_names(given: Mapping[str, Stated]) -> dict[str, Stated]:
    """Arguments of models, adapters and data sets by the names that configurations have for them."""
    same = {
        "from_pretrained.0": "model_name_or_path",
        "from_pretrained.pretrained_model_name_or_path": "model_name_or_path",
        "from_pretrained.torch_dtype": "torch_dtype",
        "from_pretrained.dtype": "dtype",
        "from_pretrained.attn_implementation": "attn_implementation",
        "from_pretrained.load_in_4bit": "load_in_4bit",
        "from_pretrained.load_in_8bit": "load_in_8bit",
        "BitsAndBytesConfig.load_in_4bit": "load_in_4bit",
        "BitsAndBytesConfig.load_in_8bit": "load_in_8bit",
        "LoraConfig.r": "lora_r",
        "LoraConfig.target_modules": "lora_target_modules",
        "LoraConfig.modules_to_save": "lora_modules_to_save",
        "load_dataset.0": "dataset_name",
        "load_dataset.path": "dataset_name",
    }
    found: dict[str, Stated] = {}
    for key, value in given.items():
        if key in same:
            found.setdefault(same[key], value)
        elif key == "model" and isinstance(value.value, str) and not value.unknown:
            found["model_name_or_path"] = value
        elif not key.startswith(("from_pretrained.", "load_dataset.", "BitsAndBytesConfig.", "LoraConfig.")):
            found[key] = value
    if "lora_r" in found:
        found["use_peft"] = Stated(True, found["lora_r"].line)
    return found


def _of_trainer(trainers: Sequence[SourceCall]) -> dict[str, Any]:
    """What the name of a trainer's class says, as the word of a command would."""
    own = programs()["trl"]
    known = re.search("|".join(own["says"]), trainers[0].name.lower()) if trainers else None
    return of_verb(own, [known[0]]) if known else {}


def _vocabulary_of(source: Source) -> RecipeVocabulary | None:
    """The vocabulary of the libraries that a script takes its trainer from."""
    if "unsloth" in source.imports:
        return vocabulary("unsloth")
    if "torchtitan" in source.imports:
        return vocabulary("torchtitan")
    if source.imports & {"nemo", "nemo_run"} and any("recipe" in call.name for call in source.calls):
        return vocabulary("nemo2")
    if "trl" in source.imports:
        return vocabulary("trl")
    if "transformers" in source.imports and any(
        call.name.rpartition(".")[2] in ("TrainingArguments", "Seq2SeqTrainingArguments")
        for call in source.calls
    ):
        return vocabulary("trl")
    return None


def _of_nemo(name: str, source: Source, chosen: RecipeVocabulary, files: Files) -> Recipe:
    """A recipe of NeMo 2: what its function is given, and what is assigned to its parts behind that."""
    made = [call for call in source.calls if re.fullmatch(r"\w+\.(pretrain|finetune)_recipe", call.name)]
    names = {call.name for call in made}
    if len(names) != 1:
        lines = ", ".join(f"{call.name} (line {call.line})" for call in made) or "none"
        raise ConfigError(
            f"{name} makes {len(names)} recipes: {lines}; one is read. To fix: give a script of one of them."
        )
    given: dict[str, Stated] = {"factory": Stated(made[0].name.partition(".")[0], made[0].line)}
    for call in source.calls:
        if any(re.fullmatch(pattern, call.name) for pattern in chosen.calls):
            given |= {key: value for key, value in call.values.items() if not key.isdigit()}
    for key, value in source.settings.items():
        given[key.partition(".")[2]] = value
    return read_values(chosen, given, files, source=name)
