"""Lowering: where the casts are, what is computed in which type, and that work is conserved."""

import numpy as np
import pytest

from precision_time.precision.catalog import get_policy, known_precisions
from precision_time.precision.lowering import DTYPES, OP_CLASSES, lower
from precision_time.precision.policy import DType
from precision_time.workload.graph import Node, OpClass, OpGraph
from precision_time.workload.resolve import load_workload


def linear(inputs: tuple[int, ...], *, k: float = 64, n: float = 32, **more: object) -> Node:
    return Node(
        op="linear",
        op_class=OpClass.GEMM,
        inputs=inputs,
        m=1,
        n=n,
        k=k,
        count=1,
        in_elems=k,
        out_elems=n,
        weight_elems=n * k,
        param_elems=n * k,
        param_tensors=1,
        weight_grad=True,
        **more,  # type: ignore[arg-type]
    )


def graph_of(*nodes: Node) -> OpGraph:
    params = sum(node.param_elems for node in nodes)
    return OpGraph(name="test", nodes=nodes, params=params, trainable_params=params, param_tensors=len(nodes))


def test_fp32_has_no_cast_and_three_times_the_forward_flops() -> None:
    graph = graph_of(linear((-1,)), linear((0,), k=32, n=16))
    step = lower(graph, get_policy("fp32"))
    assert not step.is_cast.any()
    assert step.flops.sum() == 3 * graph.forward_flops


def test_first_layer_needs_no_gradient_by_its_input() -> None:
    graph = graph_of(linear((-1,), input_grad=False), linear((0,), k=32, n=16))
    step = lower(graph, get_policy("fp32"))
    assert step.flops.sum() == 3 * graph.forward_flops - graph.nodes[0].flops


@pytest.mark.parametrize(
    ("op_class", "products"),
    # Dao 2022, algorithm 4: the backward pass of fused attention is five products to the forward's two, as it
    # computes the scores again. A plain product of two activations has two in its backward pass.
    [(OpClass.ATTENTION, 5 / 2), (OpClass.BMM, 2)],
)
def test_backward_flops_of_attention_are_five_halves_of_forward(op_class: OpClass, products: float) -> None:
    node = Node(
        op="attention", op_class=op_class, inputs=(-1, -1, -1), m=128, n=128, k=64, count=12,
        in_elems=3 * 128 * 64 * 12, out_elems=128 * 64 * 12,
    )  # fmt: skip
    step = lower(graph_of(node), get_policy("fp32"))
    forward, backward = (step.flops[step.phase == phase].sum() for phase in (0, 1))
    assert forward > 0.0
    assert backward == products * forward


@pytest.mark.parametrize(
    ("read", "summed"),
    # Two readers of the whole output: one sum of 32 elements. Of a half each: theirs stand side by side. Of
    # the whole and of a half: a sum of the half. A sum reads two numbers and writes one, of 4 bytes.
    [((32, 32), 32), ((16, 16), 0), ((32, 16), 16)],
)
def test_gradients_are_summed_where_readers_overlap(read: tuple[int, int], summed: int) -> None:
    readers = [
        Node(op="neg", op_class=OpClass.ELEMENTWISE, inputs=(0,), in_elems=elems, out_elems=elems)
        for elems in read
    ]
    alone, both = (lower(graph_of(linear((-1,)), *nodes), get_policy("fp32")) for nodes in ((), readers))
    own = [lower(graph_of(linear((-1,)), reader), get_policy("fp32")) for reader in readers]
    of_readers = sum(step.bytes_per_sample.sum() - alone.bytes_per_sample.sum() for step in own)
    more = both.bytes_per_sample.sum() - alone.bytes_per_sample.sum() - of_readers
    assert more == 3 * 4 * summed


def test_autocast_casts_each_weight_once_forward_and_its_gradient_once_backward() -> None:
    graph = graph_of(linear((-1,)), linear((0,), k=32, n=16))
    step = lower(graph, get_policy("fp16-mixed"))
    weight_casts = step.is_cast & (step.bytes_fixed > 0)
    assert weight_casts.sum() == 4
    assert step.bytes_fixed[weight_casts].sum() == 2 * 6 * graph.params


def test_autocast_casts_only_the_fp32_input_of_the_first_layer() -> None:
    graph = graph_of(linear((-1,), input_grad=False), linear((0,), k=32, n=16))
    step = lower(graph, get_policy("bf16-mixed"))
    activation_casts = step.is_cast & (step.bytes_per_sample > 0)
    assert step.bytes_per_sample[activation_casts].tolist() == [64 * 6.0]


