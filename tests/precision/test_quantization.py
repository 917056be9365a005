"""Narrow products: which there are, what their operands cost by hand, and what travels."""

import numpy as np
import pytest

from precision_time.precision.catalog import get_policy, known_precisions, known_variants
from precision_time.precision.lowered import LoweredStep
from precision_time.precision.lowering import DTYPES, lower
from precision_time.precision.nodes import node_columns
from precision_time.precision.policy import DType, PrecisionPolicy
from precision_time.precision.quantization import (
    NARROW,
    amax_exchange,
    amax_tensors,
    gathered_bytes,
    narrow_products,
)
from precision_time.workload.blocks import split_ends
from precision_time.workload.graph import Node, OpClass, OpGraph
from precision_time.workload.resolve import load_workload

M, N, K = 128.0, 256.0, 512.0
HISTORY_BYTES = 2 * 4 * 1024


def product(inputs: tuple[int, ...] = (-1,), **more: object) -> Node:
    fields: dict[str, object] = {
        "op": "linear", "op_class": OpClass.GEMM, "inputs": inputs, "m": M, "n": N, "k": K, "count": 1,
        "in_elems": M * K, "out_elems": M * N, "weight_elems": N * K, "param_elems": N * K,
        "param_tensors": 1, "weight_grad": True,
    }  # fmt: skip
    return Node(**(fields | more))  # type: ignore[arg-type]


def graph_of(*nodes: Node) -> OpGraph:
    params = sum(node.param_elems * node.repeat for node in nodes)
    return OpGraph(name="test", nodes=nodes, params=params, trainable_params=params, param_tensors=len(nodes))


def policies() -> list[tuple[str, str | None]]:
    every = [(name, variant) for name in known_precisions() for variant in (None, *known_variants(name))]
    return [pair for pair in every if get_policy(pair[0], variant=pair[1]).matmul in NARROW]


def pass_bytes(step: LoweredStep) -> tuple[float, float, float]:
    """(input, weight, gradient) passes of a step with one product."""
    casts = step.is_cast & (step.bytes_per_sample > 0)
    forward, backward = casts & (step.phase == 0), casts & (step.phase == 1)
    return (
        float(step.bytes_per_sample[forward].sum()),
        float(step.bytes_fixed[step.once_per_step].sum()),
        float(step.bytes_per_sample[backward].sum()),
    )


# Bytes per element of (input, weight, gradient) by hand, read + written; wide ones have 2 bytes.
BY_HAND = {
    ("fp8-mixed:delayed", "hopper"): (2 + 2, 2 + 2, 2 + 2),
    ("fp8-mixed:delayed", "blackwell"): (2 + 1, 2 + 1, 2 + 1),
    ("fp8-mixed:current", "hopper"): (4 + 2, 4 + 2, 4 + 2),
    ("fp8-mixed:current", "blackwell"): (4 + 1, 4 + 1, 4 + 1),
    ("fp8-mixed:blockwise", "hopper"): (4 + 8 / 128, 4 + 8 / 128**2, 4 + 8 / 128),
    ("fp8-mixed:mxfp8", "blackwell"): (2 + 2 * (1 + 1 / 32), 2 + 2 * (1 + 1 / 32), 2 + 2 * (1 + 1 / 32)),
    ("nvfp4-mixed", "blackwell"): (6 + 2 * 9 / 16, 4 + 2 * 9 / 16, 6 + 2 * 9 / 16),
    ("nvfp4-mixed:mxfp4", "blackwell"): (4 + 2 * 17 / 32, 2 + 2 * 17 / 32, 4 + 2 * 17 / 32),
    ("nvfp4-mixed:no-hadamard", "blackwell"): (4 + 2 * 9 / 16, 4 + 2 * 9 / 16, 4 + 2 * 9 / 16),
    ("fp8-mixed:torchao-rowwise-gw-hp", "hopper"): (4 + 1, 4 + 2, 4 + 1),
    ("fp8-mixed:delayed-fp8-gather", "hopper"): (2 + 2, 2, 2 + 2),
    ("fp8-mixed:delayed-fp8-gather", "blackwell"): (2 + 1, 0, 2 + 1),
}  # fmt: skip


