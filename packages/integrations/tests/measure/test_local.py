"""A run over many trials: failures are told, what is there is not measured again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement, Quality
from precision_time.errors import MissingExtraError
from precision_time_integrations.measure.device import MeasuredDevice
from precision_time_integrations.measure.kernels.timing import KernelResult
from precision_time_integrations.measure.launchers.local import run_trials
from precision_time_integrations.measure.plan import MeasurePlan, select
from precision_time_integrations.measure.steps.training import StepResult
from precision_time_integrations.measure.timer import Timing
from precision_time_integrations.measure.trial import KernelTrial, LocalTrial, StepTrial

TIMING = Timing(median_s=0.25, low_s=0.2, high_s=0.3, repeats=5, calls=4)


class Bench:
    """Measures without running anything; fails where it is told to."""

    def __init__(self, **failures: Exception) -> None:
        self.failures = failures
        self.asked: list[str] = []

    def __call__(self, trial: LocalTrial) -> KernelResult | StepResult:
        self.asked.append(trial.key)
        name = trial.op if isinstance(trial, KernelTrial) else trial.precision.replace("-", "_")
        if name in self.failures:
            raise self.failures[name]
        if isinstance(trial, KernelTrial):
            return KernelResult(timing=TIMING, timed="loop")
        return StepResult(timing=TIMING, batch_size=32, params=9, peak_bytes=2.0**31, power_w=612.0)


def test_a_trial_without_memory_is_recorded_and_the_run_goes_on(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    bench = Bench(
        bf16=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), bmm=MemoryError()
    )
    report = run_trials(select(tiny), cpu, out=tmp_path, measure=bench)
    assert set(report.failed.values()) == {"out of memory"}
    assert len(report.failed) == 1 + 2
    assert len(report.measured) == len(bench.asked) - 3
    failed = [row for row in read_measurements(report.about["files"]["steps"]) if not row.usable]
    assert [(row.precision, row.quality, row.quality_reason) for row in failed] == [
        ("bf16", Quality.UNUSABLE, "out of memory")
    ]


def test_an_error_of_a_kernel_is_told_in_its_words(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    bench = Bench(softmax=RuntimeError("no kernel\nimage " + "x" * 500))
    report = run_trials(select(tiny, ops=["softmax"], what="ops"), cpu, out=tmp_path, measure=bench)
    assert [reason[:25] for reason in report.failed.values()] == ["RuntimeError: no kernel\ni"] * 2
    lines = Path(report.about["files"]["failures"]).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 2
    assert all(len(line) < 400 for line in lines)


def test_a_lost_device_ends_the_run(tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path) -> None:
    trials = select(tiny, what="ops", ops=["linear", "bmm"])
    bench = Bench(linear=RuntimeError("CUDA error: an illegal memory access was encountered"))
    report = run_trials(trials, cpu, out=tmp_path, measure=bench)
    assert len(bench.asked) == 1
    assert report.left == len(trials) - 1


def test_a_second_run_measures_only_what_is_missing(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    trials = select(tiny)
    failing = Bench(bmm=MemoryError())
    first = run_trials(trials, cpu, out=tmp_path, measure=failing)
    again = run_trials(trials, cpu, out=tmp_path, measure=Bench())
    assert again.measured == []
    assert again.skipped == len(first.measured) + len(first.failed)
    retried = run_trials(trials, cpu, out=tmp_path, measure=Bench(), retry_failed=True)
    assert {trial.op for trial in retried.measured if isinstance(trial, KernelTrial)} == {"bmm"}
    assert retried.skipped == len(first.measured)


def test_an_interrupted_run_keeps_what_it_has(tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path) -> None:
    trials = select(tiny, what="ops")
    bench = Bench(attention=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        run_trials(trials, cpu, out=tmp_path, measure=bench)
    rest = run_trials(trials, cpu, out=tmp_path, measure=Bench())
    assert rest.skipped == len(bench.asked) - 1
    assert rest.skipped + len(rest.measured) == len(trials)


def test_trials_that_the_device_has_no_units_for_are_counted(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    report = run_trials(select(tiny, what="steps"), cpu, out=tmp_path, measure=Bench())
    assert report.refused == {"no fp8 on a CPU": 1, "no tf32 on a CPU": 1}


def test_no_trial_is_started_that_would_pass_the_budget(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    trials = select(tiny, precisions=["fp32"])
    report = run_trials(trials, cpu, out=tmp_path, measure=Bench(), budget_s=3.0)
    assert all(isinstance(trial, KernelTrial) for trial in report.measured)
    assert report.left == sum(isinstance(trial, StepTrial) for trial in trials)


def test_progress_is_told_before_each_trial(tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path) -> None:
    trials = select(tiny, what="ops", ops=["linear"])
    told: list[tuple[int, int]] = []
    run_trials(
        trials, cpu, out=tmp_path, measure=Bench(), progress=lambda now: told.append((now.done, now.total))
    )
    assert told == [(index, len(trials)) for index in range(len(trials))]


def test_a_row_says_what_was_measured(tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path) -> None:
    trials = select(tiny, what="steps", models=["own_models:perceptron"])
    report = run_trials(trials, cpu, out=tmp_path, measure=Bench())
    rows = [row for row in read_measurements(report.about["files"]["steps"]) if isinstance(row, Measurement)]
    accumulated = next(row for row in rows if row.num_microbatches == 2)
    assert accumulated.source == "own-cpu-xeon-platinum-8480"
    assert accumulated.global_batch_size == 2 * 32
    assert accumulated.throughput == pytest.approx(2 * 32 / 0.25)
    assert accumulated.step_time_s == 0.25
    assert accumulated.repeat_count == 5
    assert accumulated.spread == pytest.approx(0.4, rel=1e-3)
    assert accumulated.peak_memory_bytes == 2.0**31
    assert accumulated.stack.fused_optimizer and accumulated.optimizer == "adamw"
    assert "mean power 612 W" in accumulated.notes
    assert len({row.configuration_key for row in rows}) == len(rows)


def test_trials_whose_library_is_missing_are_left_for_another_time(
    tiny: MeasurePlan, cpu: MeasuredDevice, tmp_path: Path
) -> None:
    trials = select(tiny, what="steps", precisions=["fp32"])
    missing = MissingExtraError(package="timm", extra="capture", purpose="build timm models")
    report = run_trials(trials, cpu, out=tmp_path, measure=Bench(fp32=missing))
    assert report.refused == {str(missing): len(trials)}
    assert report.failed == {}
    again = run_trials(trials, cpu, out=tmp_path, measure=Bench())
    assert again.measured == trials
