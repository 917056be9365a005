"""Training steps as a script writes them, and what times them.

On one device steps are queued back to back and timed in blocks. In a group of workers they are timed one by
one, with the wait for gradients measured separately in the steps themselves: DDP hands every bucket of
gradients to a communication hook when the last gradient in it is ready; the hook notes the time and starts
the usual all-reduce. The last note of a backward pass is when this worker had done all of its own work; from
there until `backward` returns it only waits for the other workers and for the network. On a GPU both
marks are CUDA events on the compute stream, which waits there for the communication stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from precision_time.errors import ConfigError

from ..device import MeasuredDevice, ResourceMonitor
from ..execution import backend_flags, free_memory, looped, synchronize
from ..kernels.float8 import with_fp8_linears
from ..kernels.operators import DTYPES
from ..precisions import MODES
from ..timer import Timing, time_calls
from ..trial import StepTrial
from .models import Batch, BuiltModel, build_model
from .tasks import Batches

_LEARNING_RATE = 1e-5
_EPSILON = 1e-6
"""Of Adam: the usual 1e-8 is zero in fp16."""
_LOSS_SCALE = 2.0**10
"""Low enough that no step is skipped."""
_MOMENTUM = {"sgd": 0.0, "sgd_with_momentum": 0.9}
_ADAM = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
_CHECKPOINTING = ("gradient_checkpointing_enable", "set_grad_checkpointing")
"""Methods by which transformers and timm switch activation checkpointing on."""


def build_optimizer(name: str, module: Any, *, fused: bool = False) -> Any:
    """An optimizer over the parameters of a module.

    Raises:
        ConfigError: If its name is unknown.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    options: dict[str, Any] = {"lr": _LEARNING_RATE, **({"fused": True} if fused else {})}
    if name in _MOMENTUM:
        return torch.optim.SGD(parameters, momentum=_MOMENTUM[name], **options)
    if name not in _ADAM:
        raise ConfigError(
            f"The optimizer {name!r} is unknown. To fix: use one of {', '.join((*_MOMENTUM, *_ADAM))}."
        )
    return _ADAM[name](parameters, eps=_EPSILON, **options)


def _mark(kind: str) -> Any:
    """Now on the clock of the host, or when the compute stream of the GPU gets here."""
    if kind != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(begin: Any, end: Any) -> float:
    """Between two marks; waits for the second."""
    if isinstance(end, float):
        return float(end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


class Trainer:
    """A model with its optimizer, and the times of its steps."""

    def __init__(
        self,
        module: Any,
        *,
        precision: str,
        device: Any,
        optimizer: Any,
        grad_accum: int = 1,
    ) -> None:
        """Prepare to train.

        Args:
            module: On the device, wrapped by DDP where there are several workers; returns the loss.
            precision: Key of MODES.
            device: A torch device, or its name.
            optimizer: Over the parameters of the module.
            grad_accum: Micro batches of a step.
        """
        mode = MODES[precision]
        self.device = torch.device(device)
        kind = self.device.type
        self.module = module
        self.optimizer = optimizer
        self.marks: list[tuple[Any, Any, Any, Any]] = []
        """Of each step of `run`: begin, last local gradient, end of the backward pass, end."""
        self.input_s: list[float] = []
        """Of each step of `run`: until its batch was in memory of the host, part of the step."""
        self._grad_accum = grad_accum
        self._ready: Any = None
        """When the last bucket of the backward pass was ready."""
        self.wait_method = self._watch_gradients()
        """How the wait for gradients is measured; empty where it is not."""
        self._scaler = torch.amp.GradScaler(kind, init_scale=_LOSS_SCALE, enabled=mode.scaled_loss)
        self.autocast: AbstractContextManager[Any] = nullcontext()
        if mode.autocast:
            self.autocast = torch.autocast(kind, dtype=DTYPES[mode.autocast])

    def _watch_gradients(self) -> str:
        """Have DDP report its buckets: not without DDP, nor for sparse gradients, which have no such hook."""
        sparse = any(getattr(part, "sparse", False) is True for part in self.module.modules())
        if sparse or not isinstance(self.module, torch.nn.parallel.DistributedDataParallel):
            return ""

        def all_reduce(_, bucket):  # type: ignore[no-untyped-def]
            self._ready = _mark(self.device.type)
            return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

        # Without annotations: DDP checks them, and does not accept the strings that this module's are.
        self.module.register_comm_hook(None, all_reduce)
        return "ddp-hook-cuda-events" if self.device.type == "cuda" else "ddp-hook-host-clock"

    def backward(self, batch: Batch) -> None:
        """Forward and backward passes of a step, over the same batch for every micro batch."""
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self._grad_accum):
            with self.autocast:
                loss = self.module(*batch)
                loss = loss / self._grad_accum if self._grad_accum > 1 else loss
            self._scaler.scale(loss).backward()

    def update(self) -> None:
        """Unscale the gradients where they are scaled, and change the parameters."""
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def run(self, batches: Iterator[Batch], most: int) -> float:
        """Train on the next `most` batches, which come into memory of the host as they are asked for.

        Returns:
            The wall time, the device's work included [s].
        """
        kind = self.device.type
        synchronize(kind)
        start_s = time.perf_counter()
        begin = _mark(kind)
        for _ in range(most):
            asked_s = time.perf_counter()
            batch = next(batches)
            self.input_s.append(time.perf_counter() - asked_s)
            self.backward(tuple(tensor.to(self.device, non_blocking=True) for tensor in batch))
            reduced = _mark(kind)
            self.update()
            end = _mark(kind)
            self.marks.append((begin, self._ready, reduced, end))
            begin = end
        synchronize(kind)
        return time.perf_counter() - start_s

    def step_times(self) -> list[float]:
        """Seconds of each step so far, from before its batch was read."""
        return [_seconds(begin, end) for begin, _, _, end in self.marks]

    def waits(self) -> list[float]:
        """Seconds that each step so far waited for gradients; none where they are not watched."""
        if not self.wait_method:
            return []
        return [max(_seconds(ready, reduced), 0.0) for _, ready, reduced, _ in self.marks]