@pytest.mark.parametrize(("spelling", "arch"), BY_HAND)
def test_passes_move_what_the_recipe_says(spelling: str, arch: str) -> None:
    step = lower(graph_of(product()), get_policy(spelling), arch)
    by_input, by_weight, by_gradient = BY_HAND[spelling, arch]
    assert pass_bytes(step) == pytest.approx((M * K * by_input, N * K * by_weight, M * N * by_gradient))


def test_without_a_compiler_every_step_of_a_pass_moves_memory() -> None:
    # Per element: |x| reads and writes 2, its maximum reads 2, fp32 2 + 4, times the scale 4 + 4, clamp
    # 4 + 4, fp8 4 + 1, and the copy for the other layout 1.
    moved = (2 + 2) + 2 + (2 + 4) + (4 + 4) + (4 + 4) + (4 + 1)
    frozen = graph_of(product(weight_grad=False, input_grad=True))
    step = lower(frozen, get_policy("fp8-mixed", variant="torchao-eager"), "hopper")
    of_weight = step.is_cast & (step.bytes_fixed > 0)
    forward, backward = (step.bytes_fixed[of_weight & (step.phase == phase)].sum() for phase in (0, 1))
    assert (forward, backward) == ((moved + 1) * N * K, moved * N * K)
    assert not step.once_per_step.any()
    compiled = lower(frozen, get_policy("fp8-mixed", variant="torchao"), "hopper")
    assert step.bytes_fixed.sum() > 4 * compiled.bytes_fixed.sum()
    assert step.launches.sum() > compiled.launches.sum()


def test_rotated_rows_cost_the_host_as_separate_kernels_do_and_memory_as_compiled_ones() -> None:
    frozen = graph_of(product(weight_grad=False, input_grad=True))
    rotated = lower(frozen, get_policy("int8-mixed", variant="sdnq"))
    fused = lower(frozen, get_policy("int8-mixed"))
    eager = lower(frozen, get_policy("fp8-mixed", variant="torchao-eager"))
    passes = [step.launches[step.is_cast & (step.launches > 2)].tolist() for step in (rotated, eager)]
    assert passes[0] == passes[1] == [10.0] * 4
    assert not (fused.launches > 2).any()
    moved = [step.bytes_per_sample[step.is_cast].sum() for step in (rotated, fused, eager)]
    assert moved[1] < moved[0] <= moved[1] + 4 * (M * K + M * N) < moved[2]  # a rotation reads and writes


def test_a_product_reads_narrow_operands_and_writes_wide_ones() -> None:
    step = lower(graph_of(product()), get_policy("fp8-mixed"), "hopper")
    products = step.flops > 0
    assert step.bytes_per_sample[products].tolist() == [M * K + 2 * M * N, M * N + 2 * M * K, M * K + M * N]
    assert step.bytes_fixed[products].tolist() == [N * K, N * K, 2 * N * K]


def test_a_tensor_is_made_narrow_once_for_all_products_that_read_it() -> None:
    source = Node(op="mul", op_class=OpClass.ELEMENTWISE, out_elems=M * K, in_elems=M * K)
    one = lower(graph_of(source, product((0,))), get_policy("fp8-mixed"))
    two = lower(graph_of(source, product((0,)), product((0,))), get_policy("fp8-mixed"))
    assert pass_bytes(two)[0] == pass_bytes(one)[0]
    assert pass_bytes(two)[1] == 2 * pass_bytes(one)[1]


def test_a_norm_writes_narrow_values_itself_unless_something_else_reads_it() -> None:
    norm = Node(op="rms_norm", op_class=OpClass.NORM, out_elems=M * K, in_elems=M * K)
    other = Node(op="silu", op_class=OpClass.ELEMENTWISE, inputs=(0,), out_elems=M * K, in_elems=M * K)
    policy = get_policy("fp8-mixed")
    assert pass_bytes(lower(graph_of(norm, product((0,))), policy))[0] == 0
    assert pass_bytes(lower(graph_of(norm, product((0,)), other), policy))[0] == M * K * 4
    assert pass_bytes(lower(graph_of(norm, product((0,))), get_policy("fp8-current")))[0] == M * K * 6


