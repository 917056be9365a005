"""The precision-aware paper's tables at its own scope: V100 and A100, 4 to 64 devices (arXiv 2604.16145).

Every predictor is fitted again, on folds that hold out configurations with their repeats and twins. To stay
within minutes, training rows of the tables by precision are those of the scope's chips, on any number of
devices; of the hold-out by model all rows of the corpus, with fewer trees. The full fit is no better there.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

import numpy as np

from precision_time.corpus.families import families_of
from precision_time.corpus.protocols import chip
from precision_time.corpus.splits import model_group
from precision_time.corpus.store import load_corpus
from precision_time.executor import Executor
from precision_time.learn.metrics import errors_percent
from precision_time.learn.training import require_fitting
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import Bools, Floats
from precision_time_papers.evaluation.importance import points_lost
from precision_time_papers.evaluation.metrics import mean_over_groups
from precision_time_papers.evaluation.precision_tables import (
    LEFT_OUT,
    PAPER_OURS_PERCENT,
    PAPER_SPREAD,
    PAPER_WORST_PERCENT,
    measured_cells,
    spreads,
)
from precision_time_papers.evaluation.pricing import priced_twice
from precision_time_papers.evaluation.refitted import refitted_section
from precision_time_papers.precision_aware import SINGLE_PRECISION, PrecisionAware

from . import STORED
from .claims import NO_FIGURE, Claim, PaperSection, at_least, at_most, percent
from .scope import BLIND, BLIND_FP32, FOLDS, OURS, SCOPE, STAGES, TREES_BY_MODEL, UNSEEN_SOURCE, Study
from .waits import predicted_waits, waits_table

NO_RUN = "no published run, n = 0"


def sections(*, executor: Executor, seeds: int = 1) -> tuple[Section, ...]:
    """The tables of docs/papers.md on this paper.

    Args:
        executor: What prices and fits.
        seeds: Of folds and boosters; errors are means over them.

    Raises:
        MissingExtraError: If LightGBM or scipy is not installed.
    """
    require_fitting()
    usable = [row for row in load_corpus() if row.usable]
    blind = [chip(row.device) in SCOPE["chips"] for row in usable]
    table = priced_twice(usable, blind=blind, over=executor)
    study = Study(table=table, executor=executor, seeds=seeds)
    return (
        by_precision(study),
        by_network(study),
        by_model(study),
        spread(study),
        importance(study),
        recorded(study),
        *refitted_section(),
    )


def cell(errors: Floats, mask: Bools) -> str | None:
    """Mean and median of the errors of some rows.

    >>> cell(np.array([1.0, 3.0, 8.0, np.nan]), np.array([True, True, True, True]))
    '4.0 (3.0)'
    """
    chosen = errors[mask & ~np.isnan(errors)]
    return f"{chosen.mean():.1f} ({np.median(chosen):.1f})" if len(chosen) else None


def by_precision(study: Study) -> Section:
    """The paper's table per precision, with its own hierarchy beside ours."""
    errors, precisions = study.errors, np.array([item.precision for item in study.runs])
    digest = {name: paper for name, paper in SCOPE["precisions"].items() if paper}
    parts = {name: study.in_scope & (precisions == name) for name in SCOPE["precisions"]}
    whole = np.logical_or.reduce([parts[name] for name in digest])
    shown = (BLIND_FP32, BLIND, STAGES, OURS, UNSEEN_SOURCE)

    def row(title: str, mask: Bools, blind: CellValue, aware: CellValue) -> tuple[CellValue, ...]:
        cells = {name: cell(errors[name], mask) for name in shown}
        known = int((mask & ~np.isnan(errors[OURS])).sum())
        before, after = ([cells[name] for name in names] for names in (shown[:2], shown[2:]))
        return (title, known, blind, *before, aware, *after)

    rows = [
        row(name, mask, SCOPE["precisions"][name].get("blind"), SCOPE["precisions"][name].get("aware"))
        for name, mask in parts.items()
    ]
    rows.append(
        row(f"all rows of {', '.join(digest)}", whole, f"up to {PAPER_WORST_PERCENT}", PAPER_OURS_PERCENT)
    )
    means = {
        name: (
            float(np.mean([np.nanmean(errors[name][parts[key]]) for key in digest])),
            mean_over_groups(np.where(whole, errors[name], np.nan), study.sources),
        )
        for name in shown
    }
    papers = [float(np.mean([paper[key] for paper in digest.values()])) for key in ("blind", "aware")]
    for place, title in enumerate((f"mean of the {len(digest)} precisions", "mean over sources")):
        one = {name: f"{found[place]:.1f}" for name, found in means.items()}
        sides = papers if place == 0 else [None, None]
        ours = (one[STAGES], one[OURS], one[UNSEEN_SOURCE])
        rows.append((title, None, sides[0], one[BLIND_FP32], one[BLIND], sides[1], *ours))
    figures = {
        f"precision.{name.replace(', ', '-').replace(' ', '-')}.mape_percent": Metric(
            value=float(np.nanmean(errors[name][whole]))
        )
        for name in shown
    }
    return PaperSection(
        key="precision",
        title="Error by precision at the paper's scope",
        headline=_verdict(errors, parts, whole, means),
        claims=_claims(study, parts, whole),
        tables=(
            Table(
                title=f"{', '.join(SCOPE['chips'])}, {SCOPE['devices'][0]} to {SCOPE['devices'][1]} devices, "
                f"unseen configurations: mean (median) error [%]",
                columns=columns_of(
                    "precision | >n | >blind, paper | >blind here, fitted on fp32 | "
                    ">blind here, fitted on all | >aware, paper | >hierarchical here | >ours | "
                    ">ours, its source held out"
                ),
                rows=tuple(rows),
                note="Columns of the paper: per precision as a digest gives them, unverified; the row over "
                "all rows is the abstract's. Blind: the same predictor, formulas and trees without the "
                f"precision; fp32: runs in {' and '.join(SINGLE_PRECISION)}. Hierarchical: the paper's "
                f"three stages, over our formulas (papers/hierarchical.py). {FOLDS} folds, fitted on the "
                f"{int(study.on_chips.sum()):,} rows on {' and '.join(SCOPE['chips'])} of any number of "
                "devices; every cell of a row is of the same n runs.",
            ),
        ),
        figures=figures,
    )


