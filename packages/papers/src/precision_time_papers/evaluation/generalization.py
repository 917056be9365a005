"""T5: errors under every protocol, of speed-ups, of intervals, and by the nearest measured runs.

Coverage is cross-conformal: the intervals of the runs of one fold are calibrated on the out-of-fold residuals
of all other folds' runs, never on their own.

Reference: Vovk, Cross-conformal predictors, 2015; Barber et al., Annals of Statistics 49(1), 2021 (CV+).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import NamedTuple

import numpy as np

from precision_time.corpus.families import PrecisionFamily
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import PROTOCOLS, source_name
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.metrics import errors_percent
from precision_time.learn.novelty import run_index
from precision_time.learn.training import HELD_OUT, OutOfFold, fit_intervals, row_weights
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of

from ..contract import Bools, Floats, Ints
from .cross_validation import Runs
from .metrics import (
    LIMITS,
    mean_over_groups,
    over_seeds,
    repeat_deviations,
    scored_groups,
    worst_groups,
)
from .precision_tables import LEFT_OUT
from .targets import TARGETS, Question, summary_table, targets_headline

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Nominal coverages."""
_TESTED = ("configuration", "model", "precision", "scale", "device", "source")
_LEAST_ROWS = 20
_SPEED_UP_PROTOCOLS = ("family", "model")
_NOMINAL = 0.9
_EVIDENCE_PROTOCOL = "configuration"
_BOUNDS = (0.9, 0.7, 0.5, 0.3, 0.0)
"""Least similarity of each class."""
_SHOWN, _CHUNK = 3, 500
_WORST = 10
_RULE = (
    "What the errors show is the first that holds: repeats of a configuration differ by half as much; half "
    "of the rows have quality notes; the bias is seven tenths of the MAPE, so one factor for all; none."
)


