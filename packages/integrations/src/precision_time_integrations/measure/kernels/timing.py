"""How long one operator takes: operands rotated past the cache, kernels replayed without the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..device import MeasuredDevice
from ..execution import backend_flags, free_memory, is_out_of_memory, looped, on_stream, replayed
from ..timer import Run, Timing, time_calls
from ..trial import KernelTrial
from .operators import Case, build_case, call_of

_CACHE_SETS = 2.0
"""Operands of all copies together, as a multiple of the L2 cache: no call finds its inputs there."""
_MOST_COPIES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelResult:
    """Time of an operator."""

    timing: Timing
    timed: str
    """graph: kernels alone, replayed; loop: as the host starts them."""


def measure_kernel(
    trial: KernelTrial, device: MeasuredDevice, *, seconds: float, graphs: bool = True
) -> KernelResult:
    """Time one operator.

    Args:
        trial: What to time.
        device: Where.
        seconds: Of timed calls, about.
        graphs: Replay CUDA graphs where there are any; else kernels and host together.
    """
    kind = device.kind
    stream = torch.cuda.Stream() if kind == "cuda" and graphs else None
    try:
        with backend_flags(tf32=trial.dtype == "tf32", tuned_convolutions=True), on_stream(stream):
            cases = _cases(trial, device)
            calls = [call_of(case, trial.phase) for case in cases]
            run, per_run, timed = _run_of(cases[0], calls, kind, stream)
            timing = time_calls(run, seconds=seconds)
        return KernelResult(timing=timing.per(per_run * cases[0].parts), timed=timed)
    finally:
        if trial.shape.get("compiled"):
            torch.compiler.reset()
        free_memory(kind, cycles=False)


def _cases(trial: KernelTrial, device: MeasuredDevice) -> list[Case]:
    """As many copies of the operands as it takes to outgrow the cache."""
    first = build_case(trial.op, trial.dtype, trial.shape, device.kind)
    if not first.graph or not device.l2_bytes or first.parts > 1:
        return [first]
    wanted = math.ceil(_CACHE_SETS * device.l2_bytes / max(first.bytes, 1.0))
    copies = min(max(wanted, 1), _MOST_COPIES)
    return [first, *(build_case(trial.op, trial.dtype, trial.shape, device.kind) for _ in range(copies - 1))]


def _run_of(case: Case, calls: list[Any], kind: str, stream: Any) -> tuple[Run, int, str]:
    """The run, how many calls one of its calls makes, and how it is timed."""
    if stream is not None and case.graph:
        try:
            run, per_run = replayed(calls, stream)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            torch.cuda.synchronize()  # some kernels cannot be captured: they are timed with the host
        else:
            return run, per_run, "graph"
    return looped(calls, kind), 1, "loop"
