"""How well the remaining time of a run is told, on recorded series: ours beside the progress bars.

    python eta_study.py          the table, with the numbers that ship
    python eta_study.py --fit    fit the numbers by folds of projects, and write them
    python eta_study.py --write  write docs/reference/online-eta.md and its picture

A series is fed to `RunMonitor` event by event, as a watcher of the run saw it; pauses that the run announced
are announced. Numbers are measured on other projects than they are fitted on: `data/eta_folds.json` has the
set of each fold, `online/data/eta.toml` the one that ships, fitted on all.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import numpy as np

from eta_baselines import BASELINES, SHARES, Clock, remaining_at
from eta_series import Series, read_series
from precision_time import predict_time
from precision_time.capture.timm_models import import_torchvision
from precision_time.errors import PrecisionTimeError
from precision_time_integrations.online import RunMonitor
from precision_time_integrations.online.estimate import (
    Estimate,
    Level,
    PausePlan,
    Prior,
    Settings,
    estimate_of,
    settings,
    steady,
)
from precision_time_integrations.online.history import StepHistory

FOLDS = 5
FOLDS_FILE = Path(__file__).resolve().parent / "data" / "eta_folds.json"
COVERAGE = 0.9
OURS = "precision-time"
_WORST = 1.0
"""Logarithmic error that counts no more than this in a fit: nobody can tell of a run that changes course."""
_TRIED: Mapping[str, Sequence[float]] = {
    "stall_ratio": (2.0, 2.5, 3.0, 4.0),
    "recency": (0.0, 0.5, 1.0, 2.0, 4.0),
    "stall_recency": (0.0, 1.0, 2.0, 4.0),
    "stall_once": (0.0, 0.5, 1.0),
    "pause_share": (0.02, 0.04, 0.06, 0.1),
    "unseen_share": (0.0, 0.01, 0.02, 0.03, 0.05),
    "unseen_until": (0.05, 0.1, 0.2, 0.5),
}
"""Numbers of the expected time, one after the other, twice."""
_OF_LEVELS = (
    "stall_ratio", "recency", "stall_recency", "stall_once",
    "first_log_sd", "least_log_sd",
)  # fmt: skip
"""Numbers that `steady` reads."""
_TRIED_SPREADS: Mapping[str, Sequence[float]] = {
    "drift_log_sd": (0.0, 0.005, 0.01, 0.02, 0.04),
    "most_ahead": (1.0, 4.0, 16.0),
    "least_log_sd": (0.002, 0.005, 0.01, 0.02, 0.04),
    "first_log_sd": (0.02, 0.05, 0.1, 0.2),
    "unforeseen_log_sd": (0.0, 0.02, 0.05, 0.1, 0.2),
    "unforeseen_planned_log_sd": (0.0, 0.02, 0.05, 0.1),
}


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A series as it was known after one of its events."""

    series: Series
    index: int
    share: float
    history: StepHistory
    plans: Mapping[str, PausePlan] | None
    prior: Prior | None
    levels: dict[tuple[float, ...], Level | None] = field(default_factory=dict, compare=False)
    """What the history comes to, by the numbers that say so."""

    @property
    def true_s(self) -> float:
        """Seconds that were left."""
        return self.series.remaining_s(self.index)

    def told(self, numbers: Settings) -> Estimate:
        """What is said of them."""
        key = tuple(getattr(numbers, name) for name in _OF_LEVELS)
        if key not in self.levels:
            self.levels[key] = steady(self.history, numbers)
        found = estimate_of(
            self.levels[key],
            self.history.pauses,
            step=self.series.events[self.index][0],
            total_steps=self.series.total_steps,
            prior=self.prior,
            plans=self.plans,
            coverage=COVERAGE,
            numbers=numbers,
        )
        assert found is not None
        return found

    def log_error(self, numbers: Settings) -> float:
        """Logarithm of the true over the told time."""
        return math.log(self.true_s / self.told(numbers).remaining_s)


def moments_of(series: Series) -> list[Moment]:
    """A series at each share of its steps."""
    return [_moment(series, series.index_at(share), share) for share in SHARES]


