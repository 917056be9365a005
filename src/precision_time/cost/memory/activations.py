"""What the operators of a graph save for the backward pass, in bytes.

Reference: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023,
section 4: which activations a layer keeps, which of them tensor parallelism alone does not split, and the
5·a·s² bytes of scores of an attention that is not fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...precision.autocast import autocast_class
from ...precision.policy import PrecisionPolicy
from ...workload.graph import PRODUCT_CLASSES, Node, OpClass

_DROPOUT = "native_dropout"
LOSS = "_log_softmax"
"""Its input and output are counted with the loss, not with the activations."""
_CHEAP = frozenset({OpClass.ELEMENTWISE, OpClass.NORM})
_RESIDUAL = frozenset({"add", "add_", _DROPOUT})
_IN_PLACE = frozenset({"leaky_relu", "elu"})
"""Pointwise operators that convolutional networks write in place and whose gradient needs their output."""
_SUMS = frozenset({"add", "add_"})
_MASK_BYTES = 2.0
"""Per saved element of a dropout: graphs count its one-byte mask as half an element."""
FP32_BYTES = 4.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedBytes:
    """Bytes saved for the backward pass per sample."""

    split: float = 0.0
    """Of tensors that tensor parallelism splits."""
    whole: float = 0.0
    """Of tensors that it leaves whole unless sequence parallelism splits them too."""

    @property
    def total(self) -> float:
        """All of them on one device."""
        return self.split + self.whole

    def minus(self, other: SavedBytes) -> SavedBytes:
        """What `other` lacks of this, at least nothing in total."""
        return SavedBytes(split=max(self.split - other.split, 0.0), whole=max(self.whole - other.whole, 0.0))

    def per_device(self, tp: int, sequence_parallel: bool) -> float:
        """Bytes per sample and device."""
        return (self.split + self.whole) / tp if sequence_parallel else self.split / tp + self.whole


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedReader:
    """Reads off the graph what its nodes save."""

    nodes: Sequence[Node]
    split: Sequence[bool]
    policy: PrecisionPolicy
    fused_attention: bool
    compiled: bool
    fp8_saves_fp8: bool

    def saved(self, span: range, share: float, *, scores: bool = True) -> SavedBytes:
        """Bytes that the nodes of a span save, times `share`; without the scores of attention if asked."""
        split = whole = 0.0
        has_dropout = any(node.op == _DROPOUT for node in self.nodes)
        for index in span:
            node = self.nodes[index]
            if not node.scales_with_batch or node.op == LOSS:
                continue
            times = node.repeat * share
            if scores or not self._is_score(node):
                source = node.inputs[0] if node.inputs else -1
                by_input = node.op_class in PRODUCT_CLASSES or node.op_class in _CHEAP
                is_split = self.split[source] if by_input and source >= 0 else self.split[index]
                size = self._saved_bytes(node) * times
                split, whole = (split + size, whole) if is_split else (split, whole + size)
            if scores and node.op_class is OpClass.ATTENTION and not self.fused_attention:
                split += node.m * node.n * node.count * self._score_bytes(has_dropout) * times
        return SavedBytes(split=split, whole=whole)

    def working(self, span: range) -> float:
        """Largest pair of gradients in the backward pass, beyond the activations freed before it [B]."""
        act, freed, within, segment, most = self.policy.activation.num_bytes, 0.0, 0.0, -1, 0.0
        for index in reversed(span):
            node = self.nodes[index]
            if node.segment != segment:
                freed, within, segment = freed + within * self._repeats(index, span), 0.0, node.segment
            if node.scales_with_batch:
                most = max(most, (node.in_elems + node.out_elems) * act - freed - within)
                within += self._saved_bytes(node)
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
        if self.compiled and node.op_class is not OpClass.ATTENTION:
            elems *= 1.0 - self._recomputable(node)
        return elems * self._width(node)

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
        if policy.autocast and autocast_class(f"aten::{node.op}") == "fp32":
            return FP32_BYTES
        if self.fp8_saves_fp8 and policy.fp8_recipe and node.op_class is OpClass.GEMM:
            return policy.matmul.num_bytes
        return policy.activation.num_bytes

    def _recomputable(self, node: Node) -> float:
        """Share of a node's inputs that come from pointwise operators, which a compiler runs again."""
        if node.op_class is OpClass.NORM or node.op == _DROPOUT:
            return 0.0
        sources = [self.nodes[source] for source in node.inputs if source >= 0]
        total = sum(source.out_elems for source in sources)
        cheap = sum(
            source.out_elems for source in sources if source.op_class in _CHEAP and source.op not in _RESIDUAL
        )
        return cheap / total if total else 0.0
