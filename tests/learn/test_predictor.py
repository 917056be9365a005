"""One function from features to seconds: its plumbing on a synthetic table, its rules on real jobs."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_time
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import Fold
from precision_time.cost.job import Jobs
from precision_time.cost.step import Work
from precision_time.errors import NotFittedError
from precision_time.executor import process_map
from precision_time.learn import table
from precision_time.learn.artifact import (
    MeasurementIndex,
    TrainedPredictor,
    load_predictor,
    shipped_predictor,
)
from precision_time.learn.boosting import DEFAULT_SETTINGS, fit_scale
from precision_time.learn.evaluation import evaluate_csv
from precision_time.learn.intervals import CLASSES, IntervalModel, fit_quantiles
from precision_time.learn.measured import MeasuredTable, fit_predictor
from precision_time.learn.novelty import KINDS, RunIndex, shrinkage, training_set
from precision_time.learn.predictor import Predictor
from precision_time.learn.table import JobTable, job_table
from precision_time.learn.training import out_of_fold
from precision_time.learn.trees import TreeEnsemble
from precision_time.request.request import Request

NAMES = (
    *("log_params", "log_flops", "log_micro_batch_size", "log_launches", "mean_inner", "mean_outer"),
    *("mean_kernel_area", "weight_gradient_share", "class.gemm", "family.cnn"),
    *("stack.made-up", "matmul.fp16", "log_peak", "log_fp32_peak"),
)
MODELS, ROWS_EACH = 12, 40
N = MODELS * ROWS_EACH
SETTINGS = {
    name: replace(item, num_trees=60, min_data_in_leaf=5, num_leaves=16)
    for name, item in DEFAULT_SETTINGS.items()
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
        least_s=np.zeros(N),
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
    return fit_predictor(TABLE, rows, np.ones(N), SETTINGS["step"], seed=seed)


@pytest.fixture(scope="module")
def predictor():
    return fitted()


def trained(predictor: Predictor) -> TrainedPredictor:
    features = TABLE.jobs.features
    scale = fit_scale(features, np.full(N, 0.1), np.ones(N), SETTINGS["scale"], 0)
    residuals = np.linspace(-1.0, 1.0, 50)
    return TrainedPredictor(
        names=predictor.names,
        trees=predictor.trees,
        training_set=predictor.training_set,
        intervals=IntervalModel(
            scale=scale,
            growth=np.array([0.0, 1.0, *([0.5] * len(KINDS))]),
            quantiles=dict.fromkeys(CLASSES, fit_quantiles(residuals, np.ones(50))),
        ),
        measurements=MeasurementIndex(
            runs=RunIndex(
                positions=predictor.training_set.positions,
                order=np.arange(N, dtype=np.int32),
                starts=np.arange(N + 1, dtype=np.int32),
                configurations=np.zeros((N, 3), dtype=np.float32),
            ),
            measurement_ids=np.arange(N),
            predicted_s=TABLE.measured_s,
        ),
        model_card={"seed": 0, "devices": ["none"], "process": shipped_predictor().process.to_dict()},
    )


def test_the_same_seed_gives_the_same_trees(predictor):
    again, other = fitted(), fitted(seed=1)
    ours, theirs = predictor.trees.to_arrays("step"), again.trees.to_arrays("step")
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    times = [item.times(TABLE.jobs).step_time_s for item in (predictor, again, other)]
    np.testing.assert_array_equal(times[0], times[1])
    assert not np.array_equal(times[0], times[2])
    assert 0 < len(predictor.training_set.positions) <= N


def test_folds_side_by_side_in_processes_say_what_they_say_one_by_one():
    home = np.arange(N) % 3
    folds = [Fold(train=np.flatnonzero(home != fold), test=np.flatnonzero(home == fold)) for fold in range(3)]

    def answers(spread):
        return out_of_fold(TABLE, folds, weights=np.ones(N), settings=SETTINGS["step"], seed=0, map_fn=spread)

    with process_map(2) as spread:
        for there, here in zip(answers(spread), answers(map), strict=True):
            np.testing.assert_array_equal(there.step_time_s, here.step_time_s)
            np.testing.assert_array_equal(there.distance, here.distance)


def test_parts_add_up_to_the_step(predictor):
    found = predictor.times(TABLE.jobs)
    np.testing.assert_allclose(found.compute_s + found.exposed_s, found.step_time_s, rtol=1e-12)
    assert (found.exposed_s[TABLE.jobs.exposed_s == 0.0] == 0.0).all()
    assert (found.compute_s > 0.0).all()
    np.testing.assert_array_equal(found.analytical_s, TABLE.jobs.analytical_s)


def test_trees_take_off_what_is_systematic(predictor):
    before = np.abs(np.log(TABLE.measured_s / TABLE.jobs.analytical_s)).mean()
    after = np.abs(np.log(TABLE.measured_s / predictor.times(TABLE.jobs).step_time_s)).mean()
    assert after < 0.3 * before


def test_rows_left_out_are_corrected_too():
    inside = np.flatnonzero(np.arange(N) % 4 != 0)
    outside = np.flatnonzero(np.arange(N) % 4 == 0)
    found = fitted(inside).times(TABLE.jobs.take(outside)).step_time_s
    before = np.abs(np.log(TABLE.measured_s[outside] / TABLE.jobs.analytical_s[outside])).mean()
    assert np.abs(np.log(TABLE.measured_s[outside] / found)).mean() < 0.5 * before


HALVES = Fold(train=np.arange(0, N, 2), test=np.arange(1, N, 2))


def test_what_is_predicted_does_not_depend_on_the_company(predictor):
    together = predictor.times(TABLE.jobs).step_time_s
    some = np.array([3, 77, 200])
    np.testing.assert_array_equal(predictor.times(TABLE.jobs.take(some)).step_time_s, together[some])


def test_on_software_far_from_all_runs_the_correction_fades_to_the_cost_model(predictor):
    """By a column that only distances see: no tree splits at another stack's."""
    some = TABLE.jobs.take(np.arange(20))
    far = replace(predictor, training_set=replace(predictor.training_set, positions=_elsewhere(predictor)))
    found, whole = far.times(some), predictor.times(some)
    expected = shrinkage(found.distance) * np.log(whole.step_time_s / some.analytical_s)
    np.testing.assert_allclose(np.log(found.step_time_s / some.analytical_s), expected, rtol=1e-9, atol=1e-12)
    assert (shrinkage(found.distance) < 0.2).all()
    unshrunk = replace(far, fade=0.0).times(some)
    np.testing.assert_allclose(unshrunk.step_time_s, whole.step_time_s, rtol=1e-12)


