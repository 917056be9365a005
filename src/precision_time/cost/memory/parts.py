"""What a model consists of and saves, by part (before its layers, in one, after them), in bytes per sample.

Reference: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023,
section 4: which activations a layer keeps, which of them tensor parallelism alone does not split, and the
5·a·s² bytes of scores of an attention that is not fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import TypeAlias

import numpy as np

from ...arrays import Number
from ...cache import memo
from ...precision.autocast import autocast_class
from ...precision.policy import PrecisionPolicy
from ...precision.rules import saved_widths
from ...records import dataclass
from ...workload.graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass, OpGraph
from ...workload.packing import UNPACKING, packed_share
from ..recompute import recomputed_nodes
from ..traffic import traffic_of

_DROPOUT = "native_dropout"
_LOSS = "_log_softmax"
"""Its input and output are counted with the loss, not with the activations."""
_RMS_NORM = "rms_norm"
_CHEAP = frozenset({OpClass.ELEMENTWISE, OpClass.NORM})
_RESIDUAL = frozenset({"add", "add_", _DROPOUT})
_IN_PLACE = frozenset({"leaky_relu", "elu"})
"""Pointwise operators that convolutional networks write in place and whose gradient needs their output."""
_SUMS = frozenset({"add", "add_"})
_MASK_BYTES = 2.0
"""Per saved element of a dropout: graphs count its one-byte mask as half an element."""
_FP32_BYTES = 4.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedBytes:
    """Bytes saved for the backward pass per sample."""

    split: Number = 0.0
    """Of tensors that tensor parallelism splits."""
    whole: Number = 0.0
    """Of tensors that it leaves whole unless sequence parallelism splits them too."""

    @property
    def total(self) -> Number:
        """All of them on one device."""
        return self.split + self.whole


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedReader:
    """Reads off the graph what its nodes save."""

    nodes: Sequence[Node]
    split: Sequence[bool]
    policy: PrecisionPolicy
    fused_attention: bool
    compiled: bool
    fused_kernels: bool
    fp8_saves_fp8: bool
    composed_norms: bool = False
    widths: Mapping[int, float] = field(default_factory=dict)
    """Bytes per element that an operator keeps, by its identity, under a policy with rules of its own."""
    sizes: Sequence[float] = field(init=False)
    """Bytes that each node saves."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", [self._saved_bytes(node) for node in self.nodes])

    def saved(
        self, span: range, share: float, *, scores: bool = True, again: frozenset[int] = frozenset()
    ) -> SavedBytes:
        """Bytes that the nodes of a span save, times `share`.

        Args:
            span: The nodes.
            share: What the bytes are multiplied by.
            scores: Those of attention are saved, too.
            again: Nodes that the backward pass runs again: what they put out is not saved.
        """
        split = whole = 0.0
        has_dropout = any(node.op == _DROPOUT for node in self.nodes)
        for index in span:
            node = self.nodes[index]
            if not node.scales_with_batch or node.op == _LOSS:
                continue
            times = node.repeat * share
            if scores or not self._is_score(node):
                source = node.inputs[0] if node.inputs else -1
                by_input = node.op_class in PRODUCT_CLASSES or node.op_class in _CHEAP
                is_split = self.split[source] if by_input and source >= 0 else self.split[index]
                size = self.sizes[index] * self._kept(index, again) * times
                split, whole = (split + size, whole) if is_split else (split, whole + size)
            unfused = node.op_class is OpClass.ATTENTION and not self.fused_attention
            if scores and unfused and index not in again:
                split += node.m * node.n * node.count * self._score_bytes(has_dropout) * times
        return SavedBytes(split=split, whole=whole)

    def _kept(self, index: int, again: frozenset[int]) -> float:
        """Share of what a node saves that is no output of nodes that run again."""
        if not again:
            return 1.0
        node = self.nodes[index]
        saved = node.saved_elems * self._unfused(node)
        if not saved:
            return 1.0
        fused = self._unfused(node) < 1.0
        outputs = {
            source: self.nodes[source].out_elems
            for source in node.inputs
            if source >= 0 and not (fused and self.nodes[source].op_class is OpClass.ELEMENTWISE)
        }
        of_inputs = min(sum(outputs.values()), saved)
        dropped = min(sum(elems for source, elems in outputs.items() if source in again), of_inputs)
        own = saved - of_inputs if index in again else 0.0
        return 1.0 - (dropped + own) / saved

    def working(self, span: range) -> float:
        """Largest pair of gradients in the backward pass, beyond the activations freed before it [B]."""
        act, freed, within, segment, most = self.policy.activation.num_bytes, 0.0, 0.0, -1, 0.0
        for index in reversed(span):
            node = self.nodes[index]
            if node.segment != segment:
                freed, within, segment = freed + within * self._repeats(index, span), 0.0, node.segment
            if node.scales_with_batch:
                most = max(most, (node.in_elems + node.out_elems) * act - freed - within)
                within += self.sizes[index]
        return most

    def _repeats(self, index: int, span: range) -> float:
        """How often the segment after node `index` stands."""
        return float(self.nodes[index + 1].repeat) if index + 1 < span.stop else 1.0

    def _score_bytes(self, dropout: bool) -> float:
        """Per attention score: softmax output; with dropout its output and mask (Korthikanti et al.)."""
        act = self.policy.activation.num_bytes
        return 2.0 * act + 1.0 if dropout else act

    def products(self, span: range, boundary: float, layers: float) -> SavedBytes:
        """Bytes of a layer that keeps its input, every second product, and attention."""
        split, count = 0.0, 0
        consumers = self._consumers()
        for index in span:
            node = self.nodes[index]
            if node.op_class is OpClass.ATTENTION:
                split += (node.out_elems + node.m * node.count) * node.repeat
            elif node.op_class in PRODUCT_CLASSES and node.weight_elems > 0:
                count += 1
                # A compiler sees that a product which is only added to the residual is never read again.
                needed = not (self.compiled and consumers.get(index, set()) <= _SUMS)
                split += node.out_elems * node.repeat * (count % 2) * needed
        return SavedBytes(split=split / layers * self.policy.activation.num_bytes, whole=boundary)

    def _consumers(self) -> dict[int, set[str]]:
        readers: dict[int, set[str]] = {}
        for node in self.nodes:
            for source in node.inputs:
                readers.setdefault(source, set()).add(node.op)
        return readers

    def _is_score(self, node: Node) -> bool:
        if node.op_class is OpClass.SOFTMAX:
            return True
        sources = [self.nodes[source] for source in node.inputs if source >= 0]
        return node.op == _DROPOUT and any(source.op_class is OpClass.SOFTMAX for source in sources)

    def _saved_bytes(self, node: Node) -> float:
        elems = node.saved_elems
        if elems == 0.0 or self._keeps_nothing(node):
            return 0.0
        if self.composed_norms and node.op == _RMS_NORM:
            # Its input in fp32, and what the weight multiplies.
            return elems * (_FP32_BYTES + self.policy.activation.num_bytes)
        return elems * self._unfused(node) * self._width(node)

    def _unfused(self, node: Node) -> float:
        """Share of what a node saves that no fused or compiled kernel computes again."""
        if self.compiled and node.op_class is not OpClass.ATTENTION:
            return 1.0 - self._recomputable(node)
        if self.fused_kernels and node.op_class is OpClass.ELEMENTWISE:
            # SiLU and its product are one kernel that keeps what the first product puts out.
            return 1.0 - self._recomputable(node, norms=False)
        return 1.0

    def _keeps_nothing(self, node: Node) -> bool:
        """In place over a norm's output, which the next operator keeps; or a product with a number."""
        if node.op in _IN_PLACE:
            return any(source >= 0 and self.nodes[source].op_class is OpClass.NORM for source in node.inputs)
        return (
            node.op == "mul"
            and len(node.inputs) == 1
            and node.in_elems <= node.out_elems
            and not node.weight_elems
        )

    def _width(self, node: Node) -> float:
        policy = self.policy
        if node.op == _DROPOUT:
            return _MASK_BYTES
        ruled = self.widths.get(id(node))
        if ruled is not None and ruled > policy.activation.num_bytes:
            return ruled
        if ruled is None and policy.autocast and autocast_class(f"aten::{node.op}") == "fp32":
            return _FP32_BYTES
        if self.fp8_saves_fp8 and policy.fp8_recipe and node.op_class is OpClass.GEMM:
            return policy.matmul.num_bytes
        return policy.activation.num_bytes if ruled is None else ruled

    def _recomputable(self, node: Node, *, norms: bool = True) -> float:
        """Share of a node's inputs that come from pointwise operators, and norms, that are run again."""
        if node.op_class is OpClass.NORM or node.op == _DROPOUT:
            return 0.0
        sources = [self.nodes[source] for source in node.inputs if source >= 0]
        total = sum(source.out_elems for source in sources)
        again = _CHEAP if norms else {OpClass.ELEMENTWISE}
        cheap = sum(
            source.out_elems for source in sources if source.op_class in again and source.op not in _RESIDUAL
        )
        return cheap / total if total else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPart:
    """Parameters of a part of the model, and what it keeps where nothing is recomputed."""

    dense: Number = 0.0
    """Trained parameter elements outside experts."""
    experts: Number = 0.0
    """Trained parameter elements of experts."""
    frozen: Number = 0.0
    packed: Number = 0.0
    """Frozen elements that are held in four bits."""
    unpacked: Number = 0.0
    """Elements of the largest weight that is unpacked at a time."""
    saved: SavedBytes = SavedBytes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer(ModelPart):
    """One layer, and what it keeps where some of it is recomputed."""

    products: SavedBytes
    """Where every second product and attention is kept, the rest recomputed; or, where operators that run
    again are named, all but what they put out."""
    without_scores: SavedBytes
    """Where attention scores alone are recomputed, or the named operators."""
    shapes: Number
    """Elements of one weight of every shape outside experts."""
    expert_shapes: Number
    """The same of experts' weights: of an expert's one stands for all experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelParts:
    """A model as memory sees it. Activation sizes are bytes per sample."""

    num_layers: float
    leading: float
    """Layers of another kind that stand before the others; 0 where all are equal or kinds take turns."""
    before: ModelPart
    """Embeddings, stem."""
    layer: Layer
    """The mean layer."""
    kinds: tuple[Layer, Layer] | None
    """A leading layer and one of the others, where there are leading ones."""
    union: tuple[float, float]
    """`shapes` and `expert_shapes` of a stage with both kinds."""
    after: ModelPart
    """Final norm and head, without the logits."""
    tied: float
    """Elements of a table that the head shares with the embedding: a last stage holds its own copy."""
    boundary: float
    """Between two layers, what full checkpointing keeps of a layer."""
    working: float
    """Gradients by output and input of an operator, beyond what the backward pass freed before it."""
    logits: float
    """Elements that enter the loss."""

    def mean_layer(self, start: Number, count: Number) -> Layer:
        """The mean of `count` layers from `start` on; arrays of stages broadcast."""
        if self.kinds is None:
            return self.layer
        ahead = np.clip(self.leading - start, 0.0, count)
        behind = count - ahead
        none = np.equal(count, 0.0)
        share = np.where(none, 0.0, ahead / np.where(none, 1.0, count))
        first, second, mean = *self.kinds, self.layer

        def mixed(of: Callable[[Layer], Number]) -> Number:
            return np.where(none, of(mean), of(first) * share + of(second) * (1.0 - share))

        def present(of: Callable[[Layer], Number], both: Number) -> Number:
            one = np.where(ahead > 0.0, of(first), of(second))
            return np.where(none, of(mean), np.where((ahead > 0.0) & (behind > 0.0), both, one))

        def saved(of: Callable[[Layer], SavedBytes]) -> SavedBytes:
            return SavedBytes(split=mixed(lambda one: of(one).split), whole=mixed(lambda one: of(one).whole))

        return Layer(
            dense=mixed(lambda one: one.dense),
            experts=mixed(lambda one: one.experts),
            frozen=mixed(lambda one: one.frozen),
            packed=mixed(lambda one: one.packed),
            unpacked=present(lambda one: one.unpacked, np.maximum(first.unpacked, second.unpacked)),
            saved=saved(lambda one: one.saved),
            products=saved(lambda one: one.products),
            without_scores=saved(lambda one: one.without_scores),
            shapes=present(lambda one: one.shapes, self.union[0]),
            expert_shapes=present(lambda one: one.expert_shapes, self.union[1]),
        )


@memo(512)
def model_parts(
    graph: OpGraph,
    policy: PrecisionPolicy,
    *,
    fused_attention: bool,
    compiled: bool,
    fused_kernels: bool = False,
    fp8_saves_fp8: bool = False,
    composed_norms: bool = False,
    recomputed: tuple[str, ...] = (),
) -> ModelParts:
    """Parts of a model under a precision policy.

    Args:
        graph: Forward pass of one sample.
        policy: Types of activations.
        fused_attention: Attention does not write its scores to memory.
        compiled: A compiler recomputes pointwise operators rather than keeping their outputs.
        fused_kernels: Pointwise operators that follow each other are one kernel, which keeps its inputs.
        fp8_saves_fp8: Linear layers keep their input in the type they multiply in.
        composed_norms: Root-mean-square norms are pointwise operators, each of which keeps its input.
        recomputed: Operators that selective checkpointing runs again; empty: as the framework does.

    Returns:
        Parameters and kept bytes by part.

    Assumes: layers are equal (their mean is used); a graph without repeated blocks has the layers that
    `traffic_of` counts.
    """
    nodes = graph.nodes
    traffic = traffic_of(graph)
    first_layer, last = _span_of_layers(nodes)
    layers = max(float(traffic.num_layers), 1.0)
    split = _split_by_tensor_parallelism(nodes, float(traffic.boundary_elems))
    reader = SavedReader(
        nodes=nodes,
        split=split,
        policy=policy,
        fused_attention=fused_attention,
        compiled=compiled,
        fused_kernels=fused_kernels,
        fp8_saves_fp8=fp8_saves_fp8,
        composed_norms=composed_norms,
        widths=dict(zip(map(id, nodes), saved_widths(graph, policy), strict=True)) if policy.ruled else {},
    )
    body = range(first_layer, last)
    boundary = float(traffic.boundary_elems) * _residual_bytes(policy, nodes, body)
    frozen_scale = _frozen_scale(graph)

    again = recomputed_nodes(graph, recomputed)

    def layer(span: range, count: float, shapes: _Shapes) -> Layer:
        saved, products = reader.saved(span, 1.0 / count), reader.products(span, boundary, count)
        named = reader.saved(span, 1.0 / count, again=again) if recomputed else None
        return Layer(
            **_parameters(nodes, span, 1.0 / count, frozen_scale),
            saved=saved,
            products=named or (products if products.total < saved.total else saved),
            without_scores=named or reader.saved(span, 1.0 / count, scores=False),
            shapes=_elements(shapes, experts=False),
            expert_shapes=_elements(shapes, experts=True),
        )

    def part(span: range) -> ModelPart:
        return ModelPart(**_parameters(nodes, span, 1.0, frozen_scale), saved=reader.saved(span, 1.0))

    leading = _leading_layers(nodes, body)
    counts = [float(nodes[span.start].repeat) for span in leading]
    shapes = [_weight_shapes(nodes, span) for span in leading]
    both = {shape: elems for each in shapes for shape, elems in each.items()}
    kinds = None
    if leading and sum(counts) == layers:
        first, second = map(layer, leading, counts, shapes)
        kinds = (first, second)
    return ModelParts(
        num_layers=layers,
        leading=counts[0] if kinds else 0.0,
        before=part(range(first_layer)),
        layer=layer(body, layers, _weight_shapes(nodes, body)),
        kinds=kinds,
        union=(_elements(both, experts=False), _elements(both, experts=True)),
        after=part(range(last, len(nodes))),
        tied=_tied_elems(nodes, last),
        boundary=boundary,
        working=reader.working(body),
        logits=_logits(nodes, last),
    )


def _leading_layers(nodes: Sequence[Node], body: range) -> tuple[range, ...]:
    """The layers without experts that stand before those with experts, and these; else nothing.

    A graph has equal layers once, so it does not say whether two kinds take turns. Assumed: they do where
    one divides the other, unless there is a single layer of the first kind.
    """
    spans = [list(run) for _, run in groupby(body, key=lambda index: nodes[index].segment)]
    if len(spans) != 2:  # noqa: PLR2004
        return ()
    first, second = (range(span[0], span[-1] + 1) for span in spans)
    before, after = nodes[first.start].repeat, nodes[second.start].repeat
    experts = [any(nodes[index].op == EXPERT_PRODUCT for index in span) for span in (first, second)]
    turns = before > 1 and after % before == 0
    return (first, second) if experts == [False, True] and not turns else ()


_Shapes: TypeAlias = Mapping[tuple[float, ...], float]
"""Elements of a weight by shape: n, k, place among equal ones of the layer, whether an expert's."""