def _moment(series: Series, index: int, share: float) -> Moment:
    clock = Clock()
    plans = None if series.kind == "public" and not series.schedule else dict(series.schedule)
    monitor = RunMonitor(total_steps=series.total_steps, pauses=plans, clock=clock)
    if series.first_step == 0 or "resumed" in series.features:
        monitor.begin(series.first_step)
    else:
        monitor.step(series.first_step)
    # At the same second a pause ends before a step does, and begins after it.
    happened: list[tuple[float, int, Callable[[], None]]] = [
        *((end_s, 0, monitor.end_pause) for _, end_s, _ in series.pauses),
        *((at_s, 1, partial(monitor.step, step, at_s=at_s)) for step, at_s in series.events[1 : index + 1]),
        *((start_s, 2, partial(monitor.begin_pause, name)) for start_s, _, name in series.pauses),
    ]
    for at_s, _, tell in sorted(happened, key=lambda item: item[:2]):
        if at_s <= series.events[index][1]:
            clock.now_s = at_s
            tell()
    assert not monitor.failure, monitor.failure
    planned = None if plans is None else {name: PausePlan(every_steps=every) for name, every in plans.items()}
    return Moment(
        series=series,
        index=index,
        share=share,
        history=monitor._history,
        plans=planned,
        prior=_prior(series),
    )


def _prior(series: Series) -> Prior | None:
    """The prediction of its step, where model and device are known."""
    if not series.request:
        return None
    try:
        return Prior.of(predict_time(**series.request))
    except PrecisionTimeError:
        return None


@cache
def all_moments() -> tuple[Moment, ...]:
    """Every series at each share that leaves something to tell."""
    return tuple(moment for series in read_series() for moment in moments_of(series) if moment.true_s > 0.0)


@cache
def _folds() -> Mapping[str, int]:
    """Projects to folds, about as many series in each."""
    counts = Counter(series.project for series in read_series())
    sizes, found = [0] * FOLDS, {}
    for project in sorted(counts, key=lambda name: (-counts[name], crc32(name.encode()))):
        fold = sizes.index(min(sizes))
        found[project], sizes[fold] = fold, sizes[fold] + counts[project]
    return found


def fold_of(project: str) -> int:
    """The fold of a project: its series are measured with numbers that were fitted without them."""
    return _folds()[project]


def fit(moments: Sequence[Moment], start: Settings) -> Settings:
    """The numbers that tell these series best: first those of the expected time, then those of its spread."""
    weights = _weights(moments)

    def loss(numbers: Settings) -> float:
        return float(weights @ [min(abs(moment.log_error(numbers)), _WORST) for moment in moments])

    def score(numbers: Settings) -> float:
        # Of intervals with that coverage: their width, and twenty times what lies outside (Winkler, 1972).
        calibrated = _calibrated(moments, weights, numbers)
        found = []
        for moment in moments:
            told, true = moment.told(calibrated), math.log(moment.true_s)
            low, high = math.log(told.low_s), math.log(told.high_s)
            outside = max(low - true, true - high, 0.0)
            found.append(high - low + 2.0 / (1.0 - COVERAGE) * min(outside, _WORST))
        return float(weights @ found)

    numbers = start
    for _ in range(2):
        numbers = _descend(numbers, _TRIED, loss)
    for _ in range(2):
        numbers = _descend(numbers, _TRIED_SPREADS, score)
    return _calibrated(moments, weights, numbers)


def _calibrated(moments: Sequence[Moment], weights: np.ndarray, numbers: Settings) -> Settings:
    """The numbers with the two widths at which their intervals hold what they should."""
    plain = replace(numbers, low_width=1.0, high_width=1.0)
    reach = statistics.NormalDist().inv_cdf((1.0 + COVERAGE) / 2.0)
    told = [moment.told(plain) for moment in moments]
    errors = np.array(
        [math.log(moment.true_s / each.remaining_s) for moment, each in zip(moments, told, strict=True)]
    )
    below = errors / [reach * each.low_log_sd for each in told]
    above = errors / [reach * each.high_log_sd for each in told]
    low = -_quantile(below, weights, (1.0 - COVERAGE) / 2.0)
    high = _quantile(above, weights, (1.0 + COVERAGE) / 2.0)
    return replace(numbers, low_width=round(max(low, 0.05), 3), high_width=round(max(high, 0.05), 3))


def _weights(moments: Iterable[Moment]) -> np.ndarray:
    """Projects weigh alike but for the root of their number of series: neither one alone nor its copies."""
    projects = [moment.series.project for moment in moments]
    weights = np.array([projects.count(project) ** -0.5 for project in projects])
    return np.asarray(weights / weights.sum())


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    return float(np.interp(share, np.cumsum(weights[order]) - weights[order] / 2.0, values[order]))


def _descend(numbers: Settings, tried: Mapping[str, Sequence[float]], loss: object) -> Settings:
    assert callable(loss)
    for name, values in tried.items():
        candidates = [numbers, *(replace(numbers, **{name: value}) for value in values)]
        numbers = min(candidates, key=loss)
    return numbers


