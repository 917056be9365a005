"""Our cost model alone, nothing learned from step times of the rows fitted.

Formula: the analytical step time (devdoc 002). Its few dozen global constants are calibrated on the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..learn.table import JobTable, MeasuredTable
from .contract import Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Formulas:
    """See the module; fitting changes nothing."""

    @property
    def title(self) -> str:
        """Heading of its column."""
        return "our formulas alone"

    def fit(self, table: MeasuredTable, rows: NDArray[np.intp]) -> Formulas:
        """Itself."""
        del table, rows
        return self

    def predict(self, jobs: JobTable) -> Floats:
        """Step times [s], shape (n,)."""
        return jobs.analytical_s