def _elsewhere(predictor: Predictor) -> np.ndarray:
    """The positions of the runs, with their software moved far away."""
    jobs = TABLE.jobs
    features = jobs.features.copy()
    features[:, NAMES.index("stack.made-up")] += 50.0
    return training_set(replace(jobs, features=features), np.arange(N)).positions


def test_no_step_is_shorter_than_the_peak_allows(predictor):
    jobs = replace(TABLE.jobs, least_s=2.0 * TABLE.jobs.analytical_s)
    np.testing.assert_array_less(jobs.least_s * (1.0 - 1e-12), predictor.times(jobs).step_time_s)


def test_a_saved_predictor_answers_the_same(predictor, tmp_path: Path):
    saved = trained(predictor)
    saved.save(tmp_path)
    loaded = load_predictor(tmp_path)
    ours, theirs = saved.times(TABLE.jobs), loaded.times(TABLE.jobs)
    np.testing.assert_array_equal(ours.step_time_s, theirs.step_time_s)
    np.testing.assert_array_equal(ours.high_s, theirs.high_s)
    assert loaded.fade == saved.fade
    rows = (TABLE.jobs.features, TABLE.jobs.features[:, : len(KINDS)] ** 2, 0.9)
    np.testing.assert_array_equal(saved.intervals.factors(*rows), loaded.intervals.factors(*rows))
    assert loaded.names == NAMES
    assert loaded.model_card["devices"] == ["none"]
    np.testing.assert_array_equal(saved.measurements.predicted_s, loaded.measurements.predicted_s)


def test_saving_twice_gives_the_same_files(predictor, tmp_path: Path):
    trained(predictor).save(tmp_path / "one")
    trained(predictor).save(tmp_path / "two")
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name
    trained(predictor).save(tmp_path / "shipped", ships=True)
    names = sorted(item.name for item in (tmp_path / "shipped").iterdir())
    assert names == ["predictor.json", "predictor.safetensors"]


@pytest.mark.parametrize("what", ["missing", "truncated", "other schema", "no JSON"])
def test_a_damaged_predictor_says_so(predictor, tmp_path: Path, what: str):
    trained(predictor).save(tmp_path)
    card, [arrays] = tmp_path / "predictor.json", [*tmp_path.glob("*.safetensors")]
    if what == "missing":
        arrays.unlink()
    elif what == "truncated":
        arrays.write_bytes(arrays.read_bytes()[:1000])
    elif what == "other schema":
        card.write_text(
            card.read_text(encoding="utf-8").replace('"schema": 5', '"schema": 4'), encoding="utf-8"
        )
    else:
        card.write_text("{", encoding="utf-8")
    with pytest.raises(NotFittedError, match="To fix: train it again, precision-time train --out"):
        load_predictor(tmp_path)


def priced(*batches: int, model: str = "resnet50", **fields: object) -> JobTable:
    asked = {"model": model, "device": "L40S", "precision": "fp32", **fields}
    return job_table([Request.of({**asked, "batch_size": batch}).resolve() for batch in batches])


def test_the_smaller_batches_of_a_job_are_rows_of_its_table() -> None:
    jobs = priced(12, 7, 12, 8)
    assert jobs.smaller is not None and jobs.halves is not None
    column = jobs.names.index("log_micro_batch_size")
    sizes = [
        sorted(np.exp(jobs.opened().features[row[row >= 0], column]).round().astype(int).tolist())
        for row in jobs.halves
    ]
    assert sizes == [[1, 2, 3, 4, 6, 8], [1, 2, 3, 4, 6], [1, 2, 3, 4, 6, 8], [1, 2, 3, 4, 6]]
    one = jobs.take(np.array([3]))
    assert one.smaller is not None and len(one.smaller) == 5
    alone = priced(4)
    place = np.flatnonzero(np.isclose(one.smaller.features[:, column], np.log(4.0)))
    np.testing.assert_array_equal(one.smaller.features[place], alone.features)
    np.testing.assert_allclose(one.smaller.analytical_s[place], alone.analytical_s, rtol=1e-12)


