"""Options that several commands share, with completion of the names they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError


def complete_model(prefix: str) -> list[str]:
    """Known model names that start with `prefix`."""
    from ..workload.resolve import model_names

    return [name for name in model_names() if name.startswith(prefix)]


def complete_device(prefix: str) -> list[str]:
    """Known device names that start with `prefix`."""
    from ..hardware.catalog import known_devices

    return [device.name for device in known_devices() if device.name.startswith(prefix)]


def complete_precision(prefix: str) -> list[str]:
    """Names of the precision policies that start with `prefix`."""
    from ..precision.catalog import known_precisions

    return [name for name in (*known_precisions(), "all") if name.startswith(prefix)]


def complete_stack(prefix: str) -> list[str]:
    """Names of the software stacks that start with `prefix`."""
    from ..cost.stacks import stack_names

    return [name for name in stack_names() if name.startswith(prefix)]


def output_file(*flags: str, text: str) -> Any:
    """An option that names a file to write; its folder must exist before anything is computed.

    Args:
        flags: Such as "--out", "-o".
        text: The help.
    """
    return typer.Option(*flags, dir_okay=False, help=text, callback=_folder_exists)


def _folder_exists(option: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(
            f"{option.opts[0]} {path}: its folder does not exist. To fix: create it, or name another."
        )
    return path


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of a few words."""

    def complete(prefix: str) -> list[str]:
        return [word for word in words if word.startswith(prefix)]

    return complete


def words_of(text: str | None) -> list[str]:
    """The words of an option that takes several, separated by commas."""
    return [word for part in (text or "").split(",") if (word := part.strip())]


COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    "model": complete_model,
    "device": complete_device,
    "precision": complete_precision,
    "stack": complete_stack,
}
"""What completes the values of a field, by `Option.complete`."""

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A known name (`precision-time models`), a timm or Hugging Face name, module:function, a "
        "config.json, an .onnx or .pt2 file, or a job file (.yaml, .toml, .json).",
        autocompletion=complete_model,
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", "-d", help="Device name (`precision-time devices`).", autocompletion=complete_device
    ),
]
SeqLenOption = Annotated[int | None, typer.Option("--seq-len", help="Tokens per sample.")]
ImageSizeOption = Annotated[int | None, typer.Option("--image-size", help="Side of the images [pixels].")]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="local|ADDRESS",
        help="Spread the work over Ray: one of its own here, or a cluster (host:port, auto). The answers are "
        "the same.",
        autocompletion=complete_words("local", "auto"),
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Pure JSON on stdout.")]
SizesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=VALUE",
        help="Size of a parametric model, such as hidden=2048 or layers=16; may be repeated.",
    ),
]
CustomOption = Annotated[
    Path | None,
    typer.Option(
        "--custom",
        exists=True,
        dir_okay=False,
        help="YAML or TOML file with your own devices or clusters.",
    ),
]


def parse_sizes(pairs: list[str] | None) -> dict[str, float] | None:
    """`["hidden=2048"]` as `{"hidden": 2048}`; None when nothing was given.

    Raises:
        typer.BadParameter: If a pair is not NAME=NUMBER.
    """
    if not pairs:
        return None
    sizes: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"--size {pair!r} is not NAME=NUMBER. To fix: write it like --size hidden=2048."
            ) from None
        sizes[name.strip()] = int(number) if number.is_integer() else number
    return sizes
