"""Group-wise splits of the corpus: rows that tell the same thing stay on one side."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache

from ..errors import ConfigError
from .measurement import Measurement
from .rules import load_table


class SplitBy(StrEnum):
    """What a fold holds out whole."""

    CONFIGURATION = "configuration"
    MODEL = "model"
    DEVICE = "device"
    SCALE = "scale"
    SOURCE = "source"
    PRECISION = "precision"


def folds(rows: Sequence[Measurement], *, by: SplitBy, n_folds: int = 5, seed: int = 0) -> list[list[int]]:
    """Indices of `rows` in `n_folds` disjoint test folds; groups are never divided.

    Groups go to the fold with the fewest rows so far, in an order drawn from `seed`, the big groups
    first, so that folds are nearly equal in rows. The same rows and seed give the same folds on any
    machine. With fewer groups than folds, some folds are empty.

    Raises:
        ConfigError: If fewer than 2 folds are asked for.
    """
    if n_folds < 2:  # noqa: PLR2004
        raise ConfigError(f"n_folds={n_folds}: a split needs at least 2 folds. To fix: ask for 2 or more.")
    members: dict[str, list[int]] = defaultdict(list)
    for index, group in enumerate(groups(rows, by=by)):
        members[group].append(index)
    # Sizes are compared by power of two, so that the draw still decides among alike groups.
    order = sorted(members, key=lambda group: (-len(members[group]).bit_length(), _draw(group, seed)))
    result: list[list[int]] = [[] for _ in range(n_folds)]
    for group in order:
        min(result, key=len).extend(members[group])
    return [sorted(fold) for fold in result]


def groups(rows: Sequence[Measurement], *, by: SplitBy) -> list[str]:
    """The group of each row: rows of one group must lie on one side of a split."""
    if by is SplitBy.CONFIGURATION:
        return _configuration_groups(rows)
    key = _KEYS[by]
    return [key(row) for row in rows]


@cache
def model_group(model: str) -> str:
    """One name for all models of one architecture: recipes, weights and input sizes are stripped off.

    >>> model_group("tf_efficientnet_b0_ns"), model_group("vit_base_patch16_224_in21k")
    ('efficientnet_b0', 'vit_base_patch16')
    """
    name = re.sub(r"[\s.\-]+", "_", model.strip().lower())
    for pattern, replacement in load_table("model_groups")["rewrite"]:
        name = re.sub(pattern, replacement, name)
    return name


def _configuration_groups(rows: Sequence[Measurement]) -> list[str]:
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
    SplitBy.SOURCE: lambda row: row.source.split("-v", maxsplit=1)[0],
    SplitBy.PRECISION: lambda row: row.precision,
}


def _draw(group: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{group}".encode(), digest_size=8).digest()
