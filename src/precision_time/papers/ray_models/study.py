"""A study: techniques tuned and compared inside the training part, the best one asked about the rest.

Order, for each split of the validation: inner splits of the training part -> parameters and features of each
technique -> the technique with the lowest selection error -> fit on the whole training part -> error on the
points held out. Nothing before the last step has seen them. The model that is kept goes the same way over all
points, so that its own error is that of the validation and never that of its fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from .features import Feature, table, without_copies
from .forms import Part
from .grey import GreyBox
from .model import PerformanceModel
from .points import Points
from .search import Chosen, SearchSettings, choose, estimator_of, mape_percent
from .splits import LEAST_INNER, Rule, Split, inner_rule, largest_held_out, splits_of
from .techniques import Pool, Technique
from .terms import overlap_features

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is fitted, how it is chosen, and how it is judged."""

    features: tuple[Feature, ...]
    techniques: tuple[Technique, ...]
    columns: tuple[str, ...]
    """Numeric columns that are learned from."""
    categories: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    validation: Rule = field(default_factory=lambda: Rule(method="kfold"))
    selection: Rule | None = None
    """Inside the training part; None asks the same question there as the validation does."""
    search: SearchSettings = field(default_factory=SearchSettings)
    grey: GreyBox | None = None
    blend: int = 1
    """Models whose geometric mean is kept: 1 for the best technique alone."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A technique in the three errors [%], means over the validation's splits."""

    technique: Technique
    training_mape: float
    """On the points it was fitted on: how closely it follows them, not how well it predicts."""
    selection_mape: float
    """On inner splits of the training part: what it is chosen by."""
    validation_mape: float
    """On points that neither fit nor choice has seen."""
    fit_time_s: float
    """Search and fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Points held out, as the chosen models predicted them."""

    rows: Ints
    best_s: Floats
    """By the technique that was best in selection."""
    blend_s: Floats
    """By the geometric mean of the `blend` best ones; the same for a blend of one."""
    best: str
    """Name of that technique."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What came out."""

    plan: Plan
    points: Points
    scores: tuple[Score, ...]
    """Best in selection first."""
    left_out: Mapping[str, str]
    """Technique to why it was not tried."""
    asked: tuple[Asked, ...]
    """One per split of the validation."""
    model: PerformanceModel
    """Chosen and fitted on all points."""
    chosen: tuple[Chosen, ...]
    """The techniques in it, best first."""
    fit_time_s: float
    notes: tuple[str, ...] = ()
    """What was done otherwise than asked."""

    @property
    def validation_mape(self) -> float:
        """Error [%] of the technique chosen in each split, mean over the splits."""
        return _mean_error(self.points, self.asked, "best_s")

    @property
    def blend_mape(self) -> float:
        """The same of the blend."""
        return _mean_error(self.points, self.asked, "blend_s")


