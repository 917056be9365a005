"""The largest batch that a device holds: found by trying, from the largest that is predicted to fit.

`find_batch_size` is for any training step; `accelerate_batch_size` and `lightning_batch_size` (`.lightning`)
start the finders of those libraries where the prediction says.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from precision_time.errors import ConfigError, PrecisionTimeError, required_module
from precision_time.predict.remedies import holds, memory_of_job
from precision_time.request.request import Request
from precision_time.units import format_bytes

MOST = 8192
"""Batch per device above which nobody looks."""
_TEXTS = (
    "out of memory",
    "cannot allocate memory",
    "can't allocate memory",
    "cudnn_status_not_supported",
    "memory allocation failed",
    "devmem allocation failed",
    "resource_exhausted",
    "failed to allocate memory",
)
"""Words of errors that PyTorch, Lightning, Accelerate, JAX and TensorFlow raise where memory ends."""
_CLASSES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
_FIRST_STRIDE = 0.1
"""Share of the batch by which `largest` looks above and below the prediction first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundBatch:
    """A batch that was run, and how it was found."""

    batch_size: int
    """Per device; it ran."""
    predicted: int
    """The largest that was predicted to fit, where the search began; 0 where none was."""
    tries: tuple[tuple[int, bool], ...]
    """Batches in the order in which they were tried, and whether they ran."""
    is_largest: bool
    """Whether the next larger one was tried and did not run."""

    @property
    def failures(self) -> int:
        """Tries that ran out of memory."""
        return sum(not ran for _, ran in self.tries)


def predicted_batch_size(request: Request | Mapping[str, Any], *, most: int = MOST) -> int:
    """The largest batch per device whose predicted memory the device holds; 0 where not even one does.

    Args:
        request: What is trained; its batch is left out.
        most: The largest to consider.

    Raises:
        PrecisionTimeError: If the request cannot be answered at all.
    """
    asked = _without_batch(request)
    first = asked.with_(batch_size=1).resolve()  # what is wrong beside the batch is said here

    def fits(batch: int) -> bool:
        try:
            job = asked.with_(batch_size=batch).resolve() if batch > 1 else first
        except PrecisionTimeError:  # the layout does not allow this batch
            return False
        # A script does not shard or recompute more because its batch grows: such a choice does not count.
        same = replace(job.layout, micro_batch_size=1.0) == replace(first.layout, micro_batch_size=1.0)
        return same and not job.layout_chosen and holds(job, memory_of_job(job))

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _without_batch(request: Request | Mapping[str, Any]) -> Request:
    given = request.given() if isinstance(request, Request) else Request.of(request).given()
    left_out = ("batch_size", "global_batch_size", "global_batch_tokens")
    return Request.of({name: value for name, value in given.items() if name not in left_out})


def find_batch_size(
    try_step: Callable[[int], object],
    request: Request | Mapping[str, Any] | None = None,
    *,
    start: int | None = None,
    mode: Literal["power", "largest"] = "power",
    tolerance: float = 0.02,
    most: int = MOST,
) -> FoundBatch:
    """The largest batch that runs: the search begins at the largest that is predicted to fit.

    With a good prediction two tries are enough: one that runs, and the next larger one, which does not.

    Args:
        try_step: Makes a training step or a few at a batch per device; raises as the library does where
            memory ends. It is called with one batch after the other, so it must leave nothing behind.
        request: What is trained, for the prediction.
        start: Where to begin instead.
        mode: `power`: the largest power of two, as most finders do. `largest`: to within `tolerance`.
        tolerance: Share of the batch, for `largest`.
        most: The largest batch to try, such as the size of the dataset.

    Raises:
        ConfigError: If neither request nor start is given, or not even a batch of one runs.
        Exception: Whatever `try_step` raises that is not the end of memory.
    """
    if most < 1 or (start is not None and start < 1) or not 0.0 <= tolerance < 1.0:
        raise ConfigError(
            f"start={start}, most={most}, tolerance={tolerance}: batches are at least 1, the tolerance is a "
            "share. To fix: correct them."
        )
    if request is None and start is None:
        raise ConfigError("Neither request nor start is given. To fix: give one, where the search begins.")
    predicted = 0 if request is None else predicted_batch_size(request, most=most)
    first = min(start or predicted or 1, most)
    if mode == "power":
        first = 1 << (first.bit_length() - 1)
    search = _Search(try_step=try_step, most=most)
    ran, failed = search.bracket(first, factor=2.0 if mode == "power" else None)
    if mode == "largest":
        ran, failed = search.bisect(ran, failed, tolerance)
    if ran == 0:
        raise ConfigError(
            "Not even a batch of one ran: the model does not fit. To fix: recompute activations, or shard it "
            "over more devices; `precision-time predict` says what to ask for instead."
        )
    return FoundBatch(
        batch_size=ran, predicted=predicted, tries=tuple(search.tries), is_largest=failed is not None
    )


