"""Interleaved 1F1B: a stage holds several chunks of the model (Narayanan et al., SC 2021, section 2.2.2)."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from ...errors import LayoutError
from .contract import StageTimes, Task, Work, task_of, warmed_up


class Interleaved:
    """Micro batches go through the chunks in groups of p, as Megatron-LM runs them."""

    searched = True

    def order(self, stage: int, pp: int, num_microbatches: int, vpp: int) -> tuple[Task, ...]:
        """Tasks of a stage in order.

        Raises:
            LayoutError: If the micro batches are no multiple of the stages.
        """
        check_groups(pp, num_microbatches)
        passes = [
            (first + offset, chunk)
            for first in range(0, num_microbatches, pp)
            for chunk in range(vpp)
            for offset in range(pp)
        ]
        ahead = [task_of(Work.FORWARD, micro_batch, chunk) for micro_batch, chunk in passes]
        back = [task_of(Work.BACKWARD, micro_batch, vpp - 1 - chunk) for micro_batch, chunk in passes]
        return tuple(warmed_up(int(_warm_up(stage, pp, num_microbatches, vpp)), ahead, back))

    def bubble_s(self, pp: int, vpp: int, num_microbatches: Number, times: StageTimes) -> Number:
        r"""Idle seconds of a stage: $(p-1)(F+B)/v$."""
        return (pp - 1) * (times.forward_s + times.backward_s) / vpp

    def in_flight(self, stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
        r"""On the first stage $p(1 + (p-1)/(pv))$ micro batches (Korthikanti et al., MLSys 2023)."""
        started = _warm_up(stage, pp, num_microbatches, vpp) + 1
        return np.minimum(started, num_microbatches * vpp) / vpp


def _warm_up(stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
    """Forward passes of a chunk before the first backward pass."""
    return np.minimum(2 * (pp - stage - 1) + (vpp - 1) * pp, num_microbatches * vpp)


def check_groups(pp: int, num_microbatches: int) -> None:
    """Refuse micro batches that do not come in groups of pp.

    Raises:
        LayoutError: If some would be left over.
    """
    rest = num_microbatches % pp
    if rest:
        raise LayoutError(
            f"The interleaved schedule needs micro batches in groups of pp: num_microbatches"
            f"({num_microbatches}) % pp({pp}) = {rest}. To fix: {num_microbatches - rest + pp} micro "
            "batches (num_microbatches), or schedule 1f1b with vpp=1."
        )
