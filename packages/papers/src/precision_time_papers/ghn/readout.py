"""From node vectors to one vector per architecture, blind to precision or annotated with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError
from precision_time.precision.lowering import DTYPES, lower
from precision_time.precision.policy import DType, PrecisionPolicy
from precision_time.workload.graph import OpGraph

from .architecture import ArchitectureGraph
from .weights import Floats32

_FORWARD = 0


class WidthClass(StrEnum):
    """Types of one speed and size on the devices of our catalog: the blocks of an annotated vector."""

    WIDE = "wide"  # four bytes and more
    TF32 = "tf32"  # four bytes, multiplied on tensor cores
    HALF = "half"  # two bytes
    NARROW = "narrow"  # one byte and less


WIDTH_CLASSES = tuple(WidthClass)


def width_class(dtype: DType) -> WidthClass:
    """The class of a type, by its bytes."""
    if dtype is DType.TF32:
        return WidthClass.TF32
    if dtype.num_bytes >= 4:
        return WidthClass.WIDE
    return WidthClass.HALF if dtype.num_bytes >= 2 else WidthClass.NARROW


def lowered_dtypes(graph: OpGraph, policy: PrecisionPolicy) -> tuple[DType, ...]:
    """The type that each operator of `graph` computes in under `policy`, in the order of its nodes.

    First and last layers that a policy keeps wide are taken like all others.
    """
    step = lower(graph, replace(policy, wide_layers=(0, 0), layers=()))
    kernels = np.flatnonzero((step.phase == _FORWARD) & ~step.is_cast)
    return tuple(DTYPES[index] for index in step.dtype[kernels])


def mean_vector(graph: ArchitectureGraph, vectors: Floats32) -> Floats32:
    """Mean over the nodes of the model, shape (32,): the network embedding of GHN-2."""
    shares = _shares(graph)
    out: Floats32 = (shares @ vectors.astype(np.float64)).astype(np.float32)
    return out


def annotated_vector(graph: ArchitectureGraph, vectors: Floats32, classes: NDArray[np.int64]) -> Floats32:
    """Node vectors added up by the class of the type they compute in, over all nodes.

    Args:
        graph: Architecture.
        vectors: Node vectors, shape (N, 32).
        classes: Index into `WIDTH_CLASSES` per node, shape (N,).

    Returns:
        Shape (128,): blocks wide, tf32, half, narrow, whose sum is `mean_vector`.
    """
    shares = _shares(graph)
    masked = shares[None, :] * (classes[None, :] == np.arange(len(WIDTH_CLASSES))[:, None])
    out: Floats32 = (masked @ vectors.astype(np.float64)).astype(np.float32).reshape(-1)
    return out


def node_classes(graph: ArchitectureGraph, dtypes: Sequence[DType]) -> NDArray[np.int64]:
    """Width class of each node, from the types of the operators; the input arrives wide.

    Args:
        graph: Architecture graph of an operator graph with as many operators as there are types.
        dtypes: One per operator.

    Raises:
        ConfigError: If there are fewer types than operators.
    """
    if len(dtypes) <= graph.operators.max(initial=-1):
        raise ConfigError(
            f"{len(dtypes)} types were given for {graph.name!r}, whose last operator is number "
            f"{graph.operators.max() + 1}. The rule: one type per operator. To fix: use "
            "lowered_dtypes(graph, policy)."
        )
    of_operator = [WIDTH_CLASSES.index(width_class(dtype)) for dtype in dtypes]
    lookup = np.array([*of_operator, WIDTH_CLASSES.index(WidthClass.WIDE)], dtype=np.int64)
    chosen: NDArray[np.int64] = lookup[graph.operators]
    return chosen


def _shares(graph: ArchitectureGraph) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = graph.stands_for / graph.stands_for.sum()
    return shares