def test_tables_of_several_jobs_keep_what_is_smaller_of_each() -> None:
    parts = [priced(8, 3), priced(16, model="gpt2"), priced(1)]
    together = JobTable.together(parts)
    predictor = shipped_predictor()
    expected = np.concatenate([predictor.times(part).step_time_s for part in parts])
    np.testing.assert_array_equal(predictor.times(together).step_time_s, expected)
    mixed = together.take(np.array([2, 0, 0]))
    np.testing.assert_array_equal(predictor.times(mixed).step_time_s, expected[[2, 0, 0]])


@pytest.mark.parametrize("model", ["resnet50", "mobilenetv2_100", "gpt2", "dlrm"])
def test_no_step_is_shorter_than_with_a_smaller_batch(model: str) -> None:
    batches = [2**power for power in range(10)] + [3 * 2**power for power in range(8)]
    jobs = priced(*batches, model=model)
    found = dict(zip(batches, shipped_predictor().times(jobs).step_time_s, strict=True))
    without = dict(zip(batches, shipped_predictor().times(jobs.alone()).step_time_s, strict=True))
    for batch, seconds in found.items():
        smaller = [without[other] for other in batches if other <= batch]
        assert seconds == pytest.approx(max(smaller), rel=1e-12)


def test_what_others_asked_before_moves_no_bit() -> None:
    first = shipped_predictor().times(priced(24)).step_time_s
    shipped_predictor().times(priced(*range(1, 40)))
    np.testing.assert_array_equal(shipped_predictor().times(priced(24)).step_time_s, first)


def test_a_job_on_hardware_of_its_own_is_corrected_as_its_proxy_is() -> None:
    [job] = [Request.of({"model": "resnet50", "device": "A100", "batch_size": 64}).resolve()]
    cluster = job.cluster
    faster = replace(
        cluster.device,
        memory_bandwidth_bytes_per_s=1.5 * cluster.device.memory_bandwidth_bytes_per_s,
    )
    own = replace(job, cluster=replace(cluster, device=faster, reference=cluster, assumptions=()))
    times = shipped_predictor().times(job_table([job, own]))
    factors = times.step_time_s / times.analytical_s
    assert times.analytical_s[1] < times.analytical_s[0]
    assert factors[1] == pytest.approx(factors[0], rel=1e-9)


def test_an_answer_prices_one_group_and_its_proxys_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    known = table.work_of

    def counted(group: Jobs, *further: Any) -> Work:
        asked.append(len(group))
        return known(group, *further)

    monkeypatch.setattr(table, "work_of", counted)
    job = Request.of({"model": "gpt2", "device": "H100", "gpus": 8, "batch_size": 8}).resolve()
    shipped_predictor().times(job_table([job]))
    assert len(asked) == 1
    asked.clear()
    own = replace(job, cluster=replace(job.cluster, reference=job.cluster, assumptions=()))
    own = replace(own, stragglers=False)
    shipped_predictor().times(job_table([own]))
    assert len(asked) <= 2


def test_nothing_reaches_the_trees_but_one_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of answers, sweeps, layouts, calibrations, evaluation and cross-validation; the rest are intervals, and
    what questions are off by."""
    callers: set[tuple[str, str]] = set()
    known = TreeEnsemble.predict

    def noted(self: TreeEnsemble, x: np.ndarray) -> np.ndarray:
        code = sys._getframe(1).f_code
        callers.add((Path(code.co_filename).name, code.co_name))
        return known(self, x)

    monkeypatch.setattr(TreeEnsemble, "predict", noted)
    job = {"model": "gpt2", "device": "A100", "gpus": 8, "batch_size": 4}
    answer = precision_time.predict_time(**job)
    precision_time.predict_time(**job, anchors=[{"step_time_s": answer.step_time_s}])
    precision_time.sweep("gpt2", device="A100", batch_size=[1, 2])
    precision_time.find_layouts("gpt2", device="A100", gpus=8, global_batch_size=32, top=1)
    steps = tmp_path / "steps.csv"
    steps.write_text("model,device,gpus,batch_size,step_time_s\ngpt2,A100,8,4,0.1\n", encoding="utf-8")
    evaluate_csv(steps)
    [*out_of_fold(TABLE, [HALVES], weights=np.ones(N), settings=SETTINGS["step"], seed=0)]
    others = {("intervals.py", "expected_error"), ("question_model.py", "corrected")}
    assert callers == {("predictor.py", "correction")} | others
    source = Path(precision_time.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    for called in (".trees.predict(", ".correction("):
        assert [path.name for path, text in texts.items() if called in text] == ["predictor.py"]
