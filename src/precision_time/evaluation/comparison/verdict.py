"""The paper's two ratios beside ours, and the target, told as it came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..report.contract import Cell, Figure, Section, Table
from .costs import AnswerCost
from .runs import JOBS
from .scores import Score

PAPER_LOWER_ERROR, PAPER_LOWER_TIME = 9.8, 10.3
"""PredictDDL, abstract: up to so many times lower error and inference time than Ernest."""
TARGET = 2.0
"""On unseen architectures: times less error than Ernest under its own conditions."""
PRECISION, BLIND, OURS = "predictddl-precision", "predictddl", "ours"
_ERNESTS = {
    "ernest": "its own conditions: refitted on small sample runs of the asked job",
    "ernest-free": "refitted on sample runs of any size",
    "ernest-pooled": "one fit per data set; told nothing of the architecture, runs nothing",
}
_PAPER: tuple[Cell, ...] = (
    *("PredictDDL, in the paper", "not said in the abstract", None, None),
    *(f"up to {PAPER_LOWER_ERROR}", None, None, f"up to {PAPER_LOWER_TIME}"),
)


def verdict(scores: Sequence[Score], costs: Mapping[str, AnswerCost]) -> Section:
    """Ratios to Ernest on unseen architectures, whether the target is met, and what limits it."""
    found = {item.name: item for item in scores if (item.question, item.population) == ("architecture", JOBS)}
    rows: list[tuple[Cell, ...]] = []
    figures: dict[str, Figure] = {}
    for name in (BLIND, PRECISION, OURS):
        for ernest, condition in _ERNESTS.items():
            if name in found and ernest in found:
                lower = found[ernest].mape_percent / found[name].mape_percent
                figures[f"verdict.{name}.lower_error_than_{ernest}"] = Figure(value=lower, spread=None)
                rows.append(_row(found[name], found[ernest], condition, costs))
    return Section(
        key="verdict",
        title="Beside the paper's ratios",
        headline=_headline(found),
        tables=(
            Table(
                title="Unseen architectures, jobs that Ernest can be fitted to",
                columns=(
                    "predictor",
                    "Ernest under",
                    ">MAPE %",
                    ">Ernest's MAPE %",
                    ">x lower error",
                    ">x lower, every job alike",
                    ">x faster, sample runs counted",
                    ">x faster, refit and answer only",
                ),
                rows=(*rows, _PAPER),
                note="The abstract does not say whether Ernest was refitted for each job, nor what its "
                "inference time holds.",
            ),
        ),
        figures=figures,
    )


def _row(own: Score, ernest: Score, condition: str, costs: Mapping[str, AnswerCost]) -> tuple[Cell, ...]:
    counted, uncounted = (
        costs[ernest.name].requests_s(1, runs=runs) / costs[own.name].requests_s(1) for runs in (True, False)
    )
    return (
        own.title,
        condition,
        own.mape_percent,
        ernest.mape_percent,
        f"{ernest.mape_percent / own.mape_percent:.2f}",
        f"{ernest.by_job_percent / own.by_job_percent:.2f}",
        f"{counted:,.2f}",
        f"{uncounted:,.2f}",
    )


def _headline(found: Mapping[str, Score]) -> str:
    if PRECISION not in found or "ernest" not in found:
        return "PredictDDL or Ernest was left out, so that there is no ratio."
    own, ernest = found[PRECISION], found["ernest"]
    said = (
        f"On unseen architectures the precision variant of PredictDDL errs by {own.mape_percent:.1f} % (mean "
        f"over jobs {own.by_job_percent:.1f} %), Ernest with its own small sample runs of each job by "
        f"{ernest.mape_percent:.1f} % ({ernest.by_job_percent:.1f} %): "
        f"{_compared(own.mape_percent, ernest.mape_percent)}. "
    )
    if ernest.mape_percent / own.mape_percent >= TARGET:
        return f"{said}The target, {TARGET:.0f} times less, is met."
    return f"{said}The target, {TARGET:.0f} times less, is not met. {' '.join(_limits(found, own))}"


def _limits(found: Mapping[str, Score], own: Score) -> list[str]:
    """What stands between the target and the figures."""
    said = [
        "What limits it: Ernest has measured the very job that it is asked about, and step times of one job "
        "at other batches and device counts follow its four terms closely; no embedding tells how well an "
        "architecture that nobody has run does in a given software."
    ]
    formulas, pooled, stages = (found.get(name) for name in ("formulas", "ernest-pooled", OURS))
    if formulas is not None and formulas.mape_percent < own.mape_percent:
        said.append(
            "Nor do regressors on an embedding extrapolate to architectures unlike those fitted: the cost "
            f"model that they read errs by {formulas.mape_percent:.1f} % on the same rows, without any fit."
        )
    if stages is not None:
        said.append(f"Ours, told the same, errs by {stages.mape_percent:.1f} %.")
    if pooled is not None:
        said.append(
            "Where Ernest may not run the job (one fit per data set, as PredictDDL is served) it errs by "
            f"{pooled.mape_percent:.1f} %: {_compared(own.mape_percent, pooled.mape_percent)}."
        )
    return said


def _compared(own: float, other: float) -> str:
    """Two errors as a ratio above 1.

    >>> _compared(10.0, 20.0), _compared(50.0, 20.0)
    ('2.0 times less error than Ernest', '2.5 times the error of Ernest')
    """
    if own <= other:
        return f"{other / own:.1f} times less error than Ernest"
    return f"{own / other:.1f} times the error of Ernest"
