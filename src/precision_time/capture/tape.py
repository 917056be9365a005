"""The list of nodes while a forward pass runs: turns one operator call into a `Node`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import prod
from typing import Any

import torch

from ..cache import data
from ..io import packaged_toml
from ..records import dataclass
from ..workload.builder import MASK_ELEMS
from ..workload.graph import Node, OpClass
from . import products
from .values import GRAPH_INPUT, NO_PRODUCER, Value, ValueTable

INDEX_ELEMS = 2.0
"""A 64-bit index in 4-byte elements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpRule:
    """Class of an operator, and what it saves: none, input, output, operands, mask or index."""

    op_class: OpClass
    saves: str


UNKNOWN_RULE = OpRule(op_class=OpClass.UNKNOWN, saves="input")


@data
def op_rules() -> dict[str, OpRule]:
    """Rules by plain operator name."""
    rules: dict[str, OpRule] = {}
    for entry in packaged_toml(__package__, "data/aten_ops.toml")["rule"]:
        rule = OpRule(op_class=OpClass(entry["op_class"]), saves=entry["saves"])
        rules.update(dict.fromkeys(entry["ops"], rule))
    return rules


def plain_name(op: str) -> str:
    """The operator without namespace, overload and in-place mark.

    >>> plain_name("aten::relu_"), plain_name("aten::_softmax"), plain_name("aten::__and__")
    ('relu', '_softmax', 'bitwise_and')
    """
    name = op.rsplit("::", maxsplit=1)[-1].split(".", maxsplit=1)[0]
    name = _DUNDER.get(name, name)
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


_DUNDER = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
}


_OF_PRODUCT = (
    "op_class", "m", "n", "k", "count", "batch_in_count", "kernel", "stride", "causal", "sequential_steps",
)  # fmt: skip
"""Fields that a node takes over from its product."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One operator call: tensors read, tensors newly made, tensors written in place."""

    op: str
    args: Sequence[Any]
    reads: Sequence[Any]
    fresh: Sequence[Any]
    written: Sequence[Any] = ()
    grad_enabled: bool = True
    product: products.Product | None = None
    saved_elems: float | None = None
    layer: str = ""


