"""Whole training steps on the processor, and the way of their rows into the corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.errors import CaptureError, ConfigError
from precision_time.workload.resolve import load_workload
from precision_time_integrations.measure.device import MeasuredDevice
from precision_time_integrations.measure.launchers.local import measurer, run_trials
from precision_time_integrations.measure.plan import PLANS, MeasurePlan, load_plan, select
from precision_time_integrations.measure.precisions import MODES
from precision_time_integrations.measure.rows import step_cells
from precision_time_integrations.measure.steps import training as steps
from precision_time_integrations.measure.steps.models import BuiltModel, build_model
from precision_time_integrations.measure.store import CsvTable
from precision_time_integrations.measure.timer import Timing
from precision_time_integrations.measure.trial import ModelSpec, StepTrial

OWN = ModelSpec(name="own_models:perceptron", library="own", optimizer="adamw")
TIMING = Timing(median_s=0.25, low_s=0.2, high_s=0.3, repeats=5, calls=4)


def trial(precision: str = "fp32", **changes: object) -> StepTrial:
    return replace(StepTrial(model=OWN, precision=precision, batch_size=0), **changes)


def take_step(of: StepTrial, built: BuiltModel) -> None:
    trainer = steps.trainer_of(of, built, "cpu", "eager")
    trainer.backward(built.batch)
    trainer.update()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", sorted(MODES))
def test_a_step_moves_the_parameters(precision: str) -> None:
    mode = MODES[precision]
    built = steps.prepared_model(trial(precision), "cpu")
    before = [p.detach().clone() for p in built.module.parameters()]
    for _ in range(3):
        take_step(trial(precision), built)
    after = list(built.module.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert {p.dtype for p in after} == {steps.DTYPES[mode.params]}
    assert all(torch.isfinite(p).all() for p in after)


@pytest.mark.filterwarnings("ignore")
def test_accumulated_gradients_are_the_mean_of_their_batches() -> None:
    torch.manual_seed(0)
    one = steps.prepared_model(trial(), "cpu")
    gradients = []
    for grad_accum in (1, 4):
        take_step(trial(grad_accum=grad_accum), one)
        gradients.append([p.grad.clone() for p in one.module.parameters()])
    for once, summed in zip(*gradients, strict=True):
        assert torch.allclose(once, summed, rtol=1e-2, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_measured_step_knows_its_batch_and_parameters(cpu: MeasuredDevice) -> None:
    result = steps.measure_step(trial("bf16-mixed"), cpu, seconds=1e-3)
    assert result.batch_size == 32
    assert result.params == 16 * 32 + 32 + 32 * 16 + 16
    assert result.peak_bytes is None and result.power_w is None
    assert result.timing.median_s > 0.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_compiled_step_is_measured(cpu: MeasuredDevice) -> None:
    result = steps.measure_step(trial("bf16-mixed", compiled=True), cpu, seconds=1e-3, backend="eager")
    assert result.timing.repeats >= 3


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        (trial(model=replace(OWN, name="own_models:nothing")), CaptureError, "nothing"),
        (trial(model=replace(OWN, name="no_such_module:f")), CaptureError, "no_such_module"),
        (trial(model=replace(OWN, library="keras")), ConfigError, "keras"),
        (trial(model=replace(OWN, optimizer="lion")), ConfigError, "lion"),
        (trial(checkpointing=True), ConfigError, "checkpointing"),
    ],
)
def test_trials_that_cannot_be_are_refused(
    cpu: MeasuredDevice, changed: StepTrial, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        steps.measure_step(changed, cpu, seconds=1e-3)


@pytest.mark.parametrize("name", PLANS)
def test_rows_of_every_planned_step_become_jobs(name: str, tmp_path: Path) -> None:
    """On a device that has units for every precision."""
    gpu = MeasuredDevice(name="H200-SXM-141GB", kind="cuda", software="", framework_version="2.9.0")
    table = CsvTable(tmp_path / "steps.csv", steps_columns())
    planned = load_plan(name).steps
    for planned_trial in planned:
        result = steps.StepResult(timing=TIMING, batch_size=planned_trial.batch_size, params=1)
        table.add(step_cells(planned_trial, gpu, result))
    rows = [row for row in read_measurements(table.path) if isinstance(row, Measurement)]
    assert len(rows) == len(planned)
    for planned_trial, row in zip(planned, rows, strict=True):
        job = job_of(row)
        assert job.precision.name == planned_trial.precision
        assert job.layout.micro_batch_size == planned_trial.batch_size
        assert job.layout.num_microbatches == planned_trial.grad_accum
        assert job.layout.recompute.value == ("full" if planned_trial.checkpointing else "none")
        assert job.stack.compiler == ("inductor" if planned_trial.compiled else "none")
        assert job.stack.channels_last is planned_trial.channels_last
        assert row.step_time_s == 0.25 and row.scope.value == "full-step" and not job.stack.real_input
        assert row.quality.value == "fine"


def steps_columns() -> list[str]:
    from precision_time.corpus.schema import COLUMNS

    return COLUMNS


@pytest.mark.filterwarnings("ignore")
def test_measured_rows_can_be_evaluated(tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path) -> None:
    from precision_time.learn.evaluation import evaluate_csv

    trials = select(tiny, what="steps", models=["lstm-lm"])
    report = run_trials(trials, cpu, out=tmp_path, measure=measurer(tiny, cpu))
    assert report.failed == {}
    score = evaluate_csv(Path(report.about["files"]["steps"]))
    assert score.overall is not None and score.overall.n == 1
    assert score.n_unsupported == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANS)
def test_built_models_have_the_parameters_of_the_catalogue(name: str) -> None:
    from precision_time.capture.timm_models import import_timm

    import_timm()
    for spec in load_plan(name).specs.values():
        built = build_model(spec, 2, "meta")
        params = sum(p.numel() for p in built.module.parameters())
        work = load_workload(spec.name, seq_len=spec.seq_len, sizes=dict(spec.sizes) or None, task=spec.task)
        assert params == work.graph.params, spec.name
