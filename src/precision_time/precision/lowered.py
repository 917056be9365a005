"""A training step after lowering: typed kernels in execution order, as columns."""

from __future__ import annotations

from ..arrays import Bools, Floats, Ints
from ..cache import Deriving
from ..records import dataclass

PHASES = ("forward", "backward")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoweredStep(Deriving):
    """Forward and backward kernels of one micro batch under one precision policy.

    All columns have length N (kernels in execution order, forward first, then backward). Figures
    are for one sample; `*_fixed` parts do not grow with the batch. Equal only to itself, as a key of caches.
    """

    op_class: Ints
    """Index into `tuple(OpClass)`."""
    phase: Ints
    """Index into PHASES."""
    dtype: Ints
    """Compute type: index into `tuple(DType)`."""
    is_cast: Bools
    """A conversion that exists only because of the precision policy."""
    m: Floats
    n: Floats
    k: Floats
    count: Floats
    m_scales: Bools
    """m grows with the batch."""
    k_scales: Bools
    """k grows with the batch (weight gradients)."""
    count_scales: Bools
    flops: Floats
    """Of one repeat at one sample (times the batch if any of the three scales)."""
    bytes_per_sample: Floats
    bytes_fixed: Floats
    launches: Floats
    """Kernels started per repeat."""
    sequential_steps: Floats
    repeat: Floats
    kernel: Floats
    stride: Floats
    param_elems: Floats
    """Parameter elements whose gradient is ready after this kernel (backward rows), per repeat."""
    segment: Ints
    expert: Bools
    """Of the expert layers: expert parallelism divides their weights, not their FLOPs."""
    vocabulary: Bools
    """Of the embedding tables and of the vocabulary projection: first and last pipeline stage."""
    once_per_step: Bools
    """Weights made narrow: done in the first micro batch and kept for the others where a device holds
    the weights throughout (not where ZeRO 3 gathers them again)."""
