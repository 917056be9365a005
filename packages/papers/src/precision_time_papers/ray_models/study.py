"""A study: techniques tuned and compared inside the training part, the best one judged on the rest.

Order, for each split of the validation: inner splits of the training part -> parameters and features of each
technique -> the technique, see `chosen_first` -> fit on the whole training part -> error on the test points.
Nothing before the last step has seen them. Techniques are compared by nested splits: each is tuned again
without the inner test points, so that one with many candidates gains nothing by their number. The model that
is kept is chosen in the same way on all points, so that its own error is that of the validation and never
that of its fit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError

from .features import Feature, feature_name, feature_table, named_features, without_duplicates
from .grey import GreyBox
from .model import PerformanceModel
from .points import Points
from .splits import INNER_SHARES, LEAST_INNER_TRAIN, Split, SplitRule, inner_rule, largest_held_out, splits_of
from .techniques import FeaturePool, Technique
from .trust import Trust, model_flags
from .tuning import FeatureSelection, Search, TunedTechnique, mape_percent, tune

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyPlan:
    """What is fitted, how it is chosen, and how it is judged."""

    features: tuple[Feature, ...]
    techniques: tuple[Technique, ...]
    columns: tuple[str, ...]
    """Numeric columns that are learned from."""
    categories: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    validation: SplitRule = field(default_factory=lambda: SplitRule(method="kfold"))
    selection: SplitRule | None = None
    """Inside the training part; None asks the same question there as the validation does."""
    search: Search = field(default_factory=Search)
    feature_selection: FeatureSelection = field(default_factory=FeatureSelection)
    grey: GreyBox | None = None
    blend: int = 1
    """Models whose geometric mean is kept: 1 for the best technique alone."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueScore:
    """A technique's three errors [%], means over the validation's splits."""

    technique: Technique
    training_mape: float
    """On the points it was fitted on: how closely it follows them, not how well it predicts."""
    selection_mape: float
    """On inner splits of the training part, tuned without them: what it is chosen by."""
    validation_mape: float
    """On points that neither fit nor choice has seen."""
    fit_time_s: float
    """Search and fit, over all splits."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "technique": self.technique.name,
            "title": self.technique.title,
            "training_mape_percent": self.training_mape,
            "selection_mape_percent": self.selection_mape,
            "validation_mape_percent": self.validation_mape,
            "fit_time_s": self.fit_time_s,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPredictions:
    """The test points of one split, as the chosen models predicted them."""

    rows: Ints
    best_s: Floats
    """By the technique chosen in selection."""
    blend_s: Floats
    """By the geometric mean of the `blend` best ones; the same for a blend of one."""
    best: str
    """Name of that technique."""
    trust: Trust | None = None
    """Intervals and flags of `best_s`, from the training part alone; None if not asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What came out."""

    plan: StudyPlan
    points: Points
    scores: tuple[TechniqueScore, ...]
    """Least selection error first; the one chosen may be a simpler one."""
    left_out: Mapping[str, str]
    """Technique to why it was not tried."""
    test: tuple[SplitPredictions, ...]
    """One per split of the validation."""
    model: PerformanceModel
    """Chosen and fitted on all points."""
    chosen: tuple[TunedTechnique, ...]
    """The techniques in it, best first."""
    fit_time_s: float
    notes: tuple[str, ...] = ()
    """Where the study differs from its plan."""

    @property
    def validation_mape(self) -> float:
        """Error [%] of the technique chosen in each split, mean over the splits."""
        return _mean_error(self.points, self.test, "best_s")

    @property
    def blend_mape(self) -> float:
        """The same of the blend."""
        return _mean_error(self.points, self.test, "blend_s")


def run_study(
    points: Points,
    plan: StudyPlan,
    *,
    keep: bool = True,
    judged: bool = False,
    progress: Progress = lambda _: None,
) -> Study:
    """Fit, choose, judge.

    Args:
        points: Measured points, with the columns of the grey box.
        plan: What to do.
        keep: Fit the model on all points, too; False where only the errors are wanted: then it is that of
            the first split.
        judged: Find intervals and flags for the points held out, too, from the training part.
        progress: Called with a text on what is being done.

    Raises:
        ConfigError: If a split cannot be made, or no technique can be used.
    """
    started = time.perf_counter()
    workbench = _Workbench.of(points, plan)
    outer = splits_of(points, plan.validation, plan.seed)
    rounds = []
    for number, split in enumerate(outer, start=1):
        progress(f"validation split {number} of {len(outer)}")
        rounds.append(_validated(workbench, split, progress, judged=judged))
    if keep:
        progress("fitting on all points")
        rows = np.arange(len(points))
        members, _ = _tuned(workbench, rows, progress)
    else:
        rows, members = outer[0][0], rounds[0].tuned
    members = members[: plan.blend]
    scores = _scores(workbench, rounds)
    test = tuple(item.predictions for item in rounds)
    validated = _held_out(points, plan.validation, test) if keep else None
    card = {
        "techniques": [_card(item, workbench.pool) for item in members],
        "points": len(points),
        "seed": plan.seed,
        "validation": plan.validation.method,
        "validation_mape_percent": _mean_error(points, test, "blend_s"),
        "scores": [score.to_dict() for score in scores],
    }
    return Study(
        plan=plan,
        points=points,
        scores=scores,
        left_out=workbench.left_out,
        test=test,
        model=workbench.model(members, rows, card, validated),
        chosen=members,
        fit_time_s=time.perf_counter() - started,
        notes=tuple(workbench.notes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Workbench:
    """Points as tables, ready to be split."""

    points: Points
    plan: StudyPlan
    pool: FeaturePool
    x: Floats
    """All features of the pool, shape (n, n_features)."""
    predicted_s: Floats
    """By our own predictor; ones without a grey box."""
    techniques: tuple[Technique, ...]
    left_out: Mapping[str, str]
    notes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, points: Points, plan: StudyPlan) -> _Workbench:
        """The table of all features, and the techniques that can use it."""
        predicted = np.ones(len(points))
        if plan.grey is not None:
            points = replace(points, columns={**points.columns, **plan.grey.predictions(points.columns)})
            predicted = points.columns[plan.grey.PREDICTED].astype(np.float64)
        pool = pool_of(plan)
        reasons = {item.name: item.why_unavailable(pool) for item in plan.techniques}
        left_out = {name: reason for name, reason in reasons.items() if reason}
        techniques = tuple(item for item in plan.techniques if item.name not in left_out)
        if not techniques:
            listed = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
            raise ConfigError(f"No technique can be used: {listed}. To fix: name others.")
        return cls(
            points=points,
            plan=plan,
            pool=pool,
            x=feature_table(pool.features, points.columns, points.lines),
            predicted_s=predicted,
            techniques=techniques,
            left_out=left_out,
        )

    def table(self, technique: Technique, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """Features and target of some rows for a technique, and what its answers are multiplied by."""
        width = len(self.pool.features) if technique.grey else self.pool.num_black
        divisor = self.predicted_s[rows] if technique.grey else np.ones(len(rows))
        return self.x[rows, :width], self.points.measured[rows] / divisor, divisor

    def asks_labels(self, technique: Technique) -> bool:
        """Whether the column asked is a label to a technique: such a one is taken only where all are.

        Where selection can only be by folds, a rule with a constant for each value would seem without error.
        """
        return bool(frozenset(self.plan.validation.columns) & technique.labels(self.pool))

    def rank(self, technique: Technique, selection_mape: float) -> tuple[bool, float]:
        """Order of tables: the selection error, after techniques to which the column asked is no label."""
        return self.asks_labels(technique), selection_mape

    def fit(self, tuned: TunedTechnique, rows: Ints) -> Any:
        """A candidate fitted on some rows."""
        x, y, _ = self.table(tuned.technique, rows)
        return tuned.build(self.pool, self.plan.seed).fit(x, y)

    def predict(self, tuned: TunedTechnique, fitted: Any, rows: Ints) -> Floats:
        """Times of some rows."""
        x, _, divisor = self.table(tuned.technique, rows)
        times: Floats = fitted.predict(x) * divisor
        return times

    def model(
        self,
        members: Sequence[TunedTechnique],
        rows: Ints,
        card: Mapping[str, Any],
        validated: Trust | None = None,
    ) -> PerformanceModel:
        """The geometric mean of some candidates, fitted on some rows.

        `validated` has the errors of the validation, which add to those held out here.
        """
        columns, plan = self.points.columns, self.plan
        greys = sum(item.technique.grey for item in members)
        width = len(self.pool.features) if greys else self.pool.num_black
        return PerformanceModel(
            target=self.points.target,
            columns=plan.columns,
            categories={name: tuple(sorted(set(columns[name].tolist()))) for name in plan.categories},
            roles=dict(plan.roles),
            ranges={name: (float(columns[name].min()), float(columns[name].max())) for name in plan.columns},
            features=self.pool.features[:width],
            grey=plan.grey if greys else None,
            grey_power=greys / len(members),
            card=dict(card),
            trust=self.trust(members, rows, validated),
            estimators=tuple(self.fit(item, rows) for item in members),
        )

    def trust(self, members: Sequence[TunedTechnique], rows: Ints, validated: Trust | None = None) -> Trust:
        """Errors of some candidates on rows held out of some rows, see `trust`; parameters are kept."""
        points = self.points.take(rows)
        numeric = {name: np.unique(points.columns[name].astype(np.float64)) for name in self.plan.columns}
        held_out, places = self._errors(members, rows, SplitRule(method="kfold"))
        between = {
            name: self._errors(members, rows, SplitRule(method="interpolation", column=name, turns=2))[0]
            for name in numeric
        }
        beyond, reach = {}, {}
        for name, values in numeric.items():
            rule = SplitRule(method="extrapolation", shares={name: INNER_SHARES})
            errors, _ = self._errors(members, rows, rule)
            tried = [values[values <= share * values[-1]] for share in INNER_SHARES]
            if not len(errors) and len(values) > 2:
                rule = SplitRule(method="extrapolation", bounds={name: float(values[-2])})
                errors, _ = self._errors(members, rows, rule)
                tried = [values[:-1]]
            if len(errors):
                beyond[name] = errors
                reach[name] = max(
                    (float(values[-1] / item[-1]) for item in tried if len(item) > 1 and item[-1] > 0.0),
                    default=1.0,
                )
        groups = points.configurations
        times = [points.measured[groups == group] for group in np.unique(groups)]
        terms = max((_terms(self.fit(item, rows)) for item in members), default=0)
        more = validated or Trust()
        return Trust(
            folds=(*held_out, *more.folds),
            between={
                name: (*errors, *more.between.get(name, ()))
                for name, errors in between.items()
                if errors or name in more.between
            },
            beyond={
                name: (*beyond.get(name, ()), *more.beyond.get(name, ())) for name in beyond | more.beyond
            },
            reach={name: max(reach.get(name, 1.0), more.reach.get(name, 1.0)) for name in reach | more.reach},
            known={name: tuple(values.tolist()) for name, values in numeric.items()},
            model_flags=model_flags(
                configurations=len(times),
                terms=terms,
                repeats=np.array([item.max() / item.min() for item in times if len(item) > 1]),
                held_out=np.array(held_out),
                lines=[points.lines[place] for place in places],
            ),
        )

    def _errors(
        self, members: Sequence[TunedTechnique], rows: Ints, rule: SplitRule
    ) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """log(measured / predicted) of what a rule holds out of some rows, and its places."""
        try:
            splits = splits_of(self.points.take(rows), rule, self.plan.seed, least=LEAST_INNER_TRAIN)
        except ConfigError:
            return (), ()
        errors: list[float] = []
        places: list[int] = []
        for train, test in splits:
            answers = [self.predict(item, self.fit(item, rows[train]), rows[test]) for item in members]
            predicted = np.mean([np.log(item) for item in answers], axis=0)
            errors += (np.log(self.points.measured[rows[test]]) - predicted).tolist()
            places += test.tolist()
        return tuple(errors), tuple(places)


def pool_of(plan: StudyPlan) -> FeaturePool:
    """Every feature of a plan: those it names, those of techniques with their own, those of the grey box.

    Features of the last two that the plan does not name are hidden from the other techniques.
    """
    named = named_features(plan.features, plan.roles)
    own = [item for item in without_duplicates(itertools.chain(*named.values())) if item not in plan.features]
    grey = plan.grey.FEATURES if plan.grey is not None else ()
    features = (*plan.features, *own, *grey)
    return FeaturePool(
        features=features,
        named={name: tuple(map(features.index, items)) for name, items in named.items()},
        own=tuple(features.index(item) for item in own),
        num_grey=len(grey),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _ValidationRound:
    """One split of the validation."""

    tuned: tuple[TunedTechnique, ...]
    errors: Mapping[str, tuple[float, float, float, float]]
    """Technique to training, selection and validation error and seconds."""
    predictions: SplitPredictions


def _validated(workbench: _Workbench, split: Split, progress: Progress, *, judged: bool) -> _ValidationRound:
    """Choose and fit on the training rows, predict the test rows."""
    train, test = split
    tuned, seconds = _tuned(workbench, train, progress)
    measured = workbench.points.measured
    errors, answers = {}, []
    for item in tuned:
        started = time.perf_counter()
        fitted = workbench.fit(item, train)
        fit_s = time.perf_counter() - started
        answers.append(workbench.predict(item, fitted, test))
        errors[item.technique.name] = (
            mape_percent(measured[train], workbench.predict(item, fitted, train)),
            item.nested_mape,
            mape_percent(measured[test], answers[-1]),
            seconds[item.technique.name] + fit_s,
        )
    blended = np.exp(np.mean([np.log(item) for item in answers[: workbench.plan.blend]], axis=0))
    predictions = SplitPredictions(
        rows=test, best_s=answers[0], blend_s=blended, best=tuned[0].technique.name
    )
    if judged:
        predictions = replace(predictions, trust=workbench.trust(tuned[:1], train))
    return _ValidationRound(tuned=tuned, errors=errors, predictions=predictions)


def _tuned(
    workbench: _Workbench, rows: Ints, progress: Progress
) -> tuple[tuple[TunedTechnique, ...], Mapping[str, float]]:
    """Every technique tuned on inner splits of some rows, the lowest selection error first, and seconds."""
    plan = workbench.plan
    inner, note = _inner_splits(workbench.points.take(rows), plan)
    if note:
        workbench.notes[note] = None
    tuned, seconds = [], {}
    nested = [(rows[train], rows[test], _nested_splits(workbench, rows[train])) for train, test in inner]
    for technique in workbench.techniques:
        progress(technique.title)
        started = time.perf_counter()
        found = _candidate(workbench, technique, rows, inner)
        tuned.append(replace(found, nested_errors=_nested_errors(workbench, technique, nested)))
        seconds[technique.name] = time.perf_counter() - started
    usable = [item for item in tuned if not workbench.asks_labels(item.technique)]
    others = [item for item in tuned if workbench.asks_labels(item.technique)]
    return (*chosen_first(usable), *chosen_first(others)), seconds


def chosen_first(tuned: Sequence[TunedTechnique]) -> tuple[TunedTechnique, ...]:
    """Techniques by nested error, the one to take first: the simplest that none beats by a standard error.

    Beginning with rules, the best of the next complexity takes over only where it is closer by more than one
    standard error of the difference, over the configurations that both were asked for. The rule of one
    standard error is Breiman et al.'s (Classification and Regression Trees, 1984, section 3.4.3), of paired
    differences here.
    """
    ordered = sorted(tuned, key=lambda item: item.nested_mape)
    if not ordered:
        return ()
    taken: TunedTechnique | None = None
    for complexity in sorted({item.technique.complexity for item in ordered}):
        best = next(item for item in ordered if item.technique.complexity == complexity)
        if taken is None or _is_closer(best, taken):
            taken = best
    assert taken is not None
    return (taken, *(item for item in ordered if item is not taken))


def _is_closer(one: TunedTechnique, other: TunedTechnique) -> bool:
    """Whether the nested error of `one` is below that of `other` by more than a standard error."""
    gain = np.array(other.nested_errors) - np.array(one.nested_errors)
    if len(gain) < 2:
        return False
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def _candidate(
    workbench: _Workbench, technique: Technique, rows: Ints, splits: Sequence[Split]
) -> TunedTechnique:
    """A technique tuned on splits of some rows."""
    plan = workbench.plan
    x, y, _ = workbench.table(technique, rows)
    return tune(
        technique, workbench.pool, x, y, splits,
        search=plan.search, feature_selection=plan.feature_selection, seed=plan.seed,
    )  # fmt: skip


def _is_searched(plan: StudyPlan, technique: Technique) -> bool:
    """Whether a technique has more than one candidate."""
    chooses = plan.feature_selection.method != "none" and technique.linear
    return chooses or (plan.search.method != "none" and bool(technique.grid or technique.ranges))


def _nested_splits(workbench: _Workbench, rows: Ints) -> tuple[Split, ...]:
    """Splits of an inner training part; none where it is too small to be split again."""
    try:
        return _inner_splits(workbench.points.take(rows), workbench.plan)[0]
    except ConfigError:
        return ()


def _nested_errors(
    workbench: _Workbench, technique: Technique, nested: Sequence[tuple[Ints, Ints, Sequence[Split]]]
) -> tuple[float, ...]:
    """Errors [%] of the configurations of the inner test rows, tuned and fitted on the inner training rows.

    Where those are too small to be split again, or nothing is searched, the technique's defaults are fitted.
    """
    measured, configurations = workbench.points.measured, workbench.points.configurations
    errors: dict[int, list[float]] = {}
    for train, test, splits in nested:
        found = (
            _candidate(workbench, technique, train, splits)
            if splits and _is_searched(workbench.plan, technique)
            else TunedTechnique(
                technique=technique, parameters={}, columns=None, selection_mape=np.nan, candidates=0
            )
        )
        predicted = workbench.predict(found, workbench.fit(found, train), test)
        shares = np.abs(predicted - measured[test]) / measured[test] * 100.0
        for group, share in zip(configurations[test].tolist(), shares.tolist(), strict=True):
            errors.setdefault(group, []).append(share)
    return tuple(float(np.mean(errors[group])) for group in sorted(errors))


def _inner_splits(points: Points, plan: StudyPlan) -> tuple[tuple[Split, ...], str]:
    """Splits of a training part, and what was done instead where it has too few values for the rule."""
    rule = inner_rule(plan.validation, plan.selection)
    tried = [
        (rule, ""),
        (largest_held_out(points, rule), "selection by the largest values alone: too few for more"),
        (
            SplitRule(method="kfold", folds=rule.folds),
            f"selection by folds: too few values for {rule.method}",
        ),
    ]
    for step, note in tried:
        try:
            if step is not None:
                return splits_of(points, step, plan.seed, least=LEAST_INNER_TRAIN), note
        except ConfigError:
            if step is tried[-1][0]:
                raise
    raise AssertionError("folds either work or raise")


def _scores(workbench: _Workbench, rounds: Sequence[_ValidationRound]) -> tuple[TechniqueScore, ...]:
    scores = []
    for technique in workbench.techniques:
        errors = np.array([item.errors[technique.name] for item in rounds])
        training, selection, validation, _ = errors.mean(axis=0).tolist()
        scores.append(
            TechniqueScore(
                technique=technique,
                training_mape=training,
                selection_mape=selection,
                validation_mape=validation,
                fit_time_s=float(errors[:, 3].sum()),
            )
        )
    return tuple(sorted(scores, key=lambda score: workbench.rank(score.technique, score.selection_mape)))


def _mean_error(points: Points, test: Sequence[SplitPredictions], name: str) -> float:
    return float(np.mean([mape_percent(points.measured[item.rows], getattr(item, name)) for item in test]))


def _held_out(points: Points, rule: SplitRule, test: Sequence[SplitPredictions]) -> Trust:
    """The errors of the validation by what they tell about: within the range, between values, beyond them."""
    rows = np.concatenate([item.rows for item in test])
    errors = np.log(points.measured[rows]) - np.log(np.concatenate([item.blend_s for item in test]))
    if rule.method == "interpolation":
        return Trust(between={rule.column: tuple(errors.tolist())})
    if rule.method != "extrapolation":
        return Trust(folds=tuple(errors.tolist()))
    beyond, reach = {}, {}
    for name, bound in rule.bounds.items():
        values = points.columns[name].astype(np.float64)
        above = values[rows] > bound
        if above.any():
            beyond[name] = tuple(errors[above].tolist())
            reach[name] = float(values.max() / max(values[values <= bound].max(), 1e-9))
    return Trust(beyond=beyond, reach=reach)


def _terms(estimator: Any) -> int:
    """Coefficients of a fitted estimator of times that nothing shrinks; 0 where they are not counted."""
    regressor = getattr(estimator, "base_", estimator).pipeline_[-1]
    shrunk = getattr(regressor, "alpha", None) is not None and not hasattr(regressor, "chosen_")
    coefficients = getattr(regressor, "coef_", None)
    if shrunk or coefficients is None or np.ndim(coefficients) != 1:
        return 0
    return int(np.count_nonzero(coefficients)) + 1


def _card(item: TunedTechnique, pool: FeaturePool) -> dict[str, Any]:
    columns = item.columns
    return {
        "technique": item.technique.name,
        "parameters": dict(item.parameters),
        "features": None if columns is None else [feature_name(pool.features[index]) for index in columns],
        "selection_mape_percent": item.nested_mape,
        "candidates": item.candidates,
    }
