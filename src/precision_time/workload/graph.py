"""The operator graph of one forward pass, with the batch as a symbol.

A node is one operator of the forward pass, written for a batch of one sample. `scales_with_batch`
says which of its numbers grow with the batch. The backward pass and the optimizer follow from the
forward nodes by rule (`precision/lowering.py`), so a graph stays small, and one graph serves every
batch size and every precision.

Repeated layers stand once: `repeat` says how often, and nodes of one `segment` repeat together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from enum import StrEnum
from typing import Any

from ..cache import Deriving
from ..errors import CaptureError
from ..records import dataclass

GRAPH_SCHEMA_VERSION = 1


class OpClass(StrEnum):
    """What kind of kernel an operator runs as: each class has its own efficiency."""

    GEMM = "gemm"  # dense product with a parameter: linear, 1-D pointwise projections
    BMM = "bmm"  # product of two activations, attention written out
    CONV = "conv"  # dense convolution, groups = 1
    GROUPED_CONV = "grouped_conv"  # 1 < groups < channels
    DEPTHWISE_CONV = "depthwise_conv"  # groups = channels
    ATTENTION = "attention"  # fused scaled dot-product attention
    RNN = "rnn"  # one recurrent layer: `repeat_sequential` dependent steps
    EMBEDDING = "embedding"
    NORM = "norm"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    POOL = "pool"
    MOVE = "move"  # copies, concatenation, padding, layout changes
    GATHER = "gather"  # indexed reads and scatters: graph networks, sorting
    DISPATCH = "dispatch"  # whole rows sorted to their experts, and summed back
    UNKNOWN = "unknown"  # no formula: priced by memory traffic and reported


EXPERT_PRODUCT = "_grouped_mm"
"""The operator of all experts' products at once, as captures and model families write it."""
PRODUCT_CLASSES = frozenset(
    {
        OpClass.GEMM,
        OpClass.BMM,
        OpClass.CONV,
        OpClass.GROUPED_CONV,
        OpClass.DEPTHWISE_CONV,
        OpClass.ATTENTION,
        OpClass.RNN,
    }
)
"""Classes whose work is a matrix product (2·m·n·k·count FLOPs); the others move memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One operator of the forward pass, for a batch of one sample.

    Products are `count` independent products (m x k)·(k x n). A convolution is the implicit GEMM
    m = output positions, n = output channels per group, k = input channels per group x kernel
    area, count = groups. Attention is m = query length, n = key length, k = head size, count =
    heads, and its FLOPs are 4·m·n·k·count (two products). An RNN layer is one time step (m = 1)
    with `sequential_steps` dependent steps.
    """

    op: str
    """Operator name: the aten name without namespace (`convolution`, `native_layer_norm`)."""
    op_class: OpClass
    inputs: tuple[int, ...] = ()
    """Indices of the producing nodes; -1 is an input of the graph. Parameters are not listed."""
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    count: float = 0.0
    batch_in_count: bool = False
    """The batch multiplies `count` (attention, bmm) instead of `m` (linear, convolution)."""
    in_elems: float = 0.0
    """Activation elements read [per sample if scales_with_batch]."""
    out_elems: float = 0.0
    """Activation elements written [per sample if scales_with_batch]."""
    weight_elems: float = 0.0
    """Parameter elements read; never grows with the batch."""
    param_elems: float = 0.0
    """Trainable parameter elements first used here: what the gradient of this node adds to the
    optimizer and to the gradient exchange (0 for a second use of a shared parameter)."""
    param_tensors: int = 0
    scales_with_batch: bool = True
    input_grad: bool = True
    """The gradient by the activations is needed (False at the first layer, below frozen parts)."""
    weight_grad: bool = False
    """The gradient by the weight is needed."""
    saved_elems: float = 0.0
    """Activation elements kept for the backward pass, not counting what a producer already kept."""
    kernel: int = 1
    """Kernel area of a convolution or pooling window."""
    stride: int = 1
    causal: bool = False
    """Attention under a causal mask: fused kernels skip the masked half."""
    sequential_steps: int = 1
    repeat: int = 1
    """How often the node occurs: identical layers stand once."""
    segment: int = 0
    """Nodes of one segment with repeat > 1 are one repeated block."""
    layer: str = ""
    """Module path, for reports; may be empty."""

    @property
    def flops(self) -> float:
        """Forward FLOPs of all repeats (one multiply-add = 2) at a batch of one sample."""
        if self.op_class not in PRODUCT_CLASSES:
            return 0.0
        products = 2.0 if self.op_class is OpClass.ATTENTION else 1.0
        once = 2.0 * products * self.m * self.n * self.k * self.count
        return once * self.sequential_steps * self.repeat


