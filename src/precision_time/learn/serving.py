"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..arrays import Floats
from ..cost.job import Job
from .artifact import TrainedPredictor
from .bounds import allowed_times, transferred
from .priced import PricedJobs, price_jobs
from .stages import Corrected
from .table import JobTable


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Predicted step times of n jobs and their intervals, shape (n,) each."""

    step_time_s: Floats
    low_s: Floats
    high_s: Floats
    jobs: JobTable
    """With the columns that the predictor was trained with."""
    corrected: Corrected
    term_factors: Mapping[str, Floats] = field(default_factory=dict)
    """What measured points made of each named term after its correction; nothing where there are none."""

    def row(self, index: int) -> StepTimes:
        """One of the jobs alone."""
        here = slice(index, index + 1)
        return StepTimes(
            step_time_s=self.step_time_s[here],
            low_s=self.low_s[here],
            high_s=self.high_s[here],
            jobs=self.jobs.take(here),
            corrected=self.corrected.take(here),
            term_factors={name: values[here] for name, values in self.term_factors.items()},
        )


def predict_step_times(
    jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float | Floats
) -> StepTimes:
    """Step times of many jobs, as physics allows them (`bounded_times`).

    Args:
        jobs: n jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    return bounded_times(price_jobs(jobs), predictor, coverage=coverage)


def bounded_times(priced: PricedJobs, predictor: TrainedPredictor, *, coverage: float | Floats) -> StepTimes:
    """Step times and intervals, none shorter than with a smaller batch or on fewer devices (`bounds.py`).

    And none shorter than the device's peak allows.

    Args:
        priced: `price_jobs` of n jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    like = priced.like(predictor)
    novelty = predictor.correction.training_set.novelty(like)
    corrected, allowed_s = allowed_times(priced, like, novelty, predictor)
    rows = priced.rows
    own, features = corrected.take(rows), like.features[rows]
    low, high = predictor.intervals.factors(features, own.novelty, coverage)
    times = StepTimes(
        step_time_s=own.step_time_s,
        low_s=own.step_time_s * low,
        high_s=own.step_time_s * high,
        jobs=priced.table.select(predictor.correction.names).take(rows),
        corrected=own,
    )
    # Trees know no peak: far from any measured run they would have steps do more than a device can.
    least_s = np.concatenate([allowed_s[:0], *(each.least_s for each in priced.costs)])
    return _raised(times, np.maximum(allowed_s, least_s)[rows])


def step_times(
    table: JobTable, predictor: TrainedPredictor, *, coverage: float, reference: JobTable | None = None
) -> StepTimes:
    """Step times of priced jobs; see `predict_step_times`.

    Args:
        table: The jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
        reference: The jobs as measured runs are (`on_reference`), if they are not: the correction is
            computed there, and applied to the analytical time of the jobs themselves.
    """
    like = (table if reference is None else reference).select(predictor.correction.names)
    corrected = predictor.correction.correct(like)
    low, high = predictor.intervals.factors(like.features, corrected.novelty, coverage)
    if reference is not None:
        corrected = transferred(corrected, like, table)
    step_time_s = corrected.step_time_s
    return StepTimes(
        step_time_s=step_time_s,
        low_s=step_time_s * low,
        high_s=step_time_s * high,
        jobs=table.select(predictor.correction.names),
        corrected=corrected,
    )


def _raised(times: StepTimes, step_time_s: Floats) -> StepTimes:
    """The same with other step times: every part and the interval in proportion."""
    factor, corrected = step_time_s / times.step_time_s, times.corrected
    return replace(
        times,
        step_time_s=step_time_s,
        low_s=times.low_s * factor,
        high_s=times.high_s * factor,
        corrected=Corrected(
            compute_s=corrected.compute_s * factor,
            exposed_s=corrected.exposed_s * factor,
            step_time_s=corrected.step_time_s * factor,
            novelty=corrected.novelty,
        ),
    )
