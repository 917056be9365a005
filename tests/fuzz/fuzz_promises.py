"""What must hold of every answer, error and exit, whatever was asked: see `docs/reference/limits.md`."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from precision_time.errors import PrecisionTimeError
from precision_time.predict.prediction import Prediction

LONGEST_S = 10.0
MOST_BYTES = 2 * 2**30
LONGEST_MESSAGE = 5000


class BrokenPromiseError(AssertionError):
    """An answer, an error or an exit that the package promises not to give."""


def promise(held: bool, what: str) -> None:
    """Raise where a promise does not hold.

    Raises:
        BrokenPromiseError: Says which.
    """
    if not held:
        raise BrokenPromiseError(what)


def check_answer(answer: Prediction) -> None:
    """All that is promised of an answer, whatever was asked.

    Raises:
        BrokenPromiseError: The first that does not hold.
    """
    text = json.dumps(answer.to_dict(), allow_nan=False, default=str)  # no infinity, no NaN
    promise(json.loads(text)["step_time_s"] == answer.step_time_s, "JSON that is read back is the answer")
    promise(0.0 < answer.step_time_s < math.inf, "the step time is positive and finite")
    total_s = math.fsum(answer.terms.values())
    promise(math.isclose(total_s, answer.step_time_s, rel_tol=1e-9), "terms add up to the step time")
    promise(min(answer.terms.values()) >= 0.0, "no term is negative")
    low_s, high_s = answer.interval.low_s, answer.interval.high_s
    promise(0.0 < low_s <= answer.step_time_s <= high_s < math.inf, "the interval contains the step time")
    promise(answer.mfu is None or 0.0 <= answer.mfu <= 1.0, f"MFU is at most 1, not {answer.mfu}")
    memory = math.fsum(answer.memory_terms.values())
    promise(math.isclose(memory, answer.memory_bytes_per_device, rel_tol=1e-9), "memory terms add up")
    promise(min(answer.memory_terms.values()) >= 0.0, "no memory term is negative")
    promise(
        answer.memory_bytes_per_device >= answer.memory_terms.get("parameters", 0.0),
        "memory holds the weights",
    )
    promise(answer.throughput > 0.0, "the throughput is positive")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """At most LONGEST_S of processor time and MOST_BYTES more memory for what runs inside.

    Raises:
        BrokenPromiseError: If it takes longer. Of memory, Python raises MemoryError.
    """

    def stop(*_: Any) -> None:
        raise BrokenPromiseError(f"an answer within {LONGEST_S:g} s")

    before, most = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    usual = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, most))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, usual)
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def answered(call: Callable[[], None]) -> bool:
    """Whether a call answers; one that refuses says so in our words, in few of them, and printable.

    Raises:
        BrokenPromiseError: If it takes too long, or the message is unfit to show.
    """
    try:
        with limited():
            call()
    except PrecisionTimeError as error:
        said = str(error)
        promise(0 < len(said) <= LONGEST_MESSAGE, f"a message of at most {LONGEST_MESSAGE} characters")
        promise(all(c.isprintable() or c in "\n\t" for c in said), f"no control characters in {said!r}")
        return False
    return True