def test_softmax_needs_a_cast_kernel_in_bf16_and_none_in_fp16() -> None:
    softmax = Node(
        op="_softmax", op_class=OpClass.SOFTMAX, inputs=(0,), in_elems=32, out_elems=32, saved_elems=32
    )
    graph = graph_of(linear((-1,)), softmax)
    casts = {name: lower(graph, get_policy(name)).is_cast.sum() for name in ("fp16-mixed", "bf16-mixed")}
    assert casts["bf16-mixed"] > casts["fp16-mixed"]


def test_residual_stream_of_a_layer_norm_stays_fp32() -> None:
    norm = Node(op="native_layer_norm", op_class=OpClass.NORM, inputs=(0,), in_elems=32, out_elems=32)
    add = Node(op="add", op_class=OpClass.ELEMENTWISE, inputs=(0, 1), in_elems=64, out_elems=32)
    step = lower(graph_of(linear((-1,)), norm, add), get_policy("fp16-mixed"))
    elementwise = (step.op_class == OP_CLASSES.index(OpClass.ELEMENTWISE)) & ~step.is_cast & (step.phase == 0)
    assert [DTYPES[index] for index in step.dtype[elementwise]] == [DType.FP32]


def test_fp8_quantizes_aligned_products_only() -> None:
    aligned, ragged = linear((-1,), k=64, n=32), linear((0,), k=32, n=10)
    step = lower(graph_of(aligned, ragged), get_policy("fp8-mixed"))
    products = (step.flops > 0) & (step.phase == 0)
    types = {DTYPES[index] for index in step.dtype[products & (step.n == 32)]}
    assert types == {DType.FP8}
    assert DTYPES[int(step.dtype[products & (step.n == 10)][0])] is DType.BF16


@pytest.mark.parametrize("precision", known_precisions())
@pytest.mark.parametrize("model", ["bert-large", "llama3-8b", "t5-base"])
def test_every_policy_conserves_the_work(model: str, precision: str) -> None:
    graph = load_workload(model, seq_len=512).graph
    step = lower(graph, get_policy(precision))
    wide = lower(graph, get_policy("fp32"))
    assert np.isclose((step.flops * step.repeat).sum(), (wide.flops * wide.repeat).sum())
    assert step.param_elems @ step.repeat == pytest.approx(graph.trainable_params, rel=1e-6)
    assert (step.bytes_per_sample >= 0).all()
    assert (step.bytes_fixed >= 0).all()


@pytest.mark.parametrize(("narrow", "wide"), [("bf16", "fp32"), ("fp16", "fp32"), ("fp32", "fp64")])
def test_halving_the_width_halves_the_traffic(narrow: str, wide: str) -> None:
    graph = load_workload("bert-large", seq_len=512).graph
    few, many = lower(graph, get_policy(narrow)), lower(graph, get_policy(wide))
    assert few.bytes_per_sample.sum() == pytest.approx(many.bytes_per_sample.sum() / 2)


def test_equal_graphs_share_one_result() -> None:
    one, other = (graph_of(linear((-1,)), linear((0,), k=32, n=16)) for _ in range(2))
    assert one is not other
    assert hash(one) == hash(other)
    assert lower(one, get_policy("fp16-mixed")) is lower(other, get_policy("fp16-mixed"))
    third = graph_of(linear((-1,)), linear((0,), k=32, n=16, input_grad=False))
    assert lower(third, get_policy("fp16-mixed")) is not lower(one, get_policy("fp16-mixed"))


def test_equal_calls_share_one_result() -> None:
    graph = load_workload("bert-large", seq_len=512).graph
    assert lower(graph, get_policy("bf16-mixed")) is lower(graph, get_policy("bf16-mixed"))


def test_autocast_casts_the_fp32_share_of_several_inputs() -> None:
    """A product of a softmax (fp32 under autocast), three times as large, and of a linear layer (fp16)."""
    narrow = linear((-1,), n=100)
    wide = Node(op="softmax", op_class=OpClass.SOFTMAX, inputs=(0,), in_elems=300, out_elems=300)
    both = Node(
        op="bmm", op_class=OpClass.BMM, inputs=(1, 0), m=10, n=10, k=10, count=1, in_elems=400, out_elems=100
    )
    step = lower(graph_of(narrow, wide, both), get_policy("bf16-mixed"))
    casts = step.is_cast & (step.phase == 0) & (step.bytes_per_sample > 0.0)
    assert step.bytes_per_sample[casts].max() == 400 * 0.75 * (4 + 2)
