"""How much a calibration helps: sources of the corpus as clusters of users, each with a few points.

The predictor has not seen the source (held out by source), nor has the prior, which is fitted on the other
sources. A cluster is one kind of device of one source. 1, 3 or 10 of its configurations calibrate, the others
are predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.jobs import job_of
from precision_time.corpus.store import corpus_fingerprint
from precision_time.learn.calibration.effects import Place, places_of
from precision_time.learn.calibration.fit import calibrated_s
from precision_time.learn.calibration.posterior import factors, fit_effects
from precision_time.learn.calibration.prior import Prior, SourceResiduals, fit_prior
from precision_time.learn.table import MeasuredTable

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

POINTS = (1, 3, 10)
_SEEDS = 5
_FOLDS = 5
_MOST_OF_A_SOURCE = 100
"""Configurations of a source that the prior reads."""
_LEAST_OF_A_SOURCE = 5
_LEAST_OF_A_CLUSTER = 20
_MOST_TESTED = 300
_TAIL = 1.6448536269514722
"""Of a normal distribution: 90 % lie within this many standard deviations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configurations:
    """Configurations of a table, the median of repeats each."""

    source: NDArray[np.str_]
    device: NDArray[np.str_]
    places: tuple[Place, ...]
    measured_s: Floats
    predicted_s: Floats
    """By a predictor that has not seen the source."""

    @property
    def residuals(self) -> Floats:
        """log(measured / predicted), shape (n,)."""
        return np.log(self.measured_s / self.predicted_s)

    def sample(self, rows: Ints, most: int, seed: int) -> SourceResiduals:
        """Up to `most` of some rows, for a prior."""
        chosen = np.random.default_rng(seed).permutation(rows)[:most]
        return SourceResiduals(
            source=str(self.source[rows[0]]),
            places=tuple(self.places[row] for row in chosen),
            residuals=self.residuals[chosen],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterScore:
    """Errors on one cluster [%], means over draws of the calibrating points."""

    source: str
    device: str
    configurations: int
    before: float
    after: Mapping[int, float]
    """Points given to MAPE on the rest."""
    median_factor: Mapping[int, float]
    """The same by one factor alone: the median ratio of the points, not shrunken."""
    covered: Mapping[int, float]
    """Share of the rest within 90 % of the calibrated spread, 0..1."""


def configurations_of(table: MeasuredTable, predicted_s: Floats) -> Configurations:
    """The configurations of a measured table with predictions held out by source."""
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(table.measurements):
        rows[row.source, row.configuration_key].append(index)
    groups = [np.array(group) for group in rows.values()]
    first = np.array([group[0] for group in groups])
    named = [table.measurements[row] for row in first]
    return Configurations(
        source=np.array([row.source for row in named]),
        device=np.array([row.device for row in named]),
        places=places_of([job_of(row) for row in named], table.jobs.take(first)),
        measured_s=np.array([np.median(table.measured_s[group]) for group in groups]),
        predicted_s=np.array([np.median(predicted_s[group]) for group in groups]),
    )


def prior_of(
    known: Configurations, *, without: Sequence[str] = (), card: Mapping[str, str | int] | None = None
) -> Prior:
    """The prior of all sources but some."""
    samples = []
    for source in np.unique(known.source):
        rows = np.flatnonzero(known.source == source)
        if source not in without and len(rows) >= _LEAST_OF_A_SOURCE:
            samples.append(known.sample(rows, _MOST_OF_A_SOURCE, seed=0))
    noted = {"sources": len(samples), "configurations": sum(len(item.places) for item in samples)}
    return fit_prior(samples, {**(card or {}), **noted})


def prior_card(table: MeasuredTable) -> dict[str, str | int]:
    """The card of the prior that ships."""
    return {"corpus": corpus_fingerprint(table.measurements), "predictor": "held out by source"}


def evaluate(
    known: Configurations, progress: Callable[[str], None] = lambda _: None
) -> Iterator[ClusterScore]:
    """The score of every cluster with enough configurations, by source and device."""
    sources = np.unique(known.source)
    for fold in range(_FOLDS):
        without = [str(source) for source in sources[fold::_FOLDS]]
        progress(f"calibration, sources {fold + 1} of {_FOLDS}")
        prior = prior_of(known, without=without)
        for source in without:
            for device in np.unique(known.device[known.source == source]):
                rows = np.flatnonzero((known.source == source) & (known.device == device))
                if len(rows) >= _LEAST_OF_A_CLUSTER:
                    yield _score(known, rows, prior)


def _score(known: Configurations, rows: Ints, prior: Prior) -> ClusterScore:
    errors: dict[int, list[float]] = defaultdict(list)
    plain: dict[int, list[float]] = defaultdict(list)
    covered: dict[int, list[float]] = defaultdict(list)
    before = []
    for seed in range(_SEEDS):
        shuffled = np.random.default_rng(seed).permutation(rows)
        tested = shuffled[max(POINTS) : max(POINTS) + _MOST_TESTED]
        places = [known.places[row] for row in tested]
        measured, predicted = known.measured_s[tested], known.predicted_s[tested]
        before.append(_mape(measured, predicted))
        for count in POINTS:
            given = shuffled[:count]
            posterior = fit_effects([known.places[row] for row in given], known.residuals[given], prior)
            times = calibrated_s(places, predicted, posterior, prior)
            _, spread, _ = factors(places, posterior, prior)
            errors[count].append(_mape(measured, times))
            plain[count].append(_mape(measured, predicted * np.exp(np.median(known.residuals[given]))))
            covered[count].append(float(np.mean(np.abs(np.log(measured / times)) <= _TAIL * spread)))
    return ClusterScore(
        source=str(known.source[rows[0]]),
        device=str(known.device[rows[0]]),
        configurations=len(rows),
        before=float(np.mean(before)),
        after={count: float(np.mean(values)) for count, values in errors.items()},
        median_factor={count: float(np.mean(values)) for count, values in plain.items()},
        covered={count: float(np.mean(values)) for count, values in covered.items()},
    )


def _mape(measured: Floats, predicted: Floats) -> float:
    return float(np.mean(np.abs(predicted - measured) / measured)) * 100.0
