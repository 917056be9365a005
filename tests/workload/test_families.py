"""Parametric families against published sizes and against what must hold of any graph."""

import tomllib
from pathlib import Path

import pytest

from precision_time.errors import ConfigError
from precision_time.workload.builder import GraphBuilder
from precision_time.workload.families.decoder import DecoderConfig, build_decoder
from precision_time.workload.families.tables import model_table
from precision_time.workload.graph import OpClass, OpGraph, graph_from_json, graph_to_json
from precision_time.workload.resolve import load_workload

FIGURES = tomllib.loads((Path(__file__).parent / "published_figures.toml").read_text())["models"]
SMALL = DecoderConfig(layers=4, hidden=64, heads=4, seq_len=32, vocab=100)


def active_params(graph: OpGraph) -> float:
    """Weights a token passes through: products with parameters, per token."""
    assert graph.seq_len is not None
    flops = sum(n.flops for n in graph.nodes if n.op_class in (OpClass.GEMM, OpClass.DEPTHWISE_CONV))
    return flops / (2 * graph.seq_len)


@pytest.mark.parametrize("name", FIGURES)
def test_published_sizes(name: str) -> None:
    figure = FIGURES[name]
    graph = load_workload(name).graph
    assert graph.params == pytest.approx(figure["params"], rel=figure.get("tolerance", 0.01))
    if "forward_flops" in figure:
        assert graph.forward_flops == pytest.approx(figure["forward_flops"], rel=0.01)
    if "active" in figure:
        tolerance = figure.get("active_tolerance", 0.02)
        assert active_params(graph) == pytest.approx(figure["active"], rel=tolerance)


@pytest.mark.parametrize("name", list(model_table()))
def test_every_table_row_gives_a_consistent_graph(name: str) -> None:
    graph = load_workload(name).graph
    trainable = sum(n.param_elems * n.repeat for n in graph.nodes)
    tensors = sum(n.param_tensors * n.repeat for n in graph.nodes)
    assert trainable == pytest.approx(graph.trainable_params)
    assert tensors == graph.param_tensors
    assert graph.trainable_params <= graph.params
    assert graph.forward_flops > 0
    assert all(n.out_elems > 0 and n.saved_elems >= 0 for n in graph.nodes)
    assert all(not n.weight_grad or n.weight_elems > 0 for n in graph.nodes)


def test_graphs_survive_json() -> None:
    graph = load_workload("mixtral-8x7b").graph
    again = graph_from_json(graph_to_json(graph))
    assert again.params == graph.params
    assert again.forward_flops == graph.forward_flops
    assert len(again.nodes) == len(graph.nodes)


def test_layers_count_in_proportion() -> None:
    one, two, three = (
        build_decoder("x", DecoderConfig(layers=n, hidden=64, heads=4, seq_len=32, vocab=100))
        for n in (1, 2, 3)
    )
    assert three.forward_flops - two.forward_flops == pytest.approx(two.forward_flops - one.forward_flops)
    assert three.params - two.params == two.params - one.params == 12 * 64**2 + 13 * 64
    assert len(one.nodes) == len(three.nodes)


def test_tied_head_counts_its_weights_once() -> None:
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "seq_len": 32, "vocab": 100}
    tied, untied = (build_decoder("x", DecoderConfig(**sizes, tied=tied)) for tied in (True, False))
    assert untied.params - tied.params == 64 * 100
    assert untied.forward_flops == tied.forward_flops


def test_shared_layers_compute_more_than_they_weigh() -> None:
    albert, bert = load_workload("albert-large-v2").graph, load_workload("bert-large").graph
    assert albert.params < 0.06 * bert.params
    assert albert.forward_flops == pytest.approx(bert.forward_flops, rel=0.02)


def test_adapters_train_few_parameters_and_skip_base_gradients() -> None:
    full = load_workload("llama2-7b").graph
    lora = load_workload("llama2-7b", task="finetune-lora").graph
    assert lora.trainable_params == 32 * 2 * 8 * (4096 + 4096)
    assert lora.params == full.params + lora.trainable_params
    base = [n for n in lora.nodes if n.op_class is OpClass.GEMM and n.weight_elems >= 4096**2]
    assert base and not any(n.weight_grad for n in base)
    assert any(n.input_grad for n in base)
    assert lora.saved_elems < full.saved_elems


