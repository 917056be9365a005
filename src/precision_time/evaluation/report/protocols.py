"""Protocols: which runs a predictor is fitted on, and which unseen ones it is then asked.

A protocol is a pure function of the measurements and a seed. Rows of one group are never on both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement
from ...corpus.splits import SplitBy, group_numbers, grouped_folds, model_group
from ...learn.holding_out import Fold
from .families import family_numbers

Ints = NDArray[np.intp]

FEW_DEVICES, MANY_DEVICES = 8, 16


Splitter = Callable[[Sequence[Measurement], int, int], tuple[Fold, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """One question that is asked of a predictor."""

    title: str
    holds_out: str
    split: Splitter
    """(measurements, seed, folds) to folds; every row is asked at most once."""
    group: Callable[[Measurement], str]
    """What the worst groups are listed by."""


def chip(device: str) -> str:
    """The chip of a device, whatever its board and memory: a held-out device has no sibling in training.

    >>> chip("A100-SXM4-80GB"), chip("H100-PCIE-80GB")
    ('A100', 'H100')
    """
    return device.split("-", maxsplit=1)[0]


def size_class(num_devices: int) -> str:
    """Devices in classes."""
    bounds = (1, 8, 64, 1024)
    for low, high in zip((0, *bounds), bounds, strict=False):
        if num_devices <= high:
            return f"{low + 1} to {high}" if high > 1 else "1"
    return f"above {bounds[-1]}"


def _by_groups(groups: Callable[[Sequence[Measurement]], NDArray[np.int64]]) -> Splitter:
    def split(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
        return _folds(grouped_folds(groups(measurements), num_folds=folds, seed=seed), folds)

    return split


def _folds(home: NDArray[np.int64], folds: int) -> tuple[Fold, ...]:
    """Every row whose home is a fold is asked there; rows at home nowhere (-1) are always fitted on."""
    made = (
        Fold(inside=np.flatnonzero(home != fold), outside=np.flatnonzero(home == fold))
        for fold in range(folds)
    )
    return tuple(fold for fold in made if len(fold.outside))


def _labels(name: Callable[[Measurement], str]) -> Callable[[Sequence[Measurement]], NDArray[np.int64]]:
    def numbers(measurements: Sequence[Measurement]) -> NDArray[np.int64]:
        named = np.unique([name(item) for item in measurements], return_inverse=True)[1]
        return named.astype(np.int64).reshape(len(measurements))

    return numbers


def _split_by(by: SplitBy) -> Splitter:
    return _by_groups(lambda measurements: group_numbers(measurements, by=by))


def unseen_precisions(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
    """Of every model-device pair run at several precisions, some are held out while the others are known.

    The precisions of a pair are parted into two halves, and the halves dealt to different folds: while one
    is asked, the other is in training. Pairs with one precision are always in training.
    """
    pairs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in measurements:
        pairs[model_group(item.model), item.device].add(item.precision)
    draw = np.random.default_rng(seed)
    home: dict[tuple[str, str, str], int] = {}
    for model, device in sorted(pairs):
        precisions = sorted(pairs[model, device])
        if len(precisions) > 1:
            first = int(draw.integers(folds))
            second = (first + 1 + int(draw.integers(folds - 1))) % folds
            for place, index in enumerate(draw.permutation(len(precisions))):
                half = first if 2 * place < len(precisions) else second
                home[model, device, precisions[index]] = half
    where = [home.get((model_group(item.model), item.device, item.precision), -1) for item in measurements]
    return _folds(np.array(where, dtype=np.int64), folds)


def more_devices(measurements: Sequence[Measurement], seed: int, folds: int) -> tuple[Fold, ...]:
    """One fold: fitted on up to 8 devices, asked of 16 and more; the seed draws boosters only."""
    del seed, folds
    devices = np.array([item.num_devices for item in measurements])
    fold = Fold(
        inside=np.flatnonzero(devices <= FEW_DEVICES), outside=np.flatnonzero(devices >= MANY_DEVICES)
    )
    return (fold,) if len(fold.outside) and len(fold.inside) else ()


def source_name(item: Measurement) -> str:
    """Source of a run; all rounds of MLPerf are one."""
    return item.source.split("-v", maxsplit=1)[0]


PROTOCOLS: Mapping[str, Protocol] = {
    "configuration": Protocol(
        title="Unseen configurations",
        holds_out="a fifth of the configurations, with all their repeats",
        split=_split_by(SplitBy.CONFIGURATION),
        group=lambda item: f"{model_group(item.model)} on {item.device}",
    ),
    "model": Protocol(
        title="Unseen models",
        holds_out="a fifth of the model families, with all their rows",
        split=_split_by(SplitBy.MODEL),
        group=lambda item: model_group(item.model),
    ),
    "precision": Protocol(
        title="Unseen precisions",
        holds_out="half of the precisions of a model-device pair, for two fifths of the pairs at a time",
        split=unseen_precisions,
        group=lambda item: f"{item.precision}: {model_group(item.model)} on {item.device}",
    ),
    "scale": Protocol(
        title="More devices than seen",
        holds_out=f"every run on {MANY_DEVICES} devices or more; fitted on up to {FEW_DEVICES}",
        split=more_devices,
        group=lambda item: f"{model_group(item.model)} on {item.num_devices} {item.device}",
    ),
    "device": Protocol(
        title="Unseen device types",
        holds_out="a fifth of the chips (an A100 of any board and memory is one), with all their rows",
        split=_by_groups(_labels(lambda item: chip(item.device))),
        group=lambda item: chip(item.device),
    ),
    "source": Protocol(
        title="Unseen sources",
        holds_out="a fifth of the sources (all MLPerf rounds are one), with all their rows",
        split=_split_by(SplitBy.SOURCE),
        group=source_name,
    ),
    "family": Protocol(
        title="Unseen configurations at every precision",
        holds_out="a fifth of the configurations, with their runs at all precisions",
        split=_by_groups(family_numbers),
        group=lambda item: f"{model_group(item.model)} on {item.device}",
    ),
}
