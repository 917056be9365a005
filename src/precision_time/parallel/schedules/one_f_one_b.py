"""1F1B: one forward, one backward in turn (PipeDream-Flush; Narayanan et al., SC 2021, section 2.2.1)."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from .contract import StageTimes, Task, backwards, forwards, warmed_up


class OneForwardOneBackward:
    """Stage i starts with p - i - 1 forward passes, then runs one forward and one backward in turn."""

    searched = True

    def order(self, stage: int, pp: int, num_microbatches: int, vpp: int) -> tuple[Task, ...]:
        """Tasks of a stage in order."""
        warm_up = min(pp - stage - 1, num_microbatches)
        return tuple(warmed_up(warm_up, forwards(num_microbatches), backwards(num_microbatches)))

    def bubble_s(self, pp: int, vpp: int, num_microbatches: Number, times: StageTimes) -> Number:
        r"""Idle seconds of a stage: $(p-1)(F+B)$, as GPipe's; what it saves is memory."""
        return (pp - 1) * (times.forward_s + times.backward_s)

    def in_flight(self, stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
        """Stage i holds p - i micro batches, or all there are."""
        return np.minimum(pp - stage, num_microbatches)
