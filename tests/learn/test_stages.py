"""The plumbing of the stages, on a synthetic table: its numbers are made up and mean nothing."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import Fold
from precision_time.errors import NotFittedError
from precision_time.executor import process_map
from precision_time.learn.artifact import (
    MeasurementIndex,
    TrainedPredictor,
    load_predictor,
    shipped_predictor,
)
from precision_time.learn.intervals import CLASSES, IntervalModel, fit_quantiles
from precision_time.learn.novelty import KINDS, RunIndex, shrinkage, training_set
from precision_time.learn.stages import (
    DEFAULT_SETTINGS,
    STAGES,
    fit_scale,
    fit_stages,
)
from precision_time.learn.table import JobTable, MeasuredTable
from precision_time.learn.training import out_of_fold_by_stage
from precision_time.learn.trees import NO_TREES

NAMES = (
    *("log_params", "log_flops", "log_micro_batch_size", "log_launches", "mean_inner", "mean_outer"),
    *("mean_kernel_area", "weight_gradient_share", "class.gemm", "family.cnn"),
    *("stack.made-up", "matmul.fp16", "log_peak", "log_fp32_peak"),
)
MODELS, ROWS_EACH = 12, 40
N = MODELS * ROWS_EACH
SETTINGS = {
    stage: replace(item, num_trees=30, min_data_in_leaf=5, num_leaves=8)
    for stage, item in DEFAULT_SETTINGS.items()
}
SLOW_STACK, SLOW_COMMUNICATION = 1.5, 2.0


def synthetic_table(seed: int = 0) -> MeasuredTable:
    """Made-up jobs: one stack is slower, communication takes twice what the formulas say."""
    draw = np.random.default_rng(seed)
    model = np.repeat(np.arange(MODELS), ROWS_EACH)
    features = draw.normal(size=(N, len(NAMES)))
    own = draw.normal(size=(MODELS, len(NAMES)))
    place = [index for index, name in enumerate(NAMES) if name not in NAMES[-4:]]
    features[:, place] = own[model][:, place]
    slow = draw.integers(0, 2, size=N)
    features[:, NAMES.index("stack.made-up")] = slow
    compute_s = np.exp(draw.normal(size=N))
    exposed_s = np.where(draw.random(N) < 0.5, 0.0, 0.3 * compute_s)
    measured_s = compute_s * SLOW_STACK**slow + SLOW_COMMUNICATION * exposed_s
    jobs = JobTable(
        features=features,
        names=NAMES,
        analytical_s=compute_s + exposed_s,
        compute_s=compute_s,
        exposed_s=exposed_s,
    )
    rows = tuple(
        Measurement(
            source="synthetic",
            source_ref="made up for this test",
            model=f"synthetic-{index}",
            device="none",
            num_devices=1,
            num_nodes=1,
            precision="fp32",
        )
        for index in model
    )
    return MeasuredTable(
        jobs=jobs,
        measurements=rows,
        measured_s=measured_s,
        sync_s=np.full(N, np.nan),
        rejected=Counter(),
    )


TABLE = synthetic_table()


def fitted(rows=None, seed=0):
    rows = np.arange(N) if rows is None else rows
    return fit_stages(TABLE, rows, np.ones(N), np.arange(N), settings=SETTINGS, seed=seed)


@pytest.fixture(scope="module")
def correction():
    return fitted()


def without_local(correction):
    return replace(correction, stages={k: v for k, v in correction.stages.items() if k != "local"})


def predictor_of(correction):
    features = TABLE.jobs.features
    scale = fit_scale(features, np.full(N, 0.1), np.ones(N), SETTINGS["scale"], 0)
    residuals = np.linspace(-1.0, 1.0, 50)
    return TrainedPredictor(
        correction=correction,
        intervals=IntervalModel(
            scale=scale,
            growth=np.array([0.0, 1.0, *([0.5] * len(KINDS))]),
            quantiles=dict.fromkeys(CLASSES, fit_quantiles(residuals, np.ones(50))),
        ),
        measurements=MeasurementIndex(
            runs=RunIndex(
                positions=correction.training_set.positions,
                order=np.arange(N, dtype=np.int32),
                starts=np.arange(N + 1, dtype=np.int32),
                configurations=np.zeros((N, 3), dtype=np.float32),
            ),
            measurement_ids=np.arange(N),
            predicted_s=TABLE.measured_s,
        ),
        model_card={"seed": 0, "devices": ["none"]},
        process=shipped_predictor().process,
    )


def test_all_stages_are_fitted(correction):
    assert set(correction.stages) == set(STAGES)
    assert correction.names == NAMES
    assert 0 < len(correction.training_set.positions) <= N


def test_the_same_seed_gives_the_same_trees(correction):
    again, other = fitted(), fitted(seed=1)
    for stage in STAGES:
        ours, theirs = correction.stages[stage].to_arrays(stage), again.stages[stage].to_arrays(stage)
        for name, values in ours.items():
            np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    times = [item.correct(TABLE.jobs).step_time_s for item in (correction, again, other)]
    np.testing.assert_array_equal(times[0], times[1])
    assert not np.array_equal(times[0], times[2])


def test_folds_side_by_side_in_processes_say_what_they_say_one_by_one():
    home = np.arange(N) % 3
    folds = [Fold(train=np.flatnonzero(home != fold), test=np.flatnonzero(home == fold)) for fold in range(3)]

    def answers(spread):
        return out_of_fold_by_stage(
            TABLE, folds, weights=np.ones(N), groups=np.arange(N), settings=SETTINGS, seed=0, map_fn=spread
        )

    with process_map(2) as spread:
        for there, here in zip(answers(spread), answers(map), strict=True):
            np.testing.assert_array_equal(there.corrected.step_time_s, here.corrected.step_time_s)
            np.testing.assert_array_equal(there.parts_s, here.parts_s)


def test_what_fewer_stages_say_is_what_a_correction_without_them_says(correction):
    found = correction.by_stage(TABLE.jobs)
    smooth = without_local(correction)
    np.testing.assert_allclose(found.smooth_s, smooth.correct(TABLE.jobs).step_time_s, rtol=1e-12)
    parts = replace(smooth, stages={**smooth.stages, "overlap": NO_TREES})
    np.testing.assert_allclose(found.parts_s, parts.correct(TABLE.jobs).step_time_s, rtol=1e-12)


def test_parts_add_up_to_the_step(correction):
    found = correction.correct(TABLE.jobs)
    np.testing.assert_allclose(found.compute_s + found.exposed_s, found.step_time_s, rtol=1e-12)
    assert (found.exposed_s[TABLE.jobs.exposed_s == 0.0] == 0.0).all()
    assert (found.compute_s > 0.0).all()


def test_the_stages_take_off_what_is_systematic(correction):
    before = np.abs(np.log(TABLE.measured_s / TABLE.jobs.analytical_s)).mean()
    after = np.abs(np.log(TABLE.measured_s / correction.correct(TABLE.jobs).step_time_s)).mean()
    assert after < 0.3 * before


def test_rows_left_out_are_corrected_too():
    inside = np.flatnonzero(np.arange(N) % 4 != 0)
    outside = np.flatnonzero(np.arange(N) % 4 == 0)
    found = fitted(inside).correct(TABLE.jobs.take(outside)).step_time_s
    before = np.abs(np.log(TABLE.measured_s[outside] / TABLE.jobs.analytical_s[outside])).mean()
    assert np.abs(np.log(TABLE.measured_s[outside] / found)).mean() < 0.5 * before


def test_what_is_corrected_does_not_depend_on_the_company(correction):
    together = correction.correct(TABLE.jobs).step_time_s
    some = np.array([3, 77, 200])
    np.testing.assert_allclose(correction.correct(TABLE.jobs.take(some)).step_time_s, together[some])


def test_far_from_all_runs_the_correction_fades_to_the_cost_model(correction):
    some = TABLE.jobs.take(np.arange(20))
    moved = some.features.copy()
    moved[:, NAMES.index("log_params")] += 50.0
    far = replace(some, features=moved)
    found = correction.correct(far)
    smooth = without_local(correction)
    whole = replace(smooth, training_set=training_set(far, np.arange(20))).correct(far)
    assert (found.novelty.max(axis=1) > 10.0).all()
    assert not whole.novelty.any()
    expected = shrinkage(found.novelty) * np.log(whole.step_time_s / some.analytical_s)
    found = smooth.correct(far)
    np.testing.assert_allclose(np.log(found.step_time_s / some.analytical_s), expected, rtol=1e-9, atol=1e-12)
    assert not np.allclose(found.step_time_s, whole.step_time_s)


def test_among_measured_runs_the_local_stage_decides_on_a_new_device_it_does_not(correction):
    some = TABLE.jobs.take(np.arange(20))
    near = correction.correct(some)
    details = replace(correction, stages={**correction.stages, "overlap": NO_TREES}).correct(some)
    np.testing.assert_allclose(near.step_time_s, details.step_time_s, rtol=1e-12)
    features = some.features.copy()
    features[:, [NAMES.index("log_fp32_peak")]] += 1e5
    far = replace(some, features=features)
    smooth = without_local(correction)
    np.testing.assert_allclose(
        correction.correct(far).step_time_s, smooth.correct(far).step_time_s, rtol=1e-3
    )


@pytest.mark.parametrize("exposed", [0.0, 1.0])
def test_runs_all_on_one_device_or_all_on_several_are_enough(exposed: float):
    jobs = replace(
        TABLE.jobs,
        exposed_s=np.full(N, exposed) * TABLE.jobs.compute_s,
        analytical_s=(1.0 + exposed) * TABLE.jobs.compute_s,
    )
    table = replace(TABLE, jobs=jobs, sync_s=np.full(N, np.nan))
    rows = np.arange(N)
    found = fit_stages(table, rows, np.ones(N), rows, settings=SETTINGS).correct(jobs)
    assert (found.step_time_s > 0.0).all()


def test_a_saved_predictor_answers_the_same(correction, tmp_path: Path):
    saved = predictor_of(correction)
    saved.save(tmp_path)
    loaded = load_predictor(tmp_path)
    ours, theirs = saved.correction.correct(TABLE.jobs), loaded.correction.correct(TABLE.jobs)
    np.testing.assert_array_equal(ours.step_time_s, theirs.step_time_s)
    np.testing.assert_array_equal(ours.exposed_s, theirs.exposed_s)
    rows = (TABLE.jobs.features, TABLE.jobs.features[:, : len(KINDS)] ** 2, 0.9)
    np.testing.assert_array_equal(saved.intervals.factors(*rows), loaded.intervals.factors(*rows))
    assert loaded.correction.names == NAMES
    assert loaded.model_card["devices"] == ["none"]
    np.testing.assert_array_equal(saved.measurements.predicted_s, loaded.measurements.predicted_s)


def test_saving_twice_gives_the_same_files(correction, tmp_path: Path):
    predictor_of(correction).save(tmp_path / "one")
    predictor_of(correction).save(tmp_path / "two")
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name
    predictor_of(correction).save(tmp_path / "shipped", ships=True)
    names = sorted(item.name for item in (tmp_path / "shipped").iterdir())
    assert names == ["predictor.json", "predictor.safetensors"]


@pytest.mark.parametrize("what", ["missing", "truncated", "other schema", "no JSON"])
def test_a_damaged_predictor_says_so(correction, tmp_path: Path, what: str):
    predictor_of(correction).save(tmp_path)
    card, [arrays] = tmp_path / "predictor.json", [*tmp_path.glob("*.safetensors")]
    if what == "missing":
        arrays.unlink()
    elif what == "truncated":
        arrays.write_bytes(arrays.read_bytes()[:1000])
    elif what == "other schema":
        card.write_text(
            card.read_text(encoding="utf-8").replace('"schema": 4', '"schema": 99'), encoding="utf-8"
        )
    else:
        card.write_text("{", encoding="utf-8")
    with pytest.raises(NotFittedError, match="To fix: train it again, precision-time train --out"):
        load_predictor(tmp_path)
