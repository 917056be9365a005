"""Every predictor that is evaluated, ours among them: a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from typing import cast

from precision_time.cache import data
from precision_time.errors import ConfigError, UnknownNameError, shown
from precision_time.plugins import left_out, loaded

from .cherrypick.estimator import CherryPickGaussian
from .contract import Estimator, PredictorOptions
from .daydream import DaydreamWhatIf
from .driple import EPOCHS, QUICK_EPOCHS, DripleLike
from .ernest import Ernest, ErnestPooled
from .flops_regression import FlopsRegression
from .formulas import Formulas
from .hierarchical import Hierarchical
from .optimus import Optimus
from .paleo import PaleoLike
from .per_job import SamplingEstimator
from .precision_aware import PrecisionAware
from .predictddl.columns import BLIND, EMBEDDING_AND_SUMS, PRECISION, SIZE, SUMS
from .predictddl.estimator import PredictDDLRegression
from .predictddl.fitting import QUICK
from .predictddl.within import PredictDDLWithin
from .roofline import RooflineOnly


class Needs(StrEnum):
    """What of a queried job a predictor has to have before it can answer."""

    NOTHING = "nothing"
    """Devices and batch."""
    PRICING = "pricing"
    """Features and terms of our cost model."""
    GRAPH = "graph"
    """The operator graph and figures of the cluster."""
    EMBEDDING = "embedding"
    """The vector of the architecture and figures of the cluster."""
    SUMS = "three sums"
    """FLOPs, parameters and bytes of the step, and figures of the cluster."""
    EMBEDDING_AND_SUMS = "embedding and three sums"
    """The vector of the architecture besides."""
    BOTH = "embedding and pricing"
    """The same with lowered types, and our cost model."""
    RUNS = "sample runs"
    """Measured runs of the job itself."""


@dataclass(frozen=True, slots=True)
class PredictorEntry:
    """One predictor."""

    name: str
    make: Callable[[PredictorOptions], Estimator | SamplingEstimator]
    knows: str
    """What it is given of architecture and precision."""
    needs: Needs
    package: str = ""
    """Importable name of what it needs beyond the core."""
    extra: str = ""
    """The extra of this project that installs it."""
    within: bool = False
    """Whether it answers only for data-parallel runs of settings that it was fitted to (`within.py`)."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        return self.make(PredictorOptions()).title

    @property
    def citation(self) -> str:
        """Where it was published."""
        return self.make(PredictorOptions()).citation

    @property
    def missing(self) -> str:
        """The package that is not installed; empty when it can be fitted."""
        return self.package if self.package and find_spec(self.package) is None else ""

    @property
    def samples(self) -> bool:
        """Whether it must run the queried job at some configurations."""
        return self.needs is Needs.RUNS

    def estimator(self, options: PredictorOptions) -> Estimator:
        """The predictor, if it is fitted to a table."""
        return cast("Estimator", self.make(options))

    def sampling_estimator(self, options: PredictorOptions) -> SamplingEstimator:
        """The predictor, if it samples."""
        return cast("SamplingEstimator", self.make(options))


_AWARE, _BLIND, _RUNS = "architecture and precision", "architecture, no precision", "runs of the job"


def _staged(*, blind: bool = False, fp32_only: bool = False) -> Callable[[PredictorOptions], PrecisionAware]:
    return lambda o: PrecisionAware(trees=o.trees, seed=o.seed, blind=blind, fp32_only=fp32_only)


def _predictddl(variant: str) -> Callable[[PredictorOptions], PredictDDLRegression]:
    return lambda o: PredictDDLRegression(variant=variant, settings=replace(QUICK, seed=o.seed))


def _within(variant: str) -> Callable[[PredictorOptions], PredictDDLWithin]:
    settings = replace(QUICK, targets=("log",))
    return lambda o: PredictDDLWithin(variant=variant, settings=replace(settings, seed=o.seed))


_SKLEARN = ("sklearn", "precision-time-papers")

