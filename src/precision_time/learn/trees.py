"""Boosted trees as plain arrays: what ships, and what every prediction walks through.

Training uses LightGBM, answering does not: the trees are stored as arrays and read here by numpy alone. A few
rows walk from the roots to the leaves side by side. Many rows go down together: rows in a row are alike (the
next batch, the next number of devices), so that most splits send a whole block of them the same way, and a
block is halved only where it parts. Both ways give the same bits, because leaf values are multiples of 2^-40
whose sums are exact in any order. `tests/learn/test_trees.py` compares them with each other and LightGBM.

Reference: LightGBM `Booster.model_to_string`, model version v4. It states each tree by its splits (numbered
from 0 in the order of their making) and its leaves (children -1 - leaf).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Ints
from ..records import dataclass

_ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")
_FEW_ROWS = 64
"""Up to so many rows, walking each is faster than going down in blocks."""
_APART = 20
"""Blocks of a row, on average, from which on rows are too different to go down together."""
_BLOCK = 1024
"""Rows that go down together: the extremes of their features stay in the cache."""
_GRID = 2.0**40
"""Leaf values are multiples of its inverse: sums below 8192 are exact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEnsemble:
    """Trees with numerical splits `x <= threshold`; a leaf points at itself.

    Node arrays have length M (all trees together, leaves after splits), `roots` length T.
    """

    feature: NDArray[np.int16]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Floats
    roots: NDArray[np.int32]
    depth: int
    _forest: list[Forest] = field(init=False, repr=False, compare=False, default_factory=list)
    """These trees alone, when first needed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", np.round(self.value * _GRID) / _GRID)

    def predict(self, x: Floats) -> Floats:
        """Sum of the leaf values.

        Args:
            x: Features, shape (n_samples, n_features).

        Returns:
            Raw score, shape (n_samples,).
        """
        if not self._forest:
            self._forest.append(forest_of([self]))
        return self._forest[0].predict(x)[:, 0]

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays for one file, names led by `prefix`."""
        named = {f"{prefix}.{name}": getattr(self, name) for name in _ARRAYS}
        return named | {f"{prefix}.depth": np.array(self.depth)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> TreeEnsemble:
        """The ensemble that `to_arrays` wrote under `prefix`."""
        return cls(
            **{name: arrays[f"{prefix}.{name}"] for name in _ARRAYS}, depth=int(arrays[f"{prefix}.depth"])
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """Several ensembles that read the same features, walked at once; M nodes, T trees, E ensembles."""

    feature: Ints
    threshold: Floats
    children: Ints
    """Right and left of each node in turn, shape (2M,)."""
    is_leaf: NDArray[np.bool_]
    value: Floats
    roots: Ints
    ensemble: Ints
    """Of each tree, shape (T,)."""
    starts: Ints
    """First tree of each ensemble that has trees."""
    count: int
    """E."""
    depth: int

    def predict(self, x: Floats) -> Floats:
        """Sums of the leaf values, shape (n_samples, E).

        Args:
            x: Features, shape (n_samples, n_features).
        """
        scores = np.zeros((len(x), self.count))
        if len(self.roots) and len(x):
            few = len(x) <= _FEW_ROWS
            for start in range(0, len(x), _BLOCK):
                block = np.ascontiguousarray(x[start : start + _BLOCK])
                scores[start : start + _BLOCK] = self._walked(block) if few else self._in_blocks(block)
        return scores

    def _walked(self, x: Floats) -> Floats:
        # Flat takes: a level of all trees and rows at once, without building index pairs.
        flat = x.ravel()
        offset = (np.arange(len(x)) * x.shape[1])[:, None]
        node = self.roots[None].repeat(len(x), axis=0)
        for _ in range(self.depth):
            at = self.feature.take(node)
            at += offset
            goes_left = flat.take(at) <= self.threshold.take(node)
            node += node
            node += goes_left
            node = self.children.take(node)
        scores = np.zeros((len(x), self.count))
        scores[:, self.ensemble[self.starts]] = np.add.reduceat(self.value.take(node), self.starts, axis=1)
        return scores

    def _in_blocks(self, x: Floats) -> Floats:
        least, most = _extremes(x)
        flat_least, flat_most, width = least.ravel(), most.ravel(), x.shape[1]
        node, ensemble = self.roots, self.ensemble
        block = np.ones(len(node), dtype=np.intp)  # numbered as in a heap: halves of 1 are 2 and 3
        leaves: list[tuple[Ints, Ints, Ints]] = []
        while len(node):
            if len(node) > _APART * len(x):
                return self._walked(x)
            at = block * width
            at += self.feature.take(node)
            threshold = self.threshold.take(node)
            goes_left = flat_most.take(at) <= threshold
            parts = flat_least.take(at) <= threshold
            parts &= ~goes_left
            below = self.children.take(2 * node + goes_left)
            if parts.any():
                together = ~parts
                again, halves, own = node[parts], 2 * block[parts], ensemble[parts]
                node = np.concatenate([below[together], again, again])
                block = np.concatenate([block[together], halves, halves + 1])
                ensemble = np.concatenate([ensemble[together], own, own])
            else:
                node = below
            ended = self.is_leaf.take(node)
            leaves.append((ensemble[ended], block[ended], node[ended]))
            going = ~ended
            node, block, ensemble = node[going], block[going], ensemble[going]
        ensembles, blocks, nodes = (np.concatenate(each) for each in zip(*leaves, strict=True))
        size = len(least) // 2
        place, values = ensembles * (2 * size) + blocks, self.value.take(nodes)
        totals: Floats = np.bincount(place, values, self.count * 2 * size).astype(np.float64, copy=False)
        sums = totals.reshape(self.count, 2 * size)
        start = 1
        while start < size:  # what a block was given, its halves have
            sums[:, 2 * start : 4 * start] += sums[:, start : 2 * start].repeat(2, axis=1)
            start *= 2
        scores: Floats = sums[:, size : size + len(x)].T
        return scores


def forest_of(ensembles: Sequence[TreeEnsemble]) -> Forest:
    """Ensembles that read the same features, as one."""
    sizes = np.cumsum([0, *(len(each.feature) for each in ensembles)])
    left, right, roots = (
        np.concatenate([getattr(each, name) + at for each, at in zip(ensembles, sizes, strict=False)])
        for name in ("left", "right", "roots")
    )
    ensemble = np.repeat(np.arange(len(ensembles)), [len(each.roots) for each in ensembles])
    return Forest(
        feature=np.concatenate([each.feature for each in ensembles]).astype(np.intp),
        threshold=np.concatenate([each.threshold for each in ensembles]),
        children=np.stack([right, left], axis=1).ravel().astype(np.intp),
        is_leaf=left == np.arange(len(left)),
        value=np.concatenate([each.value for each in ensembles]),
        roots=roots.astype(np.intp),
        ensemble=ensemble,
        starts=np.flatnonzero(np.diff(ensemble, prepend=-1)),
        count=len(ensembles),
        depth=max((each.depth for each in ensembles), default=0),
    )


def _extremes(x: Floats) -> tuple[Floats, Floats]:
    """Least and most of each feature in all rows, in each half of them, in each quarter ... down to the rows.

    Shape (2 * size, n_features) each, numbered as a heap from 1, where `size` is a power of two; the last row
    fills it up.
    """
    size = 1 << (len(x) - 1).bit_length()
    least, most = np.empty((2, 2 * size, x.shape[1]))
    least[size : size + len(x)], least[size + len(x) :] = x, x[-1]
    most[size:] = least[size:]
    end = size
    while end > 1:
        start = end // 2
        np.minimum(least[end : 2 * end : 2], least[end + 1 : 2 * end : 2], out=least[start:end])
        np.maximum(most[end : 2 * end : 2], most[end + 1 : 2 * end : 2], out=most[start:end])
        end = start
    return least, most


def trees_of(model: str) -> TreeEnsemble:
    """The trees of a LightGBM model in text (`Booster.model_to_string()`), numerical splits only."""
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots: list[int] = []
    start = 0
    for block in model.split("\nTree=")[1:]:
        fields = dict(line.split("=", 1) for line in block.split("\n\n", 1)[0].splitlines()[1:])
        leaves = int(fields["num_leaves"])
        splits = leaves - 1
        own = np.arange(start + splits, start + splits + leaves)
        nothing = np.zeros(leaves)
        for side in ("left", "right"):
            child = _numbers(fields, f"{side}_child", splits).astype(np.intp)
            at = np.where(child >= 0, start + child, start + splits + (-1 - child))
            columns[side].append(np.concatenate([at, own]))
        columns["feature"].append(np.concatenate([_numbers(fields, "split_feature", splits), nothing]))
        columns["threshold"].append(np.concatenate([_numbers(fields, "threshold", splits), nothing]))
        columns["value"].append(np.concatenate([np.zeros(splits), _numbers(fields, "leaf_value", leaves)]))
        roots.append(start)
        start += splits + leaves
    joined = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
    left, right = (joined[side].astype(np.int32) for side in ("left", "right"))
    return TreeEnsemble(
        feature=joined["feature"].astype(np.int16),
        threshold=joined["threshold"],
        left=left,
        right=right,
        value=joined["value"],
        roots=np.array(roots, dtype=np.int32),
        depth=_depth(left, right, np.array(roots, dtype=np.int32)),
    )


def _numbers(fields: Mapping[str, str], name: str, count: int) -> NDArray[np.float64]:
    """Numbers of one line, shape (count,); a tree of one leaf has no lines on splits."""
    return np.array(fields[name].split(), dtype=np.float64) if count else np.zeros(0)


def _depth(left: NDArray[np.int32], right: NDArray[np.int32], roots: NDArray[np.int32]) -> int:
    """Splits on the longest way from a root to a leaf."""
    level, depth = roots[left[roots] != roots], 0
    while len(level):
        below = np.concatenate([left[level], right[level]])
        level, depth = below[left[below] != below], depth + 1
    return depth


NO_TREES = TreeEnsemble(
    feature=np.zeros(0, dtype=np.int16),
    threshold=np.zeros(0),
    left=np.zeros(0, dtype=np.int32),
    right=np.zeros(0, dtype=np.int32),
    value=np.zeros(0),
    roots=np.zeros(0, dtype=np.int32),
    depth=0,
)
"""An ensemble that predicts 0 for everything."""
