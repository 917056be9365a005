"""torchtitan's Python configurations: functions of a `config_registry.py` that return a `Trainer.Config`."""

from __future__ import annotations

import re

from precision_time.errors import ConfigError

from .built import Built, Tree, built_functions, read_built
from .complete import Files
from .documents import Stated

_RESULT = "Trainer.Config"
_NAME = re.compile(r"\w{1,80}(\.\w{1,80}){0,5}")
_SIZE = "model_spec.0"
_CONVERTERS = "model_spec.converters"
_TOKENS = {
    "training.num_tokens_per_microbatch_per_dp_rank": "training.local_batch_size",
    "training.num_tokens_per_train_step": "training.global_batch_size",
}
"""Batches in tokens, and the key of the same in samples of the whole context."""
_LENGTH = "training.max_context_length"
_RECOMPUTE = "activation_checkpoint"
_CLASS, _PLACE = re.compile(r"^[\w.]*Config$"), re.compile(r"\.\d+$")
"""Words of whole parts, and arguments without a name: what they say stands in keys of their own."""
_MICROBATCHES = "parallelism.num_pp_microbatches"


def registry_of(options: dict[str, str], files: Files) -> tuple[str, str, Built] | None:
    """What `--module llama3 --config llama3_8b` names, where the file of that module is there to be read.

    Returns:
        The file, the function and what it builds; None where there is none.

    Raises:
        ConfigError: If it is no Python.
    """
    module, function = options.get("module", ""), options.get("config", "")
    if not (_NAME.fullmatch(module) and _NAME.fullmatch(function)):
        return None
    path = f"torchtitan/models/{module.rpartition('.')[2]}/config_registry.py"
    text = files(path)
    if text is None or function not in built_functions(path, text, _RESULT):
        return None
    return path, function, read_configuration(path, text, function, family=module.rpartition(".")[2])


def read_configuration(name: str, text: str, function: str = "", *, family: str = "") -> Built:
    """The values of a configuration, by the keys that a TOML of torchtitan has for them.

    Args:
        name: Of the file, for errors.
        text: Its content.
        function: Which of its functions; the only one where none is named.
        family: Of the model, where a command names its module; else by the name of the function.

    Raises:
        ConfigError: If it is no Python, or has several such functions of which none is named.
    """
    found = built_functions(name, text, _RESULT)
    if not function and len(found) > 1:
        listed = ", ".join(f"{each} (line {line})" for each, line in [*found.items()][:8])
        listed += " ..." if len(found) > 8 else ""
        raise ConfigError(
            f"{name} has {len(found)} configurations: {listed}; one is read. To fix: give the command that "
            "names one (torchrun -m torchtitan.train --module MODULE --config NAME), or a file of one."
        )
    function = function or next(iter(found), "")
    built = read_built(name, text, function)
    given = {key: value for key, value in built.given.items() if key}
    if not given:
        raise ConfigError(
            f"{name} builds no {_RESULT} that can be read. To fix: give the command that names one (torchrun "
            "-m torchtitan.train --module MODULE --config NAME)."
        )
    _put_model(given, family, function)
    _put_batch(given)
    given = {
        key: value
        for key, value in given.items()
        if key in (_RECOMPUTE, "model.converters") or not (_CLASS.search(value.word) or _PLACE.search(key))
    }
    if given.get(_RECOMPUTE, Stated("")).value is None:
        given[_RECOMPUTE] = Stated("none", given[_RECOMPUTE].line)
    if given.get("parallelism.pipeline_parallel_degree", Stated(1)).value == 1:
        given.pop(_MICROBATCHES, None)  # ignored then
    return Built(given, built.unread)


def _put_model(given: Tree, family: str, function: str) -> None:
    """Name and flavor: a function is named after the model, its size behind it (`qwen3_0_6b`)."""
    size, _ = given.pop(_SIZE, None), given.pop("model_spec", None)
    if size is not None and not size.unknown:
        named = re.sub(r"\W", "_", size.word.lower())
        given["model.flavor"] = size
        given["model.name"] = Stated(family or function.partition(f"_{named}")[0], size.line)
    converters = given.pop(_CONVERTERS, None)
    if converters is None:
        return
    given["model.converters"] = converters
    for place, word in enumerate(converters.value if isinstance(converters.value, list) else []):
        if "lora" in str(word).lower():
            for key in [each for each in given if each.startswith(f"{_CONVERTERS}.{place}.")]:
                given[f"lora.{key.rpartition('.')[2]}"] = given[key]
    for key in [each for each in given if each.startswith(f"{_CONVERTERS}.")]:
        del given[key]


def _put_batch(given: Tree) -> None:
    """Batches in samples: tokens of a forward pass over those of the longest context."""
    length = given.get(_LENGTH)
    for tokens, samples in _TOKENS.items():
        stated = given.get(tokens)
        if stated is None or stated.unknown or not isinstance(stated.value, int) or stated.value <= 0:
            continue
        if length is not None and isinstance(length.value, int) and length.value > 0 and not length.unknown:
            given[samples] = Stated(max(1, stated.value // length.value), stated.line)
            del given[tokens]
