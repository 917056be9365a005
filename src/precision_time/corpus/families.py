"""Families: runs that are equal in everything but precision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ..records import dataclass
from .columns import to_json
from .measurement import Measurement
from .splits import configuration_groups, joined_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionFamily:
    """Runs of one configuration at two or more precisions."""

    rows: dict[str, Ints]
    """Precision to the rows that ran at it."""

    def median(self, values: Floats) -> dict[str, float]:
        """Median of a column by precision."""
        return {precision: float(np.median(values[rows])) for precision, rows in self.rows.items()}


def family_numbers(measurements: Sequence[Measurement]) -> NDArray[np.int64]:
    """The family of each run as a number, shape (n,); families that share a configuration count as one.

    So repeats of a configuration under another version of its framework are never separated.
    """
    numbers: dict[Hashable, int] = {}
    family = np.array(
        [numbers.setdefault(family_key(item), len(numbers)) for item in measurements], dtype=np.int64
    )
    return joined_groups(family, configuration_groups(measurements))


def families_of(measurements: Sequence[Measurement]) -> tuple[PrecisionFamily, ...]:
    """All families with two or more precisions, in the order of their first runs."""
    members: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, item in enumerate(measurements):
        members[family_key(item)][item.precision].append(row)
    return tuple(
        PrecisionFamily(
            rows={precision: np.array(rows, dtype=np.intp) for precision, rows in by_precision.items()}
        )
        for by_precision in members.values()
        if len(by_precision) > 1
    )


_SAME = attrgetter(
    *("source", "model", "seq_len", "task", "dataset", "device", "num_devices", "num_nodes", "placement"),
    *("system", "intra_node", "inter_node", "optimizer", "layout", "stack", "scope"),
)


def family_key(item: Measurement) -> Hashable:
    """Equal for runs that differ in nothing but precision, among those of one source."""
    return (*_SAME(item), to_json(dict(item.sizes)))
