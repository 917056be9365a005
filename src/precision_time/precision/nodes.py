"""The operators of a graph as columns: what lowering reads, once for all precisions."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..cache import derived
from ..forks import cached_property
from ..records import dataclass
from ..workload.blocks import split_ends
from ..workload.graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass, OpGraph
from ..workload.packing import UNPACKING
from .autocast import autocast_class
from .policy import DType

OP_CLASSES = tuple(OpClass)
DTYPES = tuple(DType)
IS_PRODUCT = np.array([op_class in PRODUCT_CLASSES for op_class in OP_CLASSES])
"""By position of the class in OP_CLASSES."""
_CLASS_INDEX = {op_class: index for index, op_class in enumerate(OP_CLASSES)}
_HEAD = "head"
"""The layer name of the vocabulary projection in the parametric families."""
_SOFTMAX_CASTS_INSIDE = frozenset({"_softmax", "_log_softmax"})
_FREE_BACKWARD = frozenset({"add", "add_", "sub", "rsub", "neg", "sum", "mean"})
"""Operators whose gradient is the incoming one, passed on or broadcast inside the next kernel."""
_SCORES = frozenset({"_softmax", "_log_softmax", "topk"})
"""What reads the scores of a router or the logits: the product before it stays wide."""
_SCORE_STEPS = 2
"""Pointwise operators (sigmoid, bias) that may stand between a router's product and its choice."""
_FIGURES = (
    "m", "n", "k", "count", "in_elems", "out_elems", "weight_elems", "param_elems", "saved_elems",
    "kernel", "stride", "sequential_steps", "repeat", "segment",
    "batch_in_count", "scales_with_batch", "input_grad", "weight_grad", "causal",
)  # fmt: skip
_FLAGS = frozenset({"batch_in_count", "scales_with_batch", "input_grad", "weight_grad", "causal"})
_figures = attrgetter(*_FIGURES)


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeColumns:
    """N forward operators in execution order; fields as of `Node`, each of shape (N,)."""

    nodes: tuple[Node, ...]
    wide: Bools
    """Of the layers at both ends whose products a policy keeps wide."""
    rule: Ints
    """Which of a policy's rules for layers holds, -1 where none does."""
    op_class: Ints
    """Index into OP_CLASSES."""
    m: Floats
    n: Floats
    k: Floats
    count: Floats
    in_elems: Floats
    out_elems: Floats
    weight_elems: Floats
    param_elems: Floats
    saved_elems: Floats
    kernel: Floats
    stride: Floats
    sequential_steps: Floats
    repeat: Floats
    segment: Floats
    batch_in_count: Bools
    scales_with_batch: Bools
    input_grad: Bools
    weight_grad: Bools
    causal: Bools

    def __len__(self) -> int:
        return len(self.nodes)

    def is_class(self, *classes: OpClass) -> Bools:
        """Which operators are of one of the classes."""
        of_class = np.array([one in classes for one in OP_CLASSES])
        return np.asarray(of_class[self.op_class], dtype=np.bool_)

    @cached_property
    def is_product(self) -> Bools:
        """Which are matrix products."""
        return np.asarray(IS_PRODUCT[self.op_class], dtype=np.bool_)

    @cached_property
    def is_conv(self) -> Bools:
        """Which are convolutions of any kind."""
        return self.is_class(OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV)

    @cached_property
    def expert(self) -> Bools:
        """Which multiply with the weights of routed experts."""
        return np.array([node.op == EXPERT_PRODUCT for node in self.nodes], dtype=np.bool_)

    @cached_property
    def vocabulary(self) -> Bools:
        """Which look up a table or project onto the vocabulary: first and last pipeline stage."""
        heads = np.array([node.layer == _HEAD for node in self.nodes], dtype=np.bool_)
        return np.logical_or(self.is_class(OpClass.EMBEDDING), heads)

    @cached_property
    def autocast(self) -> Ints:
        """1: autocast runs it in the low type, 2: in fp32, 0: it is not touched or promoted."""
        codes = {"lower": 1, "fp32": 2}
        return np.array([codes.get(autocast_class(node.op), 0) for node in self.nodes], dtype=np.int64)

    @cached_property
    def unpacking(self) -> Bools:
        """Which write packed weights out."""
        return np.array([node.op == UNPACKING for node in self.nodes], dtype=np.bool_)

    @cached_property
    def casts_inside(self) -> Bools:
        """Which read fp16 and cast in the kernel itself."""
        return np.array([node.op in _SOFTMAX_CASTS_INSIDE for node in self.nodes], dtype=np.bool_)

    @cached_property
    def free_backward(self) -> Bools:
        """Which hand their gradient on as it is."""
        return np.array([node.op in _FREE_BACKWARD for node in self.nodes], dtype=np.bool_)

    @cached_property
    def flops(self) -> Floats:
        """Of one repeat and one time step, forward; a fused causal kernel skips the masked half."""
        products = np.where(self.is_class(OpClass.ATTENTION), 4.0, 2.0)
        whole = products * self.m * self.n * self.k * self.count
        steps = self.repeat * self.sequential_steps
        once = whole * self.sequential_steps * self.repeat / steps
        return np.where(self.is_product, np.where(self.causal, once * 0.5, once), 0.0)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Which operators read each one."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for source in node.inputs:
                if source >= 0:
                    found[source].append(index)
        return tuple(map(tuple, found))

    @cached_property
    def summed_elems(self) -> Floats:
        """Elements of the gradients that come back from readers, beyond those of one of the whole output.

        A reader of a part (queries of a joint projection, half of a head) sends a gradient of that part.
        """
        trained = np.flatnonzero(self.input_grad | self.weight_grad).tolist()
        inputs = [self.nodes[index].inputs for index in trained]
        sources = np.array([source for found in inputs for source in found], dtype=np.intp)
        sizes = [len(found) for found in inputs]
        read = np.repeat(self.in_elems[trained] / np.maximum(sizes, 1), sizes)
        inner = sources >= 0
        sources, read = sources[inner], read[inner]
        sent = np.bincount(sources, np.minimum(read, self.out_elems[sources]), minlength=len(self))
        return np.maximum(sent - self.out_elems, 0.0)

    @cached_property
    def scored(self) -> Bools:
        """Whose output is chosen from or turned into probabilities: routers and logits."""
        found = np.zeros(len(self), dtype=np.bool_)
        nodes = self.nodes
        for node in nodes:
            if node.op not in _SCORES:
                continue
            sources = {source for source in node.inputs if source >= 0}
            for _ in range(_SCORE_STEPS):
                found[list(sources)] = True
                sources = {
                    source
                    for index in sources
                    if nodes[index].op_class in (OpClass.ELEMENTWISE, OpClass.SOFTMAX)
                    for source in nodes[index].inputs
                    if source >= 0
                }
            found[list(sources)] = True
        return found

    @cached_property
    def fp32_share(self) -> Floats:
        """Share of the input elements that are fp32 under autocast to 16 bits; inputs of the graph are."""
        low = self.is_product | self.unpacking | (self.autocast == 1)
        return self.wide_share(low, self.autocast == 2, wide_inputs=True)  # noqa: PLR2004 - as in `autocast`

    def wide_share(self, low: Bools, wide: Bools, *, wide_inputs: bool) -> Floats:
        """Share of the input elements that are fp32, given which operators write 16 bits and which fp32.

        All others write fp32 where one of their inputs is.
        """
        shares: list[float] = []
        wide_out: list[bool] = []
        is_low, is_wide = low.tolist(), wide.tolist()
        elems = self.out_elems.tolist()
        for index, node in enumerate(self.nodes):
            total = of_fp32 = 0.0
            for source in node.inputs:
                size = elems[source] if source >= 0 else 1.0
                total += size
                if wide_inputs if source < 0 else wide_out[source]:
                    of_fp32 += size
            shares.append(of_fp32 / (total or 1.0) if node.inputs else float(wide_inputs))
            wide_out.append(not is_low[index] and (is_wide[index] or shares[-1] > 0.0))
        return np.array(shares)


@derived
def columns_of(graph: OpGraph, ends: tuple[int, int] = (0, 0)) -> NodeColumns:
    """The operators of a graph, with `ends` layers at the start and at the end as blocks of their own."""
    nodes, wide = split_ends(graph.nodes, ends)
    return node_columns(nodes, wide)


def node_columns(
    nodes: Sequence[Node], wide: Sequence[bool] | None = None, rule: Sequence[int] | None = None
) -> NodeColumns:
    """Operators as columns; `wide` says which are of the layers kept wide, `rule` which rule they have."""
    table = np.array([_figures(node) for node in nodes], dtype=np.float64).reshape(-1, len(_FIGURES)).T
    columns = dict(zip(_FIGURES, np.ascontiguousarray(table), strict=True))
    return NodeColumns(
        nodes=tuple(nodes),
        wide=np.zeros(len(nodes), dtype=np.bool_) if wide is None else np.array(wide, dtype=np.bool_),
        rule=np.full(len(nodes), -1) if rule is None else np.array(rule, dtype=np.int64),
        op_class=np.array([_CLASS_INDEX[node.op_class] for node in nodes], dtype=np.int64),
        **{name: column != 0.0 if name in _FLAGS else column for name, column in columns.items()},
    )
