"""How long a whole optimizer step takes: forward, backward, loss scaling, optimizer, inputs on the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ConfigError
from .device import MeasuredDevice, PowerMeter
from .execution import free_memory, looped, product_precision, tuned_convolutions
from .float8 import with_fp8_linears
from .models import BuiltModel, build_model
from .modes import MODES, Mode
from .ops import DTYPES
from .points import StepPoint
from .timing import Timing, time_calls

_LEARNING_RATE = 1e-5
_EPSILON = 1e-6
"""Of Adam: the usual 1e-8 is zero in fp16."""
_LOSS_SCALE = 2.0**10
"""Low enough that no step is skipped."""
_MOMENTUM = {"sgd": 0.0, "sgd_with_momentum": 0.9}


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What one optimizer step took."""

    timing: Timing
    batch_size: int
    """Samples per forward pass."""
    params: int
    peak_bytes: float | None = None
    """Largest allocation during the timed steps; None on a CPU."""
    reserved_bytes: float | None = None
    power_w: float | None = None
    remarks: tuple[str, ...] = ()


def measure_step(
    point: StepPoint, device: MeasuredDevice, *, seconds: float, backend: str = "inductor"
) -> StepResult:
    """Time whole training steps of one configuration.

    Args:
        point: What to time.
        device: Where.
        seconds: Of timed steps, about; at least three are timed.
        backend: Of torch.compile, for compiled points.

    Raises:
        ConfigError: If the model has no activation checkpointing or no linear layer for fp8.
    """
    mode = MODES[point.precision]
    watch = _Watch(device.kind)
    try:
        with product_precision(tf32=mode.tf32), tuned_convolutions(on=point.model.library == "timm"):
            built = _prepared(point, mode, device.kind)
            step = _step(point, mode, built, device.kind, backend)
            timing = time_calls(looped([step], device.kind), seconds=seconds, warmed=watch.start)
            return StepResult(
                timing=timing,
                batch_size=built.batch_size,
                params=sum(p.numel() for p in built.module.parameters()),
                remarks=("cudnn.benchmark on",) if point.model.library == "timm" else (),
                **watch.stop(),
            )
    finally:
        if point.compiled:
            torch.compiler.reset()
        free_memory(device.kind)


class _Watch:
    """Memory and power while the timed steps run."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._meter = PowerMeter(kind)
        self._start_s = 0.0

    def start(self) -> None:
        if self._kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self._meter.start()
        self._start_s = time.perf_counter()

    def stop(self) -> dict[str, float | None]:
        if self._kind != "cuda":
            return {}
        return {
            "power_w": self._meter.stop(time.perf_counter() - self._start_s),
            "peak_bytes": float(torch.cuda.max_memory_allocated()),
            "reserved_bytes": float(torch.cuda.max_memory_reserved()),
        }


def _prepared(point: StepPoint, mode: Mode, kind: str) -> BuiltModel:
    """The model in the types and the memory format of the point."""
    built = build_model(point.model, point.batch_size, kind)
    module, args = built.module, built.args
    if mode.held != "fp32":
        held = DTYPES[mode.held]
        module = module.to(held)
        # Labels of torch_models are floats too, but the loss takes them as fp32: only first inputs are data.
        args = tuple(
            value.to(held) if index == 0 and torch.is_floating_point(value) else value
            for index, value in enumerate(args)
        )
    if point.channels_last:
        module = module.to(memory_format=torch.channels_last)
        args = tuple(v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for v in args)
    if mode.fp8 and not with_fp8_linears(module):
        raise ConfigError(f"{point.model.name} has no linear layer that can multiply in fp8.")
    if point.checkpointing:
        _checkpoint(module, point.model.name)
    return BuiltModel(
        module=module, args=args, kwargs=built.kwargs, loss=built.loss, batch_size=built.batch_size
    )


def _checkpoint(module: Any, name: str) -> None:
    for switch in ("gradient_checkpointing_enable", "set_grad_checkpointing"):
        if hasattr(module, switch):
            getattr(module, switch)()
            return
    raise ConfigError(
        f"{name} has no activation checkpointing of its own. To fix: leave it out of that [[step]] table."
    )


def _optimizer(point: StepPoint, module: Any) -> Any:
    parameters = [p for p in module.parameters() if p.requires_grad]
    options: dict[str, Any] = {"lr": _LEARNING_RATE}
    if point.fused_optimizer:
        options["fused"] = True
    name = point.model.optimizer
    if name in _MOMENTUM:
        return torch.optim.SGD(parameters, momentum=_MOMENTUM[name], **options)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if name not in kinds:
        raise ConfigError(
            f"The optimizer {name!r} of {point.model.name} is not known. "
            f"To fix: use one of {', '.join((*_MOMENTUM, *kinds))}."
        )
    return kinds[name](parameters, eps=_EPSILON, **options)


def _step(point: StepPoint, mode: Mode, built: BuiltModel, kind: str, backend: str) -> Callable[[], None]:
    """One optimizer step as a training script writes it."""
    optimizer = _optimizer(point, built.module)
    scaler = torch.amp.GradScaler(kind, init_scale=_LOSS_SCALE, enabled=mode.scaled_loss)
    model = torch.compile(built.module, backend=backend) if point.compiled else built.module
    autocast = torch.autocast(kind, dtype=DTYPES[mode.autocast or "fp32"], enabled=bool(mode.autocast))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(point.grad_accum):
            with autocast:
                loss = built.loss(model(*built.args, **built.kwargs)) / point.grad_accum
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