def generalization_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T5 with its targets, its misses and its worst groups."""
    judged = {name: [served(runs, name, seed) for seed in seeds] for name in _TESTED}
    judged = {name: found for name, found in judged.items() if not np.isnan(found[0].step_time_s).all()}
    predicted = {name: [each.step_time_s for each in found] for name, found in judged.items()}
    noise = repeat_deviations(runs.table)
    speed_table, ratios = _speed_ups(runs, seeds)
    coverage_table, figures, curve = _coverage(runs, judged)
    questions = _questions(runs, predicted, ratios)
    for question in questions:
        figures |= question.figures()
    repeated = float(np.nanmean(noise)) if not np.isnan(noise).all() else None
    summary, misses = summary_table(questions, figures, repeated)
    items, measured_s = runs.table.measurements, runs.table.measured_s
    return Section(
        key="T5",
        title="Generalization to what was not seen",
        headline=targets_headline(summary, misses, repeated),
        tables=(
            summary,
            _matrix(runs, predicted, [item.precision for item in items], "precision", noise),
            _matrix(runs, predicted, [_size_class(item.num_devices) for item in items], "devices"),
            _matrix(runs, predicted, [source_name(item) for item in items], "source", noise),
            speed_table,
            coverage_table,
            *evidence_tables(runs, predicted[_EVIDENCE_PROTOCOL][0], seeds[0]),
            limits_table(runs.table, {name: found[0] for name, found in predicted.items()}, noise),
            *(_worst(runs, name, found[0], noise) for name, found in predicted.items()),
        ),
        figures=figures,
        plot={"measured_s": measured_s, "predicted_s": predicted["configuration"][0], "curve": curve},
    )


def _questions(
    runs: Runs, predicted: Mapping[str, list[Floats]], ratios: Sequence[Question]
) -> list[Question]:
    """Everything that has a row of its own in the table of targets, those with test rows."""
    items, measured_s = runs.table.measurements, runs.table.measured_s
    sources = [source_name(item) for item in items]
    errors = {
        name: tuple(errors_percent(measured_s, seconds) for seconds in found)
        for name, found in predicted.items()
    }

    def question(key: str, label: str, target: str, values: Sequence[Floats]) -> Question:
        goal = TARGETS.get(target)
        return Question(key=key, label=label, target=goal, errors=tuple(values), sources=sources)

    found = []
    for name, values in errors.items():
        title = PROTOCOLS[name].title
        found.append(question(name, title, name, values))
        if name == "precision":
            known = zip(values, _pair_known(runs, len(values)), strict=True)
            same = [np.where(mask, each, np.nan) for each, mask in known]
            label = f"{title}, the pair known from the same source"
            found.append(question("precision.same-source", label, name, same))
    precisions = np.array([item.precision for item in items])
    kinds, counts = np.unique(precisions, return_counts=True)
    for kind in kinds[counts >= _LEAST_ROWS]:
        own = [np.where(precisions == kind, each, np.nan) for each in errors["configuration"]]
        label = f"{PROTOCOLS['configuration'].title}, {kind}"
        found.append(question(f"configuration.{kind}", label, "each-precision", own))
    found += ratios
    return [item for item in found if not any(np.isnan(each).all() for each in item.errors)]


def _pair_known(runs: Runs, seeds: int) -> list[Bools]:
    """Per seed, runs at an unseen precision whose model and device their own source ran at a known one.

    Elsewhere the pair is known from other software only, and the precision is not all that is unseen.
    """
    items = runs.table.measurements
    pairs = np.unique([f"{i.source}|{i.model}|{i.device}" for i in items], return_inverse=True)[1].reshape(-1)
    masks = []
    for seed in range(seeds):
        mask = np.zeros(len(items), dtype=bool)
        for fold in runs.split("precision", seed):
            mask[fold.test] = np.isin(pairs[fold.test], pairs[fold.train])
        masks.append(mask)
    return masks


def _matrix(
    runs: Runs,
    predicted: dict[str, list[Floats]],
    names: Sequence[str],
    column: str,
    noise: Floats | None = None,
) -> Table:
    labels = np.array(names)
    errors = {name: errors_percent(runs.table.measured_s, found[0]) for name, found in predicted.items()}
    rows: list[tuple[CellValue, ...]] = []
    for label in dict.fromkeys(sorted(labels.tolist(), key=_natural)):
        mask = labels == label
        if mask.sum() >= _LEAST_ROWS:
            scores = (_mean(values[mask]) for values in errors.values())
            own = () if noise is None else (_mean(noise[mask]),)
            rows.append((label, int(mask.sum()), *own, *scores))
    extra = () if noise is None else (">repeat noise",)
    return Table(
        title=f"MAPE [%] by {column} and protocol",
        columns=(column, ">rows", *extra, *(f">{name}" for name in errors)),
        rows=tuple(rows),
        note=f"Values of fewer than {_LEAST_ROWS} rows are not listed.",
    )


def _natural(label: str) -> tuple[int, str]:
    digits = "".join(c for c in label.partition(" ")[0] if c.isdigit())
    number = int(digits) if label[:1].isdigit() and digits else 0
    return (10**9 if label.startswith("above") else number, label)


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _speed_ups(runs: Runs, seeds: Sequence[int]) -> tuple[Table, list[Question]]:
    rows: list[tuple[CellValue, ...]] = []
    questions: list[Question] = []
    sources = [source_name(item) for item in runs.table.measurements]
    measured_s = runs.table.measured_s
    for protocol in _SPEED_UP_PROTOCOLS:
        each = [
            speed_ups(runs.families, measured_s, served(runs, protocol, seed).step_time_s) for seed in seeds
        ]
        first, errors = each[0], each[0].errors_percent()
        if not len(errors):
            continue
        seen = {"family": "configurations", "model": "models"}[protocol]
        questions.append(
            Question(
                key=f"speed-up.{protocol}",
                label=f"Speed-up between two precisions, unseen {seen}",
                target=TARGETS["speed-up"],
                errors=tuple(found.errors_percent() for found in each),
                sources=[sources[row] for row in first.rows],
            )
        )
        names = np.array(first.pairs)
        usual = np.array([not set(name.split(" / ")) & set(LEFT_OUT) for name in names])
        masks = {"all": np.ones(len(names), dtype=bool), f"without {', '.join(LEFT_OUT)}": usual}
        masks |= {
            name: names == name
            for name in sorted(set(first.pairs), key=lambda n: (-int((names == n).sum()), n))
        }
        for pair, mask in masks.items():
            if not mask.any():
                continue
            right = np.mean((first.measured[mask] > 1.0) == (first.predicted[mask] > 1.0))
            scores = (float(errors[mask].mean()), float(np.median(errors[mask])))
            ratios = (f"{np.median(values[mask]):.2f}" for values in (first.measured, first.predicted))
            rows.append((protocol, pair, int(mask.sum()), *scores, *ratios, float(right * 100.0)))
    table = Table(
        title="Ratio of step times between two precisions of one configuration",
        columns=columns_of(
            "held out by | ratio | >families | >MAPE % | >median % | >measured | >predicted | >right order %"
        ),
        rows=tuple(rows),
        note="Both precisions unseen: held out by family, or with the whole model. Medians of the ratios.",
    )
    return table, questions


def _coverage(
    runs: Runs, judged: Mapping[str, Sequence[Served]]
) -> tuple[Table, dict[str, Metric], dict[str, Floats]]:
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
    curve: dict[str, Floats] = {}
    sources = [source_name(item) for item in runs.table.measurements]
    for protocol, found in judged.items():
        inside = [each.inside * 100.0 for each in found]
        mean = np.mean([np.nanmean(each, axis=1) for each in inside], axis=0)
        at = LEVELS.index(_NOMINAL)
        by_source = over_seeds([mean_over_groups(each[at], sources) for each in inside])
        rows.append((PROTOCOLS[protocol].title, *(float(value) for value in mean), by_source.value))
        figures[f"T5.coverage.{protocol}.covered_percent"] = over_seeds(
            [float(np.nanmean(each[at])) for each in inside]
        )
        figures[f"T5.coverage.{protocol}.sources_percent"] = by_source
        curve[protocol] = mean
    table = Table(
        title="Runs inside their interval [%], by nominal coverage",
        columns=("held out", *(f">{level:.0%}" for level in LEVELS), f">{_NOMINAL:.0%}, mean over sources"),
        rows=tuple(rows),
        note="Intervals calibrated on the other folds only.",
    )
    return table, figures, curve


def _worst(runs: Runs, protocol: str, predicted_s: Floats, noise: Floats) -> Table:
    found = worst_groups(runs.table, predicted_s, PROTOCOLS[protocol].group, noise=noise)
    return Table(
        title=f"Worst groups: {PROTOCOLS[protocol].title.lower()}",
        columns=(
            "group",
            ">rows",
            ">MAPE %",
            ">bias %",
            ">repeat noise %",
            "sources",
            "what the errors show",
        ),
        rows=tuple(
            (
                g.name,
                g.errors.n,
                g.errors.mape_percent,
                f"{g.errors.bias_percent:+.1f}",
                g.noise_percent,
                g.sources,
                g.limit,
            )
            for g in found
        ),
        note=f"Held out: {PROTOCOLS[protocol].holds_out}. Groups of at least 5 rows. {_RULE}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUps:
    """Measured and predicted ratios of step times, one per family and pair of precisions."""

    pairs: tuple[str, ...]
    """Such as `fp32 / fp16-mixed`, shape (n,)."""
    measured: Floats
    predicted: Floats
    rows: tuple[int, ...] = ()
    """A row of each family."""

    def errors_percent(self) -> Floats:
        """Absolute errors of the ratios [%]."""
        return errors_percent(self.measured, self.predicted)


def speed_ups(families: Sequence[PrecisionFamily], measured_s: Floats, predicted_s: Floats) -> SpeedUps:
    """Ratios of medians, for pairs whose runs were all predicted.

    Args:
        families: Runs equal in all but precision.
        measured_s: Shape (n,).
        predicted_s: Shape (n,), NaN where nothing was predicted.
    """
    names, measured, predicted, rows = [], [], [], []
    for family in families:
        real, predicted_of = family.median(measured_s), family.median(predicted_s)
        # Sorted by the word, not by the time: which one is faster is part of the question.
        for p, q in combinations(sorted(family.rows), 2):
            if not np.isnan(predicted_of[p] * predicted_of[q]):
                names.append(f"{p} / {q}")
                measured.append(real[p] / real[q])
                predicted.append(predicted_of[p] / predicted_of[q])
                rows.append(int(family.rows[p][0]))
    return SpeedUps(
        pairs=tuple(names), measured=np.array(measured), predicted=np.array(predicted), rows=tuple(rows)
    )


class Served(NamedTuple):
    """What is answered for runs whose fold neither trees nor intervals have seen."""

    step_time_s: Floats
    """The times that err least in percent, shape (n,); NaN where nothing was predicted."""
    inside: Floats
    """Whether each run lies in its intervals, shape (LEVELS, n): 1, 0, or NaN."""


def served(runs: Runs, protocol: str, seed: int) -> Served:
    """Answers of our predictor, from its medians and the intervals that the other folds are given.

    Args:
        runs: Out-of-fold predictions.
        protocol: What was held out.
        seed: Of folds and boosters.
    """
    tested = runs.ours(protocol, seed)
    calibrating = {name: runs.ours(name, seed) for name in HELD_OUT}
    weights, table = row_weights(runs.table), runs.table
    inside = np.full((len(LEVELS), len(table)), np.nan)
    step_time_s = np.full(len(table), np.nan)
    for fold in sorted(set(tested.folds.tolist()) - {-1}):
        runs.progress(f"intervals, {protocol}, fold {fold + 1}")
        ours, others = np.flatnonzero(tested.folds == fold), np.flatnonzero(tested.folds != fold)
        model = fit_intervals(
            table.take(others),
            {name: _part(held, others) for name, held in calibrating.items()},
            weights[others],
            runs.settings,
            seed,
        )
        median_s, novelty = tested.step_time_s[ours], tested.novelty[ours]
        scale = model.expected_error(table.jobs.features[ours], novelty)
        step_time_s[ours] = median_s * model.point(scale, novelty)
        ratio = table.measured_s[ours] / median_s
        for index, level in enumerate(LEVELS):
            low, high = model.bounds(scale, novelty, level)
            inside[index, ours] = (ratio >= low) & (ratio <= high)
    return Served(step_time_s, inside)


def _part(held: OutOfFold, rows: Ints) -> OutOfFold:
    return OutOfFold(**{item.name: getattr(held, item.name)[rows] for item in fields(OutOfFold)})


def limits_table(table: MeasuredTable, predicted: Mapping[str, Floats], noise: Floats) -> Table:
    """Share of the summed error of each protocol in groups of each limit, and in its ten worst groups.

    Args:
        table: Measured runs.
        predicted: Protocol to out-of-fold step times, shape (n,) each, NaN where nothing was predicted.
        noise: From `repeat_deviations`.
    """
    rows: list[tuple[CellValue, ...]] = []
    for name, predicted_s in predicted.items():
        groups = scored_groups(table, predicted_s, PROTOCOLS[name].group, noise=noise)
        mass = np.array([item.errors.n * item.errors.mape_percent for item in groups])
        limits = np.array([item.limit for item in groups])
        parts = (*(mass[limits == limit] for limit in LIMITS), np.sort(mass)[-_WORST:])
        shares = [float(part.sum() / max(mass.sum(), 1e-12) * 100.0) for part in parts]
        rows.append((PROTOCOLS[name].title, *shares[:-1], len(groups), shares[-1]))
    return Table(
        title="Where the error lies: share of the summed error [%] in groups by what their errors show",
        columns=("protocol", *(f">{limit}" for limit in LIMITS), ">groups", f">in the {_WORST} heaviest"),
        rows=tuple(rows),
        note=f"{_RULE} Heaviest: most error in sum.",
    )


def evidence_tables(runs: Runs, predicted_s: Floats, seed: int) -> tuple[Table, Table]:
    """Error by similarity of the nearest run, and the worst misses with their nearest runs."""
    rows, similarity = nearest_known(runs, seed)
    found = (runs, predicted_s, rows, similarity)
    return _by_similarity(*found), _worst_misses(*found)


def nearest_known(runs: Runs, seed: int) -> tuple[Ints, Floats]:
    """Of every run, the three nearest that its fold was fitted on and their similarity, shape (n, 3) each.

    Similarity is exp(-distance / 2) in the space that `predict` finds its evidence in, 1 for the same job.
    """
    jobs = runs.table.jobs
    rows = np.zeros((len(runs.table), _SHOWN), dtype=np.intp)
    similarity = np.zeros((len(runs.table), _SHOWN))
    for fold in runs.split(_EVIDENCE_PROTOCOL, seed):
        known = run_index(jobs, fold.train)
        for part in np.array_split(fold.test, max(len(fold.test) // _CHUNK, 1)):
            rows[part], similarity[part] = known.nearest(jobs.take(part), _SHOWN)
    return rows, similarity


def _by_similarity(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> Table:
    measured_s, analytical_s = runs.table.measured_s, runs.table.jobs.analytical_s
    ours = errors_percent(measured_s, predicted_s)
    transferred = analytical_s * measured_s[rows[:, 0]] / analytical_s[rows[:, 0]]
    alone, nearest = errors_percent(measured_s, analytical_s), errors_percent(measured_s, transferred)
    lines: list[tuple[CellValue, ...]] = []
    above = np.inf
    for least in _BOUNDS:
        mask = (similarity[:, 0] >= least) & (similarity[:, 0] < above)
        title = f"{least:g} and more" if above == np.inf else f"{least:g} to {above:g}"
        above = least
        if mask.any():
            scores = (float(errors[mask].mean()) for errors in (ours, nearest, alone))
            lines.append((title, int(mask.sum()), *scores, float(np.median(ours[mask]))))
    return Table(
        title="Unseen configurations by the similarity of the nearest measured run",
        columns=columns_of(
            "similarity | >rows | >ours, MAPE % | >nearest run's factor | >formulas | >ours, median %"
        ),
        rows=tuple(lines),
        note="The nearest run's factor: the formulas times measured / formulas of that run.",
    )


def _worst_misses(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> Table:
    table = runs.table
    errors = errors_percent(table.measured_s, predicted_s)
    lines: list[tuple[CellValue, ...]] = []
    for row in _one_per_pair(table.measurements, np.argsort(-errors)):
        shown = (
            f"{similarity[row, place]:.2f} {_label(table.measurements[like])}: "
            f"{table.measured_s[like] * 1e3:.4g}, {predicted_s[like] * 1e3:.4g}"
            for place, like in enumerate(rows[row])
        )
        seconds = (f"{value * 1e3:.4g}" for value in (table.measured_s[row], predicted_s[row]))
        lines.append((_label(table.measurements[row]), *seconds, float(errors[row]), "; ".join(shown)))
    return Table(
        title="Runs with the largest errors, and the measured runs nearest to them",
        columns=columns_of(
            "run | >measured ms | >predicted ms | >error % | nearest: similarity run: measured, predicted"
        ),
        rows=tuple(lines),
        note="One run per model and device. Predictions of the nearest runs are out of fold as well.",
    )


def _one_per_pair(measurements: tuple[Measurement, ...], order: Ints) -> Iterator[int]:
    """The first rows of the order, none of a model and device that came before."""
    seen: set[tuple[str, str]] = set()
    for row in order.tolist():
        pair = (measurements[row].model, measurements[row].device)
        if pair not in seen:
            seen.add(pair)
            yield row
        if len(seen) == _WORST:
            return


def _label(item: Measurement) -> str:
    batch = "" if item.global_batch_size is None else f" batch {item.global_batch_size:g}"
    return f"{item.model} {item.precision}{batch} on {item.num_devices} {item.device} ({item.source})"


def _size_class(num_devices: int) -> str:
    """Devices in classes."""
    bounds = (1, 8, 64, 1024)
    for low, high in zip((0, *bounds), bounds, strict=False):
        if num_devices <= high:
            return f"{low + 1} to {high}" if high > 1 else "1"
    return f"above {bounds[-1]}"
