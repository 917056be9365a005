"""LightGBM's text format, read into arrays and written from them.

The format states each tree by its splits (numbered from 0 in the order of their making) and its leaves
(children -1 - leaf). Arrays number all nodes of all trees in one row, leaves after splits.

Reference: LightGBM `Booster.model_to_string`, model version v4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .trees import TreeEnsemble

_NUMERICAL_DEFAULT_LEFT = 2
"""Decision type of `x <= threshold` with no missing values."""


def arrays_of(text: str) -> Mapping[str, NDArray[Any]]:
    """The node arrays of a model in text, as `TreeEnsemble` takes them, without its depth.

    Args:
        text: What `Booster.model_to_string` gives; numerical splits only.
    """
    columns: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }
    roots: list[int] = []
    start = 0
    for block in text.split("\nTree=")[1:]:
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
    return {**joined, "roots": np.array(roots)}


def text_of(trees: TreeEnsemble, num_features: int) -> str:
    """The ensemble as a model that LightGBM loads; it predicts the sum of leaf values.

    Args:
        trees: At least one tree.
        num_features: Columns of the table that the model will be asked about.
    """
    ends = np.append(trees.roots[1:], len(trees.left))
    blocks = [
        _tree_text(trees, number, int(start), int(end))
        for number, (start, end) in enumerate(zip(trees.roots, ends, strict=True))
    ]
    names = " ".join(f"Column_{index}" for index in range(num_features))
    head = {
        "version": "v4",
        "num_class": "1",
        "num_tree_per_iteration": "1",
        "label_index": "0",
        "max_feature_idx": str(num_features - 1),
        "objective": "regression",
        "feature_names": names,
        "feature_infos": " ".join(["none"] * num_features),
        "tree_sizes": " ".join(str(len(block)) for block in blocks),
    }
    lines = "\n".join(f"{name}={value}" for name, value in head.items())
    return f"tree\n{lines}\n\n{''.join(blocks)}end of trees\n"


def _tree_text(trees: TreeEnsemble, number: int, start: int, end: int) -> str:
    nodes = np.arange(start, end)
    is_leaf = trees.left[start:end] == nodes
    place = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    splits = nodes[~is_leaf]
    leaves = int(is_leaf.sum())
    fields: dict[str, Any] = {"num_leaves": [leaves], "num_cat": [0]}
    if len(splits):
        fields |= {
            "split_feature": trees.feature[splits],
            "split_gain": np.zeros(len(splits)),
            "threshold": trees.threshold[splits],
            "decision_type": np.full(len(splits), _NUMERICAL_DEFAULT_LEFT),
            "left_child": place[trees.left[splits] - start],
            "right_child": place[trees.right[splits] - start],
        }
    fields |= {"leaf_value": trees.value[nodes[is_leaf]], "leaf_count": np.ones(leaves, dtype=int)}
    if len(splits):
        fields |= {"internal_value": np.zeros(len(splits)), "internal_count": np.ones(len(splits), dtype=int)}
    fields |= {"is_linear": [0], "shrinkage": [1]}
    return f"Tree={number}\n" + "".join(_lines(fields)) + "\n\n"


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, values in fields.items():
        words = (repr(value) for value in np.asarray(values).tolist())
        yield f"{name}={' '.join(words)}\n"


def _numbers(fields: Mapping[str, str], name: str, count: int) -> NDArray[np.float64]:
    """Numbers of one line, shape (count,); a tree of one leaf has no lines on splits."""
    return np.array(fields[name].split(), dtype=np.float64) if count else np.zeros(0)
