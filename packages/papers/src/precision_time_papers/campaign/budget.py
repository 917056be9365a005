r"""Which trials fit into a budget: durations learned as trials are done, and a greedy D-optimal design.

Design: trials of one job (model, precision, batch, resources per worker) share a linear model of the terms
$f = (1, s/m, \log m, m)$. With the information $M = \epsilon I + \sum f f^T$ of what is chosen, one more
trial adds $\log\det(M + f f^T) - \log\det M = \log(1 + f^T M^{-1} f)$. The trial with the largest gain per
second is taken until the budget is spent. The gains are submodular, so that greedy is within 1 - 1/e of the
best choice for trials of equal cost.
Source: terms and the idea of choosing small runs by experiment design from Venkataraman et al., Ernest, NSDI
2016, section 4, which relaxes an A-optimal design of one job; here many jobs compete for one budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, linear_regression

import numpy as np
from numpy.typing import NDArray

from precision_time_integrations.measure.trial import TrainingTrial

from ..ernest import ernest_features, scaled

Floats = NDArray[np.float64]
_FIRST_GUESS_S = 5.0
"""Of a trial when none has been measured."""
_FIRST_START_S = 5.0
"""Of a group of workers when none has been started."""
_RIDGE = 1e-2
"""Of columns scaled to a mean of 1: a term that no trial has varied counts as nearly unknown."""


def most_informative(
    trials: Sequence[TrainingTrial],
    budget_s: float,
    *,
    seconds: Callable[[TrainingTrial], float],
    group_start_s: float = 0.0,
    known: Sequence[TrainingTrial] = (),
) -> list[TrainingTrial]:
    """The trials to measure within a budget, the most informative per second first.

    Args:
        trials: Those that might be measured.
        budget_s: Seconds for all of them together.
        seconds: Expected seconds of a trial.
        group_start_s: Seconds that the first trial of each worker group costs on top.
        known: Trials that have been measured: similar ones are worth less.
    """
    if not trials:
        return []
    features = terms_of([*trials, *known])
    jobs = [_job(trial) for trial in [*trials, *known]]
    inverses: dict[Hashable, Floats] = {job: np.eye(features.shape[1]) / _RIDGE for job in jobs}
    for index in range(len(trials), len(jobs)):
        _add(inverses, jobs[index], features[index])
    cost = np.array([max(seconds(trial), 1e-6) for trial in trials])
    started = {trial.group for trial in known}
    left, spent_s, chosen = list(range(len(trials))), 0.0, list[TrainingTrial]()
    while left:
        full = np.array([cost[i] + group_start_s * (trials[i].group not in started) for i in left])
        gains = np.array([np.log1p(features[i] @ inverses[jobs[i]] @ features[i]) for i in left])
        rates = np.where(spent_s + full <= budget_s, gains / full, -1.0)
        best = int(np.argmax(rates))
        if rates[best] < 0.0:
            break
        index = left.pop(best)
        spent_s += float(full[best])
        started.add(trials[index].group)
        _add(inverses, jobs[index], features[index])
        chosen.append(trials[index])
    return chosen


def _job(trial: TrainingTrial) -> Hashable:
    """Trials whose times follow one formula of Ernest's."""
    group = trial.group
    resources = (group.cpus_per_worker, group.gpus_per_worker, group.num_nodes)
    sizes = tuple(sorted(trial.sizes.items()))
    return (
        *(trial.model, sizes, trial.dataset, trial.precision, trial.batch_per_worker, trial.optimizer),
        resources,
    )


def terms_of(trials: Sequence[TrainingTrial]) -> Floats:
    """Ernest's terms of the trials over their means, shape (n, 4)."""
    workers = np.array([trial.group.num_workers for trial in trials], dtype=float)
    share = np.array([trial.fraction for trial in trials])
    return scaled(ernest_features(share, workers))


def _add(inverses: dict[Hashable, Floats], job: Hashable, row: Floats) -> None:
    """Add one row of information: the inverse by Sherman and Morrison."""
    inverse = inverses[job]
    column = inverse @ row
    inverses[job] = inverse - np.outer(column, column) / (1.0 + row @ column)


@dataclass(slots=True)
class DurationEstimator:
    """Expected seconds of trials: a constant and Ernest's term s/m, fitted per model as trials are done.

    A model without measured trials takes the mean rate of the others.
    """

    _done: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Model and precision -> (work, wall time) of its trials."""
    _starts_s: list[float] = field(default_factory=list)

    def add_trial(self, trial: TrainingTrial, wall_s: float) -> None:
        """A trial has been measured, in `wall_s` from being started to being stored."""
        self._done[trial.model, trial.precision].append((work_of(trial), wall_s))

    def add_start(self, wall_s: float) -> None:
        """A group of workers has been started."""
        self._starts_s.append(wall_s)

    @property
    def group_start_s(self) -> float:
        """Expected seconds until a group of workers is ready."""
        return fmean(self._starts_s) if self._starts_s else _FIRST_START_S

    def seconds(self, trial: TrainingTrial) -> float:
        """Expected seconds of a trial."""
        own = self._done.get((trial.model, trial.precision))
        seen = own or [pair for pairs in self._done.values() for pair in pairs]
        if not seen:
            return trial.seconds or _FIRST_GUESS_S
        constant_s, rate = _line(seen)
        return constant_s + rate * work_of(trial)

    def total_s(self, trials: Sequence[TrainingTrial]) -> float:
        """Expected seconds of all of `trials`, the starts of their groups included."""
        starts = len({trial.group for trial in trials})
        return sum(map(self.seconds, trials)) + starts * self.group_start_s


def work_of(trial: TrainingTrial) -> float:
    """Ernest's s/m times the epochs: samples that one worker goes through."""
    return trial.epochs * trial.num_samples / trial.group.num_workers


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Constant and slope of wall time over work by least squares, neither below 0.

    >>> _line([(1.0, 3.0), (2.0, 5.0)])
    (1.0, 2.0)
    """
    work, wall_s = zip(*pairs, strict=True)
    mean_work, mean_s = fmean(work), fmean(wall_s)
    if len(set(work)) == 1:
        return mean_s, 0.0
    slope = min(max(linear_regression(work, wall_s).slope, 0.0), mean_s / mean_work)
    return mean_s - slope * mean_work, slope
