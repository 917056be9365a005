"""Which share of every kernel a pipeline stage runs: layers by count, embedding first, loss last."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..parallel.layout import Layout
from ..parallel.stages import layers_of_stages
from ..precision.lowered import LoweredStep

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageShares:
    """Shares of the kernels on S kinds of stages: the first, those between, the last."""

    kernels: Floats
    """Share of each kernel's repeats, shape (S, N)."""
    stages: Floats
    """How many stages are of each kind, shape (S,)."""
    layers: Floats
    """Layers of one stage of each kind, shape (S,)."""
    in_layers: Bools
    """Kernels of the repeated layers and of what stands between them, shape (N,)."""


@lru_cache(maxsize=512)
def stage_shares(step: LoweredStep, num_layers: int, pp: int, stage_layers: tuple[int, ...]) -> StageShares:
    """How the kernels spread over the stages of a pipeline.

    Args:
        step: Kernels in execution order, forward then backward.
        num_layers: Repeated layers of the model.
        pp: Stages.
        stage_layers: Layers of each stage where they are not split evenly.

    Assumes: in a model with a vocabulary, what runs before the first repeated layer belongs to the first
    stage, what runs after the last one to the last stage; any other model is cut evenly.
    """
    before, inside, after = _spans(step)
    if pp == 1:
        ones = np.ones((1, len(inside)))
        return StageShares(
            kernels=ones, stages=np.ones(1), layers=np.array([float(num_layers)]), in_layers=inside
        )
    layers = layers_of_stages(num_layers, Layout(pp=pp, stage_layers=stage_layers))
    middle = float(max(layers[1:-1])) if pp > 2 else 0.0  # noqa: PLR2004
    kinds = np.array([float(layers[0]), middle, float(layers[-1])])
    counts = np.array([1.0, pp - 2.0, 1.0])
    kernels = np.where(inside, kinds[:, None] / max(num_layers, 1), 0.0)
    kernels[0, before] = 1.0
    kernels[2, after] = 1.0
    used = counts > 0
    return StageShares(kernels=kernels[used], stages=counts[used], layers=kinds[used], in_layers=inside)


def _spans(step: LoweredStep) -> tuple[Bools, Bools, Bools]:
    """Kernels ahead of the layers in the model, in them, and behind them, each of shape (N,)."""
    before, inside, after = (np.zeros(len(step.phase), dtype=np.bool_) for _ in range(3))
    for number in (0, 1):
        rows = np.flatnonzero(step.phase == number)
        repeated = rows[step.repeat[rows] > 1.0]
        if not len(repeated) or not step.vocabulary.any():
            inside[rows] = True
            continue
        early, late = (before, after) if number == 0 else (after, before)
        early[rows[rows < repeated[0]]] = True
        late[rows[rows > repeated[-1]]] = True
        inside[repeated[0] : repeated[-1] + 1] = True
    return before, inside, after
