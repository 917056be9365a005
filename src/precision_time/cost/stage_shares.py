"""Which share of every kernel a pipeline stage runs: layers by count, embedding first, loss last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..identity_cache import cache_by_identity
from ..parallel.layout import Layout
from ..parallel.stages import layers_of_stages
from ..precision.lowered import LoweredStep

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageShares:
    """Shares of the kernels on S kinds of stages: the first, those between, the last."""

    kernels: Floats
    """Share of each kernel's repeats, shape (S, N)."""
    stages: Floats
    """How many stages are of each kind, shape (S,)."""
    layers: Floats
    """Layers of one stage of each kind, shape (S,)."""
    in_layers: NDArray[np.bool_]
    """Kernels of the repeated layers, shape (N,)."""


@cache_by_identity
def stage_shares(step: LoweredStep, num_layers: int, pp: int, stage_layers: tuple[int, ...]) -> StageShares:
    """How the kernels spread over the stages of a pipeline.

    Args:
        step: Kernels in execution order, forward then backward.
        num_layers: Repeated layers of the model.
        pp: Stages.
        stage_layers: Layers of each stage where they are not split evenly.

    Assumes: what runs before the first repeated layer belongs to the first stage, what runs after the
    last one to the last stage; a model whose layers are written out is cut evenly.
    """
    inside = step.repeat > 1.0
    if not inside.any():
        inside = np.ones_like(inside)
    if pp == 1:
        ones = np.ones((1, len(inside)))
        return StageShares(
            kernels=ones, stages=np.ones(1), layers=np.array([float(num_layers)]), in_layers=inside
        )
    layers = layers_of_stages(num_layers, Layout(pp=pp, stage_layers=stage_layers))
    middle = float(max(layers[1:-1])) if pp > 2 else 0.0  # noqa: PLR2004
    kinds = np.array([float(layers[0]), middle, float(layers[-1])])
    counts = np.array([1.0, pp - 2.0, 1.0])
    before, after = _ends(step.phase, inside)
    kernels = np.where(inside, kinds[:, None] / max(num_layers, 1), 0.0)
    kernels[0, before] = 1.0
    kernels[2, after] = 1.0
    used = counts > 0
    return StageShares(kernels=kernels[used], stages=counts[used], layers=kinds[used], in_layers=inside)


def _ends(phase: NDArray[np.int64], inside: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Kernels of the first stage beside its layers, and of the last; the rest between layers is the first's."""
    before, after = np.zeros_like(inside), np.zeros_like(inside)
    for number in (0, 1):
        rows = np.flatnonzero(phase == number)
        repeated = rows[inside[rows]]
        if not len(repeated):
            continue
        late = rows[rows > repeated[-1]]
        early = rows[(rows <= repeated[-1]) & ~inside[rows]]
        forward = number == 0
        after[late if forward else early] = True
        before[early if forward else late] = True
    return before, after