def _claims(study: Study, parts: Mapping[str, Bools], whole: Bools) -> tuple[Claim, ...]:
    errors = study.errors
    stated = np.array([not item.precision_inferred for item in study.runs])
    scope = f"{' and '.join(SCOPE['chips'])}, {SCOPE['devices'][0]} to {SCOPE['devices'][1]} devices"

    def known(name: str, mask: Bools) -> Floats:
        return errors[name][mask & ~np.isnan(errors[name])]

    def over_settings(words: str, name: str, mask: Bools, knew: str) -> Claim:
        of_it = known(name, mask)
        sources = mean_over_groups(np.where(mask, errors[name], np.nan), study.sources)
        return Claim(
            claim=f"the precision-aware predictor's error over its settings{words}",
            paper=f"{PAPER_OURS_PERCENT} %",
            ours=f"{sources:.1f} % as the mean over sources; of rows "
            f"{percent(of_it.mean(), np.median(of_it))}",
            rows=len(of_it),
            scope=f"{scope}; {knew}",
            verdict=at_most(max(sources, of_it.mean()), PAPER_OURS_PERCENT),
        )

    blind = known(BLIND_FP32, parts["fp16-mixed"])
    inferred = 1.0 - float(stated[whole].mean())
    known_cluster = "other runs of the same source are known"
    found = [
        over_settings("", OURS, whole, known_cluster),
        over_settings(
            ", labels that the source states",
            *(OURS, whole & stated, f"{known_cluster}; the other {inferred:.0%} of the labels are inferred"),
        ),
        over_settings(", a cluster never seen", UNSEEN_SOURCE, whole, "no run of the same source is known"),
        Claim(
            claim="a predictor blind to the precision errs by up to",
            paper=f"{PAPER_WORST_PERCENT} %",
            ours=f"{blind.mean():.1f} % on fp16-mixed, fitted on fp32",
            rows=len(blind),
            scope=scope,
            verdict=at_least(blind.mean(), PAPER_WORST_PERCENT),
        ),
    ]
    for name, paper in SCOPE["precisions"].items():
        if paper and len(of_it := known(OURS, parts[name])):
            found.append(
                Claim(
                    claim=f"its error in {name} (digest, unverified)",
                    paper=f"{paper['aware']} %",
                    ours=percent(of_it.mean(), np.median(of_it)),
                    rows=len(of_it),
                    scope=f"{scope}; {known_cluster}",
                    verdict=at_most(of_it.mean(), paper["aware"]),
                )
            )
    return tuple(found)


