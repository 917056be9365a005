"""Results as rows: whole steps in the schema of docs/reference/corpus.md, operators in that of op tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..units import GIBI
from .device import MeasuredDevice
from .modes import MODES
from .points import OpPoint, Point, StepPoint

if TYPE_CHECKING:
    from .kernels import OpResult
    from .steps import StepResult

_FUSED_NAMES = {
    "sgd_with_momentum": "FusedMomentum",
    "adam": "fusedadam",
    "adamw": "adamw_torch_fused",
}
_LONGEST_REASON = 200


def step_cells(point: StepPoint, device: MeasuredDevice, result: StepResult) -> dict[str, Any]:
    """The row of a measured step."""
    step_s = result.timing.median_s
    samples = result.batch_size * point.grad_accum
    units = samples * _units_per_sample(point)
    high, low = (units / seconds for seconds in (result.timing.low_s, result.timing.high_s))
    notes = [
        f"median of {result.timing.repeats} repeats, min {low:.4f} max {high:.4f} {point.model.unit}",
        f"{result.timing.calls} steps each, warm-up excluded; synthetic data on the device",
        device.software,
        *result.remarks,
    ]
    if result.peak_bytes is not None:
        notes.append(f"peak memory {result.peak_bytes / GIBI:.3f} GiB")
    if result.reserved_bytes is not None:
        notes.append(f"reserved {result.reserved_bytes / GIBI:.3f} GiB")
    if result.power_w is not None:
        notes.append(f"mean power {result.power_w:.0f} W")
    return {
        **_configuration(point, device, result.batch_size),
        "throughput": units / step_s,
        "throughput_unit": point.model.unit,
        "step_time_s": step_s,
        "notes": "; ".join(notes),
    }


def failed_step_cells(point: StepPoint, device: MeasuredDevice, reason: str) -> dict[str, Any]:
    """The row of a step that could not be measured: it says so, and has no time."""
    return {
        **_configuration(point, device, point.batch_size),
        "notes": device.software,
        "quality": f"unusable: {_short(reason)}",
    }


def _configuration(point: StepPoint, device: MeasuredDevice, batch_size: int) -> dict[str, Any]:
    spec = point.model
    sizes = {**spec.sizes, **({"image_size": spec.image_size} if spec.image_size else {})}
    layout = {"dp": 1, **({"activation_checkpointing": "full"} if point.checkpointing else {})}
    return {
        "source": device.source,
        "source_ref": f"precision-time measure {__version__}",
        "run_id": point.key,
        "model": spec.name,
        "model_config": _json(sizes) if sizes else "",
        "task": spec.task,
        "dataset": "synthetic",
        "framework": "pytorch",
        "framework_version": device.framework_version,
        "device": device.name,
        "devices": 1,
        "nodes": 1,
        "precision": point.precision,
        "precision_detail": MODES[point.precision].detail,
        "memory_format": "nhwc" if point.channels_last else "nchw" if spec.image_size else "",
        "compiler": "torch.compile" if point.compiled else "none",
        "parallelism": _json(layout),
        "optimizer": _FUSED_NAMES.get(spec.optimizer, spec.optimizer)
        if point.fused_optimizer
        else spec.optimizer,
        "batch_per_device": batch_size or None,
        "grad_accum": point.grad_accum,
        "global_batch": batch_size * point.grad_accum or None,
        "seq_len": spec.seq_len,
        "timing_scope": "full-step",
    }


def _units_per_sample(point: StepPoint) -> int:
    return point.model.seq_len or 1 if point.model.unit == "tokens/s" else 1


def op_cells(point: OpPoint, device: MeasuredDevice, result: OpResult) -> dict[str, Any]:
    """The row of a measured operator."""
    return {
        "source": device.source,
        "device": device.name,
        "op": point.op,
        "dtype": point.dtype,
        "shape": point.shape_json,
        "phase": point.phase,
        "latency_ms": result.timing.median_s * 1e3,
        "repeats": result.timing.repeats,
        "spread": result.timing.spread,
        "timed": result.timed,
        "framework_version": device.framework_version,
    }


def failure_cells(point: Point, device: MeasuredDevice, reason: str) -> dict[str, Any]:
    """The line of a point that could not be measured."""
    return {"source": device.source, "device": device.name, "point": point.key, "reason": _short(reason)}


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST_REASON else plain[: _LONGEST_REASON - 3] + "..."


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
