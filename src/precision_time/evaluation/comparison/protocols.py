"""Three questions: unseen configurations, unseen architectures, unseen cluster sizes.

Rows of one group are never on both sides. Predictors that must run the asked job take their runs from where
the question allows it: from configurations that are known anyway, or, of an architecture that nobody has run,
from the asked ones. The latter are then scored for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement
from ...corpus.splits import SplitBy, group_numbers, grouped_folds
from ...learn.holding_out import Fold

Ints = NDArray[np.intp]

FOLDS = 5
FEW_DEVICES = 4
"""Clusters up to this size are known where larger ones are asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One of the three."""

    title: str
    asks: str
    """What is fitted and what is asked, in a sentence."""
    split: Callable[[Sequence[Measurement], int, int], tuple[Fold, ...]]
    """(measurements, seed, folds) to folds; every row is asked at most once."""
    groups: Callable[[Sequence[Measurement]], NDArray[np.int64]]
    """What is held out together."""
    samples_from_asked: bool
    """Whether sample runs of a job come from the asked rows, or from the known ones."""


def one_fifth(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
    """PredictDDL's 80/20, by configuration with all its repeats; one fold."""
    return _folds(_configurations(measurements), seed, folds)[:1]


def every_architecture(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
    """A fifth of the architectures at a time, with all their rows, until each was asked."""
    return _folds(_architectures(measurements), seed, folds)


def larger_clusters(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
    """Fitted on up to FEW_DEVICES devices, asked of more; one fold, the seed draws nothing."""
    del seed, folds
    devices = np.array([item.num_devices for item in measurements])
    fold = Fold(inside=np.flatnonzero(devices <= FEW_DEVICES), outside=np.flatnonzero(devices > FEW_DEVICES))
    return (fold,) if len(fold.inside) and len(fold.outside) else ()


def _folds(groups: NDArray[np.int64], seed: int, folds: int) -> tuple[Fold, ...]:
    home = grouped_folds(groups, num_folds=folds, seed=seed)
    made = (
        Fold(inside=np.flatnonzero(home != fold), outside=np.flatnonzero(home == fold))
        for fold in range(folds)
    )
    return tuple(fold for fold in made if len(fold.outside) and len(fold.inside))


def _configurations(measurements: Sequence[Measurement]) -> NDArray[np.int64]:
    return group_numbers(measurements, by=SplitBy.CONFIGURATION)


def _architectures(measurements: Sequence[Measurement]) -> NDArray[np.int64]:
    return group_numbers(measurements, by=SplitBy.MODEL)


def _sizes(measurements: Sequence[Measurement]) -> NDArray[np.int64]:
    return np.array([item.num_devices > FEW_DEVICES for item in measurements], dtype=np.int64)


QUESTIONS: Mapping[str, Question] = {
    "configuration": Question(
        title="(a) 80/20, unseen configurations",
        asks="A fifth of the configurations (architecture, precision, batch, cluster and software) is asked, "
        "with all repeats; fitted on the rest.",
        split=one_fifth,
        groups=_configurations,
        samples_from_asked=False,
    ),
    "architecture": Question(
        title="(b) unseen architectures",
        asks="A fifth of the architectures is asked at a time, with all their rows; fitted on the others.",
        split=every_architecture,
        groups=_architectures,
        samples_from_asked=True,
    ),
    "cluster": Question(
        title="(c) unseen cluster sizes",
        asks=f"Every run on more than {FEW_DEVICES} devices is asked; fitted on up to {FEW_DEVICES}.",
        split=larger_clusters,
        groups=_sizes,
        samples_from_asked=False,
    ),
}
