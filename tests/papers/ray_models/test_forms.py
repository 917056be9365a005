"""Every technique as arrays says what its estimator says, also after a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import CorpusError
from precision_time.papers.ray_models.export import parts_of
from precision_time.papers.ray_models.features import engineered, table
from precision_time.papers.ray_models.forms import form_of
from precision_time.papers.ray_models.model import PerformanceModel
from precision_time.papers.ray_models.points import Points
from precision_time.papers.ray_models.study import Plan, pool_of
from precision_time.papers.ray_models.techniques import TECHNIQUES

ROLES = {"workers": "workers", "batch": "batch"}
BLACK = [name for name, item in TECHNIQUES.items() if not item.grey]


@pytest.mark.parametrize("name", BLACK)
def test_arrays_say_what_the_estimator_says(
    ring_points: Callable[..., Points], name: str, tmp_path: Path
) -> None:
    points = ring_points(noise=0.05)
    features = engineered(["workers", "batch"], {}, inverse=["workers"], log=["batch"], degree=2)
    plan = Plan(features=features, techniques=(TECHNIQUES[name],), columns=("workers", "batch"), roles=ROLES)
    pool = pool_of(plan)
    x = table(pool.features, points.columns)
    fitted = TECHNIQUES[name].build(pool, 0).fit(x, points.measured)
    asked = {"workers": np.array([1.0, 5.0, 16.0]), "batch": np.array([8.0, 100.0, 300.0])}
    expected = fitted.predict(table(pool.features, asked))
    model = PerformanceModel(
        target="step_time_s",
        columns=("workers", "batch"),
        categories={},
        ranges={"workers": (1.0, 8.0)},
        parts=parts_of(fitted, pool.features),
    )
    assert np.allclose(model.predict_columns(asked), expected, rtol=1e-6)
    model.save(tmp_path / "model.ptm")
    loaded = PerformanceModel.load(tmp_path / "model.ptm")
    rows = [{"workers": w, "batch": b} for w, b in zip(*asked.values(), strict=True)]
    assert np.array_equal(loaded.predict(rows), model.predict(rows))
    assert (loaded.predict(rows) > 0.0).all()


def test_a_tree_that_points_outside_itself_is_refused() -> None:
    arrays = {
        "tree.feature": np.zeros(1, dtype=np.int16),
        "tree.threshold": np.zeros(1),
        "tree.left": np.array([7], dtype=np.int32),
        "tree.right": np.array([0], dtype=np.int32),
        "tree.value": np.zeros(1),
        "tree.roots": np.zeros(1, dtype=np.int32),
        "tree.depth": np.array(1),
        "offset": np.zeros(()),
        "single": np.zeros(()),
    }
    with pytest.raises(CorpusError, match="points outside itself"):
        form_of("trees", arrays)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(CorpusError, match="kind 'magic'"):
        form_of("magic", {})
