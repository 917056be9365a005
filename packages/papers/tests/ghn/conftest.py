"""Small operator graphs to read architectures from; no file of the user's is touched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from precision_time.workload.graph import Node, OpClass, OpGraph


def _node(op: str, op_class: OpClass, *inputs: int, out: float = 64.0, **fields: Any) -> Node:
    return Node(op=op, op_class=op_class, inputs=inputs, in_elems=out, out_elems=out, **fields)


def _linear(wide: float, narrow: float, *inputs: int, bias: bool = True, **fields: Any) -> Node:
    weight = wide * narrow + (narrow if bias else 0.0)
    return _node(
        "addmm", OpClass.GEMM, *inputs, out=narrow, m=1.0, n=narrow, k=wide, count=1.0, weight_elems=weight,
        param_elems=weight, **fields,
    )  # fmt: skip


def _relu(*inputs: int, **fields: Any) -> Node:
    return _node("relu", OpClass.ELEMENTWISE, *inputs, **fields)


def _add(*inputs: int, **fields: Any) -> Node:
    return _node("add", OpClass.ELEMENTWISE, *inputs, **fields)


def _graph(*nodes: Node, name: str = "test", **fields: Any) -> OpGraph:
    return OpGraph(name=name, nodes=nodes, params=0.0, trainable_params=0.0, param_tensors=0, **fields)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Makers of operators (`node`, `linear`, `relu`, `add`) and of a `graph` of them."""
    return SimpleNamespace(node=_node, linear=_linear, relu=_relu, add=_add, graph=_graph)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
