"""T5: errors under every protocol, of speed-ups, of intervals, and by the nearest measured runs.

Coverage is cross-conformal: the intervals of the runs of one fold are calibrated on the out-of-fold residuals
of all other folds' runs, never on their own.

Reference: Vovk, Cross-conformal predictors, 2015; Barber et al., Annals of Statistics 49(1), 2021 (CV+).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np

from ..corpus.families import PrecisionFamily
from ..corpus.measurement import Measurement
from ..corpus.protocols import PROTOCOLS, size_class, source_name
from ..io import packaged_toml
from ..learn.metrics import errors_percent
from ..learn.novelty import run_index
from ..learn.table import MeasuredTable
from ..learn.training import HELD_OUT, OutOfFold, fit_intervals, row_weights
from ..papers.contract import Bools, Floats, Ints
from .cross_validation import Runs
from .metrics import LIMITS, mape_over_seeds, over_seeds, repeat_deviations, scored_groups, worst_groups
from .precision_tables import LEFT_OUT
from .tables import CellValue, Metric, ReportTable, Section, columns_of, ratio_text

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Nominal coverages."""
_TESTED = ("configuration", "model", "precision", "scale", "device", "source")
_LEAST_ROWS = 20
_SPEED_UP_PROTOCOLS = ("family", "model")
_NOMINAL = 0.9
_SAME_SOURCE = "T5.precision.same-source.mape_percent"
_NONE = (None, None, None, None, None)
_EVIDENCE_PROTOCOL = "configuration"
_BOUNDS = (0.9, 0.7, 0.5, 0.3, 0.0)
"""Least similarity of each class."""
_SHOWN, _CHUNK = 3, 500
_WORST = 10
TARGETS: Mapping[str, Mapping[str, float]] = packaged_toml(__package__, "data/targets.toml")
"""Targets by protocol [%]."""


