"""CUDA's autocast lists: in which type an operator runs under `torch.autocast("cuda", dtype)`.

The lists are data (`data/autocast.toml`), taken from PyTorch's own header; a test compares them with
the header of the torch that is installed. CPU autocast has other lists and is not described here.

Reference: PyTorch 2.13, `ATen/autocast_mode.h` and docs/source/amp.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from ..io import packaged_toml

AutocastClass = Literal["lower", "fp32", "promote", "same"]

_CLASS_OF_LIST: Mapping[str, AutocastClass] = {
    "lower": "lower",
    "fp32": "fp32",
    "fp32_output_dtype": "fp32",
    "fp32_append_dtype": "fp32",
    "promote": "promote",
}


def autocast_class(op: str) -> AutocastClass:
    """How autocast treats an operator.

    Args:
        op: aten name as a dispatcher records it, without namespace; an overload behind a dot and a
            leading "aten::" are ignored.

    Returns:
        "lower": inputs cast to the autocast type; "fp32": computed in fp32; "promote": inputs cast to
        the widest of them; "same": not touched, runs in the type of its inputs.

    >>> autocast_class("addmm"), autocast_class("native_layer_norm"), autocast_class("relu")
    ('lower', 'fp32', 'same')
    """
    return _classes().get(_bare(op), "same")


def converts_while_reading(op: str) -> bool:
    """Whether an "fp32" operator reads the low-precision input itself, without a cast kernel before it.

    True for the operators whose output type autocast sets (sum, prod, softmax ...). Softmax does so for
    fp16 only: with bf16 a cast kernel runs first (PyTorch, SoftMax.cpp).
    """
    return _bare(op) in _output_dtype_ops()


def header_lists() -> Mapping[str, tuple[str, ...]]:
    """The lists as PyTorch's header has them, by list name, overloads dropped."""
    return {name: tuple(ops) for name, ops in _data()["header"].items()}


def _bare(op: str) -> str:
    return op.rpartition("::")[2].partition(".")[0]


@lru_cache(maxsize=1)
def _classes() -> Mapping[str, AutocastClass]:
    data = _data()
    return {
        op: _CLASS_OF_LIST[name]
        for part in (data["recorded"], data["header"])
        for name, ops in part.items()
        for op in ops
    }


@lru_cache(maxsize=1)
def _output_dtype_ops() -> frozenset[str]:
    data = _data()
    return frozenset(data["header"]["fp32_output_dtype"]) | frozenset(data["recorded"]["fp32_output_dtype"])


def _data() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/autocast.toml")