def _verdict(
    errors: Mapping[str, Floats],
    parts: Mapping[str, Bools],
    whole: Bools,
    means: Mapping[str, tuple[float, float]],
) -> str:
    ours, stages = (errors[name][whole] for name in (OURS, STAGES))
    lower: list[str] = []
    higher: list[str] = []
    for name, paper in SCOPE["precisions"].items():
        if paper and (parts[name] & ~np.isnan(errors[OURS])).any():
            error = float(np.nanmean(errors[OURS][parts[name]]))
            (lower if error < paper["aware"] else higher).append(f"{name} ({error:.1f}, {paper['aware']})")
    blind = {name: float(np.nanmean(errors[name][parts["fp16-mixed"]])) for name in (BLIND, BLIND_FP32)}
    unseen = errors[UNSEEN_SOURCE][whole]
    text = (
        f"As the mean over sources ours errs by {means[OURS][1]:.1f} % when other runs of the same source "
        f"are known, by {means[UNSEEN_SOURCE][1]:.1f} % when they are not; of rows by "
        f"{np.nanmean(ours):.1f} % (median {np.nanmedian(ours):.1f}; n = {int((~np.isnan(ours)).sum()):,}) "
        f"and {np.nanmean(unseen):.1f} %. The paper's predictor, its hierarchy over our formulas, errs by "
        f"{np.nanmean(stages):.1f} % of rows; the paper states {PAPER_OURS_PERCENT} %, and how it split its "
        "runs is not known. On fp16-mixed a blind predictor "
        f"fitted on fp32 errs by {blind[BLIND_FP32]:.1f} % (paper: up to {PAPER_WORST_PERCENT} %), fitted on "
        f"all precisions by {blind[BLIND]:.1f} %."
    )
    for names, word in ((lower, "Below"), (higher, "Not below")):
        if names:
            text += f" {word} the digest's figure: {', '.join(names)}."
    return text


def by_network(study: Study) -> Section:
    """Ours by network and precision; cells without a run say so."""
    precisions = np.array([item.precision for item in study.runs])
    rows: list[tuple[CellValue, ...]] = []
    missing: dict[str, list[str]] = {}
    for name, what in SCOPE["networks"].items():
        mine = study.in_scope & study.matching(what)
        cells: list[CellValue] = []
        for precision in SCOPE["precisions"]:
            mask = mine & (precisions == precision)
            found = cell(study.errors[OURS], mask)
            cells.append(NO_RUN if found is None else f"{found}, n = {int(mask.sum())}")
            if found is None:
                missing.setdefault(name, []).append(precision)
        rows.append((name, int(mine.sum()), *cells))
    lacks = "; ".join(f"{name} ({', '.join(found)})" for name, found in missing.items())
    cells_in_all = len(rows) * len(SCOPE["precisions"])
    return Section(
        key="networks",
        title="By network",
        headline=f"{cells_in_all - sum(map(len, missing.values()))} of {cells_in_all} cells have runs."
        + (f" No published run: {lacks}." if missing else ""),
        tables=(
            Table(
                title="Ours at the paper's scope, unseen configurations: mean (median) error [%], n",
                columns=("network", ">n", *(f">{name}" for name in SCOPE["precisions"])),
                rows=tuple(rows),
                note="The paper has ResNet-50, BERT and GPT-2 (digest, unverified), no figure per network. "
                "The column n has other precisions in it as well. Searched for without success: "
                f"{'; '.join(SCOPE['searched']['found_nothing'])}.",
            ),
        ),
    )


