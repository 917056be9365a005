"""Protocols: which runs a predictor is fitted to, and which unseen ones it then predicts.

A protocol is a pure function of the measurements and a seed. Rows of one group are never in training and in
test at once, nor are twins: rows that a predictor cannot tell apart because all of their features are equal
(`JobTable.twins`), whatever their names or placements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..arrays import Ints
from ..cache import data
from ..io import packaged_toml
from ..records import dataclass
from .families import family_numbers
from .measurement import Measurement
from .splits import Fold, SplitBy, folds_of, group_numbers, grouped_folds, joined_groups, model_group

FEW_DEVICES, MANY_DEVICES = 8, 16
SMALL_CLUSTER = 4
"""Devices of the largest cluster that is known where larger ones are predicted."""

Folds = tuple[Fold, ...]
Splitter = Callable[[Sequence[Measurement], int, int, Ints], Folds]
"""(measurements, seed, folds, twins) to folds; every row is a test row at most once."""
Groups = Callable[[Sequence[Measurement]], Ints]


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """One way to hold runs out."""

    title: str
    holds_out: str
    splitter: Splitter
    group: Callable[[Measurement], str]
    """What the worst groups are listed by."""
    samples_from_test: bool = False
    """Whether predictors that sample run test rows, then not scored: no others of the job are known."""

    def split(
        self, measurements: Sequence[Measurement], seed: int, folds: int, twins: Ints | None = None
    ) -> Folds:
        """Folds; no twin of a test row is in training.

        Args:
            measurements: All runs.
            seed: Of the draw.
            folds: How many, where they are drawn.
            twins: A number of each run, equal for twins; None where all runs can be told apart.
        """
        if twins is None:
            twins = np.arange(len(measurements))
        found = self.splitter(measurements, seed, folds, twins)
        return tuple(_without_twins(fold, twins) for fold in found)


def _without_twins(fold: Fold, twins: Ints) -> Fold:
    """The fold without training rows that have a twin in test, where groups could not keep them together."""
    return Fold(train=fold.train[~np.isin(twins[fold.train], twins[fold.test])], test=fold.test)


def chip(device: str) -> str:
    """The chip of a device, whatever its board and memory: a held-out device has no sibling in training.

    >>> chip("A100-SXM4-80GB"), chip("H100-PCIE-80GB")
    ('A100', 'H100')
    """
    return device.split("-", maxsplit=1)[0]


_SERIES = ("gipfelsturm-", "raschka-")
"""Teams of one course on one machine; pages of one author."""


def source_name(item: Measurement) -> str:
    """Source of a run; all rounds of MLPerf are one, as are pages that measured the same jobs anew."""
    name = item.source.split("-v", maxsplit=1)[0]
    return name.split("-", maxsplit=1)[0] if name.startswith(_SERIES) else name


def _by_groups(groups: Groups) -> Splitter:
    return lambda measurements, seed, folds, twins: folds_of(
        grouped_folds(joined_groups(groups(measurements), twins), num_folds=folds, seed=seed), folds
    )


def _split_by(by: SplitBy) -> Splitter:
    return _by_groups(lambda measurements: group_numbers(measurements, by=by))


def _sources(measurements: Sequence[Measurement]) -> Ints:
    return np.unique([source_name(item) for item in measurements], return_inverse=True)[1]


def _chips(measurements: Sequence[Measurement]) -> Ints:
    numbers = np.unique([chip(item.device) for item in measurements], return_inverse=True)[1]
    return numbers.astype(np.int64).reshape(len(measurements))


def unseen_precisions(measurements: Sequence[Measurement], seed: int, folds: int, twins: Ints) -> Folds:
    """Of every model-device pair run at several precisions, some are held out while the others are known.

    The precisions of a pair are split into two halves, and the halves assigned to different folds: while one
    is in test, the other is in training. Pairs with one precision are always in training.
    """
    del twins
    pairs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in measurements:
        pairs[model_group(item.model), item.device].add(item.precision)
    draw = np.random.default_rng(seed)
    fold_of: dict[tuple[str, str, str], int] = {}
    for model, device in sorted(pairs):
        precisions = sorted(pairs[model, device])
        if len(precisions) > 1:
            first = int(draw.integers(folds))
            second = (first + 1 + int(draw.integers(folds - 1))) % folds
            for place, index in enumerate(draw.permutation(len(precisions))):
                half = first if 2 * place < len(precisions) else second
                fold_of[model, device, precisions[index]] = half
    rows = [fold_of.get((model_group(item.model), item.device, item.precision), -1) for item in measurements]
    return folds_of(np.array(rows, dtype=np.int64), folds)


def _larger_clusters(most: int, least: int) -> Splitter:
    """One fold: fitted to runs on up to `most` devices, tested on `least` and more."""

    def split(measurements: Sequence[Measurement], seed: int, folds: int, twins: Ints) -> Folds:
        del seed, folds, twins
        devices = np.array([item.num_devices for item in measurements])
        fold = Fold(train=np.flatnonzero(devices <= most), test=np.flatnonzero(devices >= least))
        return (fold,) if len(fold.test) and len(fold.train) else ()

    return split


def publisher(item: Measurement) -> str:
    """The family of sources that a run is from (`data/publishers.toml`); else the source itself."""
    return _publishers().get(item.source, _publishers().get(source_name(item), source_name(item)))


@data
def _publishers() -> Mapping[str, str]:
    families = packaged_toml(__package__, "data/publishers.toml")
    return {source: name for name, family in families.items() for source in family["sources"]}


def _families_of_sources(measurements: Sequence[Measurement], seed: int, folds: int, twins: Ints) -> Folds:
    """A fold for each family."""
    del seed, folds, twins
    names = np.array([publisher(item) for item in measurements])
    kinds, numbers = np.unique(names, return_inverse=True)
    return folds_of(numbers.reshape(-1), len(kinds))


def _pair(item: Measurement) -> str:
    return f"{model_group(item.model)} on {item.device}"


def _model_and_size(item: Measurement) -> str:
    return f"{model_group(item.model)} on {item.num_devices} {item.device}"


_BY_CONFIGURATION = _split_by(SplitBy.CONFIGURATION)

PROTOCOLS: Mapping[str, Protocol] = {
    "configuration": Protocol(
        title="Unseen configurations",
        holds_out="a fifth of the configurations, with all their repeats",
        splitter=_BY_CONFIGURATION,
        group=_pair,
    ),
    "model": Protocol(
        title="Unseen models",
        holds_out="a fifth of the model families, with all their rows",
        splitter=_split_by(SplitBy.MODEL),
        group=lambda item: model_group(item.model),
        samples_from_test=True,
    ),
    "precision": Protocol(
        title="Unseen precisions",
        holds_out="half of the precisions of a model-device pair, for two fifths of the pairs at a time",
        splitter=unseen_precisions,
        group=lambda item: f"{item.precision}: {_pair(item)}",
    ),
    "scale": Protocol(
        title="More devices than seen",
        holds_out=f"every run on {MANY_DEVICES} devices or more; fitted on up to {FEW_DEVICES}",
        splitter=_larger_clusters(FEW_DEVICES, MANY_DEVICES),
        group=_model_and_size,
    ),
    "device": Protocol(
        title="Unseen device types",
        holds_out="a fifth of the chips (an A100 of any board and memory is one), with all their rows",
        splitter=_by_groups(_chips),
        group=lambda item: chip(item.device),
    ),
    "source": Protocol(
        title="Unseen sources",
        holds_out="a fifth of the sources (all MLPerf rounds are one), with all their rows",
        splitter=_by_groups(_sources),
        group=source_name,
    ),
    "publisher": Protocol(
        title="Unseen families of sources",
        holds_out="all sources that share code, machines or publisher, a family at a time (publishers.toml)",
        splitter=_families_of_sources,
        group=source_name,
    ),
    "family": Protocol(
        title="Unseen configurations at every precision",
        holds_out="a fifth of the configurations, with their runs at all precisions",
        splitter=_by_groups(family_numbers),
        group=_pair,
    ),
    "one-fifth": Protocol(
        title="80/20, unseen configurations",
        holds_out="the first fifth of the configurations, with all their repeats (PredictDDL's 80/20)",
        splitter=lambda *arguments: _BY_CONFIGURATION(*arguments)[:1],
        group=_pair,
    ),
    "cluster": Protocol(
        title="Larger clusters than seen",
        holds_out=f"every run on more than {SMALL_CLUSTER} devices; fitted on up to {SMALL_CLUSTER}",
        splitter=_larger_clusters(SMALL_CLUSTER, SMALL_CLUSTER + 1),
        group=_model_and_size,
    ),
}
