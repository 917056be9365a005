"""Our cost model alone, without trees.

Formula: the analytical step time (devdoc 002). Some 300 of its constants were fitted to measured steps of the
whole corpus, so that it has seen test rows; `data/refit_constants.py` says what that is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .contract import FeatureTable, Floats, Ints, JobViews


@dataclass(frozen=True, kw_only=True, slots=True)
class Formulas:
    """See the module; fitting changes nothing."""

    title: ClassVar[str] = "our formulas alone"
    citation: ClassVar[str] = (
        "the cost model of this project (devdoc 002), its constants fitted to steps of the whole corpus, "
        "test rows among them"
    )

    def fit(self, table: FeatureTable, rows: Ints) -> Formulas:
        """Itself."""
        del table, rows
        return self

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return jobs.native.analytical_s
