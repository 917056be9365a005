"""Calling things on a device so that they can be timed: synchronized loops and replayed graphs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from .timer import Run

Call = Callable[[], Any]

_GRAPH_CALLS = 20
"""Most calls in one replayed graph, so that starting it is not what is timed."""
_GRAPH_S = 2e-3
"""A graph of this length hides how it was started."""
_WARM_ROUNDS = 3
_LASTING = (
    "illegal memory access",
    "misaligned address",
    "device-side assert",
    "launch failure",
    "ecc error",
)
"""Parts of CUDA's messages after which a context cannot be used."""


def looped(calls: Sequence[Call], kind: str) -> Run:
    """Runs `calls` one after another in turn; on a GPU they are queued, and awaited once at the end."""

    def run(count: int) -> float:
        synchronize(kind)
        start_s = time.perf_counter()
        for index in range(count):
            calls[index % len(calls)]()
        synchronize(kind)
        return time.perf_counter() - start_s

    return run


def replayed(calls: Sequence[Call], stream: Any) -> tuple[Run, int]:
    """Runs a CUDA graph of `calls` in turn: kernels without the host between them.

    Args:
        calls: What to capture; their tensors must have been made on `stream`.
        stream: The side stream of the capture.

    Returns:
        The run, of which one call is one replay, and how many of `calls` a replay makes.

    Raises:
        RuntimeError: If something in them cannot be captured.
    """
    with torch.cuda.stream(stream):
        for _ in range(_WARM_ROUNDS):
            for call in calls:
                call()
    rounds = _rounds(calls, stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(rounds):
            for call in calls:
                call()

    def run(count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    return run, rounds * len(calls)


def _rounds(calls: Sequence[Call], stream: Any) -> int:
    """How often a graph goes through `calls`, by how long once takes."""
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    once_s = time.perf_counter() - start_s
    return max(min(int(_GRAPH_S / once_s), _GRAPH_CALLS // len(calls)), 1)


def synchronize(kind: str) -> None:
    """Wait for the device."""
    if kind == "cuda":
        torch.cuda.synchronize()


def on_stream(stream: Any) -> Any:
    """The context of a side stream; of none where `stream` is None."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def free_memory(kind: str, *, cycles: bool = True) -> None:
    """Give back what the last trial held.

    Args:
        kind: cuda or cpu.
        cycles: Look for objects that hold each other too: models do, and it takes a good part of a second.
    """
    if cycles:
        gc.collect()
    if kind == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def backend_flags(*, tf32: bool, tuned_convolutions: bool | None = None) -> Iterator[None]:
    """PyTorch's switches inside the block.

    Args:
        tf32: Whether fp32 GEMMs and convolutions run as TF32.
        tuned_convolutions: Whether cuDNN tries its algorithms on the first call; None: as it is.
    """
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.allow_tf32 = tf32
    cudnn.benchmark = before[2] if tuned_convolutions is None else tuned_convolutions
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32, cudnn.benchmark = before[1:]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a trial failed for want of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in str(error).lower()


def is_lasting(error: BaseException) -> bool:
    """Whether the device is lost to this process: every later trial would fail too."""
    text = str(error).lower()
    return not is_out_of_memory(error) and any(mark in text for mark in _LASTING)
