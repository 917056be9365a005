"""Results as rows: training steps as docs/reference/corpus.md describes, operators as the op tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from precision_time import __version__
from precision_time.units import GIBI

from .device import MeasuredDevice
from .precisions import MODES
from .trial import KernelTrial, LocalTrial, StepTrial

if TYPE_CHECKING:
    from .kernels.timing import KernelResult
    from .steps.training import StepResult

_FUSED_NAMES = {
    "sgd_with_momentum": "FusedMomentum",
    "adam": "fusedadam",
    "adamw": "adamw_torch_fused",
}
"""Optimizer -> what the corpus calls its fused implementation."""
_LONGEST_REASON = 200


def step_cells(trial: StepTrial, device: MeasuredDevice, result: StepResult) -> dict[str, Any]:
    """The row of a measured step."""
    timing = result.timing
    samples = result.batch_size * trial.grad_accum
    units = samples * (trial.model.seq_len or 1 if trial.model.unit == "tokens/s" else 1)
    high, low = (units / seconds for seconds in (timing.low_s, timing.high_s))
    notes = [
        f"median of {timing.repeats} repeats, min {low:.4f} max {high:.4f} {trial.model.unit}",
        f"{timing.calls} steps each, warm-up excluded; synthetic data on the device",
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
        **_configuration(trial, device, result.batch_size),
        "throughput": units / timing.median_s,
        "throughput_unit": trial.model.unit,
        "step_time_s": timing.median_s,
        "notes": "; ".join(notes),
    }


def failed_step_cells(trial: StepTrial, device: MeasuredDevice, reason: str) -> dict[str, Any]:
    """The row of a step that could not be measured: it says so, and has no time."""
    return {
        **_configuration(trial, device, trial.batch_size),
        "notes": device.software,
        "quality": f"unusable: {short(reason)}",
    }


def common_cells(precision: str, framework_version: str) -> dict[str, Any]:
    """Columns that both launchers fill in the same way."""
    return {
        "framework": "pytorch",
        "framework_version": framework_version,
        "precision": precision,
        "precision_detail": MODES[precision].detail,
        "timing_scope": "full-step",
    }


def _configuration(trial: StepTrial, device: MeasuredDevice, batch_size: int) -> dict[str, Any]:
    spec = trial.model
    image_size = {"image_size": spec.image_size} if spec.image_size else {}
    sizes = {**spec.sizes, **image_size, **spec.build.get("sizes", {})}
    layout = {"dp": 1, **({"activation_checkpointing": "full"} if trial.checkpointing else {})}
    fused = _FUSED_NAMES.get(spec.optimizer, spec.optimizer)
    return {
        **common_cells(trial.precision, device.framework_version),
        "source": device.source,
        "source_ref": f"precision-time measure {__version__}",
        "run_id": trial.key,
        "model": spec.name,
        "model_config": as_json(sizes) if sizes else "",
        "task": spec.task,
        "dataset": "synthetic",
        "device": device.name,
        "devices": 1,
        "nodes": 1,
        "memory_format": "nhwc" if trial.channels_last else "nchw" if spec.image_size else "",
        "compiler": "torch.compile" if trial.compiled else "none",
        "parallelism": as_json(layout),
        "stack": "pytorch-compiled" if trial.compiled else "pytorch-eager",
        "optimizer": fused if trial.fused_optimizer else spec.optimizer,
        "batch_per_device": batch_size or None,
        "grad_accum": trial.grad_accum,
        "global_batch": batch_size * trial.grad_accum or None,
        "seq_len": spec.seq_len,
    }


def op_cells(trial: KernelTrial, device: MeasuredDevice, result: KernelResult) -> dict[str, Any]:
    """The row of a measured operator."""
    return {
        "source": device.source,
        "device": device.name,
        "op": trial.op,
        "dtype": trial.dtype,
        "shape": trial.shape_json,
        "phase": trial.phase,
        "latency_ms": result.timing.median_s * 1e3,
        "repeats": result.timing.repeats,
        "spread": result.timing.spread,
        "timed": result.timed,
        "framework_version": device.framework_version,
    }


def failure_cells(trial: LocalTrial, device: MeasuredDevice, reason: str) -> dict[str, Any]:
    """The line of a trial that could not be measured."""
    return {"source": device.source, "device": device.name, "point": trial.key, "reason": short(reason)}


def short(text: str) -> str:
    """A reason in one line of bounded length."""
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST_REASON else plain[: _LONGEST_REASON - 3] + "..."


def as_json(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def share_name(processor: str, instructions: str, cores: float) -> str:
    """The device that a share of a processor is, with the vector instructions where they are known.

    >>> share_name("CPU-AMD-EPYC", "avx512", 1), share_name("CPU-AMD-EPYC", "", 0.5)
    ('CPU-AMD-EPYC-avx512-1-core', 'CPU-AMD-EPYC-0.5-cores')
    """
    return "-".join(filter(None, (processor, instructions, f"{cores:g}-core{'s' * (cores != 1)}")))
