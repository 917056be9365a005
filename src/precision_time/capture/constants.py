"""Real values of small constants next to their meta tensors.

Models look at values that depend on nothing but sizes (`(position_ids.diff() != 1).any()`): those can be
computed. What depends on inputs, weights or random numbers has no value on the meta device.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_LARGEST = 1 << 24
"""Elements up to which constants are computed: position ids of a batch of 101 at 131,072 tokens."""
_VALUELESS = ("empty", "new_empty", "rand", "randn", "randint", "randperm", "bernoulli", "normal", "uniform")
_COIN = 0.5
"""What a single random number is taken to be (layer drop and the like decide on one): no layer dropped."""


class Constants:
    """Follows the operators of a capture and computes those that read constants only."""

    def __init__(self) -> None:
        self._real: dict[int, Any] = {}
        self._alive: list[Any] = []

    def adopt(self, tree: Any) -> Any:
        """The arguments with real tensors replaced by meta tensors whose values are remembered."""
        return tree_map(self._adopted, tree)

    def _adopted(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.device.type == "meta":
            return torch.device("meta") if isinstance(leaf, torch.device) else leaf
        known = self._real.get(-id(leaf))
        if known is None:
            known = torch.empty_like(leaf, device="meta")
            self._real[-id(leaf)] = known
            self._alive.append(leaf)
            if leaf.numel() <= _LARGEST and type(leaf) is torch.Tensor:
                self._remember(known, leaf)
        return known

    def _remember(self, meta: Any, real: Any) -> None:
        self._real[id(meta)] = real
        self._alive.append(meta)

    def value(self, tensor: Any) -> Any:
        """The real tensor behind a meta tensor, or None."""
        return self._real.get(id(tensor))

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator on real values, or None if some input has none or the result is random."""
        reads = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        name = func._schema.name.split("::")[-1].rstrip("_")
        if name == "rand" and not reads and math.prod(args[0]) == 1:
            return torch.full(tuple(args[0]), _COIN)
        valueless = name.startswith(_VALUELESS) or torch.Tag.nondeterministic_seeded in func.tags
        if valueless or any(id(t) not in self._real for t in reads):
            for tensor in reads:
                if _writes(func) and id(tensor) in self._real:
                    del self._real[id(tensor)]
            return None
        if not reads and not _small(args):
            return None
        real_args, real_kwargs = tree_map(self._realized, (args, kwargs))
        return func(*real_args, **real_kwargs)

    def _realized(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._real[id(leaf)]
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    def link(self, out: Any, real: Any) -> None:
        """Remembers the values of an operator's results."""
        for meta, value in zip(tree_leaves(out), tree_leaves(real), strict=False):
            if (
                isinstance(meta, torch.Tensor)
                and isinstance(value, torch.Tensor)
                and value.numel() <= _LARGEST
            ):
                self._remember(meta, value)


def _writes(func: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


def _small(args: Any) -> bool:
    """Whether a factory call makes few enough elements to compute."""
    numbers = [leaf for leaf in tree_leaves(args) if isinstance(leaf, int) and not isinstance(leaf, bool)]
    return math.prod(max(abs(number), 1) for number in numbers) <= _LARGEST