@dataclass(slots=True)
class Tape:
    """Nodes and values of one capture."""

    table: ValueTable
    nodes: list[Node] = field(default_factory=list)
    unpriced: Counter[str] = field(default_factory=Counter)
    used_params: set[str] = field(default_factory=set)

    def add_param(self, name: str, tensor: Any) -> None:
        """A parameter, trainable if it requires a gradient."""
        self.table.put(
            tensor,
            Value(needs_grad=tensor.requires_grad, from_model=True, param=name, elems=tensor.numel()),
        )

    def add_buffer(self, tensor: Any) -> None:
        """A tensor of the model that is not a parameter."""
        self.table.put(tensor, Value(elems=tensor.numel()))

    def add_input(self, tensor: Any) -> None:
        """An input of the graph."""
        numel = tensor.numel()
        scales = numel > 0 and numel % self.table.batch == 0
        self.table.put(tensor, Value(producer=GRAPH_INPUT, scales=scales, from_model=True, elems=numel))

    def add_constant(self, tensor: Any) -> None:
        """A tensor made of nothing but sizes and numbers."""
        if not self.table.known(tensor):
            self.table.of(tensor)

    def record(self, call: Call) -> None:
        """Appends the node of `call` and makes it the producer of what it wrote."""
        reads = [self.table.of(t) for t in call.reads]
        results = [*call.fresh, *call.written]
        from_model = any(value.from_model for value in reads)
        scales_in = any(self.table.grows(t) for t in call.reads)
        if not results:
            return
        if not from_model and not any(self._grows(t, scales_in) for t in results):
            for tensor in call.fresh:
                self.table.put(tensor, Value(elems=tensor.numel()))
            return
        needs_grad = call.grad_enabled and any(v.needs_grad for v in reads)
        brought = not from_model or self._brings_batch(call)
        scales = scales_in or any(self._grows(t, brought) for t in results)
        for tensor in call.fresh:
            self.table.put(
                tensor,
                Value(
                    producer=len(self.nodes),
                    scales=scales and tensor.numel() > 0 and tensor.numel() % self.table.batch == 0,
                    needs_grad=needs_grad and (tensor.is_floating_point() or tensor.is_complex()),
                    from_model=from_model,
                    elems=tensor.numel(),
                ),
            )
        node = self._node(call, reads, scales=scales, needs_grad=needs_grad)
        for tensor in call.written:
            value = self.table.of(tensor)
            value.producer = len(self.nodes)
            value.needs_grad = value.needs_grad or (needs_grad and tensor.is_floating_point())
            value.from_model = value.from_model or from_model
            value.scales = value.scales or self._grows(tensor, scales)
        self.nodes.append(node)

    def _brings_batch(self, call: Call) -> bool:
        """Fixed inputs become a batch here (`repeat`): no input size is a multiple of it, an output is."""
        return all(t.numel() % self.table.batch for t in call.reads)

    def _grows(self, tensor: Any, allowed: bool) -> bool:
        return allowed and tensor.numel() > 0 and tensor.numel() % self.table.batch == 0

    def _node(self, call: Call, reads: Sequence[Value], *, scales: bool, needs_grad: bool) -> Node:
        product = call.product or self._product(call)
        rule = op_rules().get(call.op)
        if product is None and rule is None:
            self.unpriced[call.op] += 1
        rule = rule or UNKNOWN_RULE
        in_elems, weight_elems = self._traffic(call, scales=scales)
        if rule.op_class is OpClass.EMBEDDING:  # reads the rows it gives out, not the whole table
            in_elems = sum(self._out_elems(t, scales) for t in call.fresh[:1])
        first = self._first_uses(reads)
        moving = [v for t, v in zip(call.reads, reads, strict=True) if self.table.scales(t) or not scales]
        fixed = [v for v in reads if v.param is not None or not any(v is m for m in moving)]
        input_grad = needs_grad and any(v.needs_grad and v.param is None for v in moving)
        saved = call.saved_elems
        if saved is None:
            saved = self._saved(call, rule, product) if needs_grad else 0.0
        return Node(
            op=(product.op if product and product.op else call.op),
            inputs=self._edges(reads),
            in_elems=in_elems,
            out_elems=sum(self._out_elems(t, scales) for t in (*_main_results(call), *call.written)),
            weight_elems=weight_elems,
            param_elems=float(sum(v.elems for v in first)),
            param_tensors=len(first),
            scales_with_batch=scales,
            input_grad=input_grad,
            weight_grad=needs_grad and any(v.needs_grad for v in fixed),
            saved_elems=saved,
            layer=call.layer,
            **({name: getattr(product, name) for name in _OF_PRODUCT} if product else _pool(call, rule)),
        )

    def _product(self, call: Call) -> products.Product | None:
        if call.op == "convolution":
            return products.convolution(self.table, call.args, call.fresh[0])
        positions = products.MATRIX_OPERANDS.get(call.op)
        if positions is None:
            return None
        return products.matrix_product(self.table, *(call.args[p] for p in positions))

    def _out_elems(self, tensor: Any, scales: bool) -> float:
        if not scales:
            return float(tensor.numel())
        return tensor.numel() / self.table.batch if tensor.numel() % self.table.batch == 0 else 0.0

    def _traffic(self, call: Call, *, scales: bool) -> tuple[float, float]:
        """Elements read of activations and of what does not grow with the batch, each tensor once."""
        in_elems = weight_elems = 0.0
        seen: set[tuple[int, int, int]] = set()
        for tensor in call.reads:
            view = (self.table.key(tensor), tensor.storage_offset(), tensor.numel())
            value = self.table.of(tensor)
            if view in seen or (not value.from_model and value.producer == NO_PRODUCER and not value.scales):
                continue
            seen.add(view)
            if value.param is not None or (scales and not self.table.scales(tensor)):
                weight_elems += self.table.elems(tensor)
            else:
                in_elems += self.table.elems(tensor)
        return in_elems, weight_elems

    def _first_uses(self, reads: Iterable[Value]) -> list[Value]:
        """Trainable parameters read here that no earlier node read."""
        first = []
        for value in reads:
            if value.param is not None and value.param not in self.used_params and value.needs_grad:
                self.used_params.add(value.param)
                first.append(value)
        return first

    def _edges(self, reads: Iterable[Value]) -> tuple[int, ...]:
        producers = {v.producer for v in reads if v.producer not in (NO_PRODUCER, len(self.nodes))}
        return tuple(sorted(producers))

    def _saved(self, call: Call, rule: OpRule, product: products.Product | None) -> float:
        """Elements autograd keeps because of this call and not before [per sample if it scales]."""
        table = self.table
        if product is not None:
            if product.operands is None:
                return sum(table.keep(t) for t in call.reads) + sum(table.keep(t) for t in call.fresh)
            return self._keep_operands(product.operands)
        if rule.saves == "output":
            for tensor in call.written:
                table.forget_kept(tensor)
            return sum(table.keep(t) for t in (*call.written, *call.fresh[:1]))
        if rule.saves == "operands":
            return self._keep_operands(call.reads)
        if rule.saves == "mask":
            return MASK_ELEMS * max((table.elems(t) for t in (*call.fresh, *call.written)), default=0.0)
        if rule.saves == "index":
            return self._index_elems(call)
        if rule.saves == "input" and call.reads:
            return self._keep_input(call)
        return 0.0

    def _keep_operands(self, operands: Sequence[Any]) -> float:
        """Keeps each operand whose product with another operand's gradient is needed."""
        kept = 0.0
        for operand in operands:
            others = [self.table.of(t) for t in operands if t is not operand]
            if any(v.needs_grad for v in others) or not others:
                kept += self.table.keep(operand)
        return kept

    def _keep_input(self, call: Call) -> float:
        """The differentiable input; of an operator in place autograd keeps a copy."""
        source = call.reads[0]
        if call.written:
            return self.table.elems(source)
        kept = self.table.keep(source)
        indices = [t for t in call.fresh if t.dtype == torch.int64]
        return kept + INDEX_ELEMS * sum(self.table.elems(t) for t in indices)

    def _index_elems(self, call: Call) -> float:
        indices = [t for t in (*call.reads, *call.fresh) if t.dtype == torch.int64]
        return INDEX_ELEMS * sum(self.table.keep(t) or 0.0 for t in indices)


def _main_results(call: Call) -> Sequence[Any]:
    """Without the per-channel statistics of a batch norm, which do not grow with the batch."""
    return call.fresh[:1] if "batch_norm" in call.op else call.fresh


def _pool(call: Call, rule: OpRule) -> dict[str, Any]:
    """Class of an operator without a product, and window area and stride where it is a pooling call."""
    if rule.op_class is not OpClass.POOL or not call.fresh:
        return {"op_class": rule.op_class}
    lists = [a for a in call.args[1:3] if isinstance(a, list | tuple)]
    windows = [a for a in lists if all(isinstance(i, int) for i in a)]
    if "adaptive" not in call.op and "upsample" not in call.op and windows:
        steps = windows[1] if len(windows) > 1 and windows[1] else windows[0]
        kernel, stride = int(prod(windows[0])), max(int(prod(steps)), 1)
    else:
        kernel = stride = max(call.reads[0].numel() // max(call.fresh[0].numel(), 1), 1)
    return {"op_class": rule.op_class, "kernel": kernel, "stride": stride}
