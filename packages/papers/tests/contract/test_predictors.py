"""Every published predictor satisfies the suite of its kind."""

import pytest

from precision_time_papers.registry import PREDICTORS
from precision_time_papers.testing import SamplingPredictorSuite, TablePredictorSuite


def entries(*, samples: bool) -> list:
    return [entry for entry in PREDICTORS.values() if entry.samples is samples]


@pytest.mark.parametrize("entry", entries(samples=False), ids=lambda entry: entry.name)
class TestTablePredictors(TablePredictorSuite):
    pass


@pytest.mark.parametrize("entry", entries(samples=True), ids=lambda entry: entry.name)
class TestSamplingPredictors(SamplingPredictorSuite):
    pass


def test_titles_are_told_apart() -> None:
    assert len({entry.title for entry in PREDICTORS.values()}) == len(PREDICTORS)
    assert all(name == entry.name for name, entry in PREDICTORS.items())