def run_study(points: Points, plan: Plan, *, keep: bool = True, tell: Tell = lambda _: None) -> Study:
    """Fit, choose, judge.

    Args:
        points: Measured points, with the columns of the grey box.
        plan: What to do.
        keep: Fit the model on all points, too; False where only the errors are wanted: then it is that of
            the first split.
        tell: Called with a word on what is being done.

    Raises:
        ConfigError: If a split cannot be made, or no technique can be used.
    """
    started = time.perf_counter()
    bench = _Bench.of(points, plan)
    outer = splits_of(points, plan.validation, plan.seed)
    rule = inner_rule(plan.validation, plan.selection)
    rounds = []
    for number, split in enumerate(outer, start=1):
        tell(f"validation split {number} of {len(outer)}")
        rounds.append(_Round.of(bench, split, rule, tell))
    tell("fitting on all points")
    final = _choose_all(bench, np.arange(len(points)), rule, tell) if keep else rounds[0].choices
    rows = np.arange(len(points)) if keep else outer[0].inside
    members = final[: plan.blend]
    fitted = [bench.fit(item, rows) for item in members]
    scores = _scores(bench, rounds)
    return Study(
        plan=plan,
        points=points,
        scores=scores,
        left_out=bench.left_out,
        asked=tuple(item.asked for item in rounds),
        model=_model(bench, members, fitted, scores, rounds),
        chosen=members,
        fit_time_s=time.perf_counter() - started,
        notes=tuple(bench.notes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bench:
    """Points as tables, ready to be cut."""

    points: Points
    plan: Plan
    pool: Pool
    x: Floats
    predicted_s: Floats | None
    techniques: tuple[Technique, ...]
    left_out: Mapping[str, str]
    notes: dict[str, None] = field(default_factory=dict)
    """What was done otherwise than asked."""

    @classmethod
    def of(cls, points: Points, plan: Plan) -> _Bench:
        """The table of all features, and the techniques that can use it."""
        if plan.grey is not None:
            points = points.with_columns(plan.grey.ask(points.columns))
        pool = pool_of(plan)
        left_out = {item.name: item.available(pool) for item in plan.techniques if item.available(pool)}
        techniques = tuple(item for item in plan.techniques if item.name not in left_out)
        if not techniques:
            reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
            raise ConfigError(f"No technique can be used: {reasons}. To fix: name others.")
        x = table(pool.features, points.columns, points.lines)
        predicted = None
        if plan.grey is not None:
            predicted = points.columns[plan.grey.PREDICTED].astype(np.float64)
        return cls(
            points=points,
            plan=plan,
            pool=pool,
            x=x,
            predicted_s=predicted,
            techniques=techniques,
            left_out=left_out,
        )

    def target(self, technique: Technique, rows: Ints) -> Floats:
        """What the technique learns: the time, or its ratio to the predicted one."""
        measured = self.points.measured[rows]
        return measured / self.divisor(technique, rows)

    def divisor(self, technique: Technique, rows: Ints) -> Floats:
        """What its answers are multiplied by."""
        if not technique.grey or self.predicted_s is None:
            return np.ones(len(rows))
        return self.predicted_s[rows]

    def fit(self, chosen: Chosen, rows: Ints) -> Any:
        """The chosen candidate fitted on some rows."""
        estimator = estimator_of(chosen, self.pool, self.plan.seed)
        return estimator.fit(self.x[rows], self.target(chosen.technique, rows))

    def predict(self, chosen: Chosen, fitted: Any, rows: Ints) -> Floats:
        """Times of some rows."""
        times: Floats = fitted.predict(self.x[rows]) * self.divisor(chosen.technique, rows)
        return times


@dataclass(frozen=True, kw_only=True, slots=True)
class _Round:
    """One split of the validation."""

    choices: tuple[Chosen, ...]
    errors: Mapping[str, tuple[float, float, float]]
    """Technique to training and validation error and seconds."""
    asked: Asked

    @classmethod
    def of(cls, bench: _Bench, split: Split, rule: Rule, tell: Tell) -> _Round:
        """Choose on the inside, fit there, ask the outside."""
        seconds: dict[str, float] = {}
        choices = _choose_all(bench, split.inside, rule, tell, seconds)
        measured = bench.points.measured
        errors, answers = {}, []
        for item in choices:
            started = time.perf_counter()
            fitted = bench.fit(item, split.inside)
            taken = seconds[item.technique.name] + time.perf_counter() - started
            answers.append(bench.predict(item, fitted, split.outside))
            errors[item.technique.name] = (
                mape_percent(measured[split.inside], bench.predict(item, fitted, split.inside)),
                mape_percent(measured[split.outside], answers[-1]),
                taken,
            )
        blended = np.exp(np.mean([np.log(item) for item in answers[: bench.plan.blend]], axis=0))
        asked = Asked(rows=split.outside, best_s=answers[0], blend_s=blended, best=choices[0].technique.name)
        return cls(choices=choices, errors=errors, asked=asked)


def pool_of(plan: Plan) -> Pool:
    """Every feature of a plan: those it names, those of the form `overlap`, those of the grey box.

    Features of the last two that black-box techniques were not given stay theirs alone.
    """
    features = list(plan.features)
    wanted = overlap_features(plan.roles)
    more = [item for item in without_copies(wanted) if item not in features]
    own = tuple(range(len(features), len(features) + len(more)))
    features += more
    grey: tuple[int, ...] = ()
    if plan.grey is not None:
        grey = tuple(range(len(features), len(features) + len(plan.grey.features)))
        features += plan.grey.features
    return Pool(
        features=tuple(features),
        overlap=tuple(features.index(item) for item in wanted),
        own=own,
        grey=grey,
    )


def _choose_all(
    bench: _Bench, rows: Ints, rule: Rule, tell: Tell, seconds: dict[str, float] | None = None
) -> tuple[Chosen, ...]:
    """Every technique tuned on inner splits of some rows, the lowest selection error first."""
    inner, note = _inner_splits(bench.points.take(rows), rule, bench.plan)
    if note:
        bench.notes[note] = None
    chosen = []
    for technique in bench.techniques:
        tell(technique.title)
        started = time.perf_counter()
        target = bench.target(technique, rows)
        chosen.append(choose(technique, bench.pool, bench.x[rows], target, inner, bench.plan.search))
        if seconds is not None:
            seconds[technique.name] = time.perf_counter() - started
    return tuple(sorted(chosen, key=lambda item: item.selection_mape))


def _inner_splits(points: Points, rule: Rule, plan: Plan) -> tuple[tuple[Split, ...], str]:
    """Splits of a training part by `rule`, and what was done instead where it has too few values for it."""
    tried = [
        (rule, ""),
        (largest_held_out(points, rule), "selection by the largest values alone: too few for more"),
        (Rule(method="kfold", folds=rule.folds), f"selection by folds: too few values for {rule.method}"),
    ]
    for step, note in tried:
        try:
            if step is not None:
                return splits_of(points, step, plan.seed, least=LEAST_INNER), note
        except ConfigError:
            if step is tried[-1][0]:
                raise
    raise AssertionError("folds either work or raise")


def _scores(bench: _Bench, rounds: Sequence[_Round]) -> tuple[Score, ...]:
    def mean(values: Iterator[float]) -> float:
        return float(np.mean([*values]))

    scores = [
        Score(
            technique=technique,
            training_mape=mean(item.errors[technique.name][0] for item in rounds),
            selection_mape=mean(
                choice.selection_mape
                for item in rounds
                for choice in item.choices
                if choice.technique is technique
            ),
            validation_mape=mean(item.errors[technique.name][1] for item in rounds),
            fit_time_s=sum(item.errors[technique.name][2] for item in rounds),
        )
        for technique in bench.techniques
    ]
    return tuple(sorted(scores, key=lambda score: score.selection_mape))


def _mean_error(points: Points, asked: Sequence[Asked], name: str) -> float:
    return float(np.mean([mape_percent(points.measured[item.rows], getattr(item, name)) for item in asked]))


def _model(
    bench: _Bench,
    members: Sequence[Chosen],
    fitted: Sequence[Any],
    scores: Sequence[Score],
    rounds: Sequence[_Round],
) -> PerformanceModel:
    from .export import parts_of

    points, plan = bench.points, bench.plan
    parts: list[Part] = []
    for estimator in fitted:
        parts += [replace(part, power=1.0 / len(fitted)) for part in parts_of(estimator, bench.pool.features)]
    greys = sum(item.technique.grey for item in members)
    return PerformanceModel(
        target=points.target,
        columns=plan.columns,
        categories={name: tuple(sorted(set(points.columns[name].tolist()))) for name in plan.categories},
        ranges={
            name: (float(points.columns[name].min()), float(points.columns[name].max()))
            for name in plan.columns
        },
        parts=tuple(parts),
        grey=plan.grey if greys else None,
        grey_power=greys / len(members),
        card={
            "techniques": [_card(item, bench.pool) for item in members],
            "points": len(points),
            "seed": plan.seed,
            "validation": plan.validation.method,
            "validation_mape_percent": _mean_error(points, [item.asked for item in rounds], "blend_s"),
            "scores": [
                {
                    "technique": score.technique.name,
                    "training_mape_percent": score.training_mape,
                    "selection_mape_percent": score.selection_mape,
                    "validation_mape_percent": score.validation_mape,
                }
                for score in scores
            ],
        },
    )


def _card(item: Chosen, pool: Pool) -> dict[str, Any]:
    columns = item.columns
    return {
        "technique": item.technique.name,
        "parameters": {name: value for name, value in item.parameters.items()},
        "features": None if columns is None else [pool.features[index].name for index in columns],
        "selection_mape_percent": item.selection_mape,
        "candidates": item.candidates,
    }
