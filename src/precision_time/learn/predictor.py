"""What was learned, and the one function from features to seconds.

    median = formulas * exp(shrinkage * trees(features))
    step time = the time that errs least in percent, a little below the median (intervals.least_error)

One ensemble of deep trees with random thresholds learns log(measured / analytical) of all runs. Far from the
runs that it learned from the correction shrinks toward none, by what is new of the software: what was
learned of a model or a device holds for another one, hardly what was learned of a stack for another. And by
a model that is far from all (`novelty.toml`). A step takes at least what the same takes with a half, a
quarter ... of the batch, and what the peak of the device allows.

Answers, cross-validation, intervals, calibration and the search for layouts all call `Predictor.times`;
nothing else reaches the trees. A predictor that learns something else, as the founding paper's hierarchy of
the papers does, overrides `correction` alone.

References: Geurts et al., Extremely randomized trees, Machine Learning 63 (2006); trees are LightGBM's (Ke et
al., NeurIPS 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from ..arrays import Floats, Ints
from ..records import dataclass
from .intervals import IntervalModel
from .novelty import FADE, TrainingSet, shrinkage
from .table import JobTable
from .trees import TreeEnsemble

_NOT_LEARNED = ("loss_scaling", "share.unscale_s", "share.host_sync_s")
"""Loss scaling is priced, not learned: to trees it would be the name of fp16. Five jobs of the corpus ran in
fp16 and in bf16 mixed on Ampere: they differ by 1 % in the median, by 12 % at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Predicted step times of n jobs, shape (n,) each."""

    jobs: JobTable
    """In the columns of the predictor."""
    step_time_s: Floats
    """The answer: what errs least in percent."""
    median_s: Floats
    """What as many runs are expected to take less as more."""
    low_s: Floats
    high_s: Floats
    """Bounds of the interval."""
    exposed_s: Floats
    """Communication within the step that nothing hides."""
    distance: Floats
    """To the nearest run of the training set, by kind of difference, shape (n, len(KINDS))."""
    term_factors: Mapping[str, Floats] = field(default_factory=dict)
    """What measured points made of each named term after its correction; nothing where there are none."""

    @property
    def analytical_s(self) -> Floats:
        """Step times by the formulas alone."""
        return self.jobs.analytical_s

    @property
    def compute_s(self) -> Floats:
        """The step but for `exposed_s`."""
        return self.step_time_s - self.exposed_s

    def take(self, rows: Ints | slice) -> Times:
        """Those of some of the jobs."""
        named = ("step_time_s", "median_s", "low_s", "high_s", "exposed_s", "distance")
        return replace(
            self,
            jobs=self.jobs.take(rows),
            **{name: getattr(self, name)[rows] for name in named},
            term_factors={name: values[rows] for name, values in self.term_factors.items()},
        )

    def row(self, index: int) -> Times:
        """One of the jobs alone."""
        return self.take(slice(index, index + 1))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Predictor:
    """What was learned from some measured runs."""

    names: tuple[str, ...]
    """Feature columns, in order."""
    trees: TreeEnsemble
    """log(measured / analytical) by features."""
    training_set: TrainingSet
    """The runs that it was learned from."""
    fade: float = FADE
    """Rate of the shrinkage: d steps from known software, (1 + d)^-fade of a correction is left."""
    intervals: IntervalModel | None = None
    """None before it is fitted: bounds are the time itself."""

    def times(self, jobs: JobTable, *, coverage: float | Floats = 0.9) -> Times:
        """Step times of priced jobs.

        Args:
            jobs: n jobs, with whatever columns this version computes.
            coverage: Probability that each interval holds, 0..1; one for all or shape (n,).

        Raises:
            NotFittedError: If the jobs have other feature columns (`JobTable.select`).
        """
        jobs = jobs.select(self.names)
        distance = self.training_set.novelty(jobs)
        every = jobs.opened()
        share = jobs.of_halves(shrinkage(distance, self.fade))
        factor, exposed = self.correction(every)
        corrected_s = every.analytical_s * np.exp(share * factor)
        # Trees know no peak: far from any measured run they would have steps do more than a device can.
        median_s = step_time_s = low_s = high_s = jobs.folded(np.maximum(corrected_s, every.least_s))
        if self.intervals is not None:
            distances = jobs.of_halves(distance)
            scale = self.intervals.expected_error(every.features, distances)
            point_s = corrected_s * self.intervals.point(scale, distances)
            step_time_s = jobs.folded(np.maximum(point_s, every.least_s))
            low, high = self.intervals.bounds(scale[: len(jobs)], distance, coverage)
            low_s, high_s = np.minimum(median_s * low, step_time_s), median_s * high
        return Times(
            jobs=jobs,
            step_time_s=step_time_s,
            median_s=median_s,
            low_s=low_s,
            high_s=high_s,
            exposed_s=step_time_s * exposed[: len(jobs)],
            distance=distance,
        )

    def correction(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """What was learned of jobs in the columns of the predictor, shape (n,) each.

        Returns:
            log of the factor on the formulas before it shrinks, and the share of the step that is exposed
            communication: here that of the formulas, as all terms share one factor.
        """
        return self.trees.predict(readable(jobs)), jobs.exposed_s / jobs.analytical_s

    def has_seen(self, indicator: str) -> bool:
        """Whether a measured run has an indicator column that distances know, as `stack.megatron`."""
        return self.training_set.has(indicator, self.names)


def readable(jobs: JobTable) -> Floats:
    """Features as trees read them: without what is priced and not learned, shape (n, n_features)."""
    columns = [jobs.names.index(name) for name in _NOT_LEARNED if name in jobs.names]
    if not jobs.features[:, columns].any():
        return jobs.features
    features = jobs.features.copy()
    features[:, columns] = 0.0
    return features
