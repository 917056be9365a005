"""Boosted trees as plain arrays: what ships, and what one prediction walks through.

Training uses LightGBM. A single prediction must answer within milliseconds of a cold start, and
importing LightGBM costs up to seconds where scikit-learn is installed beside it; so the trees are
stored as arrays and walked here. Thousands of rows at once go back to LightGBM, which is faster at them.
`tests/learn/test_trees.py` holds both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model_text import arrays_of, text_of

Floats = NDArray[np.float64]
_THREADS = 2
_FEW_ROWS = 1024
"""Up to here all trees are walked at once for each row; above, LightGBM is faster, its import included."""


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
    _boosters: dict[int, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The same trees as LightGBM holds them, by number of features; made when first needed."""

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
        return self._walk(x) if len(x) <= _FEW_ROWS else self._in_bulk(x)

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

    def _in_bulk(self, x: Floats) -> Floats:
        import lightgbm

        width = x.shape[1]
        if width not in self._boosters:
            self._boosters[width] = lightgbm.Booster(model_str=text_of(self, width))
        booster = self._boosters[width]
        with ThreadPoolExecutor(_THREADS) as pool:
            # LightGBM's own threads would not survive the fork of a process that used them.
            parts = pool.map(
                lambda part: booster.predict(part, raw_score=True, num_threads=1),
                np.array_split(x, _THREADS),
            )
            return np.concatenate([*parts])

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


def trees_of(model: str) -> TreeEnsemble:
    """The trees of a LightGBM model in text (`Booster.model_to_string()`), numerical splits only."""
    arrays = arrays_of(model)
    left, right = (arrays[side].astype(np.int32) for side in ("left", "right"))
    roots = arrays["roots"].astype(np.int32)
    return TreeEnsemble(
        feature=arrays["feature"].astype(np.int16),
        threshold=arrays["threshold"],
        left=left,
        right=right,
        value=arrays["value"],
        roots=roots,
        depth=_depth(left, right, roots),
    )


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
"""An ensemble that says 0 of everything."""
