"""Options that several commands share, with completion of the names they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


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


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of a few words."""

    def complete(prefix: str) -> list[str]:
        return [word for word in words if word.startswith(prefix)]

    return complete


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A known name (`precision-time models`), a timm or Hugging Face name, module:function, a "
        "config.json, an .onnx or a .pt2 file.",
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
BatchSizeOption = Annotated[
    int | None,
    typer.Option("--batch-size", "-b", help="Samples per device and forward pass, as in a PyTorch script."),
]
SeqLenOption = Annotated[int | None, typer.Option("--seq-len", help="Tokens per sample.")]
ImageSizeOption = Annotated[int | None, typer.Option("--image-size", help="Side of the images [pixels].")]
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


TpOption = Annotated[int, typer.Option("--tp", help="Tensor-parallel degree.")]
PpOption = Annotated[int, typer.Option("--pp", help="Pipeline-parallel degree.")]
CpOption = Annotated[int, typer.Option("--cp", help="Context-parallel degree: ranks that share a sequence.")]
EpOption = Annotated[
    int, typer.Option("--ep", help="Expert-parallel degree, over the devices of a pipeline stage.")
]
ExpertTpOption = Annotated[
    int | None,
    typer.Option("--expert-tp", help="Experts: tensor-parallel degree inside one. Default: --tp."),
]
ExpertCapacityOption = Annotated[
    float,
    typer.Option("--expert-capacity", help="Experts: tokens taken, of an even share; 0 drops none."),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="Pipeline: gpipe, 1f1b, interleaved or zero-bubble. Default: 1f1b; interleaved with "
        "--virtual-pp.",
        autocompletion=complete_words("gpipe", "1f1b", "interleaved", "zero-bubble"),
    ),
]
VirtualPpOption = Annotated[
    int, typer.Option("--virtual-pp", help="Pipeline: model chunks per stage (interleaved).")
]
StageLayersOption = Annotated[
    str | None,
    typer.Option(
        "--stage-layers", metavar="N,NxTIMES...", help="Pipeline: layers of each stage, such as 7,8x14,7."
    ),
]
SequenceParallelOption = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel",
        help="Tensor: split the norms too. Default: with --tp in language models.",
    ),
]
ContextMethodOption = Annotated[
    str,
    typer.Option(
        "--context-method",
        metavar="NAME",
        help="Context: ring, all-gather or ulysses.",
        autocompletion=complete_words("ring", "all-gather", "ulysses"),
    ),
]
ZeroOption = Annotated[
    int | None,
    typer.Option(
        "--zero", help="Data: ZeRO stage 0-3; 3 is FSDP. Default: DDP where it fits, else 3 (1 with --pp)."
    ),
]
ShardSizeOption = Annotated[
    int,
    typer.Option("--shard-size", help="Data: ranks that hold one copy between them (HSDP); 0 for all."),
]
ReshardOption = Annotated[
    bool,
    typer.Option(
        "--reshard-after-forward/--no-reshard-after-forward",
        help="Data: drop gathered parameters after the forward pass (FSDP).",
    ),
]
PrefetchOption = Annotated[
    int, typer.Option("--prefetch", help="Data: units gathered ahead of their computation (FSDP); 0: none.")
]
OffloadOption = Annotated[
    str,
    typer.Option(
        "--offload",
        metavar="WHAT",
        help="Data: what lives in host memory: none, optimizer or parameters.",
        autocompletion=complete_words("none", "optimizer", "parameters"),
    ),
]
RankOrderOption = Annotated[
    str | None,
    typer.Option(
        "--rank-order", metavar="AXES", help="Axes from neighbouring devices outwards. Default: tp-cp-dp-pp."
    ),
]
StragglersOption = Annotated[
    bool,
    typer.Option(
        "--stragglers/--no-stragglers",
        help="Allow for the slowest of many devices; without, all are alike.",
    ),
]
CheckpointingOption = Annotated[
    str,
    typer.Option(
        "--checkpointing",
        metavar="MODE",
        help="Recomputed activations: none, selective, full, full:0.5 (share of the layers), "
        "full:16 (layers).",
        autocompletion=complete_words("none", "selective", "full"),
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
