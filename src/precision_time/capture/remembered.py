"""`capture_remembered`: a model that was captured once in this process is not captured again.

Another batch, device or precision asks for the same graph. A model is the same as long as its file, and for
a module its structure and all plain attributes, stay as they were.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_flatten

from ..workload.graph import OpGraph
from .own import code_stamp
from .sources import capture_model

_MOST = 64
_PLAIN = (int, float, str, bool, type(None))
_by_name: OrderedDict[Hashable, OpGraph] = OrderedDict()
_by_module: WeakKeyDictionary[Any, OrderedDict[Hashable, OpGraph]] = WeakKeyDictionary()


def capture_remembered(source: Any, **options: Any) -> OpGraph:
    """`capture_model`, once for each model and options."""
    is_module = isinstance(source, torch.nn.Module)
    if not is_module and not isinstance(source, str | os.PathLike):
        return capture_model(source, **options)
    try:
        stamp = tuple(_structure(source)) if is_module else _stamp(os.fspath(source))
        key = (stamp, *((name, _key(value)) for name, value in sorted(options.items())))
        hash(key)
    except TypeError:  # something that cannot be compared
        return capture_model(source, **options)
    known = _by_module.setdefault(source, OrderedDict()) if is_module else _by_name
    if key not in known:
        known[key] = capture_model(source, **options)
        while len(known) > _MOST:
            known.popitem(last=False)
    return known[key]


def _stamp(source: str) -> Hashable:
    """Changes with what a name stands for."""
    path = Path(source)
    paths = (path, path / "config.json")
    files = tuple((str(file.resolve()), file.stat().st_mtime_ns) for file in paths if os.path.isfile(file))
    return (source, os.getcwd(), code_stamp(source), files)


def _structure(module: Any) -> Iterator[Hashable]:
    """What decides the graph of a module: its parts, their plain attributes, shapes and what is trained."""
    for name, part in module.named_modules():
        yield name, type(part)
        for key, value in vars(part).items():
            if isinstance(value, _PLAIN):
                yield key, value
            elif isinstance(value, tuple):
                yield key, repr(value)
    for tensor in (*module.parameters(), *module.buffers()):
        yield tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad


def _key(value: Any) -> Hashable:
    """A value of an option as something to compare: of tensors their shapes and types."""
    if isinstance(value, dict) and all(isinstance(item, _PLAIN) for item in value.values()):
        return json.dumps(value, sort_keys=True)
    leaves, tree = tree_flatten(value)
    kept = (
        (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    )
    return (str(tree), *kept)
