"""Group-wise splits of the corpus: rows of one group stay on one side."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..errors import ConfigError
from ..records import dataclass
from .measurement import Measurement
from .rules import load_table


class SplitBy(StrEnum):
    """What is never divided between two folds."""

    CONFIGURATION = "configuration"
    MODEL = "model"
    DEVICE = "device"
    SCALE = "scale"
    PRECISION = "precision"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """Rows to fit on and rows to predict; rows in neither are left out on purpose."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


def folds_of(fold_of: Ints, count: int) -> tuple[Fold, ...]:
    """The folds that have rows to fit on and rows to predict.

    Args:
        fold_of: The fold whose test row each row is, shape (n,); -1 for rows that are always fitted.
        count: Number of folds.
    """
    folds = (
        Fold(train=np.flatnonzero(fold_of != index), test=np.flatnonzero(fold_of == index))
        for index in range(count)
    )
    return tuple(fold for fold in folds if len(fold.test) and len(fold.train))


def group_numbers(rows: Sequence[Measurement], *, by: SplitBy) -> Ints:
    """The group of each row as a number, shape (n,): rows of one group belong on one side of a split."""
    labels = _configuration_labels(rows) if by is SplitBy.CONFIGURATION else list(map(_KEYS[by], rows))
    return np.unique(labels, return_inverse=True)[1].astype(np.int64).reshape(len(rows))


def configuration_groups(rows: Sequence[Measurement]) -> Ints:
    """Groups of rows that measure one configuration; repeats on identical hosts count as one."""
    return group_numbers(rows, by=SplitBy.CONFIGURATION)


def joined_groups(groups: Ints, others: Ints) -> Ints:
    """Groups in which neither a group nor one of the others is divided, as small as can be, shape (n,).

    >>> joined_groups(np.array([0, 0, 1, 2]), np.array([5, 6, 6, 7]))
    array([0, 0, 0, 2])
    """
    while True:
        joined = _least_of_each(_least_of_each(groups, others), groups)
        if np.array_equal(joined, groups):
            return groups
        groups = joined


def _least_of_each(numbers: Ints, groups: Ints) -> Ints:
    """The least number within each group, for each of its rows."""
    _, inverse = np.unique(groups, return_inverse=True)
    least = np.full(int(inverse.max(initial=-1)) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(least, inverse, numbers)
    return least[inverse]


def grouped_folds(groups: Ints, *, num_folds: int = 5, seed: int = 0) -> Ints:
    """The test fold of each row, 0 .. num_folds - 1, shape (n,); no group is divided.

    Groups are distributed in an order drawn from `seed`, so that every fold has as many test groups,
    whatever their sizes: filling folds up by size would put whole families of medium-sized models into
    one fold. The same groups and seed give the same folds on any machine.

    Args:
        groups: Group number of each row, as the functions above give it.
        num_folds: At least 2; with fewer groups some folds are empty.
        seed: Another seed, another draw.

    Raises:
        ConfigError: If there are fewer than 2 folds.
    """
    if num_folds < 2:
        raise ConfigError(
            f"num_folds={num_folds}: a split needs at least 2 folds. To fix: num_folds=2 or more."
        )
    names = np.unique(groups)
    order = sorted(range(len(names)), key=lambda k: _draw(int(names[k]), seed))
    home = np.zeros(len(names), dtype=np.int64)
    home[order] = np.arange(len(names)) % num_folds
    folds: Ints = home[np.searchsorted(names, groups)]
    return folds


def model_group(model: str) -> str:
    """One name for all models of one architecture: recipes, weights and input sizes are stripped off.

    >>> model_group("tf_efficientnet_b0_ns"), model_group("vit_base_patch16_224_in21k")
    ('efficientnet_b0', 'vit_base_patch16')
    """
    name = re.sub(r"[\s.\-]+", "_", model.strip().lower())
    for pattern, replacement in load_table("model_groups")["rewrite"]:
        name = re.sub(pattern, replacement, name)
    return name


def _configuration_labels(rows: Sequence[Measurement]) -> list[str]:
    """Configurations, joined where a run id spans several of them (repeats on other hosts)."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        root = name
        while leader.setdefault(root, root) != root:
            root = leader[root]
        leader[name] = root
        return root

    repeated = [re.compile(pattern) for pattern in load_table("splits")["run_id_is_repeat"]]
    for row in rows:
        if row.run_id and any(pattern.search(row.source) for pattern in repeated):
            leader[find(f"run:{row.source}:{row.run_id}")] = find(row.configuration_key)
    return [find(row.configuration_key) for row in rows]


def _scale(row: Measurement) -> str:
    for limit in load_table("splits")["scale_limits"]:
        if row.num_devices <= limit:
            return f"up to {limit}"
    return "more"


_KEYS: dict[SplitBy, Callable[[Measurement], str]] = {
    SplitBy.MODEL: lambda row: model_group(row.model),
    SplitBy.DEVICE: lambda row: row.device,
    SplitBy.SCALE: _scale,
    SplitBy.PRECISION: lambda row: row.precision,
}


def _draw(group: int, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{group}".encode(), digest_size=8).digest()
