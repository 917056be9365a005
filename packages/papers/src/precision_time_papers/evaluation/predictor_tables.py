"""T3 and T4: ours compared with predictors of the literature, and without each of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import source_name
from precision_time.corpus.splits import model_group
from precision_time.learn.metrics import errors_percent
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of, ratio_text

from ..contract import Bools, Floats
from ..registry import PREDICTORS, PRICED_ONLY
from .ablations import ABLATIONS
from .cross_validation import Runs
from .metrics import mape_over_seeds, mean_over_groups, over_seeds, ranking_tau
from .precision_tables import PAPER_OURS_PERCENT

_PROTOCOLS = ("configuration", "model")
_LEAST_ROWS = 20
_FULL = "ours"
ABLATION_FOLDS = 2
"""Of this table: what a part brings shows on half of the corpus as well, at two fifths of the time."""


def precision_label(item: Measurement) -> str:
    """Precision with its variant, as T3 lists them."""
    return f"{item.precision} ({item.precision_variant})" if item.precision_variant else item.precision


def predictors_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T3: errors of rows held out by configuration, and overall by model."""
    titles = {name: PREDICTORS[name].title for name in (_FULL, *PRICED_ONLY)}
    predicted = {
        protocol: {
            name: [runs.predict(name, protocol, seed).step_time_s for seed in seeds] for name in titles
        }
        for protocol in _PROTOCOLS
    }
    by_name = predicted["configuration"]
    overall = {
        protocol: {name: _overall(runs, seconds) for name, seconds in found.items()}
        for protocol, found in predicted.items()
    }
    by_source = {
        protocol: {name: _over_sources(runs, seconds) for name, seconds in found.items()}
        for protocol, found in predicted.items()
    }
    ours = overall["configuration"][_FULL]
    best = min(
        (name for name in titles if name not in (_FULL, "formulas")),
        key=lambda n: overall["configuration"][n].value,
    )
    return Section(
        key="T3",
        title="Predictors by precision",
        headline=(
            f"Over all precisions, configurations held out: ours {ours.value:.1f} %, mean over sources "
            f"{by_source['configuration'][_FULL].value:.1f} % (paper: {PAPER_OURS_PERCENT} %); "
            f"the best of the others ({titles[best]}) {overall['configuration'][best].value:.1f} % and "
            f"{by_source['configuration'][best].value:.1f} %."
        ),
        tables=(_by_precision(runs, by_name, titles), _summary(runs, predicted, by_source, titles)),
        figures={
            f"T3.{protocol}.{name}.mape_percent": figure
            for protocol, found in overall.items()
            for name, figure in found.items()
        },
    )


def _over_sources(runs: Runs, predicted: Sequence[Floats]) -> Metric:
    sources = [source_name(item) for item in runs.table.measurements]
    measured_s = runs.table.measured_s
    return over_seeds(
        [mean_over_groups(errors_percent(measured_s, seconds), sources) for seconds in predicted]
    )


def _overall(runs: Runs, predicted: Sequence[Floats]) -> Metric:
    return mape_over_seeds(runs.table.measured_s, predicted) or Metric(value=0.0)


def _by_precision(runs: Runs, predicted: Mapping[str, Sequence[Floats]], titles: Mapping[str, str]) -> Table:
    errors = {
        name: np.mean([errors_percent(runs.table.measured_s, seconds) for seconds in found], axis=0)
        for name, found in predicted.items()
    }
    labels = np.array([precision_label(item) for item in runs.table.measurements])
    kinds, counts = np.unique(labels, return_counts=True)
    parts = {str(kind): labels == kind for kind, n in zip(kinds, counts, strict=True) if n >= _LEAST_ROWS}
    few = np.isin(labels, kinds[counts < _LEAST_ROWS])
    if few.any():
        parts[f"fewer than {_LEAST_ROWS} rows each"] = few
    parts["all"] = np.ones(len(labels), dtype=bool)
    rows: list[tuple[CellValue, ...]] = [
        (name, int(mask.sum()), *(float(np.nanmean(errors[key][mask])) for key in titles))
        for name, mask in parts.items()
    ]
    sources = [source_name(item) for item in runs.table.measurements]
    means = (mean_over_groups(errors[key], sources) for key in titles)
    rows.append(("all, mean over sources", len(labels), *means))
    return Table(
        title="Unseen configurations: MAPE [%] by precision and variant",
        columns=("precision", ">rows", *(f">{text}" for text in titles.values())),
        rows=tuple(rows),
    )


