"""What becomes of operators: kept, split, joined through, merged, unrolled; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CaptureError
from precision_time.workload.graph import OpClass, OpGraph
from precision_time.workload.resolve import load_workload
from precision_time_papers.ghn.architecture import (
    ArchitectureGraph,
    architecture_of,
    build_architecture,
    levels_of,
    path_lengths,
)
from precision_time_papers.ghn.reading import GraphNode
from precision_time_papers.ghn.unroll import unroll
from precision_time_papers.ghn.vocabulary import Role, vocabulary


def feeding(graph: ArchitectureGraph) -> list[list[int]]:
    """For each node what feeds it."""
    return [[int(a) for a, b in graph.edges if b == node] for node in range(len(graph))]


def names(graph: OpGraph) -> tuple[str, ...]:
    return architecture_of(graph).primitive_names


def test_weight_and_bias_are_nodes_and_activations_are_not(make: SimpleNamespace) -> None:
    read = architecture_of(
        make.graph(make.linear(32, 48, -1), make.relu(0), make.linear(48, 10, 1, bias=False))
    )
    assert read.primitive_names == ("input", "conv", "bias", "conv")
    assert feeding(read) == [[], [0], [1], [2]]
    words = vocabulary()
    assert [int(words.channels[row - 1]) for row in read.shapes[1:, 0]] == [48, 48, 10]
    assert [int(words.channels[row - 1]) for row in read.shapes[[1, 3], 1]] == [32, 48]
    assert read.operators.tolist() == [-1, 0, 0, 2]


def test_sums_stay_only_where_streams_meet(make: SimpleNamespace) -> None:
    lone = make.graph(make.linear(8, 8, -1), make.add(0), make.linear(8, 8, 1))
    assert "sum" not in names(lone)
    residual = architecture_of(
        make.graph(make.linear(8, 8, -1, bias=False), make.relu(0), make.linear(8, 8, 1, bias=False),
                   make.add(0, 2))
    )  # fmt: skip
    assert residual.primitive_names == ("input", "conv", "conv", "sum")
    assert feeding(residual)[3] == [1, 2]


def test_unknown_operators_are_joined_counted_and_reported(make: SimpleNamespace) -> None:
    odd = make.node("frobnicate", OpClass.UNKNOWN, 0, repeat=3)
    known = make.graph(make.linear(8, 8, -1), make.linear(8, 4, 0))
    with_odd = make.graph(make.linear(8, 8, -1), odd, make.linear(8, 4, 1))
    assert architecture_of(with_odd).unknown == {"frobnicate": 3}
    assert architecture_of(with_odd).content_hash == architecture_of(known).content_hash
    assert architecture_of(known).unknown == {}


def test_attention_is_one_node_however_it_is_written(make: SimpleNamespace) -> None:
    qkv = [make.linear(8, 8, -1, bias=False) for _ in range(3)]
    fused = make.node(
        "scaled_dot_product_attention", OpClass.ATTENTION, 0, 1, 2, m=4.0, n=4.0, k=8.0, count=1.0
    )
    written = [
        make.node("bmm", OpClass.BMM, 0, 1, m=4.0, n=4.0, k=8.0, count=1.0),
        make.node("mul", OpClass.ELEMENTWISE, 3),
        make.node("add", OpClass.ELEMENTWISE, 4, -1),
        make.node("_softmax", OpClass.SOFTMAX, 5),
        make.node("native_dropout", OpClass.ELEMENTWISE, 6),
        make.node("bmm", OpClass.BMM, 7, 2, m=4.0, n=8.0, k=4.0, count=1.0),
    ]
    one = architecture_of(make.graph(*qkv, fused, make.linear(8, 8, 3)))
    other = architecture_of(make.graph(*qkv, *written, make.linear(8, 8, 8)))
    assert one.primitive_names == ("input", "conv", "conv", "conv", "msa", "conv", "bias")
    assert other.primitive_names == one.primitive_names
    assert set(feeding(other)[4]) >= {1, 2, 3}
    router = make.graph(make.linear(8, 4, -1), make.node("_softmax", OpClass.SOFTMAX, 0))
    assert names(router)[-1] == "softmax"


def test_a_norm_written_out_is_a_norm(make: SimpleNamespace) -> None:
    fused = make.node("rms_norm", OpClass.NORM, 0, weight_elems=8.0, param_elems=8.0)
    e = OpClass.ELEMENTWISE
    written = [
        make.node("pow", e, 0), make.node("mean", OpClass.REDUCTION, 1, out=8.0), make.add(2, out=8.0),
        make.node("rsqrt", e, 3, out=8.0), make.node("mul", e, 0, 4),
        make.node("mul", e, 5, weight_elems=8.0, param_elems=8.0),
    ]  # fmt: skip
    first, last = make.linear(8, 8, -1), make.linear(8, 8, 1)
    one = architecture_of(make.graph(first, fused, last))
    other = architecture_of(make.graph(first, *written, replace(last, inputs=(6,))))
    assert one.content_hash == other.content_hash
    assert "rms_norm" in one.primitive_names


def test_products_of_activations(make: SimpleNamespace) -> None:
    e = OpClass.ELEMENTWISE
    gate = make.graph(make.linear(8, 64, -1), make.linear(8, 64, -1), make.node("mul", e, 0, 1))
    assert names(gate)[-1] == "gate"
    squeeze = make.graph(
        make.linear(8, 64, -1), make.node("mean", OpClass.REDUCTION, 0, out=4.0), make.node("mul", e, 0, 1)
    )
    assert names(squeeze)[-2:] == ("glob_avg", "cse")
    scale = make.graph(make.linear(8, 64, -1), make.node("mul", e, 0, weight_elems=64.0, param_elems=64.0))
    assert names(scale)[-1] == "scale"


def test_an_empty_graph_is_refused(make: SimpleNamespace) -> None:
    with pytest.raises(CaptureError, match="empty.*To fix"):
        architecture_of(make.graph())
    with pytest.raises(CaptureError, match="empty.*To fix"):
        build_architecture("none", [])


def test_a_cycle_and_a_loose_edge_are_refused() -> None:
    ring = [GraphNode(primitive="input"), GraphNode(primitive="conv", inputs=(0, 2)),
            GraphNode(primitive="sum", inputs=(1,))]  # fmt: skip
    with pytest.raises(CaptureError, match="cyclic.*To fix"):
        build_architecture("ring", ring)
    with pytest.raises(CaptureError, match="does not hold"):
        build_architecture("loose", [GraphNode(primitive="input"), GraphNode(primitive="conv", inputs=(7,))])


def test_nodes_in_any_order_give_the_same_levels() -> None:
    forward = [GraphNode(primitive="input"), GraphNode(primitive="conv", inputs=(0,)),
               GraphNode(primitive="bn", inputs=(1,)), GraphNode(primitive="sum", inputs=(0, 2))]  # fmt: skip
    backward = [GraphNode(primitive="sum", inputs=(3, 1)), GraphNode(primitive="bn", inputs=(2,)),
                GraphNode(primitive="conv", inputs=(3,)), GraphNode(primitive="input")]  # fmt: skip
    one, other = build_architecture("a", forward), build_architecture("b", backward)
    assert one.content_hash == other.content_hash
    assert levels_of(one).tolist() == [0, 1, 2, 3]


def test_path_lengths_are_the_shortest_and_bounded() -> None:
    chain = [GraphNode(primitive="input")] + [GraphNode(primitive="conv", inputs=(i,)) for i in range(60)]
    chain[20] = GraphNode(primitive="sum", inputs=(5, 19))
    lengths = path_lengths(build_architecture("chain", chain))
    assert lengths[20, 5] == 1
    assert lengths[21, 0] == 7
    assert lengths[20, 19] == 1
    assert lengths[10, 0] == 10
    assert lengths[60, 0] == 46
    long = [GraphNode(primitive="input")] + [GraphNode(primitive="conv", inputs=(i,)) for i in range(60)]
    lengths = path_lengths(build_architecture("long", long))
    assert lengths[50, 0] == 50
    assert lengths[51, 0] == 0
    assert not np.triu(lengths).any()


@given(st.data())
def test_path_lengths_agree_with_searching(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    nodes = [GraphNode(primitive="input")]
    for index in range(1, count):
        sources = data.draw(st.sets(st.integers(0, index - 1), max_size=3))
        nodes.append(GraphNode(primitive="conv", inputs=tuple(sorted(sources))))
    lengths = path_lengths(build_architecture("random", nodes))
    for start in range(count):
        reached, steps, edge = {start}, 0, {start}
        while edge:
            steps += 1
            edge = {i for i, node in enumerate(nodes) if edge & set(node.inputs)} - reached
            reached |= edge
            assert all(lengths[node, start] == steps for node in edge)
        assert all(lengths[node, start] == 0 for node in range(count) if node not in reached)


def test_widths_and_windows_take_the_nearest_known_ones() -> None:
    words = vocabulary()
    for width, known in ((0, None), (1, 1), (2, 1), (64, 64), (71, 64), (73, 80), (768, 768), (5e6, 262144)):
        row = words.channel_index(width)
        assert (None if row == 0 else int(words.channels[row - 1])) == known
    assert [words.side_index(side) for side in (0, 1, 2, 3, 14, 99)] == [0, 1, 1, 2, 8, 10]


def test_the_first_fifteen_primitives_are_those_of_ghn2() -> None:
    assert vocabulary().primitives[:15] == (
        "max_pool", "avg_pool", "sep_conv", "dil_conv", "conv", "msa", "cse", "sum", "concat", "input",
        "bias", "bn", "ln", "pos_enc", "glob_avg",
    )  # fmt: skip


def test_rules_name_known_primitives_only() -> None:
    words = vocabulary()
    for reading in (*words.by_op.values(), *words.by_class.values()):
        named = reading.role in (Role.PRIMITIVE, Role.MERGE)
        assert (reading.primitive in words.index) == named


@pytest.mark.parametrize(
    "model",
    ["resnet50", "bert-base", "t5-base", "dlrm", "deepspeech2", "dimenet++-oc20", "mask-rcnn-r50-fpn"],
)
def test_published_models_hold_no_unknown_operator(model: str) -> None:
    assert architecture_of(load_workload(model).graph).unknown == {}


def test_resnet18_is_what_the_paper_shows() -> None:
    read = architecture_of(load_workload("resnet18").graph)
    counts = {name: read.primitive_names.count(name) for name in set(read.primitive_names)}
    assert counts == {"input": 1, "conv": 21, "bn": 20, "max_pool": 1, "sum": 8, "glob_avg": 1, "bias": 1}
    into_sums = [
        sources for name, sources in zip(read.primitive_names, feeding(read), strict=True) if name == "sum"
    ]
    assert all(len(sources) == 2 for sources in into_sums)


def test_depth_is_written_out(make: SimpleNamespace) -> None:
    block = [make.linear(8, 8, 0, repeat=4, segment=1, bias=False), make.relu(1, repeat=4, segment=1)]
    read = architecture_of(make.graph(make.linear(8, 8, -1, bias=False), *block, make.linear(8, 2, 2)))
    assert read.primitive_names == ("input", *["conv"] * 6, "bias")
    assert feeding(read) == [[], *[[i] for i in range(7)]]


def test_a_residual_around_repeats_starts_before_them(make: SimpleNamespace) -> None:
    block = [make.relu(0, repeat=2, segment=1), make.linear(8, 8, 1, repeat=2, segment=1, bias=False)]
    occurrences = unroll(make.graph(make.linear(8, 8, -1), *block, make.add(1, 2)))
    assert [one.inputs for one in occurrences] == [(-1,), (0,), (1,), (2,), (3,), (1, 4)]


def test_memory_is_read_by_every_repeat(make: SimpleNamespace) -> None:
    memory = make.linear(8, 16, -1, bias=False)
    tokens = make.linear(8, 8, -1, bias=False)
    block = [make.linear(8, 8, 1, repeat=3, segment=1), make.add(0, 2, repeat=3, segment=1, out=8.0)]
    occurrences = unroll(make.graph(memory, tokens, *block))
    sums = [one.inputs for one in occurrences if one.source == 3]
    assert sums == [(0, 2), (0, 4), (0, 6)]
    assert [one.inputs for one in occurrences if one.source == 2] == [(1,), (3,), (5,)]


@given(st.integers(1, 50), st.integers(1, 9), st.integers(4, 60))
def test_the_limit_keeps_every_occurrence_in_the_weights(repeat: int, period: int, limit: int) -> None:
    from precision_time.workload.graph import Node

    nodes = [Node(op="relu", op_class=OpClass.ELEMENTWISE, inputs=(-1,), out_elems=1.0)]
    nodes += [
        Node(op="relu", op_class=OpClass.ELEMENTWISE, inputs=(i,), out_elems=1.0, repeat=repeat, segment=1)
        for i in range(period)
    ]
    graph = OpGraph(name="g", nodes=tuple(nodes), params=0.0, trainable_params=0.0, param_tensors=0)
    occurrences = unroll(graph, limit)
    assert len(occurrences) <= max(limit, len(nodes))
    assert sum(one.stands_for for one in occurrences) == pytest.approx(1 + repeat * period)
    assert all(source < index for index, one in enumerate(occurrences) for source in one.inputs)