def _elements(shapes: _Shapes, *, experts: bool) -> float:
    return sum(elems for (*_, expert), elems in shapes.items() if expert == experts)


def _weight_shapes(nodes: Sequence[Node], span: range) -> _Shapes:
    """Elements of a weight of every shape: of an expert's weights one stands for all experts."""
    shapes: dict[tuple[float, ...], float] = {}
    seen: dict[tuple[float, float], int] = {}
    for index in span:
        node = nodes[index]
        if node.op_class in PRODUCT_CLASSES and node.weight_grad:
            shape = (node.n, node.k)
            seen[shape] = seen.get(shape, -1) + 1
            expert = float(node.op == EXPERT_PRODUCT)
            shapes[(*shape, float(seen[shape]), expert)] = node.n * node.k
    return shapes


def _span_of_layers(nodes: Sequence[Node]) -> tuple[int, int]:
    """Where the layers begin and end: repeated blocks, else all but leading embeddings and the loss."""
    repeated = [index for index, node in enumerate(nodes) if node.repeat > 1 or node.segment > 0]
    if repeated:
        return repeated[0], repeated[-1] + 1
    embeddings = [index for index, node in enumerate(nodes) if node.op_class is OpClass.EMBEDDING]
    weighted = [
        i for i, node in enumerate(nodes) if node.weight_elems > 0 and node.op_class in PRODUCT_CLASSES
    ]
    loss = [index for index, node in enumerate(nodes) if node.op == _LOSS]
    first = embeddings[-1] + 1 if embeddings and (not weighted or embeddings[-1] < weighted[0]) else 0
    last = weighted[-1] if weighted and loss and loss[-1] > weighted[-1] else len(nodes)
    return first, max(first, last)


