"""How long one operator takes: operands rotated past the cache, kernels replayed without the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .device import MeasuredDevice
from .execution import (
    free_memory,
    is_out_of_memory,
    looped,
    on_stream,
    product_precision,
    replayed,
    tuned_convolutions,
)
from .ops import Case, build_case, call_of
from .points import OpPoint
from .timing import Run, Timing, time_calls

_CACHE_SETS = 2.0
"""Operands of all copies together, as a multiple of the L2 cache: no call finds its inputs there."""
_MOST_COPIES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class OpResult:
    """What an operator took."""

    timing: Timing
    timed: str
    """graph: kernels alone, replayed; loop: as the host starts them."""


def measure_op(point: OpPoint, device: MeasuredDevice, *, seconds: float, graphs: bool = True) -> OpResult:
    """Time one operator.

    Args:
        point: What to time.
        device: Where.
        seconds: Of timed calls, about.
        graphs: Replay CUDA graphs where there are any; else kernels and host together.
    """
    kind = device.kind
    stream = torch.cuda.Stream() if kind == "cuda" and graphs else None
    try:
        with (
            product_precision(tf32=point.dtype == "tf32"),
            tuned_convolutions(on=True),
            on_stream(stream),
        ):
            cases = _cases(point, device)
            calls = [call_of(case, point.phase) for case in cases]
            run, per_run, timed = _run_of(cases[0], calls, kind, stream)
            timing = time_calls(run, seconds=seconds)
        return OpResult(timing=timing.per(per_run * cases[0].parts), timed=timed)
    finally:
        if point.shape.get("compiled"):
            torch.compiler.reset()
        free_memory(kind, cycles=False)


def _cases(point: OpPoint, device: MeasuredDevice) -> list[Case]:
    """As many copies of the operands as it takes to outgrow the cache."""
    first = build_case(point.op, point.dtype, point.shape, device.kind)
    if not first.graph or not device.l2_bytes or first.parts > 1:
        return [first]
    wanted = math.ceil(_CACHE_SETS * device.l2_bytes / max(first.bytes, 1.0))
    copies = min(max(wanted, 1), _MOST_COPIES)
    return [first, *(build_case(point.op, point.dtype, point.shape, device.kind) for _ in range(copies - 1))]


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