def by_model(study: Study) -> Section:
    """Hold-out by model: networks held out together with all their rows."""
    rows: list[tuple[CellValue, ...]] = []
    said, claims = [], []
    formulas = errors_percent(study.table.measured_s, study.table.measured.jobs.analytical_s)
    for name, (mask, errors, stages) in study.held_out.items():
        for scope, chosen in (("all", mask), ("the paper's", mask & study.in_scope)):
            if not chosen.any():
                rows.append((name, scope, NO_RUN, *[None] * 6))
                continue
            architectures = {model_group(study.runs[row].model) for row in np.flatnonzero(chosen)}
            macro = mean_over_groups(np.where(chosen, errors, np.nan), study.sources)
            rows.append(
                (
                    *(name, scope, int(chosen.sum()), len(architectures)),
                    *(float(np.mean(errors[chosen])), float(np.median(errors[chosen])), macro),
                    *(cell(stages, chosen), cell(formulas, chosen)),
                )
            )
        if mask.any():
            alone = formulas[mask].mean()
            said.append(
                f"{name} {errors[mask].mean():.1f} % (formulas alone {alone:.1f} %; n = {int(mask.sum()):,})"
            )
            claims.append(
                Claim(
                    claim=f"its error on {name} held out as a group",
                    paper="-",
                    scope=f"all devices; no run of the group is known; formulas alone {alone:.1f} %",
                    ours=percent(errors[mask].mean(), np.median(errors[mask])),
                    rows=int(mask.sum()),
                    verdict=NO_FIGURE,
                )
            )
    return PaperSection(
        key="models",
        claims=tuple(claims),
        title="Networks held out as a group",
        headline=f"Unseen with all their rows: {', '.join(said)}. The paper's figure over its settings is "
        f"{PAPER_OURS_PERCENT} %; of its hold-out by model there is none.",
        tables=(
            Table(
                title="Hold-out by model",
                columns=columns_of(
                    "held out | scope | >n | >architectures | >mean % | >median % | >mean over sources % | "
                    ">hierarchical, mean (median) % | >formulas, mean (median) %"
                ),
                rows=tuple(rows),
                note=f"Fitted on all other rows of the corpus with {TREES_BY_MODEL:.0%} of the trees. Vision "
                "transformers: all workloads of that family. Formulas: the cost model before anything is "
                "learned; its constants have seen these rows (see the constants below).",
            ),
        ),
        figures={
            f"models.{name}.mape_percent": Metric(value=float(errors[mask].mean()))
            for name, (mask, errors, _) in study.held_out.items()
            if mask.any()
        },
    )


def spread(study: Study) -> Section:
    """What the precision alone does to measured times, at the paper's scope and over all rows."""
    rows: list[tuple[CellValue, ...]] = []
    said: list[str] = []
    claims: list[Claim] = []
    everything = np.ones(len(study.runs), dtype=bool)
    for title, mask in (("the paper's scope", study.in_scope), ("all rows", everything)):
        chosen = np.flatnonzero(mask)
        runs, measured_s = [study.runs[row] for row in chosen], study.table.measured_s[chosen]
        families = families_of(runs)
        ratios = np.array([item.ratio for item in spreads(measured_s, families, left_out=LEFT_OUT)])
        cells = measured_cells(families, measured_s)
        mixed = np.array(cells.get(("fp32", "fp16-mixed"), [np.nan]))
        rows.append(
            (
                *(title, len(ratios), f"{ratios.max():.2f}", f"{np.median(ratios):.2f}"),
                float((ratios >= PAPER_SPREAD).mean() * 100.0),
                *(len(mixed), float(mixed.mean()), float(np.median(mixed)), float(mixed.max())),
            )
        )
        said.append(
            f"of {title} the widest spread is {ratios.max():.1f}x, the median {np.median(ratios):.2f}x; "
            f"fp32's time taken for fp16-mixed errs by {mixed.mean():.0f} % (median {np.median(mixed):.0f}, "
            f"at most {mixed.max():.0f}; n = {len(mixed)})"
        )
        claims.append(
            Claim(
                claim=f"precision alone moves the time, measured, {title}",
                paper=f"about {PAPER_SPREAD}x",
                ours=f"up to {ratios.max():.1f}x (median {np.median(ratios):.2f}x)",
                rows=len(ratios),
                verdict=at_least(ratios.max(), PAPER_SPREAD),
            )
        )
    paper = (f"about {PAPER_SPREAD}", *[None] * 5, f"up to {PAPER_WORST_PERCENT}")
    rows.append(("the paper's abstract", None, *paper))
    return PaperSection(
        key="spread",
        claims=tuple(claims),
        title="What the precision alone does",
        headline=f"Measured times, nothing predicted: {'; '.join(said)}. The abstract: about {PAPER_SPREAD}x "
        f"and up to {PAPER_WORST_PERCENT} %.",
        tables=(
            Table(
                title="Runs equal in everything but precision",
                columns=columns_of(
                    "rows | >n configurations | >widest spread | >median spread | "
                    ">at or above the paper's % | >n with fp32 and fp16-mixed | "
                    ">error of fp32's time, mean % | >median % | >most %"
                ),
                rows=tuple(rows),
                note="Spread: slowest over fastest precision, fp64 left out. Error: |t(fp32) - "
                "t(fp16-mixed)| / t(fp16-mixed): of a predictor that says fp32's time of an fp16-mixed run.",
            ),
        ),
    )


