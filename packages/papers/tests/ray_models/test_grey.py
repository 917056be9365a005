from __future__ import annotations

import numpy as np
import pytest

from precision_time.errors import ConfigError, UnknownNameError
from precision_time.testing.jobs import own_job_s
from precision_time_papers.ray_models.grey import GreyBox, job_named
from precision_time_papers.ray_models.schema import prepared_rows, study_of
from precision_time_papers.ray_models.study import run_study

BOX = GreyBox(
    fields={"workers": "gpus", "batch_per_worker": "batch"},
    constants={"model": "resnet50", "device": "T4", "precision": "fp32", "stack": "pytorch-eager"},
)


def test_the_divisor_is_what_the_predictor_says_of_the_job() -> None:
    said = BOX.predictions({"gpus": np.array([1.0, 4.0]), "batch": np.array([32.0, 16.0])})
    for row, (gpus, batch) in enumerate(((1, 32), (4, 16))):
        said_s = own_job_s(
            "resnet50", device="T4", gpus=gpus, batch_size=batch, precision="fp32", stack="pytorch-eager",
            zero_stage=0,
        )  # fmt: skip
        assert said[BOX.PREDICTED][row] == pytest.approx(said_s, rel=1e-9)
        exposed = said[BOX.SHARE][row]
        assert (exposed == 0.0) if gpus == 1 else (0.0 <= exposed < 1.0)


def test_a_grey_box_learns_a_slow_cluster_from_a_few_points() -> None:
    gpus = np.array([1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8], dtype=float)
    batch = np.tile([16.0, 32.0, 64.0], 4)
    slow = 1.7 * BOX.predictions({"gpus": gpus, "batch": batch})[BOX.PREDICTED]
    rows = [
        {"gpus": f"{g:g}", "batch": f"{b:g}", "t": repr(float(s))}
        for g, b, s in zip(gpus, batch, slow, strict=True)
    ]
    study = study_of(
        {
            "target": "t",
            "columns": ["gpus", "batch"],
            "techniques": ["grey-ridge", "tree"],
            "validation": {"method": "extrapolation", "bounds": {"gpus": 2}},
            "grey_box": {"fields": dict(BOX.fields), "constants": dict(BOX.constants)},
        }
    )
    points, plan = prepared_rows(study, rows, range(2, len(rows) + 2))
    result = run_study(points, plan)
    errors = {score.technique.name: score.validation_mape for score in result.scores}
    assert errors["grey-ridge"] < 0.01 < errors["tree"]
    (time_s,) = result.model.predict([{"gpus": 16, "batch": 48}])
    expected = 1.7 * BOX.predictions({"gpus": np.array([16.0]), "batch": np.array([48.0])})[BOX.PREDICTED][0]
    assert time_s == pytest.approx(expected, rel=1e-3)


def test_a_target_of_several_steps_is_divided_by_them() -> None:
    box = GreyBox(fields=BOX.fields, constants=BOX.constants, times="steps")
    columns = {"gpus": np.array([1.0]), "batch": np.array([32.0]), "steps": np.array(["10"], dtype=object)}
    assert box.predictions(columns)[BOX.PREDICTED] == pytest.approx(
        10.0 * BOX.predictions(columns)[BOX.PREDICTED]
    )


def test_jobs_that_cannot_be_are_refused() -> None:
    base = {"model": "resnet50", "device": "T4", "workers": 2, "batch_per_worker": 8}
    with pytest.raises(UnknownNameError, match="resnet5"):
        job_named({**base, "model": "resnet5x"})
    with pytest.raises(ConfigError, match="workers = 1.5 is not a count"):
        job_named({**base, "workers": 1.5})
