"""Idle time of a pipeline: the schedule's bubble, with stages that are not alike.

References: Narayanan et al., SC 2021 (1F1B, interleaved); Huang et al., GPipe, NeurIPS 2019; Qi et al.,
Zero Bubble Pipeline Parallelism, ICLR 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..parallel.layout import Layout
from ..parallel.schedules.contract import StageTimes
from ..parallel.schedules.registry import schedule_of
from .compute import ComputeCosts

Floats = NDArray[np.float64]


def pipeline_bubble_s(layout: Layout, compute: ComputeCosts, sent_s: Floats) -> Floats:
    """Idle seconds of the slowest stage per optimizer step, shape (C,).

    The slowest stage works its micro batches and waits while one passes through the others: the bubble
    of the schedule's formula, at the mean time of the other stages.

    Args:
        layout: Stages, chunks, schedule.
        compute: Stage times of one micro batch.
        sent_s: Exposed messages of one micro batch on the stage with the most layers, shape (C,).
    """
    if layout.pp == 1:
        return np.zeros(len(sent_s))
    shares = compute.shares
    sent = sent_s[:, None] * shares.layers / max(float(shares.layers.max()), 1.0)
    stage_s = compute.stage_forward_s + compute.stage_backward_s + sent
    slowest = np.argmax(stage_s, axis=1)
    others: Floats = stage_s @ shares.stages - stage_s[np.arange(len(sent_s)), slowest]
    backward = (compute.stage_backward_s @ shares.stages) / (
        (compute.stage_forward_s + compute.stage_backward_s) @ shares.stages
    )
    other_s = others / (layout.pp - 1)
    times = StageTimes(forward_s=other_s * (1.0 - backward), backward_s=other_s * backward)
    schedule = schedule_of(layout.schedule)
    return np.maximum(schedule.bubble_s(layout.pp, layout.virtual_pp, layout.num_micro_batches, times), 0.0)
