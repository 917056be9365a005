"""Boosted trees as plain arrays: what ships, and what one prediction walks through.

Training uses LightGBM. A single prediction must answer within milliseconds of a cold start, and
importing LightGBM takes half a second and more; so the trees are stored as arrays and walked here.
LightGBM's own text of the model is stored with them: thousands of rows at once go to LightGBM, which takes
half the time. `tests/learn/test_trees.py` compares both.

Reference: LightGBM `Booster.model_to_string`, model version v4. It states each tree by its splits (numbered
from 0 in the order of their making) and its leaves (children -1 - leaf).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")
_THREADS = 2
_FEW_ROWS = 16_384
"""Up to here the arrays are walked, about 60 us a row; above, LightGBM is faster, its import and reading the
trees, about 2 s, included."""
_BLOCKS = (512, 64, 8)
"""Rows that are decided together; each divides the one before."""
_ALIKE = 2048
"""Rows that are walked in blocks at a time."""
_CHUNK = 128
"""Rows that are walked together: their nodes stay in the cache."""


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
    text: bytes = field(default=b"", repr=False)
    """The same trees as LightGBM writes them, zlib-compressed; without it the arrays serve bulk as well."""
    children: NDArray[np.int32] = field(init=False)
    """Right and left of each node in turn, shape (2M,)."""
    _boosters: list[Any] = field(init=False, repr=False, compare=False, default_factory=list)
    """The booster read from `text`, when first needed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", np.stack([self.right, self.left], axis=1).ravel())

    def predict(self, x: Floats) -> Floats:
        """Sum of the leaf values.

        Args:
            x: Features, shape (n_samples, n_features).

        Returns:
            Raw score, shape (n_samples,).
        """
        if len(self.roots) == 0:
            return np.zeros(len(x))
        if len(x) <= _CHUNK:
            return self._walk(x)
        if len(x) <= _FEW_ROWS:
            return np.concatenate([self._in_blocks(x[at : at + _ALIKE]) for at in range(0, len(x), _ALIKE)])
        bulk, parts = (self._boosted, _THREADS) if self.text else (self._walk, len(x) // _CHUNK)
        with ThreadPoolExecutor(_THREADS) as pool:
            # LightGBM's own threads would not survive the fork of a process that used them.
            return np.concatenate([*pool.map(bulk, np.array_split(x, parts))])

    def _walk(self, x: Floats) -> Floats:
        # Flat takes: a level of all trees and rows at once, without building index pairs.
        flat = np.ascontiguousarray(x).ravel()
        offset = (np.arange(len(x)) * x.shape[1])[:, None]
        node = np.broadcast_to(self.roots, (len(x), len(self.roots))).astype(np.intp)
        for _ in range(self.depth):
            goes_left = flat.take(self.feature.take(node) + offset) <= self.threshold.take(node)
            node = self.children.take(2 * node + goes_left)
        total: Floats = self.value.take(node).sum(axis=1)
        return total

    def _in_blocks(self, x: Floats) -> Floats:
        """As `_walk`, faster where neighboring rows are alike, as those of a sweep.

        What all rows of a block decide alike is decided once for the block, first for large blocks, then in
        those trees that are left for smaller ones, down to single rows.
        """
        padded = np.concatenate([x, np.repeat(x[-1:], -len(x) % _BLOCKS[0], axis=0)])
        node = np.tile(self.roots.astype(np.intp), (len(padded) // _BLOCKS[0], 1))
        for size, smaller in zip(_BLOCKS, (*_BLOCKS[1:], 1), strict=True):
            blocks = padded.reshape(-1, size, padded.shape[1])
            open_ = np.flatnonzero(self.left.take(node) != node)
            self._decide(node, open_, blocks.min(axis=1), blocks.max(axis=1))
            if smaller > 1:
                node = np.repeat(node, size // smaller, axis=0)
        values = np.repeat(self.value.take(node), _BLOCKS[-1], axis=0)
        block, tree = np.nonzero(self.left.take(node) != node)
        rows = (block * _BLOCKS[-1])[:, None] + np.arange(_BLOCKS[-1])
        flat, offset, below = padded.ravel(), rows * padded.shape[1], node[block, tree][:, None]
        for _ in range(self.depth):
            goes_left = flat.take(self.feature.take(below) + offset) <= self.threshold.take(below)
            below = self.children.take(2 * below + goes_left)
        values.ravel()[rows * len(self.roots) + tree[:, None]] = self.value.take(below)
        total: Floats = values[: len(x)].sum(axis=1)
        return total

    def _decide(self, node: NDArray[np.intp], open_: NDArray[np.intp], low: Floats, high: Floats) -> None:
        """Go down as far as the least and the most of every feature in a block go the same way."""
        offset, here = open_ // node.shape[1] * low.shape[1], node.ravel()[open_]
        low, high = low.ravel(), high.ravel()
        for _ in range(self.depth):
            at, threshold = self.feature.take(here) + offset, self.threshold.take(here)
            left = high.take(at) <= threshold
            further = np.where(left | (low.take(at) > threshold), self.children.take(2 * here + left), here)
            if (further == here).all():
                break
            here = further
        node.ravel()[open_] = here

    def _boosted(self, x: Floats) -> Floats:
        if not self._boosters:
            import lightgbm

            self._boosters.append(lightgbm.Booster(model_str=zlib.decompress(self.text).decode()))
        score: Floats = self._boosters[0].predict(x, raw_score=True, num_threads=1)
        return score

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays for one `.npz` file, names led by `prefix`."""
        named = {f"{prefix}.lightgbm": np.frombuffer(self.text, dtype=np.uint8)} if self.text else {}
        named |= {f"{prefix}.{name}": getattr(self, name) for name in _ARRAYS}
        return named | {f"{prefix}.depth": np.array(self.depth)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> TreeEnsemble:
        """The ensemble that `to_arrays` wrote under `prefix`."""
        text = arrays.get(f"{prefix}.lightgbm")
        return cls(
            **{name: arrays[f"{prefix}.{name}"] for name in _ARRAYS},
            depth=int(arrays[f"{prefix}.depth"]),
            text=b"" if text is None else text.tobytes(),
        )


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
        text=zlib.compress(model.encode()),
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