@dataclass(frozen=True, kw_only=True, slots=True)
class OpGraph(Deriving):
    """Operators of one forward pass in execution order, and what they do not say themselves."""

    name: str
    nodes: tuple[Node, ...]
    params: float
    """Parameter elements, trainable or not."""
    trainable_params: float
    param_tensors: int
    """Trainable parameter tensors (kernels of an unfused optimizer)."""
    input_bytes_per_sample: float = 0.0
    """What the host hands over per sample at full precision [B]."""
    unpriced: Mapping[str, int] = field(default_factory=dict)
    """Operators without a formula and how often they occur; they are priced by memory traffic."""
    image_size: int | None = None
    """Input side length the graph was built for, where the model takes images."""
    seq_len: int | None = None
    """Tokens per sample the graph was built for, where the model takes sequences."""
    notes: str = ""
    """What was assumed while it was captured, a line each."""
    warnings: str = ""
    """What the capture could not see, a line each."""
    packed_params: float = 0.0
    """Of `params`, those held in four bits (QLoRA); `packing.PACKED_BYTES` each instead of the policy's.
    Of a base in eight bits, those that weigh the same with the rest in sixteen (`packing.packed_share`)."""

    def __hash__(self) -> int:
        """Cheap, as graphs are keys of caches; equal graphs have equal hashes."""
        return hash((self.name, len(self.nodes), self.params, self.image_size, self.seq_len))

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if node.inputs and max(node.inputs) >= index:
                raise CaptureError(
                    f"Graph {self.name!r} is cyclic or out of order: node {index} ({node.op}) reads "
                    f"{node.inputs}. A node may read only earlier ones. To fix: sort the nodes."
                )

    @property
    def forward_flops(self) -> float:
        """Forward FLOPs per sample (products only, one multiply-add = 2), causal halves counted."""
        return sum(node.flops for node in self.nodes)

    @property
    def training_flops(self) -> float:
        """Useful FLOPs of a step per sample: forward, and twice that backward where all weights are trained.

        With frozen products only what is computed counts: no gradient by a frozen weight, none by the input
        below the lowest trained weight.
        """
        products = [node for node in self.nodes if node.flops and node.scales_with_batch]
        if all(node.weight_grad for node in products if node.weight_elems):
            return 3.0 * self.forward_flops
        return sum(node.flops * (1.0 + _gradients(node)) for node in products)

    @property
    def saved_elems(self) -> float:
        """Activation elements kept for the backward pass, per sample."""
        return sum(node.saved_elems * node.repeat for node in self.nodes if node.scales_with_batch)


def _gradients(node: Node) -> float:
    """Products of the backward pass relative to the forward one: by each operand that needs its gradient."""
    by_other = node.weight_grad if node.weight_elems else node.input_grad
    return float(node.input_grad) + float(by_other)


_NODE_DEFAULTS: dict[str, Any] = {
    item.name: item.default for item in fields(Node) if item.name not in ("op", "op_class")
}
_GRAPH_FIELDS = tuple(item.name for item in fields(OpGraph) if item.name != "nodes")


def graph_to_json(graph: OpGraph) -> dict[str, Any]:
    """A compact JSON-ready form: equal node bodies stand once, columns hold only what differs."""
    bodies: dict[str, int] = {}
    body_list: list[dict[str, Any]] = []
    sequence: list[list[int]] = []
    for index, node in enumerate(graph.nodes):
        body = {
            name: _plain(getattr(node, name))
            for name, default in _NODE_DEFAULTS.items()
            if name not in ("inputs", "layer") and getattr(node, name) != default
        }
        body = {"op": node.op, "op_class": node.op_class.value, **body}
        key = repr(body)
        if key not in bodies:
            bodies[key] = len(body_list)
            body_list.append(body)
        offsets = [-1 if source < 0 else index - source for source in node.inputs]
        sequence.append([bodies[key], *offsets])
    return {
        "schema": GRAPH_SCHEMA_VERSION,
        **{name: _plain(getattr(graph, name)) for name in _GRAPH_FIELDS},
        "unpriced": dict(graph.unpriced),
        "bodies": body_list,
        "sequence": sequence,
    }


def graph_from_json(data: Mapping[str, Any]) -> OpGraph:
    """The graph that `graph_to_json` wrote.

    Raises:
        CaptureError: If the data are truncated, of another schema, or not a graph at all.
    """
    if data.get("schema") != GRAPH_SCHEMA_VERSION:
        raise CaptureError(
            f"Graph schema {data.get('schema')!r} cannot be read, this version reads "
            f"{GRAPH_SCHEMA_VERSION}. To fix: capture the model again."
        )
    try:
        bodies = [{**body, "op_class": OpClass(body["op_class"])} for body in data["bodies"]]
        nodes = []
        for index, (body_index, *offsets) in enumerate(data["sequence"]):
            inputs = tuple([-1 if offset < 0 else index - offset for offset in offsets])
            nodes.append(Node(inputs=inputs, **bodies[body_index]))
        facts = {"packed_params": 0.0, "warnings": "", **data}  # graphs of earlier versions lack it
        return OpGraph(nodes=tuple(nodes), **{name: facts[name] for name in _GRAPH_FIELDS})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CaptureError(
            f"The graph data are incomplete or malformed ({error!r}). To fix: capture the model again."
        ) from error


def _plain(value: Any) -> Any:
    """Whole floats as ints, so that JSON stays short; everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
