"""The blind predictor fitted on single-precision runs only, and asked at any precision.

Formula: as `precision_blind`, fitted on the runs in fp32 and TF32 (what a user gets who sets nothing).
Source: arXiv 2604.16145, abstract: a prediction that ignores precision errs by up to 147.85 %, which is what
a predictor of single-precision time errs on a run 2.48 times as fast (papers.md 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...learn.stages import DEFAULT_SETTINGS, BoosterSettings
from ...learn.table import MeasuredTable
from ..contract import fp32_part
from .blind import FittedBlind
from .staged import fit_staged

SINGLE = ("fp32", "tf32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp32TrainedBlind:
    """See the module."""

    settings: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    seed: int = 0

    @property
    def title(self) -> str:
        """Heading of its column."""
        return "fp32-trained blind"

    def fit(self, table: MeasuredTable, rows: NDArray[np.intp]) -> FittedBlind:
        """Fit on those of the rows that ran in single precision.

        Raises:
            ConfigError: If there are none.
        """
        single = np.array([table.measurements[row].precision in SINGLE for row in rows], dtype=bool)
        if not single.any():
            raise ConfigError(
                f"None of {len(rows)} rows is in {' or '.join(SINGLE)}: nothing to fit the fp32-trained "
                "predictor on. To fix: take a larger sample."
            )
        jobs = fp32_part(table.jobs)
        return FittedBlind(
            correction=fit_staged(table, jobs, rows[single], settings=self.settings, seed=self.seed)
        )
