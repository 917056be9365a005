"""PredictDDL's tables: its protocol on campaigns of image classifiers, the cost of an answer, the search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import model_group
from precision_time.corpus.store import load_corpus
from precision_time.executor import Executor
from precision_time.learn.training import require_fitting
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of, ratio_text
from precision_time_papers.cherrypick.replay import Replayed, ReplayJob, replay
from precision_time_papers.contract import FeatureTable, Floats, Ints, JobViews
from precision_time_papers.ernest import Ernest
from precision_time_papers.evaluation.costs import REQUESTS, reading_costs
from precision_time_papers.evaluation.cross_validation import timed
from precision_time_papers.evaluation.measured_jobs import measured_jobs
from precision_time_papers.evaluation.replay import (
    drawn_replay_rows,
    replay_headline,
    replay_jobs,
    replay_metrics,
    summary_table,
)
from precision_time_papers.per_job import STEPS_PER_RUN, Configurations, MeasurementBudget
from precision_time_papers.precision_aware import PrecisionAware
from precision_time_papers.predictddl.columns import BLIND
from precision_time_papers.predictddl.estimator import regression_inputs
from precision_time_papers.predictddl.fitting import choose
from precision_time_papers.predictddl.trainer import examples_of
from precision_time_papers.registry import Needs

from .claims import NO_FIGURE, Claim, PaperSection, at_least, percent
from .embedding import embedding_sections
from .input_share import input_sections
from .one_campaign import (
    BOTH,
    CHOSEN,
    OURS,
    PER_JOB,
    POOLED,
    QUESTIONS,
    SETTINGS,
    SIZED,
    THREE,
    TITLES,
    Answers,
    Campaign,
    answers_of,
    campaign_of,
    inputs_at,
)
from .own_campaign import own_campaign

PAPER_LOWER_ERROR, PAPER_LOWER_TIME = 9.8, 10.3
"""The abstract: up to so many times lower average error and inference time than Ernest."""
SOURCE = "pytorch-gpu-benchmark"
TEST_NETWORKS: Mapping[str, str] = {
    "EfficientNet-B0": "efficientnet_b0",
    "ResNeXt50": "resnext50_32x4d",
    "VGG16": "vgg16",
    "AlexNet": "alexnet",
    "ResNet18": "resnet18",
    "DenseNet161": "densenet161",
    "MobileNetV3": "mobilenet_v3_large",
    "SqueezeNet": "squeezenet1_0",
}
"""The eight that the paper shows by name, as remembered (papers.md 3.5), and the network that is meant."""
DRAWS: Mapping[str, int] = {"configuration": 5, "architecture": 3, "count": 1}
"""Draws of folds of each question; leaving a number of workers out needs no draw."""
REPLAYED, REPLAY_ROWS, REPLAY_FOLDS = 60, 4000, 2
"""Jobs that the search is replayed on, other rows that ours is fitted to besides, and folds."""
_KINDS = tuple(name for name in TITLES if name.startswith(f"{CHOSEN}:"))
_SHOWN = (CHOSEN, *_KINDS, THREE, BOTH, SIZED, POOLED, PER_JOB, OURS)


def sections(*, executor: Executor, seeds: int = 1) -> tuple[Section, ...]:
    """The tables of docs/papers.md for PredictDDL.

    Args:
        executor: What runs the folds.
        seeds: Multiplies the draws of folds.

    Raises:
        MissingExtraError: If LightGBM, scipy or scikit-learn is not installed.
    """
    require_fitting()
    corpus = [item for item in load_corpus() if item.usable]
    campaigns = [found for found in (published_campaign(corpus), own_campaign()) if found is not None]
    draws = {key: count * seeds for key, count in DRAWS.items()}
    parts = []
    for campaign in campaigns:
        answers = answers_of(campaign, draws, executor=executor)
        parts.append(_protocol_section(campaign, answers))
    return (
        *parts,
        *input_sections(),
        *embedding_sections(),
        _cost_section(campaigns[0]),
        _search_section(corpus, executor),
    )


def published_campaign(corpus: Sequence[Measurement]) -> Campaign | None:
    """The torchvision networks of one source in fp32 under its most frequent software."""
    rows = [item for item in corpus if item.source == SOURCE and item.precision == "fp32"]
    if not rows:
        return None
    stack = Counter(item.stack for item in rows).most_common(1)[0][0]
    rows = [item for item in rows if item.stack == stack]
    counts = sorted({item.num_devices for item in rows})
    return campaign_of(
        rows,
        key="published",
        title=f"{len({item.model for item in rows})} torchvision networks, public rows",
        note=f"{SOURCE}: {len(rows)} runs in fp32 on {len({item.device for item in rows})} types of GPU, "
        f"{counts[0]} to {counts[-1]} of them, one software, one batch per device. The paper's own rows are "
        "not public.",
    )


def _protocol_section(campaign: Campaign, answers: Mapping[str, Answers]) -> Section:
    tables = [_errors_table(campaign, key, found) for key, found in answers.items()]
    figures = {
        f"predictddl.{campaign.key}.{key}.{name}.{which}_percent": Metric(value=value)
        for key, found in answers.items()
        for name in found.predicted_s
        for which, value in _summary(found.errors_percent(name)).items()
    }
    words = [verdict(QUESTIONS[key].title, found) for key, found in answers.items()]
    if "architecture" in answers:
        tables.append(_networks_table(campaign, answers["architecture"]))
        words.insert([*answers].index("architecture") + 1, embedding_verdict(answers["architecture"]))
    return PaperSection(
        key=f"predictddl-{campaign.key}",
        title=campaign.title,
        claims=claims_of(campaign.title, answers),
        headline=" ".join(words),
        tables=tuple(tables),
        figures=figures,
    )


def claims_of(title: str, answers: Mapping[str, Answers]) -> tuple[Claim, ...]:
    """What the paper claims of a campaign's questions, beside what was found.

    Args:
        title: Of the campaign.
        answers: Predictions by question.
    """
    claims = []
    for key, found in answers.items():
        pooled, per_job = (times_lower(found, CHOSEN, name) for name in (POOLED, PER_JOB))
        ratios = {"one fit": pooled[0], "refitted per job": per_job[0]}
        stated = {words: ratio for words, ratio in ratios.items() if ratio is not None}
        if stated:
            claims.append(
                Claim(
                    claim=f"average error below Ernest's: {QUESTIONS[key].title}, {title}",
                    paper=f"up to {PAPER_LOWER_ERROR}x",
                    ours=", ".join(f"{ratio_text(ratio, 1)}x ({words})" for words, ratio in stated.items()),
                    rows=pooled[2] or per_job[2],
                    verdict=at_least(max(stated.values()), PAPER_LOWER_ERROR),
                )
            )
    unseen = answers.get("architecture")
    own, sums = (_summary(unseen.errors_percent(name)) if unseen else {} for name in (CHOSEN, THREE))
    if own and sums:
        claims.append(
            Claim(
                claim=f"it serves architectures never seen: {title}",
                paper="-",
                ours=f"{percent(own['mean'], own['median'])}; three sums in the place of the embedding "
                f"{percent(sums['mean'], sums['median'])}",
                rows=int(own["n"]),
                verdict=NO_FIGURE,
            )
        )
    return tuple(claims)


def verdict(question: str, found: Answers) -> str:
    """How PredictDDL stands to both Ernests and to ours on one question, in a sentence.

    Args:
        question: Its title.
        found: Predictions.
    """
    own, ours = (_summary(found.errors_percent(name)) for name in (CHOSEN, OURS))
    if not own:
        return f"{question.capitalize()}: PredictDDL has no answer."
    parts = [f"{question.capitalize()}: PredictDDL errs by {_cell(own)}"]
    for name in (POOLED, PER_JOB):
        mean, median, count = times_lower(found, CHOSEN, name)
        if mean is not None and median is not None:
            by = f"{_factor(mean)} by the mean and {_factor(median)} by the median"
            parts.append(f"{by} than {TITLES[name]} (n {count})")
    return f"{', '.join(parts)}; ours, fitted on the same rows, by {_cell(ours)}."


def embedding_verdict(found: Answers) -> str:
    """What the embedding adds to three sums, in a sentence.

    Args:
        found: Predictions of unseen architectures.
    """
    sums, both, sized = (_summary(found.errors_percent(name)) for name in (THREE, BOTH, SIZED))
    if not (sums and both and sized):
        return ""
    better = [name for name in ("mean", "median") if both[name] < sums[name]]
    added = f"adds to them by the {' and the '.join(better)}" if better else "does not add to them"
    return (
        f"There three sums in the place of the embedding err by {_cell(sums)} and both together by "
        f"{_cell(both)}: the embedding {added}; as one input beside the network's size it errs by "
        f"{_cell(sized)}."
    )


def times_lower(found: Answers, name: str, other: str) -> tuple[float | None, float | None, int]:
    """How many times lower the mean and the median error is, on the rows that both answer; their number."""
    own, reference = found.errors_percent(name), found.errors_percent(other)
    shared = ~np.isnan(own) & ~np.isnan(reference)
    if not shared.any():
        return None, None, 0
    ratios = [
        float(statistic(reference[shared]) / statistic(own[shared])) for statistic in (np.mean, np.median)
    ]
    return ratios[0], ratios[1], int(shared.sum())


def _factor(ratio: float) -> str:
    """A ratio of errors in words.

    >>> _factor(3.14159), _factor(0.5)
    ('3.1 times lower', '2.0 times higher')
    """
    return f"{ratio:.1f} times lower" if ratio >= 1.0 else f"{1.0 / ratio:.1f} times higher"


def _summary(errors: Floats) -> dict[str, float]:
    """Number, mean, median and ninetieth percentile of the rows answered; empty without any."""
    known = errors[~np.isnan(errors)]
    if not len(known):
        return {}
    percentiles = np.percentile(known, (50, 90))
    values = (len(known), known.mean(), *percentiles)
    return dict(zip(("n", "mean", "median", "p90"), map(float, values), strict=True))


def _cell(summary: Mapping[str, float]) -> str:
    return (
        f"{summary['mean']:.1f} % (median {summary['median']:.1f}, n {summary['n']:.0f})" if summary else "-"
    )


def _errors_table(campaign: Campaign, key: str, found: Answers) -> Table:
    rows: list[tuple[CellValue, ...]] = []
    titles = {**TITLES, "shipped": "ours as shipped, which has not seen these rows"}
    for name in found.predicted_s:
        summary = _summary(found.errors_percent(name))
        if not summary:
            continue
        ratio = found.predicted_s[name] / found.measured_s
        pooled, per_job = (times_lower(found, name, other)[:2] for other in (POOLED, PER_JOB))
        rows.append(
            (
                *(titles[name], int(summary["n"]), summary["mean"], summary["median"], summary["p90"]),
                ratio_text(float(np.nanmedian(ratio))),
                *(None if name == POOLED else ratio_text(value, 1) for value in pooled),
                *(None if name == PER_JOB else ratio_text(value, 1) for value in per_job),
            )
        )
    paper: tuple[CellValue, ...] = ("the paper, abstract", None, None, None, None, None)
    rows.append((*paper, f"up to {PAPER_LOWER_ERROR}", None, None, None))
    chosen = Counter(found.chosen).most_common()
    return Table(
        title=f"{campaign.title}: {QUESTIONS[key].title}",
        columns=columns_of(
            "predictor | >n | >mean % | >median % | >p90 % | >median predicted/actual | "
            ">x lower than Ernest pooled, mean | >than Ernest pooled, median | "
            ">than Ernest per job, mean | >than Ernest per job, median"
        ),
        rows=tuple(rows),
        note=f"{campaign.note} Draws of folds: {DRAWS[key]}; regressors are chosen on inner folds of the "
        "same kind, of architectures where training has one group only. Ratios are of the rows that both "
        f"answer. Chosen in {len(found.chosen)} fits: "
        f"{', '.join(f'{words} {count}' for words, count in chosen)}. The abstract "
        "does not say to which Ernest it compares, nor whether its figure is a mean.",
    )


def _networks_table(campaign: Campaign, found: Answers) -> Table:
    """Predicted over actual time of the networks that the paper names, none of which was fitted."""
    groups = np.array([model_group(campaign.measurements[row].model) for row in found.rows])
    names = [name for name in _SHOWN if name in found.predicted_s]
    rows: list[tuple[CellValue, ...]] = []
    for title, model in TEST_NETWORKS.items():
        own = np.flatnonzero(groups == model_group(model))
        cells: list[CellValue] = []
        for name in names:
            ratios = (found.predicted_s[name] / found.measured_s)[own]
            known = ratios[~np.isnan(ratios)]
            cells.append(ratio_text(float(np.median(known))) if len(known) else None)
        rows.append((title if len(own) else f"{title}: no run in this campaign", len(own), *cells))
    return Table(
        title=f"{campaign.title}: predicted / actual time of the paper's test networks, unseen",
        columns=("network", ">n", *(f">{TITLES[name]}" for name in names)),
        rows=tuple(rows),
        note="Median ratio over the network's runs; 1 is right. The eight names are remembered, not read.",
    )


def _cost_section(campaign: Campaign) -> Section:
    """T8: what the time until an answer is made of, for both systems."""
    table = campaign.table
    budgets = [
        MeasurementBudget(
            offered=job.configurations,
            step_time_s=table.measured_s[np.array([rows[0] for rows in job.rows])],
            limit=max(len(job.rows) // 2, 2),
        )
        for job in measured_jobs(campaign.measurements)
        if len(job.rows) > 1
    ]
    account = np.array([_ernest_account(budget) for budget in budgets])
    run_s, ernest_fit_s, ernest_answer_s = np.median(account[:, :3], axis=0).tolist()
    embed_s = reading_costs(campaign.measurements, [Needs.EMBEDDING])[Needs.EMBEDDING].single_s
    names, values = regression_inputs(table.jobs)
    examples = examples_of(BLIND, table.measured, names, values)
    trained, fit_s = timed(choose, examples, SETTINGS)
    one = inputs_at(examples, names, values, np.array([0]))
    answer_s = float(np.median([timed(trained.regressors[trained.best].predict, one)[1] for _ in range(9)]))
    parts = Table(
        title="T8: seconds of each part",
        columns=columns_of("system | >sample runs | >embedding | >fit | >predict | when it fits"),
        rows=(
            ("PredictDDL", 0.0, embed_s, fit_s, answer_s, "once for all networks"),
            ("Ernest, refitted per job", run_s, None, ernest_fit_s, ernest_answer_s, "for every job"),
        ),
        note=f"{campaign.title}. Sample runs: {account[:, 3].mean():.1f} per job on average, {STEPS_PER_RUN} "
        "steps each at their measured times, median over jobs; the start of a job is not counted. "
        "Embedding: of an architecture of which nothing is remembered. Times are of the machine that "
        "wrote this page.",
    )
    own, reference = embed_s + answer_s, ernest_fit_s + ernest_answer_s
    rows: list[tuple[CellValue, ...]] = []
    for count in REQUESTS:
        with_runs, refit_only = count * (run_s + reference), count * reference
        rows.append(
            (
                *(count, count * own, fit_s + count * own, with_runs, refit_only),
                ratio_text(with_runs / (count * own), 1),
                ratio_text(with_runs / (fit_s + count * own), 1),
                ratio_text(refit_only / (count * own)),
            )
        )
    requests = Table(
        title="T8: seconds until so many new jobs are answered",
        columns=columns_of(
            ">requests | >PredictDDL, trained before | >with its training | >Ernest, runs and refit | "
            ">refit only | >x faster, trained before | >x faster, with its training | "
            ">x faster than the refit"
        ),
        rows=tuple(rows),
        note=f"The paper: up to {PAPER_LOWER_TIME} times. The abstract does not say what Ernest's time "
        "includes.",
    )
    ratio, refit = (run_s + reference) / own, reference / own
    return PaperSection(
        key="predictddl-cost",
        title="Inference time beside Ernest's",
        claims=(
            Claim(
                claim="inference time below Ernest's",
                paper=f"up to {PAPER_LOWER_TIME}x",
                ours=f"{ratio_text(ratio, 1)}x with Ernest's sample runs, {ratio_text(refit)}x of its refit "
                "alone",
                rows=len(budgets),
                scope="one new job; the abstract does not say what Ernest's time includes",
                verdict=f"with its sample runs: {at_least(ratio, PAPER_LOWER_TIME)}; without: "
                f"{at_least(refit, PAPER_LOWER_TIME)}",
            ),
        ),
        headline=f"Answering one new job takes PredictDDL {own:.3g} s and Ernest {run_s + reference:.3g} s "
        f"with its sample runs: {_ratio_words(ratio)} (paper: up to {PAPER_LOWER_TIME}). Against Ernest's "
        f"refit and answer alone, without the runs: {_ratio_words(refit)}.",
        tables=(parts, requests),
        figures={
            "predictddl.cost.times_faster": Metric(value=ratio),
            "predictddl.cost.times_faster_than_refit": Metric(value=refit),
        },
    )


def _ratio_words(ratio: float) -> str:
    """How many times less time, or more.

    >>> _ratio_words(524.2), _ratio_words(0.2)
    ('524 times less', '5 times more')
    """
    return f"{ratio:.3g} times less" if ratio >= 1.0 else f"{1.0 / ratio:.3g} times more"


def _ernest_account(budget: MeasurementBudget) -> tuple[float, float, float, float]:
    """Seconds of the sample runs of one job, of the fit and of an answer; number of runs."""
    fitted, fit_s = timed(Ernest().fit, budget, seed=0)
    one: Configurations = budget.offered.take(np.array([0]))
    return budget.wall_s, fit_s, timed(fitted.predict, one)[1], float(len(budget.chosen))


def _search_section(corpus: Sequence[Measurement], executor: Executor) -> Section:
    """CherryPick's question: which configuration of a job is best, and how many runs it takes to know."""
    from precision_time.corpus.protocols import PROTOCOLS
    from precision_time.learn.measured import measured_table

    rows = drawn_replay_rows(corpus, jobs=REPLAYED, others=REPLAY_ROWS)
    measured = measured_table(rows)
    table = FeatureTable(measured=measured, jobs=JobViews.of(measured.jobs, measured.jobs))
    folds = PROTOCOLS["model"].split(measured.measurements, 0, REPLAY_FOLDS)
    predicted_s = np.full(len(table), np.nan)
    answers = executor(_fit_and_answer, [(table, fold.train, fold.test) for fold in folds])
    for fold, seconds in zip(folds, answers, strict=True):
        predicted_s[fold.test] = seconds
    jobs = replay_jobs(measured, predicted_s)
    found = tuple(item for part in executor(_replay_one, jobs) for item in part)
    table_of = summary_table(found)
    note = (
        f"{len(found)} jobs drawn from all with that many configurations; ours was fitted in {REPLAY_FOLDS} "
        f"folds of architectures to {len(rows)} rows, a sample of the corpus."
    )
    return Section(
        key="predictddl-search",
        title="The best configuration of a job (CherryPick's question)",
        headline=replay_headline(found),
        tables=(replace(table_of, note=f"{note} {table_of.note}"),),
        figures=replay_metrics(found),
    )


def _fit_and_answer(task: tuple[FeatureTable, Ints, Ints]) -> Floats:
    table, train, test = task
    return PrecisionAware().fit(table, train).predict(table.jobs.take(test))


def _replay_one(job: ReplayJob) -> tuple[Replayed, ...]:
    return replay([job], seeds=1)