def importance(study: Study) -> Section:
    """Points of error lost when a feature that the paper names is permuted."""
    fold = study.folds[0][0]
    fitted = PrecisionAware().fit(study.table, fold.train).predictor
    jobs = study.table.measured.jobs
    test = fold.test[study.in_scope[fold.test]]
    columns = {
        name: [jobs.names.index(feature) for feature in features]
        for name, features in SCOPE["features"].items()
    }
    lost = points_lost(fitted, jobs.take(test), study.table.measured_s[test], columns, seed=0)
    mixed = test[[study.runs[row].precision == "fp16-mixed" for row in test]]
    terms = {
        name: [place for place in found if jobs.names[place].startswith("share.")]
        for name, found in columns.items()
    }
    rows: list[tuple[CellValue, ...]] = []
    for name, points in sorted(lost.items(), key=lambda item: -item[1]):
        share = None
        if terms[name] and len(mixed):
            share = float(jobs.features[mixed][:, terms[name]].sum(axis=1).mean() * 100.0)
        rows.append((name, ", ".join(SCOPE["features"][name]), f"{points:+.2f}", share))
    first = max(lost, key=lambda name: lost[name])
    return Section(
        key="importance",
        title="Features that the paper names",
        headline=f"Of the {len(lost)} features the trees draw most from {first} "
        f"({lost[first]:+.2f} points); the digest names them and gives no figures.",
        tables=(
            Table(
                title=f"Permuted among {len(test):,} unseen runs at the paper's scope",
                columns=columns_of(
                    "feature (digest, unverified) | ours | >points of MAPE lost | "
                    ">share of an fp16-mixed step %"
                ),
                rows=tuple(rows),
                note="The formulas keep their seconds, which contain all of these: what is permuted is what "
                "the trees read. Loss scaling is priced by formulas alone, trees do not read it. First fold.",
            ),
        ),
    )


def recorded(study: Study) -> Section:
    """Which rows train the communication stage, and what campaigns record of a run."""
    jobs, sync_s = study.table.measured.jobs, study.table.measured.sync_s
    several, waits = jobs.exposed_s > 0.0, ~np.isnan(sync_s)
    sources = np.array(study.sources)
    known = sorted(set(sources[several & waits].tolist()), key=lambda name: -int((sources == name).sum()))
    others = several & ~np.isin(sources, known)
    rows: list[tuple[CellValue, ...]] = [
        (name, int((here := several & (sources == name)).sum()), int((here & waits).sum()),
         int((here & ~waits).sum()))
        for name in known
    ]  # fmt: skip
    rows.append((f"{len(set(sources[others].tolist()))} others", int(others.sum()), 0, int(others.sum())))
    rows.append(("all", int(several.sum()), int((several & waits).sum()), int((several & ~waits).sum())))
    campaigns = _campaigns()
    share = (several & waits).sum() / max(several.sum(), 1)
    return Section(
        key="recorded",
        title="Compute, communication and epochs, recorded apart",
        headline=f"The communication stage learns from {int(several.sum()):,} runs with exposed "
        f"communication; {int((several & waits).sum()):,} of them ({share:.0%}), of {len(known)} sources, "
        "measured the wait.",
        tables=(
            Table(
                title="What the communication stage is fitted on",
                columns=columns_of(
                    "source | >n | >measured wait | >rest of the step after corrected compute"
                ),
                rows=tuple(rows),
            ),
            waits_table(study.table, study.sources, predicted_waits(study.table)),
            Table(
                title="What campaigns of this package recorded, runs with a value",
                columns=columns_of(
                    "campaign | >n | >several workers | >step time | >gradient wait | >epoch time | "
                    ">start-up | >whole training"
                ),
                rows=campaigns,
                note="Compute is step time less gradient wait; one worker waits for none.",
            ),
        ),
    )


def _campaigns() -> tuple[tuple[CellValue, ...], ...]:
    """Runs of each campaign that ships, with how many have a value in each column."""
    columns = ("step_time_s", "gradient_wait_s", "epoch_time_s", "group_start_s", "total_time_s")
    found: list[tuple[CellValue, ...]] = []
    for path in sorted(STORED.glob("*.csv")):
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        several = sum(int(row["num_workers"]) > 1 for row in rows)
        filled = (sum(bool(row.get(name)) for row in rows) for name in columns)
        found.append((path.stem, len(rows), several, *filled))
    return tuple(found)
