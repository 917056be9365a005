"""The study of remaining times: its page says what the recorded series give."""

from __future__ import annotations

from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))


def test_no_project_is_measured_with_numbers_that_were_fitted_on_it() -> None:
    from eta_series import read_series
    from eta_study import FOLDS, fold_numbers, fold_of

    series = read_series()
    assert len(series) >= 40 and len(fold_numbers()) == FOLDS
    of_project = {each.project: fold_of(each.project) for each in series}
    assert set(of_project.values()) == set(range(FOLDS))
    assert [fold_of(each.project) for each in series] == [of_project[each.project] for each in series]


def test_estimates_of_the_page_and_coverage() -> None:
    from eta_page import PAGE
    from eta_study import OURS, fold_numbers, our_rows

    rows, coverage = our_rows(fold_numbers())
    said = PAGE.read_text(encoding="utf-8")
    cells = " | ".join(f"{row.median * 100:.1f} | {row.mean * 100:.1f}" for row in rows)
    assert f"| {OURS} | {cells} |" in said
    assert " | ".join(f"{share * 100:.1f}" for share in coverage.values()) in said


@pytest.mark.nightly(
    covered_by="packages/integrations/tests/online/test_study.py::test_estimates_of_the_page_and_coverage"
)
@pytest.mark.filterwarnings("ignore")  # of the libraries whose progress bars are asked
def test_whole_page_is_what_the_series_and_the_bars_give() -> None:
    from eta_page import PAGE, page
    from eta_study import baseline_rows, fold_numbers, our_rows

    said = page(*our_rows(fold_numbers()), baseline_rows())
    assert said == PAGE.read_text(encoding="utf-8")
