"""Extra model definitions for the zoo, in plain torch, for models no library holds.

Every module of this folder exposes `ENTRIES: dict[str, Entry]`; `data/build_zoo.py` captures each
entry and writes it into the package's zoo next to the timm models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """One published figure the captured graph is checked against."""

    quantity: str
    """`params` [elements] or `forward_flops` [FLOP per sample, one multiply-add = 2]."""
    value: float
    source: str
    tolerance: float = 0.01
    """Accepted relative deviation (rounding of the publication, counting convention)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One model: how to build it, what one sample looks like, how it is usually trained."""

    build: Callable[[], Any]
    """Returns the `torch.nn.Module` (built under `torch.device("meta")`, in training mode). Its
    forward may return a loss."""
    inputs: Callable[[int], tuple[Any, ...]]
    """Meta tensors of a batch of the given size, the positional arguments of the forward."""
    kwargs: Callable[[int], Mapping[str, Any]] | None = None
    """Keyword arguments of the forward, likewise."""
    family: str
    """One of the families of `Workload.family`."""
    task: str = ""
    optimizer: str = "sgd"
    sample_unit: str = "sample"
    units_per_sample: float = 1.0
    throughput_unit: str = "samples/s"
    dataset: str = ""
    dataset_samples: int | None = None
    image_size: int | None = None
    seq_len: int | None = None
    source_library: str = "torch"
    """Where the definition comes from: timm, transformers, torchvision, or `torch` for our own."""
    aliases: tuple[str, ...] = ()
    references: tuple[Reference, ...] = field(default=())
