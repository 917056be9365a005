"""Inputs of a module that does not say what it takes: as the user spells them, or found out by trying.

What a module computes first says what it takes: token ids for an embedding, images for a convolution,
vectors for a linear layer. Sizes that nothing states are tried from the usual ones; all of it is told.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, nearest_names, shown
from ..records import dataclass

BATCH = "B"
_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)\s*:)?\s*(?P<dtype>\w+)\s*\[(?P<sizes>[^\]]*)\]")
_DTYPES = {
    "int64": torch.int64, "int32": torch.int32, "bool": torch.bool, "float32": torch.float32,
    "float16": torch.float16, "bfloat16": torch.bfloat16, "uint8": torch.uint8,
    "long": torch.int64, "int": torch.int32, "float": torch.float32,
}  # fmt: skip
_FORM = "To fix: write it like ids:int64[B,512], B being the batch."
_TARGETS = re.compile(r"^(targets?|labels?|y|y_true|tgt_ids|target_ids|lm_labels)$")
_MASKS = re.compile(r"mask")
_PLACES = re.compile(r"(^|[._])(pos|wpe|place)", re.I)
_PLACED = ("block_size", "max_seq_len", "max_position_embeddings", "n_positions", "context_length", "max_len")
_SINGLE = re.compile(r"(^|_)(users?|items?|movies?)(_|$)|^[ui]$", re.I)
_SIDES = ("image_size", "img_size", "input_size")
USUAL_SEQ_LEN = 512
_SEQ_LENS = (USUAL_SEQ_LEN, 128, 64, 32)
_IMAGE_SIZES = (224, 32, 28, 64, 96, 128, 256, 299, 384, 512)
_FEWEST_PLACES = 8
_SEQUENTIAL = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
_LEAVES = (nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.MultiheadAttention, nn.Linear)


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One tensor that a forward pass takes."""

    name: str
    """Of the argument; empty for one that is told by its place."""
    dtype: Any
    shape: tuple[int | str, ...]
    """With BATCH where the batch stands."""
    high: int = 2
    """Whole numbers are below it."""

    def meta(self, batch: int) -> Any:
        """It for a batch, without data."""
        return torch.empty(self._sizes(batch), dtype=self.dtype, device="meta")

    def random(self, batch: int, device: Any) -> Any:
        """It for a batch, with random data."""
        sizes = self._sizes(batch)
        if self.dtype.is_floating_point:
            return torch.randn(sizes, dtype=self.dtype, device=device)
        if self.dtype is torch.bool:
            return torch.ones(sizes, dtype=torch.bool, device=device)
        return torch.randint(max(self.high, 1), sizes, dtype=self.dtype, device=device)

    def _sizes(self, batch: int) -> tuple[int, ...]:
        return tuple(batch if size == BATCH else int(size) for size in self.shape)

    def __str__(self) -> str:
        word = str(self.dtype).removeprefix("torch.")
        return f"{self.name and self.name + ':'}{word}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """Inputs that a module may take."""

    inputs: tuple[Input, ...]
    seq_len: int | None = None
    image_size: int | None = None
    assumed: bool = True
    """Whether the caller stated no size of it."""


def parse_inputs(texts: Sequence[str]) -> tuple[Input, ...]:
    """Inputs as the user spells them: `ids:int64[B,512]`, or `float32[B,3,32,32]` by place.

    Raises:
        ConfigError: If one is not of that form, or has no batch.
    """
    found = []
    for text in texts:
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"The input {shown(text)} is not NAME:TYPE[SIZES]. {_FORM}")
        dtype = _DTYPES.get(match["dtype"])
        if dtype is None:
            near = " or ".join(nearest_names(match["dtype"], _DTYPES) or ["int64", "float32"])
            raise ConfigError(f"The type {match['dtype']!r} of the input {shown(text)} is unknown: {near}?")
        sizes: list[int | str] = []
        for word in (part.strip() for part in match["sizes"].split(",")):
            if word.upper() == BATCH:
                sizes.append(BATCH)
            elif word.isdigit() and int(word) > 0:
                sizes.append(int(word))
            else:
                raise ConfigError(
                    f"The size {word!r} of the input {shown(text)} is no number above 0. {_FORM}"
                )
        found.append(Input(name=match["name"] or "", dtype=dtype, shape=tuple(sizes)))
    if found and not any(BATCH in item.shape for item in found):
        raise ConfigError(f"No input has a batch: {', '.join(texts)}. {_FORM}")
    return tuple(found)


def with_limits(module: nn.Module, inputs: Sequence[Input]) -> tuple[Input, ...]:
    """The inputs with their largest whole numbers: rows of embeddings, classes for targets."""
    rows = max(
        (layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)), default=0
    )
    classes = next(
        (layer.out_features for layer in reversed([*module.modules()]) if isinstance(layer, nn.Linear)), 2
    )
    return tuple(
        Input(
            name=item.name,
            dtype=item.dtype,
            shape=item.shape,
            high=min(rows or classes, classes) if _TARGETS.match(item.name) else rows or classes,
        )
        for item in inputs
    )


def guesses(
    module: nn.Module, forward: Callable[..., Any], *, seq_len: int | None, image_size: int | None
) -> Iterator[Guess]:
    """Inputs to try in turn, likely ones first.

    Args:
        module: Says by its layers what it takes.
        forward: Its method; its arguments without a default are given, and targets that it can take.
        seq_len: Tokens of a sample, where the caller says so.
        image_size: Side of images, where the caller says so.
    """
    names, optional = _arguments(forward)
    has_tables = any(isinstance(layer, nn.Embedding) for layer in module.modules())
    if has_tables and seq_len is None and names and all(_SINGLE.search(name) for name in names):
        # Users and items, one id of each to a sample: no sequences.
        yield Guess(inputs=tuple(Input(name=name, dtype=torch.int64, shape=(BATCH,)) for name in names))
    for layer in _first_layers(module):
        for first, length, side in _of_layer(layer, module, seq_len, image_size):
            assumed = (length is not None and seq_len is None) or (side is not None and image_size is None)
            targets = _target(first, length)
            inputs = tuple(_argument(name, first, targets, length) for name in names or [""])
            for further in [optional, ""] if optional else [""]:
                last = (targets(further),) if further else ()
                yield Guess(inputs=(*inputs, *last), seq_len=length, image_size=side, assumed=assumed)


def _arguments(forward: Callable[..., Any]) -> tuple[list[str], str]:
    """Arguments that must be given, and one for targets that may be."""
    try:
        parameters = [*inspect.signature(forward).parameters.values()]
    except (TypeError, ValueError):
        return [], ""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [item.name for item in parameters if item.default is item.empty and item.kind in plain]
    targets = [item.name for item in parameters if item.name not in needed and _TARGETS.match(item.name)]
    return needed, targets[0] if targets else ""


def _argument(name: str, first: Input, targets: Callable[[str], Input], length: int | None) -> Input:
    if _TARGETS.match(name):
        return targets(name)
    if _MASKS.search(name) and length is not None:
        return Input(name=name, dtype=torch.bool, shape=(BATCH, length))
    return Input(name=name, dtype=first.dtype, shape=first.shape, high=first.high)


def _target(first: Input, length: int | None) -> Callable[[str], Input]:
    """What a loss compares with: a token each for token ids, else a class for each sample."""
    tokens = length is not None and not first.dtype.is_floating_point

    def target(name: str) -> Input:
        shape = first.shape if tokens else (BATCH,)
        return Input(name=name, dtype=torch.int64, shape=shape, high=first.high if tokens else 2)

    return target


def _first_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The first layer of each kind, in the order in which they were registered, embeddings before all."""
    seen: set[type] = set()
    leaves = [layer for layer in module.modules() if isinstance(layer, _LEAVES)]
    for layer in sorted(leaves, key=lambda layer: not isinstance(layer, nn.Embedding)):
        kind = next(kind for kind in _LEAVES if isinstance(layer, kind))
        if kind not in seen:
            seen.add(kind)
            yield layer


