"""Held-out figures are computed anew on a sample of the corpus; none may be worse than what is committed."""

from pathlib import Path

from precision_time.evaluation.regressions import regressions
from precision_time.evaluation.report import build_report

BASELINE = Path(__file__).with_name("baseline.json")
"""Written by `precision-time report --only T5 --sample 4000 --folds 2 --seeds 3 --write-baseline FILE`."""


def test_nothing_held_out_got_worse(tmp_path: Path) -> None:
    report = build_report(only=("T5",), sample=4000, folds=2, folder=tmp_path)
    assert regressions(report, BASELINE) == []
