"""Shortfalls of stacks, drawn to what their category has in common the more, the fewer sources measured them.

Used by `calibrate_kernels.py`, whose rows and parameters these are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from precision_time.arrays import Floats
from precision_time.cost.stacks import category_of_stack, stack_names

if TYPE_CHECKING:
    from calibrate_kernels import Rows

NOISE = 0.05
"""Variance of the logarithm of one row."""
HUBER = 0.25
STEPS = 6
BETWEEN_STACKS, BETWEEN_SOURCES = 0.125, 0.255
"""Standard deviation of the logarithm of shortfalls: of stacks of a category, of sources of a stack."""
TOGETHER = 0.8
"""Share of a chip's rows from which on it was measured with one stack alone."""
BETTER = 0.1
"""How far below that mean, as logarithm, a shortfall is put: steps of unseen publishers have no bias."""
LEAST_ROWS = 10


def levels(rows: Rows, names: Sequence[str], busy_s: Floats) -> tuple[Floats, Floats]:
    """Logarithm of how much longer kernels take in each source of a stack, and its variance, by parameter.

    Args:
        rows: Measured.
        names: Of the parameters.
        busy_s: Kernels of each row in a stack without shortfall, shape (R,).
    """
    sources, level = rows.parameters["source"], np.zeros(len(names))
    for _ in range(STEPS):
        busy = busy_s * np.exp(level[sources])
        both = np.cbrt(busy**3 + rows.host_s**3)
        total = both + rows.rest_s
        slope = (busy / both) ** 2 / total * busy
        error = np.log(rows.measured_s / total)
        weight = rows.weight * np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9)) * slope
        known = np.maximum(np.bincount(sources, weight * slope, len(names)), 1e-9)
        level += np.clip(np.bincount(sources, weight * error, len(names)) / known, -0.5, 0.5)
    return level, NOISE / known


def measured_alone(rows: Rows, names: Sequence[str]) -> set[str]:
    """Stacks whose chips hardly ran another one: of share and shortfall only the product was measured.

    What is taken from the one would have to be given to the other: their shortfalls stay as they were fitted.
    """
    chips, stacks = rows.parameters["chip"], rows.parameters["shortfall"]
    of_chip = np.bincount(chips, rows.weight, len(names))
    found = set()
    for stack in set(stacks.tolist()):
        own = np.bincount(chips, rows.weight * (stacks == stack), len(names))
        alone = own >= TOGETHER * np.maximum(of_chip, 1e-12)
        if 2.0 * own[alone].sum() > own.sum():
            found.add(names[stack].split(".", 1)[1])
    return found


def pooled(rows: Rows, names: Sequence[str], busy_s: Floats) -> dict[str, object]:
    """Shortfalls of the categories and of the stacks with enough rows; arguments as of `levels`."""
    level, variance = levels(rows, names, busy_s)
    certain = 1.0 / (BETWEEN_SOURCES**2 + variance)
    inseparable = measured_alone(rows, names)
    of_category: defaultdict[str, list[tuple[str, float, float, int]]] = defaultdict(list)
    for stack in set(rows.parameters["shortfall"].tolist()):
        here = rows.parameters["shortfall"] == stack
        sources, name = np.unique(rows.parameters["source"][here]), names[stack].split(".", 1)[1]
        mean = float(np.average(level[sources], weights=certain[sources]))
        entry = (name, mean, 1.0 / float(certain[sources].sum()), int(here.sum()))
        of_category[category_of_stack(name)].append(entry)
    categories, stacks = {}, {}
    for category, entries in of_category.items():
        weights = [1.0 / (BETWEEN_STACKS**2 + spread) for _, _, spread, _ in entries]
        common = float(np.average([mean for _, mean, _, _ in entries], weights=weights))
        categories[category] = common - BETTER
        for (name, mean, _, count), weight in zip(entries, weights, strict=True):
            if count >= LEAST_ROWS:
                stacks[name] = common + BETWEEN_STACKS**2 * weight * (mean - common) - BETTER
                if name in inseparable:
                    stacks[name] = mean
    for name in stack_names():  # a category that no row is of: as own scripts
        categories.setdefault(category_of_stack(name), categories["script"])
    both = {**dict(sorted(categories.items())), **dict(sorted(stacks.items()))}
    return {name: round(float(np.exp(value)), 3) for name, value in both.items()}