def _split_by_tensor_parallelism(nodes: Sequence[Node], boundary_elems: float) -> list[bool]:
    """Whether tensor parallelism splits the output of each node.

    A product of whole activations is split by columns; one of split activations as wide as the residual
    stream is a row-parallel product whose result is summed and whole.
    """
    split: list[bool] = []
    for node in nodes:
        given = any(split[source] for source in node.inputs if source >= 0)
        if node.op_class in PRODUCT_CLASSES and node.weight_elems > 0:
            given = not (given and node.out_elems == boundary_elems)
        elif node.op_class is OpClass.ATTENTION:
            given = True
        elif node.out_elems == boundary_elems and any(
            source >= 0 and not split[source] and nodes[source].out_elems == boundary_elems
            for source in node.inputs
        ):
            given = False
        split.append(given)
    return split


def _residual_bytes(policy: PrecisionPolicy, nodes: Sequence[Node], body: range) -> float:
    """Width of the residual stream: fp32 under autocast, where norms and embeddings give fp32."""
    normed = any(
        nodes[i].op_class is OpClass.NORM and autocast_class(f"aten::{nodes[i].op}") == "fp32" for i in body
    )
    return _FP32_BYTES if policy.autocast and normed else policy.activation.num_bytes


def _frozen_scale(graph: OpGraph) -> float:
    """Frozen elements of the graph over those that its nodes read: tables read twice count once."""
    read = sum(_frozen(node) * node.repeat for node in graph.nodes)
    return (graph.params - graph.trainable_params) / read if read else 0.0


