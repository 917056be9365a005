"""Our cost model alone, nothing learned from step times of the rows fitted.

Formula: the analytical step time (devdoc 002). Its few dozen global constants are calibrated on the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .contract import FeatureTable, Floats, Ints, JobViews


@dataclass(frozen=True, kw_only=True, slots=True)
class Formulas:
    """See the module; fitting changes nothing."""

    title: ClassVar[str] = "our formulas alone"
    citation: ClassVar[str] = "the cost model of this project (devdoc 002)"

    def fit(self, table: FeatureTable, rows: Ints) -> Formulas:
        """Itself."""
        del table, rows
        return self

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return jobs.native.analytical_s
