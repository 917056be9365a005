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
            return np.concatenate([self._walk(x[at : at + _CHUNK]) for at in range(0, len(x), _CHUNK)])
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
