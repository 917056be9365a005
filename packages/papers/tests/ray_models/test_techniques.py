"""Every technique answers the same after a file as before, and forged or damaged files are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from precision_time_papers.ray_models.features import engineered, feature_table
from precision_time_papers.ray_models.grey import GreyBox
from precision_time_papers.ray_models.model import PerformanceModel
from precision_time_papers.ray_models.points import Points
from precision_time_papers.ray_models.study import StudyPlan, pool_of
from precision_time_papers.ray_models.techniques import TECHNIQUES

ROLES = {"workers": "workers", "batch": "batch"}


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_file_answers_as_its_estimator(
    ring_points: Callable[..., Points], name: str, tmp_path: Path
) -> None:
    technique, box = TECHNIQUES[name], GreyBox(given=True)
    features = engineered(["workers", "batch"], {}, inverse=["workers"], log=["batch"], degree=2)
    plan = StudyPlan(
        features=features,
        techniques=(technique,),
        columns=("workers", "batch"),
        roles=ROLES,
        grey=box if technique.grey else None,
    )
    pool = pool_of(plan)
    points = ring_points(noise=0.05)
    predicted = 0.9 * points.measured
    given = {box.PREDICTED: predicted, box.SHARE: np.linspace(0.0, 0.5, len(points))}
    fitted = technique.build(pool, 0).fit(
        feature_table(pool.features, {**points.columns, **given}), points.measured
    )
    asked = {"workers": np.array([1.0, 5.0, 16.0]), "batch": np.array([8.0, 100.0, 300.0])}
    if technique.grey:
        asked |= {box.PREDICTED: np.array([0.05, 0.2, 0.4]), box.SHARE: np.array([0.0, 0.1, 0.3])}
    divisor = asked[box.PREDICTED] if technique.grey else 1.0
    expected = fitted.predict(feature_table(pool.features, asked)) * divisor
    model = PerformanceModel(
        target="step_time_s",
        columns=("workers", "batch"),
        categories={},
        ranges={"workers": (1.0, 8.0)},
        features=pool.features,
        grey=plan.grey,
        estimators=(fitted,),
    )
    assert np.allclose(model.predict_columns(asked), expected, rtol=1e-12)
    model.save(tmp_path / "model.ptm")
    loaded = PerformanceModel.load(tmp_path / "model.ptm")
    rows = [dict(zip(asked, values, strict=True)) for values in zip(*asked.values(), strict=True)]
    assert np.array_equal(loaded.predict(rows), model.predict(rows))
    assert (loaded.predict(rows) > 0.0).all()
