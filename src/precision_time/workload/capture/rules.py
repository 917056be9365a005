"""What an operator runs as and what autograd keeps of it, from `data/aten_ops.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..families.tables import read_toml
from ..graph import OpClass

MASK_ELEMS = 0.5
"""A boolean byte in activation elements: one byte of a 2-byte element under mixed precision."""
INDEX_ELEMS = 2.0
"""A 64-bit index in 4-byte elements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpRule:
    """Class of an operator, and what it saves: none, input, output, operands, mask or index."""

    op_class: OpClass
    saves: str


UNKNOWN_RULE = OpRule(op_class=OpClass.UNKNOWN, saves="input")


@cache
def op_rules() -> dict[str, OpRule]:
    """Rules by plain operator name."""
    rules: dict[str, OpRule] = {}
    for entry in read_toml("aten_ops.toml")["rule"]:
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
