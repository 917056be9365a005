"""What tests of runs under way share."""

from __future__ import annotations


class Clock:
    """Seconds that tests turn on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s