def _frozen(node: Node) -> float:
    return node.weight_elems if node.weight_elems > 0 and not node.weight_grad else 0.0


def _parameters(nodes: Sequence[Node], span: range, share: float, frozen_scale: float) -> dict[str, float]:
    """Elements of the parameters of a span, by the fields of a part."""
    dense = experts = frozen = packed = unpacked = 0.0
    for index in span:
        node = nodes[index]
        times = node.repeat * share
        frozen += _frozen(node) * times * frozen_scale
        if node.op == UNPACKING:
            packed += node.out_elems * times * packed_share(node)
            unpacked = max(unpacked, node.out_elems)
        if node.op == EXPERT_PRODUCT:
            experts += node.param_elems * times
        else:
            dense += node.param_elems * times
    return {"dense": dense, "experts": experts, "frozen": frozen, "packed": packed, "unpacked": unpacked}


def _tied_elems(nodes: Sequence[Node], last: int) -> float:
    """Weights of the head's products that were counted at the embedding."""
    tied = [
        node.weight_elems - node.param_elems
        for node in nodes[last:]
        if node.op_class in PRODUCT_CLASSES and node.weight_grad
    ]
    return max(tied, default=0.0)


def _logits(nodes: Sequence[Node], last: int) -> float:
    """Elements that enter the softmax of the loss, or that the last product puts out."""
    losses = [node.out_elems for node in nodes[last:] if node.op == _LOSS]
    if losses:
        return sum(losses)
    outputs = [node.out_elems for node in nodes[last:] if node.op_class in PRODUCT_CLASSES]
    return outputs[-1] if outputs else 0.0