def test_frozen_weights_need_no_copies_of_the_input() -> None:
    frozen = product(weight_grad=False, param_elems=0.0, param_tensors=0)
    step = lower(graph_of(frozen), get_policy("fp8-mixed"), "hopper")
    assert pass_bytes(step) == (M * K * 3, N * K * 4, M * N * 3)


def test_histories_move_on_once_per_pass() -> None:
    step = lower(graph_of(product(repeat=5)), get_policy("fp8-mixed"))
    history = step.is_cast & (step.repeat == 1)
    assert step.bytes_fixed[history].tolist() == [5 * 2 * HISTORY_BYTES, 5 * HISTORY_BYTES]
    assert not lower(graph_of(product(repeat=5)), get_policy("mxfp8")).is_cast[[-1]].any()


@pytest.mark.parametrize(
    ("spelling", "dim", "narrow"),
    [("fp8", 48, True), ("fp8", 40, False), ("mxfp8", 48, False), ("mxfp8", 64, True), ("nvfp4", 48, True)],
)
def test_dimensions_must_be_aligned(spelling: str, dim: float, narrow: bool) -> None:
    nodes = node_columns([product(n=dim), product(k=dim)])
    assert narrow_products(nodes, get_policy(spelling)).tolist() == [narrow, narrow]


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "nemotron-3-nano"])
def test_routers_logits_and_attention_stay_wide(model: str) -> None:
    graph = load_workload(model).graph
    chosen = narrow_products(node_columns(graph.nodes), get_policy("fp8-mixed"))
    wide = [n for n, narrow in zip(graph.nodes, chosen, strict=True) if not narrow]
    experts = {n.count for n in graph.nodes if n.op == "_grouped_mm"}
    assert {n.n for n in wide if n.op == "linear" and n.layer == "head"}
    assert experts <= {n.n for n in wide if n.op == "linear"}
    assert all(narrow for n, narrow in zip(graph.nodes, chosen, strict=True) if n.op == "_grouped_mm")
    assert all(n in wide for n in graph.nodes if n.op_class in (OpClass.ATTENTION, OpClass.EMBEDDING))


@pytest.mark.parametrize(("name", "variant"), policies())
def test_work_and_gradients_are_conserved(name: str, variant: str | None) -> None:
    graph = load_workload("llama3-8b", seq_len=512).graph
    step, wide = lower(graph, get_policy(name, variant=variant)), lower(graph, get_policy("bf16"))
    assert (step.flops * step.repeat).sum() == pytest.approx((wide.flops * wide.repeat).sum())
    assert step.param_elems @ step.repeat == pytest.approx(graph.trainable_params)
    assert (step.bytes_per_sample >= 0).all()
    assert (step.bytes_fixed >= 0).all()


def narrow_share(graph: OpGraph, policy: PrecisionPolicy) -> float:
    step = lower(graph, policy)
    work = step.flops * step.repeat
    return float(work[np.array([dtype in NARROW for dtype in DTYPES])[step.dtype]].sum() / work.sum())


def test_small_products_gain_less() -> None:
    """The passes move as much per element as before, the products multiply less with each."""
    small = lower(graph_of(product(n=64, k=64, in_elems=M * 64, out_elems=M * 64)), get_policy("fp8-mixed"))
    large = lower(graph_of(product()), get_policy("fp8-mixed"))
    per_flop = [
        (step.bytes_per_sample + step.bytes_fixed)[step.is_cast & (step.repeat == 1)].sum() / step.flops.sum()
        for step in (small, large)
    ]
    assert per_flop[0] > 2 * per_flop[1]


def test_first_and_last_layers_stay_wide() -> None:
    graph = load_workload("llama3-8b", seq_len=512).graph
    every, ends = get_policy("fp8-mixed"), get_policy("fp8-mixed:first-last-bf16")
    assert narrow_share(graph, ends) == pytest.approx(narrow_share(graph, every) * 30 / 32)


def test_split_ends_takes_layers_in_order() -> None:
    graph = load_workload("deepseek-v3").graph
    nodes, wide = split_ends(graph.nodes, (2, 8))
    layers = {n.segment: (n.repeat, kept) for n, kept in zip(nodes, wide, strict=True) if n.segment}
    assert list(layers.values()) == [(2, True), (1, False), (50, False), (8, True)]
    assert sum(n.param_elems * n.repeat for n in nodes) == graph.trainable_params
    assert all(source < index for index, n in enumerate(nodes) for source in n.inputs)


