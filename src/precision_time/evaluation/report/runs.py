"""Held-out predictions of every predictor under every protocol: fitted once, kept, shared by the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...corpus.splits import configuration_groups
from ...corpus.store import corpus_fingerprint
from ...executor import Executor
from ...io import package_hash
from ...learn.holding_out import Fold, held_out_by_stage
from ...learn.stages import DEFAULT_SETTINGS, BoosterSettings, StagedCorrection
from ...learn.table import JobTable, MeasuredTable
from ...learn.training import HeldOut, row_weights
from ...papers.baselines import baselines
from ...papers.contract import Estimator, both
from ...papers.precision_aware.staged import fit_staged
from .ablations import ABLATIONS
from .families import Family, families_of
from .priced import PricedCorpus, prune, read_arrays, write_arrays
from .protocols import PROTOCOLS

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

QUICK_SHARE = 0.1
"""Share of the trees that a quick report keeps."""


def tree_settings(*, quick: bool) -> Mapping[str, BoosterSettings]:
    """The settings that ship, or a tenth of their trees."""
    if not quick:
        return DEFAULT_SETTINGS
    return {
        stage: replace(item, num_trees=max(int(item.num_trees * QUICK_SHARE), 10))
        for stage, item in DEFAULT_SETTINGS.items()
    }


@dataclass(kw_only=True)
class Runs:
    """Held-out predictions of a priced corpus.

    Every method returns seconds in the order of the table, NaN for rows that its protocol does not ask.
    """

    priced: PricedCorpus
    settings: Mapping[str, BoosterSettings]
    folds: int = 5
    tell: Callable[[str], None] = lambda _: None
    spread: Executor = map
    """What runs the folds: `map`, a pool of processes, a cluster. The predictions are the same."""
    folder: Path | None = None
    """Where predictions are kept between calls; None keeps them for this object only."""
    _kept: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)

    @property
    def table(self) -> MeasuredTable:
        """The measured runs."""
        return self.priced.table

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Configurations that ran at two or more precisions."""
        return families_of(self.table.measurements)

    def ours(self, protocol: str, seed: int, *, folds: int | None = None) -> HeldOut:
        """Our predictor, asked of what it has not seen."""
        return _held_out(self._ours(protocol, seed, folds or self.folds))

    def without_stage(self, stage: str, protocol: str, seed: int, *, folds: int | None = None) -> Floats:
        """Our predictor without its fourth stage, `detail`, or without its third as well, `overlap`."""
        return self._ours(protocol, seed, folds or self.folds)[f"no_{stage}_s"]

    def ablated(self, name: str, protocol: str, seed: int, *, folds: int | None = None) -> Floats:
        """Our predictor without one of its parts (a name of ABLATIONS)."""
        count = folds or self.folds

        def predict() -> dict[str, NDArray[Any]]:
            ablation = ABLATIONS[name]
            what = f"{ablation.title}, {protocol}"
            split = self._split(protocol, seed, count)
            return self._staged(ablation.jobs(self.priced), split, seed, what, trust=ablation.trusting)

        return self._keep(f"without-{name}-{protocol}-{seed}-{count}", predict)["step_time_s"]

    def baseline(self, name: str, protocol: str, seed: int) -> Floats:
        """A predictor of the literature (a name of `baselines`)."""

        def predict() -> dict[str, NDArray[Any]]:
            estimator = baselines(settings=self.settings, seed=seed)[name]
            table = replace(self.table, jobs=both(self.table.jobs, self.priced.fp32))
            seconds = np.full(len(self.table), np.nan)
            folds = self._split(protocol, seed, self.folds)
            self.tell(f"{estimator.title}, {protocol}")
            answers = self.spread(_baseline_answer, ((estimator, table, fold) for fold in folds))
            for index, (fold, answer) in enumerate(zip(folds, answers, strict=True)):
                self.tell(f"{estimator.title}, {protocol}, fold {index + 1} of {len(folds)}")
                seconds[fold.outside] = answer
            return {"step_time_s": seconds}

        return self._keep(f"baseline-{name}-{protocol}-{seed}-{self.folds}", predict)["step_time_s"]

    def trained_at(self, precision: str, seed: int, *, blind: bool) -> Floats:
        """Fitted on the runs at one precision only, asked of unseen families at all of theirs.

        Args:
            precision: The only one in training.
            seed: Of folds and boosters.
            blind: Whether the predictor is told nothing of precision.
        """

        def predict() -> dict[str, NDArray[Any]]:
            at_it = np.array([item.precision == precision for item in self.table.measurements])
            asked = np.zeros(len(self.table), dtype=bool)
            for family in self.families:
                if precision in family.rows:
                    asked[np.concatenate([*family.rows.values()])] = True
            folds = tuple(
                Fold(inside=fold.inside[at_it[fold.inside]], outside=fold.outside[asked[fold.outside]])
                for fold in self._split("family", seed, self.folds)
            )
            jobs = self.priced.fp32 if blind else self.table.jobs
            usable = tuple(fold for fold in folds if len(fold.inside) and len(fold.outside))
            what = f"{'blind' if blind else 'ours'}, fitted on {precision}"
            return self._staged(jobs, usable, seed, what, trust=blind)

        return self._keep(f"at-{precision}-{blind}-{seed}-{self.folds}", predict)["step_time_s"]

    def fitted(self, protocol: str, seed: int) -> tuple[StagedCorrection, Ints]:
        """Our predictor fitted for the first fold of a protocol, and the rows that it has not seen."""
        fold = self._split(protocol, seed, self.folds)[0]
        self.tell(f"ours, {protocol}, first fold")
        jobs = self.table.jobs
        return fit_staged(self.table, jobs, fold.inside, settings=self.settings, seed=seed), fold.outside

    def _ours(self, protocol: str, seed: int, folds: int) -> dict[str, NDArray[Any]]:
        def predict() -> dict[str, NDArray[Any]]:
            split = self._split(protocol, seed, folds)
            return self._staged(self.table.jobs, split, seed, f"ours, {protocol}")

        return self._keep(f"ours-{protocol}-{seed}-{folds}", predict)

    def _split(self, protocol: str, seed: int, folds: int) -> tuple[Fold, ...]:
        return PROTOCOLS[protocol].split(self.table.measurements, seed, folds)

    def _staged(
        self, jobs: JobTable, folds: tuple[Fold, ...], seed: int, what: str, *, trust: bool = False
    ) -> dict[str, NDArray[Any]]:
        names = ("step_time_s", "distance", "no_detail_s", "no_overlap_s")
        arrays: dict[str, NDArray[Any]] = {name: np.full(len(self.table), np.nan) for name in names}
        arrays["folds"] = np.full(len(self.table), -1, dtype=np.intp)
        self.tell(what)
        answers = held_out_by_stage(
            replace(self.table, jobs=jobs),
            folds,
            weights=row_weights(self.table),
            groups=configuration_groups(self.table.measurements),
            settings=self.settings,
            seed=seed,
            trusting=trust,
            spread=self.spread,
        )
        for index, (fold, answer) in enumerate(zip(folds, answers, strict=True)):
            self.tell(f"{what}, fold {index + 1} of {len(folds)}")
            arrays["step_time_s"][fold.outside] = answer.corrected.step_time_s
            arrays["distance"][fold.outside] = answer.corrected.distance
            arrays["no_detail_s"][fold.outside] = answer.smooth_s
            arrays["no_overlap_s"][fold.outside] = answer.parts_s
            arrays["folds"][fold.outside] = index
        return arrays

    def _keep(self, name: str, predict: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        if name in self._kept:
            return self._kept[name]
        path = None if self.folder is None else self.folder / f"held-out-{self._key}" / f"{name}.npz"
        found = None if path is None else read_arrays(path)
        arrays = predict() if found is None else found
        if path is not None and found is None:
            write_arrays(path, arrays)
            prune(path.parents[1], "held-out-*")
        self._kept[name] = arrays
        return arrays

    @cached_property
    def _key(self) -> str:
        seen = f"{corpus_fingerprint(self.table.measurements)} {package_hash()} "
        seen += str({stage: asdict(item) for stage, item in sorted(self.settings.items())})
        return blake2b(seen.encode(), digest_size=8).hexdigest()


def _held_out(arrays: dict[str, NDArray[Any]]) -> HeldOut:
    return HeldOut(step_time_s=arrays["step_time_s"], folds=arrays["folds"], distance=arrays["distance"])


def _baseline_answer(task: tuple[Estimator, MeasuredTable, Fold]) -> Floats:
    estimator, table, fold = task
    return estimator.fit(table, fold.inside).predict(table.jobs.take(fold.outside))
