"""Layers, heads, experts and tokens read off operator graphs are those of the model cards."""

from __future__ import annotations

import pytest

from precision_time.parallel.shape import ModelShape, model_shape
from precision_time.workload.resolve import load_workload


@pytest.mark.parametrize(
    ("name", "layers", "heads", "kv_heads", "experts"),
    [
        ("gpt2", 12, 12, 12, 0),
        ("gpt3-175b", 96, 96, 96, 0),
        ("llama3-70b", 80, 64, 8, 0),
        ("llama3.1-405b", 126, 128, 8, 0),
        ("gemma2-9b", 42, 16, 8, 0),  # alternate layers see a window
        ("falcon-7b", 32, 71, 1, 0),  # one fused projection, one key-value head
        ("starcoder", 40, 48, 1, 0),  # the same without positions in between
        ("mixtral-8x7b", 32, 32, 8, 8),
        ("deepseek-v3", 61, 128, 128, 256),  # three dense layers; the prediction module is no layer
        ("deepseek-v2-lite", 27, 16, 16, 64),  # one dense layer, which stands alone
        ("bert-large", 24, 16, 16, 0),
        ("t5-large", 48, 16, 16, 0),  # encoder and decoder
        ("gopher-280b", 80, 128, 128, 0),  # relative positions: attention is written out
        ("deberta-base", 12, 12, 12, 0),
    ],
)
def test_counts_of_known_models(name: str, layers: int, heads: int, kv_heads: int, experts: int) -> None:
    shape = model_shape(load_workload(name).graph)
    assert (shape.num_layers, shape.heads, shape.kv_heads, shape.num_experts) == (
        layers,
        heads,
        kv_heads,
        experts,
    )
    assert shape.seq_len is not None


def test_a_network_without_layers_or_tokens_has_nothing_to_divide() -> None:
    assert model_shape(load_workload("resnet50").graph) == ModelShape()
    assert model_shape(load_workload("mamba2-130m").graph).heads is None  # products without a softmax


def test_tokens_are_those_asked_for() -> None:
    assert model_shape(load_workload("llama3-8b", seq_len=2048).graph).seq_len == 2048
