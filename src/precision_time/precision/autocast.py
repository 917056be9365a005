"""CUDA's autocast lists: in which type an operator runs under `torch.autocast("cuda", dtype)`.

The lists are data (`data/autocast.toml`), taken from PyTorch's own header; a test compares them with
the header of the torch that is installed. CPU autocast has other lists and is not described here.

Reference: PyTorch 2.13, `ATen/autocast_mode.h` and docs/source/amp.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..cache import data
from ..io import packaged_toml

AutocastClass = Literal["lower", "fp32", "promote", "same"]

_CLASS_OF_LIST: Mapping[str, AutocastClass] = {"lower": "lower", "promote": "promote"}
"""Of the lists in the data; all others compute in fp32."""


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
    return _classes().get(op.rpartition("::")[2].partition(".")[0], "same")


@data
def _classes() -> Mapping[str, AutocastClass]:
    data = packaged_toml(__package__, "data/autocast.toml")
    return {
        op: _CLASS_OF_LIST.get(name, "fp32")
        for part in (data["recorded"], data["header"])
        for name, ops in part.items()
        for op in ops
    }
