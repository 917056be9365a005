"""Going through the points: what is done is skipped, what fails is told, what is measured is stored."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from .device import MeasuredDevice
from .points import OpPoint, Plan, Point, StepPoint
from .rows import failed_step_cells, failure_cells, op_cells, step_cells
from .writer import Tables

Measure = Callable[[Point], Any]
"""An `OpResult` or a `StepResult` for a point; raises what the point raises."""
_EXPECTED_S = {"op": 1.0, "step": 6.0, "compiled": 60.0}
"""What a point may take altogether, building and warming up included."""
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a run stands."""

    done: int
    total: int
    point: str
    """What is being measured now."""


@dataclass(kw_only=True, slots=True)
class MeasureReport:
    """What became of every point."""

    device: str
    source: str
    files: dict[str, str]
    measured: list[Point] = field(default_factory=list)
    skipped: int = 0
    """Points that the files already held."""
    refused: dict[str, int] = field(default_factory=dict)
    """Points that the device has no hardware, or this machine no library for, by reason."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key of a point -> why it could not be measured."""
    left: int = 0
    """Points for which no time was left."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        ops = sum(isinstance(point, OpPoint) for point in self.measured)
        return {
            "device": self.device,
            "source": self.source,
            "files": self.files,
            "measured_ops": ops,
            "measured_steps": len(self.measured) - ops,
            "skipped": self.skipped,
            "refused": self.refused,
            "failed": self.failed,
            "left": self.left,
            "seconds": round(self.seconds, 1),
        }


def run_points(
    points: Sequence[Point],
    device: MeasuredDevice,
    *,
    out: Path,
    measure: Measure,
    budget_s: float | None = None,
    retry_failed: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> MeasureReport:
    """Measure points one after another into CSV files below `out`.

    Args:
        points: In the order in which they are wanted.
        device: What they run on.
        out: Folder of the files; what they already hold is not measured again.
        measure: Times one point.
        budget_s: Wall-clock limit; no point is started that would pass it. None: all points.
        retry_failed: Try points again that failed before.
        tell: Called before each point.

    Raises:
        CorpusError: If the files cannot be written.
    """
    tables = Tables(out, device.source)
    report = _report(tables, device)
    start_s = time.perf_counter()
    wanted = _wanted(points, device, tables.done(failed_too=not retry_failed), report)
    for index, point in enumerate(wanted):
        tell(Progress(done=index, total=len(wanted), point=str(point)))
        if budget_s is not None and time.perf_counter() - start_s + _expected_s(point) > budget_s:
            report.left += 1
            continue
        if not _measure_one(point, device, tables, measure, report):
            report.left = len(wanted) - index - 1 + report.left
            break
    report.seconds = time.perf_counter() - start_s
    return report


def _report(tables: Tables, device: MeasuredDevice) -> MeasureReport:
    files = {"steps": tables.steps.path, "ops": tables.ops.path, "failures": tables.failures.path}
    return MeasureReport(
        device=device.name, source=device.source, files={what: str(path) for what, path in files.items()}
    )


def _wanted(
    points: Sequence[Point], device: MeasuredDevice, done: set[str], report: MeasureReport
) -> list[Point]:
    wanted: list[Point] = []
    for point in points:
        reason = device.refuses(point.precision)
        if reason:
            _count(report.refused, reason)
        elif point.key in done:
            report.skipped += 1
        else:
            wanted.append(point)
    return wanted


def _count(reasons: dict[str, int], reason: str) -> None:
    reasons[reason] = reasons.get(reason, 0) + 1


def _expected_s(point: Point) -> float:
    if isinstance(point, StepPoint):
        return _EXPECTED_S["compiled" if point.compiled else "step"]
    return _EXPECTED_S["compiled" if point.shape.get("compiled") else "op"]


def _measure_one(
    point: Point, device: MeasuredDevice, tables: Tables, measure: Measure, report: MeasureReport
) -> bool:
    """Measure and store one point. Returns whether the device can go on."""
    from .execution import is_lasting, is_out_of_memory

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = measure(point)
    except MissingExtraError as error:
        _count(report.refused, str(error))
        return True
    except Exception as error:  # noqa: BLE001 - kernels, libraries and users' modules raise anything
        reason = OUT_OF_MEMORY if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        report.failed[point.key] = reason
        tables.failures.add(failure_cells(point, device, reason))
        if isinstance(point, StepPoint):
            tables.steps.add(failed_step_cells(point, device, reason))
        return not is_lasting(error)
    if isinstance(point, OpPoint):
        tables.ops.add(op_cells(point, device, result))
    else:
        tables.steps.add(step_cells(point, device, result))
    report.measured.append(point)
    return True


def measurer(
    plan: Plan, device: MeasuredDevice, *, seconds: float | None = None, graphs: bool = True
) -> Measure:
    """What times the points of a plan on a device.

    Args:
        plan: Says how long to time each kind of point.
        device: Where.
        seconds: Timed seconds per point instead of the plan's.
        graphs: Replay CUDA graphs for operators.
    """
    from .kernels import measure_op
    from .steps import measure_step

    def measure(point: Point) -> Any:
        if isinstance(point, OpPoint):
            return measure_op(point, device, seconds=seconds or plan.op_seconds, graphs=graphs)
        return measure_step(point, device, seconds=seconds or plan.step_seconds)

    return measure
