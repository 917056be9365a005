"""Zero bubble, ZB-H1: weight gradients wait until a stage would idle (Qi et al., ICLR 2024)."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from .contract import StageTimes, Task, Work, backwards, forwards, task_of, warmed_up


class ZeroBubble:
    """1F1B whose backward pass comes in two halves, with the memory of 1F1B's first stage everywhere.

    Stage i puts its weight gradients off by i micro batches: then the input gradients, which the stage
    before waits for, leave as early as its memory allows.
    """

    searched = True

    def order(self, stage: int, pp: int, num_microbatches: int, vpp: int) -> tuple[Task, ...]:
        """Tasks of a stage in order."""
        warm_up = min(pp - stage - 1, num_microbatches)
        order: list[Task] = []
        for task in warmed_up(warm_up, forwards(num_microbatches), backwards(num_microbatches)):
            order.append(task)
            if task.work is Work.BACKWARD and task.micro_batch >= stage:
                order.append(task_of(Work.WEIGHT, task.micro_batch - stage))
        left = range(max(num_microbatches - stage, 0), num_microbatches)
        return (*order, *(task_of(Work.WEIGHT, micro_batch) for micro_batch in left))

    def bubble_s(self, pp: int, vpp: int, num_microbatches: Number, times: StageTimes) -> Number:
        r"""Idle seconds of a stage: $(p-1)(F+B-W)$ (table 2), B of the inputs and W of the weights alone.

        The paper has m at least p and W no longer than F and B. In general fewer micro batches fill fewer
        gaps, and a longer W fills no more of them: $(p-1)(F+B) - (min(m,p)-1) min(F,B,W)$.
        """
        weight_s = times.backward_s * times.weight_share
        input_s = times.backward_s - weight_s
        filled_s = np.minimum(np.minimum(times.forward_s, input_s), weight_s)
        gaps = np.minimum(num_microbatches, pp) - 1
        idle_s: Number = (pp - 1) * (times.forward_s + input_s) - gaps * filled_s
        return idle_s

    def in_flight(self, stage: Number, pp: Number, num_microbatches: Number, vpp: Number) -> Number:
        """Every stage holds p micro batches: those under way, and those whose weight gradients wait."""
        return np.minimum(pp, num_microbatches)