def _summary(
    runs: Runs,
    predicted: Mapping[str, Mapping[str, Sequence[Floats]]],
    by_source: Mapping[str, Mapping[str, Metric]],
    titles: Mapping[str, str],
) -> Table:
    measured_s = runs.table.measured_s
    groups = [f"{model_group(item.model)} {item.source}" for item in runs.table.measurements]
    rows: list[tuple[CellValue, ...]] = []
    for protocol, found in predicted.items():
        for name, title in titles.items():
            seconds = found[name][0]
            errors = errors_percent(measured_s, seconds)
            tested = ~np.isnan(errors)
            ratio = (seconds / measured_s)[tested]
            rows.append(
                (
                    protocol,
                    title,
                    int(tested.sum()),
                    _overall(runs, found[name]).value,
                    by_source[protocol][name].value,
                    *(float(value) for value in np.percentile(errors[tested], (50, 90, 100))),
                    f"{np.median(ratio):.3f}",
                    ratio_text(ranking_tau(groups, measured_s, seconds), 3),
                )
            )
    return Table(
        title="All errors of all predictors",
        columns=columns_of(
            "held out by | predictor | >rows | >MAPE % | >mean over sources | >median % | >p90 % | >max % | "
            ">median ratio | >Kendall tau"
        ),
        rows=tuple(rows),
        note="Ratio is predicted / measured. Tau ranks runs of one model and source against each other. Our "
        "formulas alone: no trees, but constants fitted to steps of the whole corpus, these rows among them.",
    )


def ablations_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T4 under two protocols, with the errors of runs in reduced precision apart."""
    narrow = np.array([item.precision not in ("fp64", "fp32", "tf32") for item in runs.table.measurements])
    several = np.array([item.num_devices > 1 for item in runs.table.measurements])
    everything = np.ones(len(narrow), dtype=bool)
    columns: list[tuple[str, str, Bools]] = [
        ("configuration", "unseen configurations", everything),
        ("configuration", "reduced precision", narrow),
        ("configuration", "several devices", several),
        ("precision", "unseen precisions", everything),
    ]
    predictors: list[tuple[str, str, str, Callable[[str, int], Floats]]] = [
        ("full", "ours", "nothing left out", lambda p, s: runs.ours(p, s, folds=ABLATION_FOLDS).step_time_s),
        *((name, item.title, item.explains, _without(runs, name)) for name, item in ABLATIONS.items()),
        (
            "trees",
            "minus the trees",
            "the formulas alone, whose constants saw all rows",
            lambda p, s: _formulas(runs, p, s),
        ),
    ]
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
    for name, title, explains, predict in predictors:
        scores: list[float | None] = []
        for protocol, _, mask in columns:
            predicted = [predict(protocol, seed) for seed in seeds]
            score = mape_over_seeds(runs.table.measured_s, predicted, mask)
            scores.append(None if score is None else score.value)
            if mask is everything and score is not None:
                figures[f"T4.{protocol}.{name}.mape_percent"] = score
        rows.append((title, *scores, explains))
    return Section(
        key="T4",
        title="Ablations",
        headline=_losses(figures),
        tables=(
            Table(
                title=f"MAPE [%] without each part, {ABLATION_FOLDS} folds",
                columns=("predictor", *(f">{title}" for _, title, _ in columns), "what is left out"),
                rows=tuple(rows),
                note="Refitted for every row, on the same folds. Fewer folds than T5: compare rows only.",
            ),
        ),
        figures=figures,
    )


def _without(runs: Runs, name: str) -> Callable[[str, int], Floats]:
    return lambda protocol, seed: runs.ablated(name, protocol, seed, folds=ABLATION_FOLDS)


def _formulas(runs: Runs, protocol: str, seed: int) -> Floats:
    """The cost model, on the test rows of the protocol."""
    tested = ~np.isnan(runs.ours(protocol, seed, folds=ABLATION_FOLDS).step_time_s)
    return np.where(tested, runs.table.jobs.analytical_s, np.nan)


def _losses(figures: dict[str, Metric]) -> str:
    full = figures.get("T4.precision.full.mape_percent")
    losses = {
        name.split(".")[2]: figure.value - full.value
        for name, figure in figures.items()
        if full is not None and name.startswith("T4.precision.") and not name.startswith("T4.precision.full")
    }
    if full is None or not losses:
        return "There is no test row."
    titles = {name: item.title for name, item in ABLATIONS.items()}
    titles |= {"trees": "minus the trees"}
    worst = sorted(losses, key=lambda name: -losses[name])[:3]
    return (
        f"On unseen precisions ours errs by {full.value:.1f} %; what costs most: "
        + ", ".join(f"{titles[name]} ({losses[name]:+.1f} points)" for name in worst)
        + "."
    )
