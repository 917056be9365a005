"""PredictDDL within a setting: answers stay near the nearest runs, other settings have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from precision_time_papers.predictddl.fitting import Candidate, Prepared
from precision_time_papers.predictddl.within import FACTOR, NEAREST, BoundByNeighbors, PredictDDLWithin
from precision_time_papers.testing import made_up_runs

from .conftest import ALL_NAMES, SMALL, examples


def test_an_answer_is_within_a_factor_of_the_nearest_runs() -> None:
    rows = examples(tuple(name for name in ALL_NAMES if name.startswith(("ghn.", "cluster."))))
    linear = Candidate(kind="linear", target="log", rank=4, settings={"alpha": 1.0})
    regressor = replace(Prepared.of(rows).fit(linear, SMALL), target_mean=0.0)
    bound = BoundByNeighbors.of(regressor, rows.x, rows.seconds)
    asked = rows.x[:20] + 0.1
    low, high = bound.bounds(asked)
    held = bound.predict(asked)
    z = bound.regressor.inputs(asked) @ bound.regressor.projection
    for place in range(len(asked)):
        apart = np.square(bound.z - z[place]).sum(axis=1)
        near = rows.seconds[np.argsort(apart)[:NEAREST]]
        assert low[place] == pytest.approx(near.min() / FACTOR)
        assert high[place] == pytest.approx(near.max() * FACTOR)
    assert ((low <= held) & (held <= high)).all()
    assert (held != bound.regressor.predict(asked)).any()


def test_a_setting_that_was_not_fitted_has_no_answer() -> None:
    runs = made_up_runs()
    setting = np.zeros(len(runs.table), dtype=np.intp)
    setting[runs.fitted[:3]] = 1  # too few to fit
    setting[runs.asked[:2]] = 1
    setting[runs.asked[2]] = -1  # not data parallel
    table = replace(runs.table, jobs=replace(runs.table.jobs, setting=setting))
    fitted = PredictDDLWithin(settings=SMALL).fit(table, runs.fitted)
    answers = fitted.predict(table.jobs.take(runs.asked))
    assert np.isnan(answers[:3]).all()
    assert np.isfinite(answers[3:]).all()
