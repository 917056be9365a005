"""Recipes of narrow products (fp8, fp4, int8): which products they take and what their operands cost.

Every product of two matrices of a linear layer reads two narrow operands. Somebody has to write them:
a pass over each tensor, with one or two copies of it, sometimes after a pass for its maximum.
The figures of each recipe are data (`data/recipes.toml`), with their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Bools
from ..cache import derived
from ..errors import UnknownNameError
from ..io import packaged_toml
from ..records import dataclass
from ..workload.graph import OpClass, OpGraph
from ..workload.packing import PACKED_BYTES
from .lowered import LoweredStep
from .nodes import DTYPES, NodeColumns
from .policy import NARROW, DType, PrecisionPolicy
from .rules import LOWER, columns_under, treatments

AMAX_BYTES = 4.0
"""A maximum is one fp32 value."""
_GEMM_TENSORS = {"forward": 2.0, "backward": 1.0}
"""Input and weight; gradient of the output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """One way to scale narrow operands; the fields are explained in `data/recipes.toml`."""

    name: str
    amax_pass: bool
    activation_block: int
    weight_block: int
    scale_bytes: float
    copies: str
    fused_into_norm: bool
    hadamard: bool
    wide_weight_gradient: bool
    alignment: int
    amax_history: int
    exchange: str
    extra_bytes: float = 0.0
    extra_launches: float = 0.0
    weights_again: bool = False

    def activation_bytes(self, dtype: DType) -> float:
        """Bytes of a narrow activation or gradient with its share of the scale."""
        return dtype.num_bytes + _share(self.scale_bytes, self.activation_block)

    def weight_bytes(self, dtype: DType) -> float:
        """Bytes of a narrow weight with its share of the scale."""
        return dtype.num_bytes + _share(self.scale_bytes, self.weight_block)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmaxExchange:
    """All-reduces of maxima over the ranks that share scales (data, context and tensor parallel ones)."""

    per_micro_batch: float
    per_step: float
    bytes_each: float
    """Mean message [B]: the maxima of all tensors travel together."""


def recipe_of(policy: PrecisionPolicy) -> Recipe:
    """The recipe of a policy with narrow products; delayed scaling where it names none.

    Raises:
        UnknownNameError: If the data have no such recipe.
    """
    name = policy.fp8_recipe or "delayed"
    rows = _data()["recipe"]
    if name not in rows:
        raise UnknownNameError(
            kind="fp8 recipe", name=name, known=tuple(rows), hint=f"Recipes: {', '.join(rows)}."
        )
    figures = {key: value for key, value in rows[name].items() if key != "source"}
    if policy.amax_history is not None and figures["amax_history"]:
        figures["amax_history"] = policy.amax_history
    return Recipe(name=name, **figures)


def writes_copies(policy: PrecisionPolicy, arch: str | None) -> bool:
    """Whether operands are also written the other way round, for the products of the backward pass.

    Args:
        policy: A policy with narrow products.
        arch: Architecture of the device as the catalog spells it; None: as on Hopper.
    """
    return recipe_of(policy).copies == "always" or arch is None or arch in _data()["tn_only"]


def narrow_products(nodes: NodeColumns, policy: PrecisionPolicy) -> Bools:
    """Which operators multiply in the narrow type of `policy`, shape (N,).

    Linear layers and expert products whose dimensions are aligned; never attention, embeddings,
    routers or the vocabulary projection, which Transformer Engine, torchao and DeepSeek-V3
    (arXiv 2412.19437, section 3.3) all leave wide.
    """
    narrow: Bools = nodes.is_conv & (policy.conv in NARROW)
    if policy.narrow is None:
        return narrow
    alignment = recipe_of(policy).alignment
    aligned = (nodes.n % alignment == 0.0) & (nodes.k % alignment == 0.0) & nodes.is_class(OpClass.GEMM)
    if policy.matmul in NARROW:
        narrow = narrow | (aligned & ~nodes.vocabulary & ~nodes.scored)
    if policy.ruled:
        # A layer that is named is taken at its word, be it a head or a router.
        named = np.array([rule.dtype in NARROW for rule in policy.layers] + [False])[nodes.rule]
        chosen: Bools = np.where(nodes.rule >= 0, named & aligned, narrow)
        lowered: Bools = treatments(nodes, policy) == LOWER
        return np.logical_and(chosen, lowered)
    return narrow


def gathered_bytes(graph: OpGraph, policy: PrecisionPolicy) -> float:
    """Bytes of all parameters on the wire of one all-gather (FSDP, ZeRO, distributed optimizer).

    Args:
        graph: Whole model.
        policy: `gather` says in which type the weights of narrow products travel; the others travel
            as they are used, packed ones packed.
    """
    total = (graph.params - graph.packed_params) * policy.gathered.num_bytes
    total += graph.packed_params * PACKED_BYTES
    if policy.gather is None:
        return total
    nodes = columns_under(graph, policy)
    narrow = narrow_products(nodes, policy) & ~nodes.wide
    weights = max(float((nodes.weight_elems * nodes.repeat)[narrow].sum()) - graph.packed_params, 0.0)
    return total - weights * (policy.gathered.num_bytes - recipe_of(policy).weight_bytes(policy.gather))


def amax_exchange(step: LoweredStep, policy: PrecisionPolicy) -> AmaxExchange:
    """How often maxima are all-reduced, and how much each time.

    Delayed scaling reduces those of inputs and weights after the forward pass and those of the
    gradients after the backward pass, in every micro batch. Weights that are gathered in fp8 with a
    scale per tensor need their maxima over the shards once a step.
    """
    tensors = amax_tensors(step)
    if not tensors:
        return AmaxExchange(per_micro_batch=0.0, per_step=0.0, bytes_each=0.0)
    recipe = recipe_of(policy)
    if recipe.exchange == "micro-batch":
        per_pass = tensors / len(_GEMM_TENSORS)
        return AmaxExchange(per_micro_batch=2.0, per_step=0.0, bytes_each=AMAX_BYTES * per_pass)
    if policy.gather is not None and not recipe.weight_block:
        weights = tensors / sum(_GEMM_TENSORS.values())
        return AmaxExchange(per_micro_batch=0.0, per_step=1.0, bytes_each=AMAX_BYTES * weights)
    return AmaxExchange(per_micro_batch=0.0, per_step=0.0, bytes_each=0.0)


@derived
def amax_tensors(step: LoweredStep) -> float:
    """Tensors with a scale of their own: input, weight and gradient of every narrow product."""
    narrow = np.array([dtype in NARROW for dtype in DTYPES])[step.dtype]
    products = narrow & (step.phase == 0) & (step.flops > 0.0)
    matrices = np.where(step.expert, step.count, 1.0) * step.repeat
    return float(matrices[products].sum()) * sum(_GEMM_TENSORS.values())


def history_bytes(nodes: NodeColumns, narrow: Bools, recipe: Recipe, phase: str) -> float:
    """Bytes read and written when the histories of one pass move on and its scales follow."""
    each = nodes.repeat * np.where(nodes.is_class(OpClass.GEMM), nodes.count, 1.0)
    matrices = float(each[narrow].sum())
    return 2.0 * AMAX_BYTES * recipe.amax_history * matrices * _GEMM_TENSORS[phase]


def _share(scale_bytes: float, block: int) -> float:
    return scale_bytes / block if block else 0.0


def _data() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/recipes.toml")
