"""Every predictor that is compared: its name, what makes it, what it needs to be told of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec

from ...errors import UnknownNameError
from ...papers.baselines import baselines
from ...papers.cherrypick.estimator import CherryPickGaussian
from ...papers.contract import Estimator
from ...papers.driple import EPOCHS, DripleLike, static_graphs
from ...papers.ernest import Ernest, ErnestPooled
from ...papers.optimus import Optimus
from ...papers.per_job import PerJobEstimator
from ...papers.predictddl.columns import VARIANTS
from ...papers.predictddl.estimator import PredictDDLRegression
from ...papers.predictddl.fitting import QUICK
from ..report.runs import tree_settings
from .ours import Ours
from .wide import Wide

QUICK_EPOCHS = 30


class Needs(StrEnum):
    """What of an asked job a predictor has to have before it can answer."""

    NOTHING = "nothing"
    """Devices and batch."""
    PRICING = "pricing"
    """Features and terms of our cost model."""
    GRAPH = "graph"
    """The operator graph and figures of the cluster."""
    EMBEDDING = "embedding"
    """The vector of the architecture and figures of the cluster."""
    BOTH = "embedding and pricing"
    """The same with lowered types, and our cost model."""
    RUNS = "sample runs"
    """Measured runs of the job itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One predictor of the table."""

    name: str
    title: str
    knows: str
    """What it is told of architecture and precision."""
    needs: Needs
    packages: tuple[str, ...] = ()
    """Importable names of what it needs beyond the core."""
    extra: str = ""
    """Extra of this project that brings them."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed."""
        return tuple(name for name in self.packages if find_spec(name) is None)


_FORMULAS = "architecture and precision"
_BLIND = "architecture, no precision"
ENTRIES: tuple[Entry, ...] = (
    Entry(name="ours", title="ours", knows=_FORMULAS, needs=Needs.PRICING),
    Entry(name="blind", title="ours without precision", knows=_BLIND, needs=Needs.PRICING),
    Entry(name="fp32-blind", title="the same, fitted on fp32 only", knows=_BLIND, needs=Needs.PRICING),
    Entry(
        name="predictddl",
        title="PredictDDL",
        knows=_BLIND,
        needs=Needs.EMBEDDING,
        packages=("sklearn",),
        extra="learners",
    ),
    Entry(
        name="predictddl-precision",
        title="PredictDDL with precision",
        knows=_FORMULAS,
        needs=Needs.BOTH,
        packages=("sklearn",),
        extra="learners",
    ),
    Entry(
        name="driple",
        title="Driple-like graph network",
        knows=_BLIND,
        needs=Needs.GRAPH,
        packages=("torch",),
        extra="torch",
    ),
    Entry(name="daydream", title="Daydream-like what-if", knows=_FORMULAS, needs=Needs.PRICING),
    Entry(name="paleo", title="Paleo-like", knows=_BLIND, needs=Needs.PRICING),
    Entry(name="roofline", title="roofline only", knows=_FORMULAS, needs=Needs.PRICING),
    Entry(name="flops", title="FLOPs regression", knows=_BLIND, needs=Needs.PRICING),
    Entry(name="formulas", title="our formulas alone", knows=_FORMULAS, needs=Needs.PRICING),
    Entry(
        name="ernest-pooled", title="Ernest, one fit per data set", knows="data set only", needs=Needs.NOTHING
    ),
    Entry(name="ernest", title="Ernest, own small runs", knows="runs of the job", needs=Needs.RUNS),
    Entry(
        name="ernest-free", title="Ernest, own runs of any size", knows="runs of the job", needs=Needs.RUNS
    ),
    Entry(name="optimus", title="Optimus", knows="runs of the job", needs=Needs.RUNS),
    Entry(
        name="cherrypick-gp",
        title="CherryPick's Gaussian process",
        knows="runs of the job",
        needs=Needs.RUNS,
        packages=("sklearn",),
        extra="learners",
    ),
)
BY_NAME: Mapping[str, Entry] = {entry.name: entry for entry in ENTRIES}


def chosen_entries(only: Sequence[str]) -> tuple[Entry, ...]:
    """The predictors named, or all; those who sample are always there, for they decide what is scored.

    Raises:
        UnknownNameError: If a name is none of a predictor.
    """
    wanted = [name.strip().lower() for name in only if name.strip()]
    for name in wanted:
        if name not in BY_NAME:
            raise UnknownNameError(
                kind="predictor", name=name, known=BY_NAME, hint=f"To fix: one of {', '.join(BY_NAME)}."
            )
    return tuple(
        entry for entry in ENTRIES if not wanted or entry.name in wanted or entry.needs is Needs.RUNS
    )


def table_estimators(
    wide: Wide, *, quick: bool, names: Sequence[str]
) -> dict[str, Callable[[int], Estimator]]:
    """Those of the named predictors that need no sample runs: seed to estimator.

    Args:
        wide: The table they will be fitted on.
        quick: A tenth of the trees, a few epochs.
        names: Names of ENTRIES.
    """
    settings = tree_settings(quick=quick)
    found: dict[str, Callable[[int], Estimator]] = {
        "ours": lambda seed: Ours(settings=settings, seed=seed),
        "ernest-pooled": lambda seed: ErnestPooled(),
    }
    for name in baselines():
        found[name] = lambda seed, name=name: baselines(settings=settings, seed=seed)[name]  # type: ignore[misc]
    for variant in VARIANTS:
        found[variant] = lambda seed, variant=variant: PredictDDLRegression(  # type: ignore[misc]
            variant=variant, settings=replace(QUICK, seed=seed)
        )
    if "driple" in names:
        graphs = static_graphs(wide.graphs)
        epochs = QUICK_EPOCHS if quick else EPOCHS
        found["driple"] = lambda seed: DripleLike(graphs=graphs, epochs=epochs, seed=seed)
    return {name: make for name, make in found.items() if name in names}


def job_estimators(names: Sequence[str]) -> dict[str, PerJobEstimator]:
    """Those of the named predictors that run the asked job."""
    found: dict[str, PerJobEstimator] = {
        "ernest": Ernest(),
        "ernest-free": Ernest(small=False),
        "optimus": Optimus(),
        "cherrypick-gp": CherryPickGaussian(),
    }
    return {name: estimator for name, estimator in found.items() if name in names}