_BUILT_IN: Mapping[str, PredictorEntry] = {
    item.name: item
    for item in (
        PredictorEntry("ours", _staged(), _AWARE, Needs.PRICING),
        PredictorEntry("blind", _staged(blind=True), _BLIND, Needs.PRICING),
        PredictorEntry("fp32-blind", _staged(blind=True, fp32_only=True), _BLIND, Needs.PRICING),
        PredictorEntry(
            "hierarchical", lambda o: Hierarchical(trees=o.trees, seed=o.seed), _AWARE, Needs.PRICING
        ),
        PredictorEntry(
            "predictddl",
            _predictddl(BLIND),
            _BLIND,
            Needs.EMBEDDING,
            "sklearn",
            "precision-time-papers",
        ),
        PredictorEntry("predictddl-size", _predictddl(SIZE), _BLIND, Needs.EMBEDDING, *_SKLEARN),
        PredictorEntry(
            "predictddl-precision",
            _predictddl(PRECISION),
            _AWARE,
            Needs.BOTH,
            "sklearn",
            "precision-time-papers",
        ),
        PredictorEntry("three-sums", _predictddl(SUMS), _BLIND, Needs.SUMS, *_SKLEARN),
        PredictorEntry(
            "embedding-and-sums",
            _predictddl(EMBEDDING_AND_SUMS),
            _BLIND,
            Needs.EMBEDDING_AND_SUMS,
            *_SKLEARN,
        ),
        PredictorEntry("predictddl-within", _within(BLIND), _BLIND, Needs.EMBEDDING, *_SKLEARN, within=True),
        PredictorEntry("three-sums-within", _within(SUMS), _BLIND, Needs.SUMS, *_SKLEARN, within=True),
        PredictorEntry(
            "driple",
            lambda o: DripleLike(epochs=QUICK_EPOCHS if o.quick else EPOCHS, seed=o.seed),
            _BLIND,
            Needs.GRAPH,
            "torch",
            "precision-time-papers[torch]",
        ),
        PredictorEntry(
            "daydream", lambda o: DaydreamWhatIf(trees=o.trees, seed=o.seed), _AWARE, Needs.PRICING
        ),
        PredictorEntry("paleo", lambda _: PaleoLike(), _BLIND, Needs.PRICING),
        PredictorEntry("roofline", lambda _: RooflineOnly(), _AWARE, Needs.PRICING),
        PredictorEntry("flops", lambda _: FlopsRegression(), _BLIND, Needs.PRICING),
        PredictorEntry("formulas", lambda _: Formulas(), _AWARE, Needs.PRICING),
        PredictorEntry("ernest-pooled", lambda _: ErnestPooled(), "dataset only", Needs.NOTHING),
        PredictorEntry("ernest", lambda _: Ernest(), _RUNS, Needs.RUNS),
        PredictorEntry("ernest-free", lambda _: Ernest(small=False), _RUNS, Needs.RUNS),
        PredictorEntry("optimus", lambda _: Optimus(), _RUNS, Needs.RUNS),
        PredictorEntry(
            "cherrypick-gp",
            lambda _: CherryPickGaussian(),
            _RUNS,
            Needs.RUNS,
            "sklearn",
            "precision-time-papers",
        ),
    )
}


class _Predictors(Mapping[str, PredictorEntry]):
    """The predictors of this package, then those of plugins, which are loaded when first asked.

    A plugin of the group "predictors" is a `PredictorEntry` or a sequence of them. One that is none, or bears
    the name of another, is left out with a warning.
    """

    def __getitem__(self, name: str) -> PredictorEntry:
        return _BUILT_IN[name] if name in _BUILT_IN else _of_plugins()[name]

    def __iter__(self) -> Iterator[str]:
        yield from _BUILT_IN
        yield from _of_plugins()

    def __len__(self) -> int:
        return len(_BUILT_IN) + len(_of_plugins())


@data
def _of_plugins() -> Mapping[str, PredictorEntry]:
    found: dict[str, PredictorEntry] = {}
    for plugin, given in loaded("predictors").items():
        own: dict[str, PredictorEntry] = {}
        try:
            for entry in (given,) if isinstance(given, PredictorEntry) else tuple(given):
                if not isinstance(entry, PredictorEntry):
                    raise ConfigError(f"{shown(entry)} is no PredictorEntry")
                if entry.name in {**_BUILT_IN, **found, **own}:
                    raise ConfigError(f"there is a predictor {entry.name!r}")
                if not (entry.title and entry.citation):
                    raise ConfigError(f"the predictor {entry.name!r} has no title or no citation")
                own[entry.name] = entry
            found |= own
        except Exception as error:  # noqa: BLE001 - whatever a plugin gives, the others are compared
            left_out("predictors", plugin, error)
    return found


PREDICTORS: Mapping[str, PredictorEntry] = _Predictors()
"""Name to predictor, in the order of tables."""
PRICED_ONLY = ("hierarchical", "blind", "fp32-blind", "flops", "roofline", "paleo", "daydream", "formulas")
"""Predictors of table T3 besides ours: those that need nothing but pricing."""


def chosen_predictors(only: Sequence[str]) -> tuple[PredictorEntry, ...]:
    """The predictors named, or all. Those that sample always are: they decide which rows are scored.

    Raises:
        UnknownNameError: If no predictor has a name.
    """
    wanted = [name.strip().lower() for name in only if name.strip()]
    for name in wanted:
        if name not in PREDICTORS:
            raise UnknownNameError(
                kind="predictor", name=name, known=PREDICTORS, hint=f"To fix: one of {', '.join(PREDICTORS)}."
            )
    return tuple(item for item in PREDICTORS.values() if not wanted or item.name in wanted or item.samples)
