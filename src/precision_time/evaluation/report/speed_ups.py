"""How well the speed-up from one precision to another is told, for configurations that ran at both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .families import Family

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUps:
    """Measured and predicted ratios of step times, one per family and pair of precisions."""

    pairs: tuple[str, ...]
    """Such as `fp32 / fp16-mixed`, shape (n,)."""
    measured: Floats
    predicted: Floats

    def errors_percent(self) -> Floats:
        """Absolute errors of the ratios [%]."""
        errors: Floats = np.abs(self.predicted / self.measured - 1.0) * 100.0
        return errors


def speed_ups(families: Sequence[Family], measured_s: Floats, predicted_s: Floats) -> SpeedUps:
    """Ratios of medians, for pairs whose runs were all predicted.

    Args:
        families: Runs equal in all but precision.
        measured_s: Shape (n,).
        predicted_s: Shape (n,), NaN where nothing was predicted.
    """
    names, measured, predicted = [], [], []
    for family in families:
        real, said = family.median(measured_s), family.median(predicted_s)
        # Sorted by the word, not by the time: which one is faster is part of the question.
        for p, q in combinations(sorted(family.rows), 2):
            if not np.isnan(said[p] * said[q]):
                names.append(f"{p} / {q}")
                measured.append(real[p] / real[q])
                predicted.append(said[p] / said[q])
    return SpeedUps(pairs=tuple(names), measured=np.array(measured), predicted=np.array(predicted))
