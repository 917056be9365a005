"""Trials on the device of this machine: stored ones are skipped, others are measured, each stored at once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from precision_time.errors import MissingExtraError

from ..device import MeasuredDevice
from ..plan import MeasurePlan
from ..report import Progress, ProgressCallback, TrialReport
from ..rows import failed_step_cells, failure_cells, op_cells, step_cells
from ..store import CsvStore, only_writer
from ..trial import KernelTrial, LocalTrial, StepTrial

Measure = Callable[[LocalTrial], Any]
"""A `KernelResult` or a `StepResult` for a trial; raises what the trial raises."""
_EXPECTED_S = {"op": 1.0, "step": 6.0, "compiled": 60.0}
"""What a trial may take altogether, building and warming up included."""
OUT_OF_MEMORY = "out of memory"


def run_trials(
    trials: Sequence[LocalTrial],
    device: MeasuredDevice,
    *,
    out: Path,
    measure: Measure,
    budget_s: float | None = None,
    retry_failed: bool = False,
    progress: ProgressCallback = lambda _: None,
) -> TrialReport:
    """Measure trials one after another into CSV files below `out`.

    Args:
        trials: In the order in which they are wanted.
        device: What they run on.
        out: Folder of the files; what they already hold is not measured again.
        measure: Times one trial.
        budget_s: Wall-clock limit; no trial is started that would pass it. None: all trials.
        retry_failed: Measure trials again that failed before.
        progress: Called before each trial.

    Raises:
        CorpusError: If the files cannot be written (the message holds a result that was measured), or another
            process is measuring into them.
    """
    store = CsvStore(out, device.source)
    about = {"device": device.name, "source": device.source, "files": store.files}
    report = TrialReport(about=about, by_kind=True)
    start_s = time.perf_counter()
    with only_writer(store.steps.path):
        wanted = _wanted(trials, device, store.settled(retry_failed=retry_failed), report)
        for index, trial in enumerate(wanted):
            progress(Progress(done=index, total=len(wanted), trial=str(trial)))
            if budget_s is not None and time.perf_counter() - start_s + _expected_s(trial) > budget_s:
                report.left += 1
                continue
            if not _measure_one(trial, device, store, measure, report):
                report.left += len(wanted) - index - 1
                break
    report.seconds = time.perf_counter() - start_s
    return report


def _wanted(
    trials: Sequence[LocalTrial], device: MeasuredDevice, settled: set[str], report: TrialReport
) -> list[LocalTrial]:
    wanted: list[LocalTrial] = []
    for trial in trials:
        reason = device.refuses(trial.precision)
        if reason:
            report.refused[reason] = report.refused.get(reason, 0) + 1
        elif trial.key in settled:
            report.skipped += 1
        else:
            wanted.append(trial)
    return wanted


def _expected_s(trial: LocalTrial) -> float:
    if isinstance(trial, StepTrial):
        return _EXPECTED_S["compiled" if trial.compiled else "step"]
    return _EXPECTED_S["compiled" if trial.shape.get("compiled") else "op"]


def _measure_one(
    trial: LocalTrial, device: MeasuredDevice, store: CsvStore, measure: Measure, report: TrialReport
) -> bool:
    """Measure and store one trial. Returns whether the device can go on."""
    from ..execution import is_lasting, is_out_of_memory

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = measure(trial)
    except MissingExtraError as error:
        report.refused[str(error)] = report.refused.get(str(error), 0) + 1
        return True
    except Exception as error:  # noqa: BLE001 - kernels, libraries and users' modules raise anything
        reason = OUT_OF_MEMORY if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        report.failed[trial.key] = reason
        store.failures.add(failure_cells(trial, device, reason))
        if isinstance(trial, StepTrial):
            store.steps.add(failed_step_cells(trial, device, reason))
        return not is_lasting(error)
    if isinstance(trial, KernelTrial):
        store.ops.add(op_cells(trial, device, result))
    else:
        store.steps.add(step_cells(trial, device, result))
    report.measured.append(trial)
    return True


def measurer(
    plan: MeasurePlan, device: MeasuredDevice, *, seconds: float | None = None, graphs: bool = True
) -> Measure:
    """What times the trials of a plan on a device.

    Args:
        plan: Says how long to time each kind of trial.
        device: Where.
        seconds: Timed seconds per trial instead of the plan's.
        graphs: Replay CUDA graphs for operators.
    """
    from ..kernels.timing import measure_kernel
    from ..steps.training import measure_step

    def measure(trial: LocalTrial) -> Any:
        if isinstance(trial, KernelTrial):
            return measure_kernel(trial, device, seconds=seconds or plan.op_seconds, graphs=graphs)
        return measure_step(trial, device, seconds=seconds or plan.step_seconds)

    return measure
