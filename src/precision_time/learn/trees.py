"""Boosted trees as plain arrays: what ships, and what one prediction walks through.

Training uses LightGBM. A single prediction must answer within milliseconds of a cold start, and
importing LightGBM costs up to seconds where scikit-learn is installed beside it; so the trees are
stored as arrays and walked here. `tests/learn/test_trees.py` holds both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_THREADS = 2
"""Fixed, so that sums are rounded alike on every machine."""
_FEW_ROWS = 1024
"""Up to here all trees are walked at once for each row; above, each tree parts the rows among its leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEnsemble:
    """Trees with numerical splits `x <= threshold`; a leaf points at itself.

    Node arrays have length M (all trees together), `roots` length T.
    """

    feature: NDArray[np.int16]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Floats
    roots: NDArray[np.int32]
    depth: int
    children: NDArray[np.int32] = field(init=False)
    """Right and left of each node in turn, shape (2M,)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", np.stack([self.right, self.left], axis=1).ravel())

    def predict(self, x: Floats) -> Floats:
        """Sum of the leaf values.

        Args:
            x: Features, shape (n_samples, n_features).

        Returns:
            Raw score, shape (n_samples,).
        """
        return self._walk(x) if len(x) <= _FEW_ROWS else self._partition(x)

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

    def _partition(self, x: Floats) -> Floats:
        columns = np.asfortranarray(x)
        shares = np.array_split(self.roots, _THREADS)
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(pool.map(lambda roots: self._partition_trees(columns, roots.tolist()), shares))
        return sum(parts[1:], start=parts[0])

    def _partition_trees(self, columns: Floats, roots: list[int]) -> Floats:
        total = np.zeros(len(columns))
        everyone = np.arange(len(columns))
        for root in roots:
            waiting = [(root, everyone)]
            while waiting:
                node, rows = waiting.pop()
                left = int(self.left[node])
                if left == node:
                    total[rows] += self.value[node]
                    continue
                goes_left = columns[:, self.feature[node]].take(rows) <= self.threshold[node]
                if goes_left.all():
                    waiting.append((left, rows))
                elif not goes_left.any():
                    waiting.append((int(self.right[node]), rows))
                else:
                    waiting.append((left, rows[goes_left]))
                    waiting.append((int(self.right[node]), rows[~goes_left]))
        return total

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays for one `.npz` file, names led by `prefix`."""
        return {
            f"{prefix}.feature": self.feature,
            f"{prefix}.threshold": self.threshold,
            f"{prefix}.left": self.left,
            f"{prefix}.right": self.right,
            f"{prefix}.value": self.value,
            f"{prefix}.roots": self.roots,
            f"{prefix}.depth": np.array(self.depth),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> TreeEnsemble:
        """The ensemble that `to_arrays` wrote under `prefix`."""
        return cls(
            feature=arrays[f"{prefix}.feature"],
            threshold=arrays[f"{prefix}.threshold"],
            left=arrays[f"{prefix}.left"],
            right=arrays[f"{prefix}.right"],
            value=arrays[f"{prefix}.value"],
            roots=arrays[f"{prefix}.roots"],
            depth=int(arrays[f"{prefix}.depth"]),
        )


def trees_of(model: Mapping[str, Any]) -> TreeEnsemble:
    """The trees of a LightGBM model dump (`Booster.dump_model()`), numerical splits only."""
    columns: dict[str, list[float]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots: list[int] = []
    deepest = 0

    def add(node: Mapping[str, Any], level: int) -> int:
        nonlocal deepest
        deepest = max(deepest, level)
        index = len(columns["feature"])
        for column in columns.values():
            column.append(0)
        columns["left"][index] = columns["right"][index] = index
        if "leaf_value" in node:
            columns["value"][index] = node["leaf_value"]
            return index
        columns["feature"][index] = node["split_feature"]
        columns["threshold"][index] = node["threshold"]
        columns["left"][index] = add(node["left_child"], level + 1)
        columns["right"][index] = add(node["right_child"], level + 1)
        return index

    for tree in model["tree_info"]:
        roots.append(add(tree["tree_structure"], 0))
    return TreeEnsemble(
        feature=np.array(columns["feature"], dtype=np.int16),
        threshold=np.array(columns["threshold"], dtype=np.float64),
        left=np.array(columns["left"], dtype=np.int32),
        right=np.array(columns["right"], dtype=np.int32),
        value=np.array(columns["value"], dtype=np.float64),
        roots=np.array(roots, dtype=np.int32),
        depth=deepest,
    )


NO_TREES = TreeEnsemble(
    feature=np.zeros(0, dtype=np.int16),
    threshold=np.zeros(0),
    left=np.zeros(0, dtype=np.int32),
    right=np.zeros(0, dtype=np.int32),
    value=np.zeros(0),
    roots=np.zeros(0, dtype=np.int32),
    depth=0,
)
"""An ensemble that says 0 of everything."""