def fold_numbers() -> list[Settings]:
    """Those of each fold, as fitted."""
    return [Settings(**stated) for stated in json.loads(FOLDS_FILE.read_text(encoding="utf-8"))]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method at one share of the steps."""

    method: str
    share: float
    by_series: Mapping[str, float]
    """|told - true| / true remaining time, of the series for which it gives a time."""

    @property
    def errors(self) -> tuple[float, ...]:
        """Of all series."""
        return tuple(self.by_series.values())

    def over(self, other: Row) -> tuple[float, float]:
        """Median and mean of these errors over those of another method, on the series of both."""
        both = [name for name in self.by_series if name in other.by_series]
        return (
            statistics.median(self.by_series[name] for name in both)
            / statistics.median(other.by_series[name] for name in both),
            statistics.fmean(self.by_series[name] for name in both)
            / statistics.fmean(other.by_series[name] for name in both),
        )

    @property
    def median(self) -> float:
        """Of the errors."""
        return statistics.median(self.errors)

    @property
    def mean(self) -> float:
        """Of the errors."""
        return statistics.fmean(self.errors)


def our_rows(by_fold: Sequence[Settings]) -> tuple[list[Row], dict[float, float]]:
    """Ours at each share with the numbers of the folds, and the coverage of the intervals there."""
    errors: dict[float, dict[str, float]] = {share: {} for share in SHARES}
    inside: dict[float, list[bool]] = {share: [] for share in SHARES}
    for moment in all_moments():
        told = moment.told(by_fold[fold_of(moment.series.project)])
        errors[moment.share][moment.series.name] = abs(told.remaining_s / moment.true_s - 1.0)
        inside[moment.share].append(told.low_s <= moment.true_s <= told.high_s)
    rows = [Row(method=OURS, share=share, by_series=found) for share, found in errors.items()]
    return rows, {share: statistics.fmean(found) for share, found in inside.items()}


def baseline_rows() -> list[Row]:
    """The progress bars at each share."""
    import_torchvision()  # Lightning's dependencies import it, and its build may not fit that of torch
    found: dict[tuple[str, float], dict[str, float]] = {
        (name, share): {} for name in BASELINES for share in SHARES
    }
    for series in read_series():
        indices = [series.index_at(share) for share in SHARES]
        for name in BASELINES:
            for share, index, left_s in zip(
                SHARES, indices, remaining_at(name, series, indices), strict=True
            ):
                if left_s is not None and series.remaining_s(index) > 0.0:
                    found[name, share][series.name] = abs(left_s / series.remaining_s(index) - 1.0)
    return [Row(method=name, share=share, by_series=errors) for (name, share), errors in found.items()]


def write_fits() -> None:
    """Fit the numbers of every fold and those that ship, and write them."""
    start, moments = settings(), all_moments()
    folds = []
    for fold in range(FOLDS):
        others = [moment for moment in moments if fold_of(moment.series.project) != fold]
        folds.append(fit(others, start))
        print(f"fold {fold}: {len(moments) - len(others)} moments left out, {folds[-1]}", flush=True)
    FOLDS_FILE.write_text(
        json.dumps([asdict(numbers) for numbers in folds], indent=1) + "\n", encoding="utf-8"
    )
    ships = fit(moments, start)
    import precision_time_integrations.online

    file = Path(precision_time_integrations.online.__file__).parent / "data" / "eta.toml"
    lines = (f"{name} = {value}" for name, value in asdict(ships).items())
    head = "# Numbers of the remaining time of a run; "
    head += "packages/integrations/studies/eta_study.py --fit writes them."
    head += "\n[estimate]\n"
    file.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Print the table, after fitting where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", action="store_true", help="fit the numbers and write them")
    parser.add_argument("--write", action="store_true", help="write the page and its picture")
    parser.add_argument("--list", action="store_true", help="print the series as well")
    given = parser.parse_args()
    if given.fit:
        write_fits()
    (ours, coverage), bars = our_rows(fold_numbers()), baseline_rows()
    from eta_page import PAGE, PICTURE, page, picture

    said = page(ours, coverage, bars)
    if given.write:
        sys.path.append(str(Path(__file__).resolve().parents[3] / "tools"))
        from pages import write_page

        write_page(PAGE, said)
        PICTURE.write_text(picture([*ours, *bars]), encoding="utf-8")
    print(said if given.list else said.partition("## Series")[0])


if __name__ == "__main__":
    main()
