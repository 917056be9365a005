"""Options that several commands share, with completion of the names they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..errors import ConfigError
from ..fields import Option
from ..io import packaged_toml
from ..launch import LAUNCHERS

_Function = TypeVar("_Function", bound=Callable[..., None])
PREFIX = "--"
SETTINGS = "settings"
"""Parameter of a command that --set fills."""
NOTHING_FITS = 3
"""Exit status of a command whose every answer is that the job does not fit in memory."""


def complete_model(prefix: str) -> list[str]:
    """Known model names that start with `prefix`."""
    from ..workload.resolve import model_names

    return [name for name in model_names() if name.startswith(prefix)]


def complete_device(prefix: str) -> list[str]:
    """Known devices and hosts whose names start with `prefix`."""
    from ..hardware.catalog import known_device_names, known_node_types

    names = (*known_device_names(), *(node.name for node in known_node_types()))
    return [name for name in names if name.startswith(prefix)]


def complete_precision(prefix: str) -> list[str]:
    """Names of the precision policies that start with `prefix`."""
    from ..precision.catalog import known_precisions

    return [name for name in (*known_precisions(), "all") if name.startswith(prefix)]


def complete_stack(prefix: str) -> list[str]:
    """Names of the software stacks that start with `prefix`."""
    from ..cost.stacks import said_stack_names, stack_names

    return [name for name in dict.fromkeys((*stack_names(), *said_stack_names())) if name.startswith(prefix)]


def flags_of(name: str, option: Option) -> tuple[str, ...]:
    """The spellings of a field as an option, the long one first unless it declares its own."""
    if any(flag.startswith(PREFIX) for flag in option.flags):
        return option.flags
    return (f"{PREFIX}{name.replace('_', '-')}", *option.flags)


def output_file(*flags: str, text: str) -> Any:
    """An option that names a file to write; its folder must exist before anything is computed.

    Args:
        flags: Such as "--out", "-o".
        text: The help.
    """
    return typer.Option(*flags, dir_okay=False, help=text, callback=_folder_exists)


def _folder_exists(option: typer.CallbackParam, given: Any) -> Any:
    for path in given if isinstance(given, list | tuple) else (given,):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(
                f"{option.opts[0]} {path}: its folder does not exist. To fix: create it, or name another."
            )
    return given


def by_ending(paths: Sequence[Path] | None, **kinds: Sequence[str]) -> dict[str, Path | None]:
    """The files of --out by what is written into each, which its ending says.

    Raises:
        ConfigError: If a file ends otherwise, or two are of one kind.
    """
    found: dict[str, Path | None] = dict.fromkeys(kinds)
    for path in paths or ():
        kind = next((kind for kind, endings in kinds.items() if path.suffix.lower() in endings), None)
        if kind is None:
            known = ", ".join(ending for endings in kinds.values() for ending in endings)
            raise ConfigError(f"--out {path}: what it holds is said by its ending. To fix: one of {known}.")
        if found[kind] is not None:
            raise ConfigError(f"--out {found[kind]} and {path} would hold the same. To fix: leave out one.")
        found[kind] = path
    return found


def complete_dataset(prefix: str) -> list[str]:
    """Names of the datasets with known sizes that start with `prefix`."""
    from ..request.datasets import known_datasets
    from ..workload.families.tables import dataset_table

    names = {
        *(dataset.name for dataset in dataset_table().values()),
        *(facts.name for facts in known_datasets().values()),
    }
    return sorted(name for name in names if name.startswith(prefix))


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of a few words."""

    def complete(prefix: str) -> list[str]:
        return [word for word in words if word.startswith(prefix)]

    return complete


def words_of(text: str | None) -> list[str]:
    """The words of an option that takes several, separated by commas."""
    return [word for part in (text or "").split(",") if (word := part.strip())]


def numbers_of(option: str, text: str) -> list[float]:
    """The numbers of an option that takes several.

    Raises:
        ConfigError: If one is none.
    """
    try:
        numbers = [float(word) for word in words_of(text)]
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is not a list of numbers. To fix: write it like 1,2,4."
        ) from None
    return [int(number) if number.is_integer() else number for number in numbers]


COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    "model": complete_model,
    "device": complete_device,
    "precision": complete_precision,
    "stack": complete_stack,
    "dataset": complete_dataset,
}
"""What completes the values of a field, by `Option.complete`."""


def option_of(command: str, name: str) -> Any:
    """What `data/options.toml` says of a parameter of a command, as typer takes it.

    Raises:
        KeyError: If it says nothing.
    """
    row = dict(packaged_toml(__package__, "data/options.toml")[command]["options"][name])
    is_argument, flags = row.pop("argument", False), row.pop("flags", [f"{PREFIX}{name.replace('_', '-')}"])
    if (complete := row.pop("complete", None)) is not None:
        row["autocompletion"] = (
            COMPLETIONS[complete] if isinstance(complete, str) else complete_words(*complete)
        )
    if row.pop("writes", False):
        row |= {"dir_okay": False, "callback": _folder_exists}
    return typer.Argument(**row) if is_argument else typer.Option(*flags, **row)


def declared(command: str) -> Callable[[_Function], _Function]:
    """Give a command the options and the examples that `data/options.toml` has of it."""
    table = packaged_toml(__package__, "data/options.toml")[command]

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        items = [
            item.replace(annotation=Annotated[item.annotation, option_of(command, item.name)])
            if item.name in table.get("options", {})
            else item
            for item in signature.parameters.values()
        ]
        signed: Any = sign(function, signature.replace(parameters=items))
        lines = "".join(f"  {line}\n" for line in table.get("examples", ()))
        signed.examples = f"\b\nExamples:\n{lines}" if lines else None
        return function

    return decorate


def sign(command: Callable[..., None], signature: inspect.Signature) -> Callable[..., None]:
    """Let a function show other parameters than its own."""
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    return command


ModelArgument = Annotated[str, option_of("shared", "model")]
RayOption = Annotated[str | None, option_of("shared", "ray")]
PredictorOption = Annotated[Path | None, option_of("shared", "predictor")]
MemoryTimelineOption = Annotated[Path | None, option_of("shared", "memory_timeline")]
TraceOption = Annotated[Path | None, option_of("shared", "trace")]
EmitOption = Annotated[
    str | None,
    typer.Option(
        "--emit",
        metavar="LAUNCHER",
        help=f"Print the flags or the configuration file of the layout instead: {', '.join(LAUNCHERS)}.",
        autocompletion=complete_words(*LAUNCHERS),
    ),
]
JsonOption = Annotated[bool, option_of("shared", "json_output")]