def _of_layer(
    layer: Any, module: nn.Module, seq_len: int | None, image_size: int | None
) -> Iterator[tuple[Input, int | None, int | None]]:
    """What a first layer takes, with its tokens and the side of its images."""
    if isinstance(layer, nn.Embedding):
        rows = max(item.num_embeddings for item in module.modules() if isinstance(item, nn.Embedding))
        for length in _lengths(module, seq_len):
            yield Input(name="", dtype=torch.int64, shape=(BATCH, length), high=rows), length, None
    elif isinstance(layer, nn.Conv1d):
        for length in _lengths(module, seq_len):
            shape: tuple[int | str, ...] = (BATCH, layer.in_channels, length)
            yield Input(name="", dtype=torch.float32, shape=shape), length, None
    elif isinstance(layer, nn.Conv2d):
        stated = [side for name in _SIDES if isinstance(side := getattr(module, name, None), int)]
        for side in [image_size] if image_size else dict.fromkeys([*stated, *_IMAGE_SIZES]):
            yield (
                Input(name="", dtype=torch.float32, shape=(BATCH, layer.in_channels, side, side)),
                None,
                side,
            )
    elif isinstance(layer, nn.RNNBase):
        for length in _lengths(module, seq_len):
            sizes = (BATCH, length) if layer.batch_first else (length, BATCH)
            yield Input(name="", dtype=torch.float32, shape=(*sizes, layer.input_size)), length, None
    elif isinstance(layer, nn.MultiheadAttention | nn.Linear):
        width = layer.embed_dim if isinstance(layer, nn.MultiheadAttention) else layer.in_features
        if seq_len is None and not any(isinstance(item, _SEQUENTIAL) for item in module.modules()):
            yield Input(name="", dtype=torch.float32, shape=(BATCH, width)), None, None
        for length in _lengths(module, seq_len):
            yield Input(name="", dtype=torch.float32, shape=(BATCH, length, width)), length, None


def _lengths(module: nn.Module, seq_len: int | None) -> Iterator[int]:
    """Tokens of a sample to try: as stated, else no more than the places that the module has."""
    if seq_len is not None:
        yield seq_len
        return
    holders = (module, getattr(module, "config", None))
    stated = [
        value for item in holders for name in _PLACED if isinstance(value := getattr(item, name, None), int)
    ]
    places = [
        layer.num_embeddings
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Embedding) and _PLACES.search(name)
    ] + [
        tensor.shape[-2]
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if _PLACES.search(name) and tensor.dim() >= 2  # noqa: PLR2004 - (places, width)
    ]
    tables = [layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)]
    if len(tables) == 2 and not places:  # noqa: PLR2004 - the words, and most likely their places
        places = [min(tables)]
    known = [length for length in (*stated, *places) if length >= _FEWEST_PLACES]
    longest = min(known, default=USUAL_SEQ_LEN)
    yield from dict.fromkeys(min(longest, length) for length in _SEQ_LENS)