def generalization_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T5 with its targets, its misses and its worst groups."""
    predicted = {name: [runs.ours(name, seed).step_time_s for seed in seeds] for name in _TESTED}
    predicted = {name: found for name, found in predicted.items() if not np.isnan(found[0]).all()}
    noise = repeat_deviations(runs.table)
    figures = _figures(runs, predicted)
    speed_table, speed_figures = _speed_ups(runs, seeds)
    coverage_table, coverage_figures, curve = _coverage(runs, seeds, predicted)
    figures |= speed_figures | coverage_figures
    repeated = float(np.nanmean(noise)) if not np.isnan(noise).all() else None
    summary, misses = _summary(runs, predicted, figures, repeated)
    items, measured_s = runs.table.measurements, runs.table.measured_s
    return Section(
        key="T5",
        title="Generalization to what was not seen",
        headline=_headline(summary, misses, repeated),
        tables=(
            summary,
            _matrix(runs, predicted, [item.precision for item in items], "precision", noise),
            _matrix(runs, predicted, [size_class(item.num_devices) for item in items], "devices"),
            _matrix(runs, predicted, [source_name(item) for item in items], "source", noise),
            speed_table,
            coverage_table,
            *evidence_tables(runs, seeds[0]),
            limits_table(runs.table, {name: found[0] for name, found in predicted.items()}, noise),
            *(_worst(runs, name, found[0], noise) for name, found in predicted.items()),
        ),
        figures=figures,
        plot={"measured_s": measured_s, "predicted_s": predicted["configuration"][0], "curve": curve},
    )


def _figures(runs: Runs, predicted: dict[str, list[Floats]]) -> dict[str, Metric]:
    measured_s = runs.table.measured_s
    rows: dict[str, tuple[str, Bools | slice]] = {name: (name, slice(None)) for name in predicted}
    precisions = np.array([item.precision for item in runs.table.measurements])
    kinds, counts = np.unique(precisions, return_counts=True)
    for kind in kinds[counts >= _LEAST_ROWS]:
        rows[f"configuration.{kind}"] = ("configuration", precisions == kind)
    found = {
        f"T5.{name}.mape_percent": mape_over_seeds(measured_s, predicted[protocol], mask)
        for name, (protocol, mask) in rows.items()
    }
    known = _pair_known(runs, len(predicted.get("precision", ())))
    if known:
        # Rows that no seed may score count as not predicted.
        scored = [np.where(k, s, np.nan) for k, s in zip(known, predicted["precision"], strict=True)]
        found[_SAME_SOURCE] = mape_over_seeds(measured_s, scored)
    return {name: figure for name, figure in found.items() if figure is not None}


def _pair_known(runs: Runs, seeds: int) -> list[Bools]:
    """Per seed, runs at an unseen precision whose model and device their own source ran at a known one.

    Elsewhere the pair is known from other software only, and the precision is not all that is unseen.
    """
    items = runs.table.measurements
    pairs = np.unique([f"{i.source}|{i.model}|{i.device}" for i in items], return_inverse=True)[1].reshape(-1)
    masks = []
    for seed in range(seeds):
        mask = np.zeros(len(items), dtype=bool)
        for fold in PROTOCOLS["precision"].split(items, seed, runs.folds):
            mask[fold.test] = np.isin(pairs[fold.test], pairs[fold.train])
        masks.append(mask)
    return masks if all(mask.any() for mask in masks) else []


def _summary(
    runs: Runs, predicted: dict[str, list[Floats]], figures: dict[str, Metric], noise: float | None
) -> tuple[ReportTable, list[str]]:
    rows: list[tuple[CellValue, ...]] = []
    misses: list[str] = []
    measured_s = runs.table.measured_s
    for name, found in predicted.items():
        errors = errors_percent(measured_s, found[0])
        tested = errors[~np.isnan(errors)]
        figure = figures[f"T5.{name}.mape_percent"]
        alike = _sources_alike(runs, errors)
        details = (len(tested), alike, *(float(value) for value in np.percentile(tested, (50, 90, 100))))
        rows.append(_row(PROTOCOLS[name].title, figure, details, TARGETS.get(name), misses))
        if name == "precision" and _SAME_SOURCE in figures:
            label = f"{PROTOCOLS[name].title}, the pair known from the same source"
            rows.append(_row(label, figures[_SAME_SOURCE], _NONE, TARGETS[name], misses))
    hard = {
        key: figure
        for key, figure in figures.items()
        if key.startswith("T5.configuration.") and key != "T5.configuration.mape_percent"
    }
    for key, figure in sorted(hard.items()):
        label = f"Unseen configurations, {key.split('.')[2]}"
        rows.append(_row(label, figure, _NONE, TARGETS["each-precision"], misses))
    for protocol, title in (("family", "configurations"), ("model", "models")):
        speed = figures.get(f"T5.speed-up.{protocol}.mape_percent")
        if speed is not None:
            label = f"Speed-up between two precisions, unseen {title}"
            rows.append(_row(label, speed, _NONE, TARGETS["speed-up"], misses))
    covered = figures.get("T5.coverage.model.covered_percent")
    if covered is not None:
        low, high = TARGETS["coverage"]["at_least"], TARGETS["coverage"]["at_most"]
        met = low <= covered.value <= high
        label = "Coverage of the 90 % interval, unseen models"
        if not met:
            misses.append(f"{label} ({covered.value:.1f} %)")
        verdict = "met" if met else "missed"
        shown = (label, None, covered.value, ratio_text(covered.spread), *_NONE[1:])
        rows.append((*shown, f"{low:.0f}-{high:.0f}", verdict))
    repeats = "" if noise is None else f"Repeats differ by {noise:.1f} % from their median on average."
    table = ReportTable(
        title="Protocols and targets, MAPE [%]",
        columns=columns_of(
            "protocol | >rows | >MAPE % | >spread | >sources alike | >median % | >p90 % | >max % | target | "
            "verdict"
        ),
        rows=tuple(rows),
        note=repeats + " Spread is the standard deviation over the seeds. Sources alike: the mean over the "
        "sources of each one's MAPE, of the first seed, as every other column but MAPE and spread.",
    )
    return table, misses


def _sources_alike(runs: Runs, errors: Floats) -> float:
    """Mean over the sources of the mean error of their tested rows."""
    names = np.array([source_name(item) for item in runs.table.measurements])
    tested = ~np.isnan(errors)
    return float(np.mean([errors[tested & (names == name)].mean() for name in np.unique(names[tested])]))


def _row(
    label: str,
    figure: Metric,
    details: Sequence[CellValue],
    target: Mapping[str, float] | None,
    misses: list[str],
) -> tuple[CellValue, ...]:
    wanted, verdict = "-", "-"
    if target is not None:
        wanted = f"at most {target['at_most']:g}, reach for {target['reach_for']:g}"
        met = figure.value <= target["at_most"]
        verdict = ("reached" if figure.value <= target["reach_for"] else "met") if met else "missed"
        if not met:
            misses.append(f"{label} ({figure.value:.1f} %)")
    return (label, details[0], figure.value, ratio_text(figure.spread), *details[1:], wanted, verdict)


def _headline(summary: ReportTable, misses: Sequence[str], noise: float | None) -> str:
    targeted = sum(row[-1] != "-" for row in summary.rows)
    verdict = f"{targeted - len(misses)} of {targeted} targets met."
    if misses:
        verdict += f" Missed: {'; '.join(misses)}."
    return verdict if noise is None else f"{verdict} Repeat noise of the corpus: {noise:.1f} %."


def _matrix(
    runs: Runs,
    predicted: dict[str, list[Floats]],
    names: Sequence[str],
    column: str,
    noise: Floats | None = None,
) -> ReportTable:
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
    return ReportTable(
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


def _speed_ups(runs: Runs, seeds: Sequence[int]) -> tuple[ReportTable, dict[str, Metric]]:
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
    measured_s = runs.table.measured_s
    for protocol in _SPEED_UP_PROTOCOLS:
        each = [speed_ups(runs.families, measured_s, runs.ours(protocol, seed).step_time_s) for seed in seeds]
        first, errors = each[0], each[0].errors_percent()
        if not len(errors):
            continue
        figures[f"T5.speed-up.{protocol}.mape_percent"] = over_seeds(
            [float(found.errors_percent().mean()) for found in each]
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
    table = ReportTable(
        title="Ratio of step times between two precisions of one configuration",
        columns=columns_of(
            "held out by | ratio | >families | >MAPE % | >median % | >measured | >predicted | >right order %"
        ),
        rows=tuple(rows),
        note="Both precisions unseen: held out by family, or with the whole model. Medians of the ratios.",
    )
    return table, figures


def _coverage(
    runs: Runs, seeds: Sequence[int], predicted: dict[str, list[Floats]]
) -> tuple[ReportTable, dict[str, Metric], dict[str, Floats]]:
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
    curve: dict[str, Floats] = {}
    for protocol in predicted:
        shares = np.array([np.nanmean(inside_intervals(runs, protocol, seed), axis=1) for seed in seeds])
        mean = shares.mean(axis=0) * 100.0
        rows.append((PROTOCOLS[protocol].title, *(float(value) for value in mean)))
        at = LEVELS.index(_NOMINAL)
        figures[f"T5.coverage.{protocol}.covered_percent"] = over_seeds(
            [float(s[at] * 100.0) for s in shares]
        )
        curve[protocol] = mean
    table = ReportTable(
        title="Runs inside their interval [%], by nominal coverage",
        columns=("held out", *(f">{level:.0%}" for level in LEVELS)),
        rows=tuple(rows),
        note="Intervals calibrated on the other folds only.",
    )
    return table, figures, curve


def _worst(runs: Runs, protocol: str, predicted_s: Floats, noise: Floats) -> ReportTable:
    found = worst_groups(runs.table, predicted_s, PROTOCOLS[protocol].group, noise=noise)
    return ReportTable(
        title=f"Worst groups: {PROTOCOLS[protocol].title.lower()}",
        columns=("group", ">rows", ">MAPE %", ">bias %", ">repeat noise %", "sources", "likely limit"),
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
        note=f"Held out: {PROTOCOLS[protocol].holds_out}. Groups of at least 5 rows. The limit is a rule "
        "of thumb: noise if repeats explain half of the error, missing facts if half of the rows have "
        "quality notes.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUps:
    """Measured and predicted ratios of step times, one per family and pair of precisions."""

    pairs: tuple[str, ...]
    """Such as `fp32 / fp16-mixed`, shape (n,)."""
    measured: Floats
    predicted: Floats

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
    names, measured, predicted = [], [], []
    for family in families:
        real, predicted_of = family.median(measured_s), family.median(predicted_s)
        # Sorted by the word, not by the time: which one is faster is part of the question.
        for p, q in combinations(sorted(family.rows), 2):
            if not np.isnan(predicted_of[p] * predicted_of[q]):
                names.append(f"{p} / {q}")
                measured.append(real[p] / real[q])
                predicted.append(predicted_of[p] / predicted_of[q])
    return SpeedUps(pairs=tuple(names), measured=np.array(measured), predicted=np.array(predicted))


def inside_intervals(runs: Runs, protocol: str, seed: int) -> Floats:
    """Whether each run lies in its intervals, shape (LEVELS, n): 1, 0, or NaN where it was not predicted.

    Args:
        runs: Out-of-fold predictions.
        protocol: What was held out.
        seed: Of folds and boosters.
    """
    tested = runs.ours(protocol, seed)
    calibrating = {name: runs.ours(name, seed) for name in HELD_OUT}
    weights, table = row_weights(runs.table), runs.table
    inside = np.full((len(LEVELS), len(table)), np.nan)
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
        ratio = table.measured_s[ours] / tested.step_time_s[ours]
        for index, level in enumerate(LEVELS):
            low, high = model.factors(table.jobs.features[ours], tested.novelty[ours], level)
            inside[index, ours] = (ratio >= low) & (ratio <= high)
    return inside


def _part(held: OutOfFold, rows: Ints) -> OutOfFold:
    return OutOfFold(**{item.name: getattr(held, item.name)[rows] for item in fields(OutOfFold)})


def limits_table(table: MeasuredTable, predicted: Mapping[str, Floats], noise: Floats) -> ReportTable:
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
    return ReportTable(
        title="Where the error lies: share of the summed error [%] in groups with each likely limit",
        columns=("protocol", *(f">{limit}" for limit in LIMITS), ">groups", f">in the {_WORST} heaviest"),
        rows=tuple(rows),
        note="Limits by the rule of thumb of the tables of worst groups; heaviest: most error in sum.",
    )


def evidence_tables(runs: Runs, seed: int) -> tuple[ReportTable, ReportTable]:
    """Error by similarity of the nearest run, and the worst misses with their nearest runs."""
    rows, similarity = nearest_known(runs, seed)
    predicted_s = runs.ours(_EVIDENCE_PROTOCOL, seed).step_time_s
    found = (runs, predicted_s, rows, similarity)
    return _by_similarity(*found), _worst_misses(*found)


def nearest_known(runs: Runs, seed: int) -> tuple[Ints, Floats]:
    """Of every run, the three nearest that its fold was fitted on and their similarity, shape (n, 3) each.

    Similarity is exp(-distance / 2) in the space that `predict` finds its evidence in, 1 for the same job.
    """
    jobs = runs.table.jobs
    rows = np.zeros((len(runs.table), _SHOWN), dtype=np.intp)
    similarity = np.zeros((len(runs.table), _SHOWN))
    for fold in PROTOCOLS[_EVIDENCE_PROTOCOL].split(runs.table.measurements, seed, runs.folds):
        known = run_index(jobs, fold.train)
        for part in np.array_split(fold.test, max(len(fold.test) // _CHUNK, 1)):
            rows[part], similarity[part] = known.nearest(jobs.take(part), _SHOWN)
    return rows, similarity


def _by_similarity(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> ReportTable:
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
    return ReportTable(
        title="Unseen configurations by the similarity of the nearest measured run",
        columns=columns_of(
            "similarity | >rows | >ours, MAPE % | >nearest run's factor | >formulas | >ours, median %"
        ),
        rows=tuple(lines),
        note="The nearest run's factor: the formulas times measured / formulas of that run.",
    )


def _worst_misses(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> ReportTable:
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
    return ReportTable(
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