class _Search:
    """Tries batches, and remembers them."""

    def __init__(self, *, try_step: Callable[[int], object], most: int) -> None:
        self.try_step, self.most = try_step, most
        self.tries: list[tuple[int, bool]] = []

    def ran(self, batch: int) -> bool:
        """Whether a step of that batch runs."""
        try:
            self.try_step(batch)
            ok = True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            ok = False
        if not ok:
            clear_memory()  # the error and its traceback, which hold tensors, are gone
        self.tries.append((batch, ok))
        return ok

    def bracket(self, first: int, *, factor: float | None) -> tuple[int, int | None]:
        """A batch that ran (0: none) and a larger one that did not (None: the largest allowed ran).

        Args:
            first: Tried first.
            factor: From one to the next; None for strides that double, from a small one.
        """
        stride = _FIRST_STRIDE
        ran, failed = 0, None
        batch = first
        while True:
            if self.ran(batch):
                ran = batch
                if failed is not None or batch >= self.most:
                    return ran, failed
                step = factor or min(1.0 + stride, 2.0)
                batch = min(max(int(batch * step), batch + 1), self.most)
            else:
                failed = batch
                if ran or batch == 1:
                    return ran, failed
                batch = max(min(int(batch / (factor or min(1.0 + stride, 2.0))), batch - 1), 1)
            stride *= 4.0

    def bisect(self, ran: int, failed: int | None, tolerance: float) -> tuple[int, int | None]:
        """The same, closer together."""
        while failed is not None and ran and failed - ran > max(1.0, tolerance * ran):
            middle = (ran + failed) // 2
            if self.ran(middle):
                ran = middle
            else:
                failed = middle
        return ran, failed


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library says that memory has ended, by the class or the words of its error."""
    if isinstance(error, MemoryError) or type(error).__name__ in (
        "OutOfMemoryError",
        "ResourceExhaustedError",
    ):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _TEXTS)


def clear_memory() -> None:
    """Give back what the last try left behind, on the devices that torch uses here."""
    gc.collect()
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            device.empty_cache()


def accelerate_batch_size(
    function: Callable[..., Any] | None = None,
    *,
    request: Request | Mapping[str, Any],
    margin: float = 0.1,
    most: int = MOST,
) -> Any:
    """Accelerate's `find_executable_batch_size`, begun where the prediction says.

    Accelerate only goes down, by a tenth at a time: it begins a margin above the largest batch that is
    predicted to fit, in the place of 128. Of `auto_find_batch_size` in a Hugging Face `Trainer`, the batch it
    begins with is `per_device_train_batch_size`: give it `predicted_batch_size(request)`.

    Args:
        function: As of `find_executable_batch_size`; None to decorate with arguments.
        request: What is trained.
        margin: Share by which the first try lies above the prediction.
        most: The largest batch to try.

    Raises:
        MissingExtraError: If accelerate is not installed.
    """
    if function is None:
        return lambda decorated: accelerate_batch_size(decorated, request=request, margin=margin, most=most)
    memory = required_module(
        "accelerate.utils.memory",
        package="accelerate",
        extra="precision-time-integrations[all]",
        purpose="find a batch size with it",
    )
    predicted = max(predicted_batch_size(request, most=most), 1)
    first = min(int(predicted * (1.0 + margin)), most)
    return memory.find_executable_batch_size(function, starting_batch_size=first)


def memory_text(request: Request | Mapping[str, Any], batch_size: int) -> str:
    """What a batch is predicted to need, and what the device has."""
    job = _without_batch(request).with_(batch_size=batch_size).resolve()
    needed = sum(memory_of_job(job).values())
    return f"batch {batch_size}: {format_bytes(needed)} of {format_bytes(job.cluster.device.usable_bytes)}"
