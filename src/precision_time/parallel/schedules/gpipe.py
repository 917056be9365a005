"""GPipe: all forward passes, then all backward passes (Huang et al., NeurIPS 2019, figure 2c)."""

from __future__ import annotations

from ...arrays import Number
from .contract import StageTimes, Task, backwards, forwards


class GPipe:
    """All forward passes, then the backward passes from the last micro batch to the first."""

    searched = False
    """1F1B has the same bubble with fewer activations alive."""

    def order(self, stage: int, pp: int, num_microbatches: int, vpp: int) -> tuple[Task, ...]:
        """Tasks of a stage in order; the same on every stage."""
        return (*forwards(num_microbatches), *reversed(backwards(num_microbatches)))

    def bubble_s(self, pp: int, vpp: int, num_microbatches: Number, times: StageTimes) -> Number:
        r"""Idle seconds of a stage: $(p-1)(F+B)$ (Narayanan et al., SC 2021, section 2.2.1)."""
        return (pp - 1) * (times.forward_s + times.backward_s)

    def in_flight(self, stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
        """Every micro batch is alive when the first backward pass starts."""
        return 1.0 * num_microbatches
