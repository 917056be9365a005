"""Held-out figures are computed anew on a sample of the corpus; none may be worse than what is committed."""

from pathlib import Path

import pytest

from precision_time_papers.evaluation.regressions import regressions
from precision_time_papers.evaluation.report import build_report

BASELINE = Path(__file__).with_name("baseline.json")
"""Written by `make baselines`, as is the other."""
DAY = Path(__file__).with_name("baseline_day.json")
"""A smaller sample, and a tenth of the trees: shows what broke as well."""


@pytest.mark.parametrize(
    ("sample", "baseline"),
    [
        (1000, DAY),
        pytest.param(
            4000,
            BASELINE,
            marks=pytest.mark.nightly(
                covered_by="packages/papers/tests/accuracy/test_report_guard.py::test_nothing_held_out_got_worse[1000]"
            ),
        ),
    ],
    ids=["1000", "4000"],
)
def test_nothing_held_out_got_worse(tmp_path: Path, sample: int, baseline: Path) -> None:
    report = build_report(only=("T5",), sample=sample, folds=2, quick=baseline is DAY, folder=tmp_path)
    assert regressions(report, baseline) == []
