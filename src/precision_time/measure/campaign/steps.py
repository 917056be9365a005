"""Training steps of one worker, timed one by one, with the wait for gradients told apart.

The wait is measured in the steps themselves. DDP hands every bucket of gradients to a communication hook
when the last gradient in it is ready; the hook notes the time and starts the usual all-reduce. The last note
of a backward pass is when this worker had done all of its own work; from there until `backward` is through,
all that happens is waiting for the other workers and for the wire. On a GPU both marks are CUDA events on
the compute stream, which waits there for the communication stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ...units import KIBI
from ..execution import product_precision
from ..modes import MODES
from ..ops import DTYPES
from .batches import Batches
from .models import Batch

_LOSS_SCALE = 2.0**10
"""Low enough that no step is skipped."""
_RESET_PEAK = "5"
"""What makes Linux forget the largest resident set of a process (proc(5), clear_refs)."""
_SELF = Path("/proc/self")


class HostClock:
    """Marks on a device that computes while the host waits."""

    method = "ddp-hook-host-clock"

    def mark(self) -> Any:
        """Now."""
        return time.perf_counter()

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks."""
        return float(end - begin)


class CudaClock:
    """Marks on the compute stream of a GPU; read after it has caught up."""

    method = "ddp-hook-cuda-events"

    def mark(self) -> Any:
        """When the stream gets here."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks; waits for the second."""
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3


Clock = HostClock | CudaClock


@dataclass(slots=True)
class Gradients:
    """Notes when the last bucket of a backward pass was ready."""

    clock: Clock
    ready: Any = None

    def watch(self, module: Any) -> bool:
        """Have DDP report its buckets. Returns whether it does: not without DDP, nor for sparse gradients."""
        sparse = any(getattr(part, "sparse", False) is True for part in module.modules())
        if sparse or not isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return False
        # DDP looks at annotations, and takes none for right ones but not the texts that this module's are.
        module.register_comm_hook(self, lambda gradients, bucket: _noting(gradients, bucket))  # noqa: PLW0108
        return True


def _noting(gradients: Gradients, bucket: Any) -> Any:
    gradients.ready = gradients.clock.mark()
    return default_hooks.allreduce_hook(dist.group.WORLD, bucket)


@dataclass(slots=True)
class Trainer:
    """A model with its optimizer, as a training script holds them."""

    module: Any
    """On the device, wrapped by DDP where there are several workers; returns the loss."""
    optimizer: Any
    precision: str
    device: Any
    clock: Clock
    gradients: Gradients
    watched: bool
    marks: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    """Of each step: begin, last local gradient, end of the backward pass, end."""
    _scaler: Any = None

    def __post_init__(self) -> None:
        mode = MODES[self.precision]
        self._scaler = torch.amp.GradScaler(
            self.device.type, init_scale=_LOSS_SCALE, enabled=mode.scaled_loss
        )

    def _autocast(self) -> AbstractContextManager[Any]:
        word = MODES[self.precision].autocast
        if not word:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(self.device.type, dtype=DTYPES[word])
        return context

    def step(self, batch: Batch, begin: Any) -> Any:
        """One optimizer step. Returns the mark at its end.

        Args:
            batch: In memory of the host.
            begin: Mark from which the step counts: before its batch was read.
        """
        moved = [tensor.to(self.device, non_blocking=True) for tensor in batch]
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.module(*moved)
        self._scaler.scale(loss).backward()
        reduced = self.clock.mark()
        self._scaler.step(self.optimizer)
        self._scaler.update()
        end = self.clock.mark()
        self.marks.append((begin, self.gradients.ready, reduced, end))
        return end

    def finish(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(self, batches: Iterator[Batch], most: int) -> float:
        """Train on the next `most` batches. Returns the wall time [s], the device's work included."""
        self.finish()
        start_s = time.perf_counter()
        begin = self.clock.mark()
        for _ in range(most):
            begin = self.step(next(batches), begin)
        self.finish()
        return time.perf_counter() - start_s

    def step_times(self) -> list[float]:
        """Seconds of each step so far."""
        return [self.clock.seconds(begin, end) for begin, _, _, end in self.marks]

    def waits(self) -> list[float]:
        """Seconds that each step so far waited for gradients; none where they are not watched."""
        if not self.watched:
            return []
        return [max(self.clock.seconds(ready, reduced), 0.0) for _, ready, reduced, _ in self.marks]


def endless(batches: Batches) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    for number in count():
        yield from batches.epoch(number)


def clock_of(device: Any) -> Clock:
    """How time is told on a device."""
    return CudaClock() if device.type == "cuda" else HostClock()


def products(precision: str) -> AbstractContextManager[None]:
    """Whether products run as TF32 inside the block."""
    return product_precision(tf32=MODES[precision].tf32)


def forget_peak(device: Any) -> Callable[[], float | None]:
    """Start to watch the memory of this worker.

    Returns:
        Tells the largest since then [bytes]: allocated on a GPU, resident of the process on a CPU; None
        where the system cannot tell.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return lambda: float(torch.cuda.max_memory_allocated())
    try:
        (_SELF / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return lambda: None
    return _peak_resident


def _peak_resident() -> float | None:
    try:
        lines = (_SELF / "status").read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return None if kib is None else float(kib) * KIBI