def test_adapter_task_keeps_a_stated_rank() -> None:
    graph = load_workload("llama2-70b-lora", task="lm-finetune-lora").graph
    assert graph.trainable_params == 80 * 16 * (2 * (8192 + 8192) + 2 * (8192 + 1024))


def test_first_layer_needs_no_input_gradient() -> None:
    b = GraphBuilder("x")
    first = b.linear(b.input(8, 16), 32)
    b.linear(first, 4)
    graph = b.build(input_bytes=0)
    assert [n.input_grad for n in graph.nodes] == [False, True]
    assert [n.weight_grad for n in graph.nodes] == [True, True]


def test_kept_activations_are_counted_once() -> None:
    b = GraphBuilder("x")
    x = b.linear(b.input(8, 16), 32)
    b.linear(x, 32)
    b.linear(x, 32)
    assert [n.saved_elems for n in b.build(input_bytes=0).nodes] == [8 * 16, 8 * 32, 0]


def test_decoder_layer_keeps_what_the_formula_says() -> None:
    """Korthikanti et al. 2022: 34·s·h bytes per layer at 2 bytes, without attention scores."""
    config = DecoderConfig(layers=1, hidden=1024, heads=16, seq_len=512, vocab=8, dropout=True)
    nodes = [n for n in build_decoder("x", config).nodes if n.segment == 1]
    kept_bytes = 2 * sum(n.saved_elems for n in nodes)
    assert kept_bytes == pytest.approx(34 * 512 * 1024, rel=0.01)


def test_sliding_window_shortens_attention_only() -> None:
    full = load_workload("mistral-7b", seq_len=32768, sizes={"window": 32768}).graph
    windowed = load_workload("mistral-7b", seq_len=32768).graph
    dense = 2 * 32768 * active_params(full)
    assert windowed.forward_flops - dense < 0.3 * (full.forward_flops - dense)
    assert windowed.params == full.params


def test_grouped_query_heads_shrink_keys() -> None:
    sizes = {"layers": 4, "hidden": 256, "heads": 8}
    many = load_workload("a", sizes=sizes | {"kv_heads": 8}).graph
    few = load_workload("a", sizes=sizes | {"kv_heads": 2}).graph
    assert many.params - few.params == 4 * 2 * 256 * (256 - 64)


@pytest.mark.parametrize(("heads", "kv_heads", "named"), [(5, 0, "heads=5"), (4, 3, "kv_heads=3")])
def test_heads_must_divide(heads: int, kv_heads: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DecoderConfig(layers=1, hidden=64, heads=heads, kv_heads=kv_heads, seq_len=8, vocab=8)


def test_flops_follow_the_usual_estimate() -> None:
    """2·N per token, and 4·s·h per layer for attention (Narayanan et al. 2021, equation 2)."""
    graph = build_decoder("x", SMALL)
    weights = 4 * 12 * 64**2 + 64 * 100
    assert graph.forward_flops == pytest.approx(32 * (2 * weights + 4 * 4 * 32 * 64))


def test_pretraining_head_reads_masked_positions_only() -> None:
    few = load_workload("bert-large", seq_len=512, sizes={"predictions": 76}).graph
    every = load_workload("bert-large", seq_len=512, sizes={"predictions": 512}).graph
    assert every.forward_flops == pytest.approx(2944.7e9 / 8, rel=0.001)
    assert every.forward_flops - few.forward_flops == pytest.approx(2 * 436 * 1024 * (30522 + 1024))


def test_reusing_dropout_free_sizes_changes_no_flops() -> None:
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "seq_len": 32, "vocab": 100}
    plain = build_decoder("x", DecoderConfig(**sizes))
    dropped = build_decoder("x", DecoderConfig(**sizes, dropout=True))
    assert dropped.forward_flops == plain.forward_flops
    assert len(dropped.nodes) > len(plain.nodes)