def test_more_ends_than_layers_leave_nothing_narrow() -> None:
    graph = load_workload("gpt2").graph
    nodes, wide = split_ends(graph.nodes, (8, 8))
    assert sum({n.segment: n.repeat for n in nodes if n.segment}.values()) == 12
    assert all(kept for n, kept in zip(nodes, wide, strict=True) if n.segment)


def test_delayed_scaling_reduces_maxima_twice_per_micro_batch() -> None:
    policy = get_policy("fp8-mixed")
    step = lower(graph_of(product(repeat=10), product(op="_grouped_mm", count=4)), policy)
    assert amax_tensors(step) == 3 * (10 + 4)
    exchange = amax_exchange(step, policy)
    assert (exchange.per_micro_batch, exchange.per_step) == (2.0, 0.0)
    assert exchange.per_micro_batch * exchange.bytes_each == 4 * amax_tensors(step)


@pytest.mark.parametrize("spelling", ["bf16", "fp8-current", "mxfp8", "fp8-blockwise", "nvfp4"])
def test_other_recipes_reduce_no_maxima(spelling: str) -> None:
    exchange = amax_exchange(lower(graph_of(product()), get_policy(spelling)), get_policy(spelling))
    assert exchange.per_micro_batch == exchange.per_step == 0.0


def test_fp8_gather_halves_the_weights_of_narrow_products_on_the_wire() -> None:
    graph = load_workload("llama3-8b").graph
    as_before = gathered_bytes(graph, get_policy("fp8-mixed:torchao"))
    narrow = gathered_bytes(graph, get_policy("fp8-mixed:torchao-fp8-gather"))
    tables_and_norms = 2 * 128256 * 4096 + (2 * 32 + 1) * 4096
    assert as_before == 2 * graph.params
    assert narrow == graph.params + tables_and_norms


def test_autocast_gathers_in_its_own_type() -> None:
    graph = load_workload("gpt2").graph
    assert gathered_bytes(graph, get_policy("bf16-mixed")) == 2 * graph.params
    assert gathered_bytes(graph, get_policy("fp32")) == 4 * graph.params


def test_vocabulary_and_expert_kernels_are_marked() -> None:
    step = lower(load_workload("mixtral-8x7b").graph, get_policy("bf16"))
    assert step.param_elems[step.vocabulary] @ step.repeat[step.vocabulary] == 2 * 32000 * 4096
    assert step.param_elems[step.expert] @ step.repeat[step.expert] == 32 * 8 * 3 * 4096 * 14336


def test_wide_weight_gradient_is_multiplied_in_the_wide_type() -> None:
    step = lower(graph_of(product()), get_policy("fp8-mixed:torchao-rowwise-gw-hp"))
    types = [DTYPES[index] for index in step.dtype[step.flops > 0]]
    assert types == [DType.FP8, DType.FP8, DType.BF16]


def test_under_autocast_a_narrow_product_casts_no_weight_besides_its_quantization() -> None:
    step = lower(graph_of(product()), get_policy("int8-mixed"))
    casts = step.is_cast & (step.phase == 0) & (step.bytes_fixed > 0.0)
    assert casts.any()
    assert step.once_per_step[casts].all()


def test_split_layers_read_their_own_nodes_and_the_layer_before() -> None:
    first = Node(op="mul", op_class=OpClass.ELEMENTWISE, inputs=(0,), segment=1, repeat=6)
    second = Node(op="add", op_class=OpClass.ELEMENTWISE, inputs=(1, 0, -1), segment=1, repeat=6)
    nodes, wide = split_ends((Node(op="embedding", op_class=OpClass.EMBEDDING), first, second), (2, 1))
    assert [node.repeat for node in nodes] == [1, 2, 2, 3, 3, 1, 1]
    assert wide == (False, True, True, False, False, True, True)
    assert [node.inputs for node in nodes[1::2]] == [(0,)] * 3
    assert [node.inputs for node in nodes[2::2]] == [(at, 0, -1) for at in (1, 3, 5)]