def endless(batches: Batches, first: int = 0) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    for number in count(first):
        yield from batches(number)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """Time of one optimizer step on one device."""

    timing: Timing
    batch_size: int
    """Samples per forward pass."""
    params: int
    peak_bytes: float | None = None
    """Largest allocation during the timed steps; None on a CPU."""
    reserved_bytes: float | None = None
    power_w: float | None = None
    remarks: tuple[str, ...] = field(default=())


def measure_step(
    trial: StepTrial, device: MeasuredDevice, *, seconds: float, backend: str = "inductor"
) -> StepResult:
    """Time whole training steps of one configuration.

    Args:
        trial: What to time.
        device: Where.
        seconds: Of timed steps, about; at least three are timed.
        backend: Of torch.compile, for compiled trials.

    Raises:
        ConfigError: If the model has no activation checkpointing or no linear layer for fp8.
    """
    cuda, timm = device.kind == "cuda", trial.model.library == "timm"
    monitor = ResourceMonitor(device.kind, query_tool=True)
    try:
        with backend_flags(tf32=MODES[trial.precision].tf32, tuned_convolutions=timm):
            built = prepared_model(trial, device.kind)
            trainer = trainer_of(trial, built, device.kind, backend)

            def step() -> None:
                trainer.backward(built.batch)
                trainer.update()

            timing = time_calls(looped([step], device.kind), seconds=seconds, warmed=monitor.start)
            return StepResult(
                timing=timing,
                batch_size=built.batch_size,
                params=sum(p.numel() for p in built.module.parameters()),
                remarks=("cudnn.benchmark on",) if timm else (),
                power_w=monitor.power_w() if cuda else None,
                peak_bytes=monitor.peak_bytes() if cuda else None,
                reserved_bytes=float(torch.cuda.max_memory_reserved()) if cuda else None,
            )
    finally:
        if trial.compiled:
            torch.compiler.reset()
        free_memory(device.kind)


def prepared_model(trial: StepTrial, kind: str) -> BuiltModel:
    """The model in the types and the memory format of the trial."""
    mode = MODES[trial.precision]
    built = build_model(trial.model, trial.batch_size, kind)
    module, batch = built.module, built.batch
    if mode.params != "fp32":
        dtype = DTYPES[mode.params]
        module = module.to(dtype)
        # Labels may be floats too, but the losses take them as fp32: only the first input is data.
        if isinstance(batch[0], torch.Tensor) and batch[0].is_floating_point():
            batch = (batch[0].to(dtype), *batch[1:])
    if trial.channels_last:
        layout = torch.channels_last
        module = module.to(memory_format=layout)
        batch = tuple(v.to(memory_format=layout) if getattr(v, "ndim", 0) == 4 else v for v in batch)
    if mode.fp8 and not with_fp8_linears(module):
        raise ConfigError(f"{trial.model.name} has no linear layer that can multiply in fp8.")
    if trial.checkpointing:
        network = getattr(module, "network", module)
        switch = next((name for name in _CHECKPOINTING if hasattr(network, name)), None)
        if switch is None:
            raise ConfigError(
                f"{trial.model.name} has no activation checkpointing. To fix: leave it out of that [[step]] "
                "table."
            )
        getattr(network, switch)()
    return BuiltModel(module=module, batch=batch, batch_size=built.batch_size)


def trainer_of(trial: StepTrial, built: BuiltModel, kind: str, backend: str) -> Trainer:
    """What makes the steps of a trial; the network is compiled where the trial says so."""
    module = built.module
    optimizer = build_optimizer(trial.model.optimizer, module, fused=trial.fused_optimizer)
    if trial.compiled and hasattr(module, "network"):
        module.network = torch.compile(module.network, backend=backend)
    elif trial.compiled:
        module = torch.compile(module, backend=backend)
    return Trainer(
        module, precision=trial.precision, device=kind, optimizer=optimizer, grad_accum=trial.grad_accum
    )
