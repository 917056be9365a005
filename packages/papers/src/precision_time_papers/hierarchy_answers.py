"""The paper's hierarchy as the predictor of answers: `precision-time predict --predictor hierarchical`.

Its three stages stand where ours learns one correction, and decide what part of a step is communication that
nothing hides. The rest is as in every answer: named terms that add up, intervals by its own held-out errors,
nearest runs. Nothing shrinks: the paper's stages hold wherever they are asked. Fitted by
`studies/train_hierarchy.py` on the shipped corpus; arrays and a card, never a pickle.
Source: arXiv 2604.16145 (papers.md 1.5); stages in `hierarchical.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.array_file import mapped
from precision_time.cache import data
from precision_time.errors import NotFittedError
from precision_time.io import packaged
from precision_time.learn.artifact import TrainedPredictor, shipped_predictor
from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings
from precision_time.learn.intervals import IntervalModel
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.novelty import training_set
from precision_time.learn.predictor import Predictor
from precision_time.learn.table import JobTable
from precision_time.learn.training import TrainingResult
from precision_time.learn.trees import NO_TREES, TreeEnsemble
from precision_time.records import dataclass

from .contract import Floats, Ints
from .hierarchical import STAGES, FittedHierarchy, fit_hierarchy

NAME = "hierarchical"
_DATA = "data/hierarchy"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HierarchyPredictor(Predictor):
    """The stages, as `Predictor.times` asks them."""

    hierarchy: FittedHierarchy
    settings: Mapping[str, BoosterSettings]
    """That they were fitted with, and those of the expected error."""

    def correction(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """As the stages say; see `Predictor.correction`."""
        return self.hierarchy.correction(jobs)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainedHierarchy(TrainedPredictor):
    """The same with intervals and nearest runs."""

    hierarchy: FittedHierarchy

    def correction(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """As the stages say; see `Predictor.correction`."""
        return self.hierarchy.correction(jobs)

    @classmethod
    def of(cls, trained: TrainingResult) -> TrainedHierarchy:
        """What `train` gave with `HierarchyFit`."""
        if not isinstance(trained.fitted, HierarchyPredictor):
            raise TypeError(f"{type(trained.fitted).__name__} is no HierarchyPredictor")
        known = {each.name: getattr(trained.predictor, each.name) for each in fields(TrainedPredictor)}
        settings = {name: asdict(each) for name, each in trained.fitted.settings.items()}
        card = {**trained.predictor.model_card, "settings": settings}
        known |= {"fade": 0.0, "origin": NAME, "model_card": card}
        return cls(**known, hierarchy=trained.fitted.hierarchy)

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        """What it does not share with the predictor that ships."""
        arrays = self.intervals.to_arrays() | {"evidence.predicted_s": self.measurements.predicted_s}
        for name, trees in self.hierarchy.stages.items():
            arrays |= trees.to_arrays(name)
        return arrays


@dataclass(frozen=True, kw_only=True, slots=True)
class HierarchyFit:
    """Learns the stages from some rows of a table; a `Fit` of `precision_time.learn.training`."""

    groups: NDArray[np.int64]
    """Of each row of the table: rows of one group stay together in the inner folds."""
    stages: Mapping[str, BoosterSettings]

    def __call__(
        self, table: MeasuredTable, rows: Ints, weights: Floats, settings: BoosterSettings, *, seed: int
    ) -> Predictor:
        """See `precision_time.learn.measured.fit_predictor`; the settings of its one stage are not used."""
        return HierarchyPredictor(
            names=table.jobs.names,
            trees=NO_TREES,
            training_set=training_set(table.jobs, rows),
            fade=0.0,
            hierarchy=fit_hierarchy(table, rows, weights, self.groups, self.stages, seed),
            settings={**self.stages, "scale": DEFAULT_SETTINGS["scale"]},
        )


@data
def hierarchical_predictor() -> TrainedHierarchy:
    """The hierarchy that ships with this distribution.

    Raises:
        NotFittedError: If the core's corpus is another than the one that it was fitted on.
    """
    shipped = shipped_predictor()
    folder = packaged(__package__, _DATA)
    card = json.loads((folder / "predictor.json").read_bytes())
    if card["corpus"] != shipped.model_card["corpus"]:
        raise NotFittedError(
            f"The predictor {NAME} was fitted on the corpus {card['corpus']}, here is "
            f"{shipped.model_card['corpus']}. To fix: install precision-time and precision-time-papers of "
            "one version; in a checkout, run packages/papers/studies/train_hierarchy.py."
        )
    arrays, _ = mapped(folder / card["arrays"]["file"])
    known = {each.name: getattr(shipped, each.name) for each in fields(TrainedPredictor)}
    known |= {
        "trees": NO_TREES,
        "fade": 0.0,
        "intervals": IntervalModel.from_arrays(arrays),
        "measurements": replace(shipped.measurements, predicted_s=arrays["evidence.predicted_s"]),
        "model_card": card,
        "origin": NAME,
    }
    stages = {name: TreeEnsemble.from_arrays(arrays, name) for name in STAGES}
    return TrainedHierarchy(**known, hierarchy=FittedHierarchy(names=shipped.names, stages=stages))
