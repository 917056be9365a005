"""Vectors: the sweeps against the formula, caching, precision, the shipped table, nearest architectures."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from precision_time.errors import CaptureError, ConfigError, NotFittedError, UnknownNameError
from precision_time.precision.catalog import get_policy, known_policies
from precision_time.precision.policy import DType
from precision_time.workload.resolve import load_workload
from precision_time_papers.ghn import embedding as embedding_module
from precision_time_papers.ghn.architecture import architecture_of, build_architecture, path_lengths
from precision_time_papers.ghn.embedding import embed
from precision_time_papers.ghn.known import (
    embedding_of,
    known_embeddings,
    nearest,
    read_table,
    table_path,
)
from precision_time_papers.ghn.network import initial_vectors, node_vectors
from precision_time_papers.ghn.reading import GraphNode
from precision_time_papers.ghn.readout import lowered_dtypes
from precision_time_papers.ghn.weights import GhnWeights, initial_weights, shipped_weights

WEIGHTS = initial_weights(1)


@pytest.fixture(scope="module")
def evaluation():
    path = Path(__file__).parents[2] / "studies" / "ghn_evaluation.py"
    spec = importlib.util.spec_from_file_location("ghn_evaluation", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ghn_evaluation"] = module
    spec.loader.exec_module(module)
    return module


def one_by_one(graph, weights: GhnWeights) -> np.ndarray:
    """GHN-2's equation 4 node after node, in double precision, without levels or matrices."""
    a = {name: array.astype(np.float64) for name, array in weights.arrays.items()}
    lengths = path_lengths(graph)
    h = initial_vectors(graph, weights).astype(np.float64)

    def mlp(x, name):
        inner = np.maximum(a[f"{name}.0.weight"] @ x + a[f"{name}.0.bias"], 0)
        return np.maximum(a[f"{name}.1.weight"] @ inner + a[f"{name}.1.bias"], 0)

    def gru(m, x):
        gi = np.split(a["gru.weight_ih"] @ m + a["gru.bias_ih"], 3)
        gh = np.split(a["gru.weight_hh"] @ x + a["gru.bias_hh"], 3)
        reset, update = (1 / (1 + np.exp(-(gi[i] + gh[i]))) for i in (0, 1))
        return (1 - update) * np.tanh(gi[2] + reset * gh[2]) + update * x

    for order, table in ((range(len(h)), lengths), (reversed(range(len(h))), lengths.T)):
        for v in order:
            message = np.zeros(32)
            for u in np.flatnonzero(table[v]):
                message += mlp(h[u], "virtual") / table[v, u]
                if table[v, u] == 1:
                    message += mlp(h[u], "direct")
            h[v] = gru(message, h[v])
    h -= h.mean(axis=1, keepdims=True)
    return h / np.sqrt(h.var(axis=1, keepdims=True) + 1e-5) * a["norm.weight"] + a["norm.bias"]


@pytest.mark.parametrize("model", ["lstm-lm", "resnet18", "vgg11"])
def test_levels_and_matrices_give_what_the_formula_gives(model: str) -> None:
    graph = architecture_of(load_workload(model).graph)
    np.testing.assert_allclose(node_vectors(graph, WEIGHTS), one_by_one(graph, WEIGHTS), atol=2e-5)


def test_a_node_by_itself_is_its_tables() -> None:
    graph = build_architecture(
        "two",
        [
            GraphNode(primitive="input"),
            GraphNode(primitive="conv", inputs=(0,), c_out=64, c_in=3, k_h=3, k_w=5),
        ],
    )
    c_out, c_in, k_h, k_w = graph.shapes[1]
    tables = WEIGHTS.arrays
    parts = [tables["channel_table"][c_out], tables["channel_table"][c_in], tables["side_table"][k_h],
             tables["side_table"][k_w]]  # fmt: skip
    expected = tables["op_table"][graph.primitives[1]] + np.concatenate(parts)
    np.testing.assert_array_equal(initial_vectors(graph, WEIGHTS)[1], expected)


def test_an_embedding_says_where_it_comes_from(make: SimpleNamespace) -> None:
    from precision_time.workload.graph import OpClass

    odd = make.node("frobnicate", OpClass.UNKNOWN, 0, repeat=2)
    found = embed(make.graph(make.linear(8, 8, -1), odd, make.linear(8, 4, 1)), weights=WEIGHTS)
    assert found.vector.shape == (32,)
    assert np.isfinite(found.vector).all()
    assert dict(found.unknown) == {"frobnicate": 2}
    assert found.weights_version == WEIGHTS.version
    with pytest.raises(CaptureError, match="empty"):
        embed(make.graph(), weights=WEIGHTS)


def test_vectors_are_kept_and_damaged_files_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []
    real = embedding_module.node_vectors
    monkeypatch.setattr(embedding_module, "node_vectors", lambda *a: calls.append(1) or real(*a))
    graph = load_workload("vgg11").graph
    embedding_module._memory.clear()
    first = embed(graph, weights=WEIGHTS).vector
    embed(graph, weights=WEIGHTS)
    assert len(calls) == 1
    embedding_module._memory.clear()
    np.testing.assert_array_equal(embed(graph, weights=WEIGHTS).vector, first)
    assert len(calls) == 1, "the file was not read"
    (file,) = (tmp_path / "home").rglob("*.npz")
    for content in (b"", file.read_bytes()[:50], b"not an archive"):
        file.write_bytes(content)
        embedding_module._memory.clear()
        np.testing.assert_array_equal(embed(graph, weights=WEIGHTS).vector, first)
    assert len(calls) == 4
    embed(graph, weights=initial_weights(2))
    assert len(calls) == 5, "other weights must not share vectors"


@pytest.mark.parametrize("model", ["resnet18", "bert-base", "dlrm"])
def test_every_operator_has_a_type_at_every_precision(model: str) -> None:
    graph = load_workload(model).graph
    for policy in known_policies():
        assert len(lowered_dtypes(graph, policy)) == len(graph.nodes)


def test_precision_tells_one_architecture_apart_and_blind_does_not() -> None:
    graph = load_workload("resnet18").graph
    blind = embed(graph, weights=WEIGHTS, on_disk=False).vector
    seen = {}
    for name in ("fp32", "tf32", "fp16-mixed", "bf16-mixed"):
        found = embed(graph, dtypes=lowered_dtypes(graph, get_policy(name)), weights=WEIGHTS, on_disk=False)
        assert found.vector.shape == (128,)
        np.testing.assert_allclose(found.vector.reshape(4, 32).sum(axis=0), blind, atol=1e-5)
        seen[name] = found.vector
    assert not np.allclose(seen["fp32"], seen["tf32"])
    assert not np.allclose(seen["tf32"], seen["fp16-mixed"])
    np.testing.assert_array_equal(seen["fp16-mixed"], seen["bf16-mixed"])
    wide, tf32, half, narrow = seen["fp32"].reshape(4, 32)
    assert np.abs(wide).max() > 0
    assert not (tf32.any() or half.any() or narrow.any())


def test_narrow_products_have_a_block_of_their_own() -> None:
    graph = load_workload("bert-base").graph
    found = embed(
        graph, dtypes=lowered_dtypes(graph, get_policy("fp8-mixed")), weights=WEIGHTS, on_disk=False
    )
    assert np.abs(found.vector.reshape(4, 32)[3]).max() > 0


def test_too_few_types_are_refused() -> None:
    graph = load_workload("resnet18").graph
    with pytest.raises(ConfigError, match="one type per operator.*lowered_dtypes"):
        embed(graph, dtypes=[DType.FP32] * 3, weights=WEIGHTS)


def test_repeats_beyond_the_limit_weigh_as_many_as_they_are() -> None:
    graph = load_workload("tacotron2").graph
    read = architecture_of(graph)
    assert len(read) < 6000
    assert read.stands_for.sum() > 4 * len(read)


def test_the_table_holds_what_embedding_gives() -> None:
    table = known_embeddings()
    assert table.weights_version == shipped_weights().version
    for model in ("resnet50", "gpt2", "lstm-lm"):
        graph = load_workload(model).graph
        assert embedding_of(model).graph_hash == architecture_of(graph).content_hash
        fresh = embed(graph, on_disk=False).vector
        np.testing.assert_allclose(embedding_of(model).vector, fresh, atol=1e-5)


def test_nearest_are_sorted_relatives_without_itself() -> None:
    found = nearest("resnet50", 8)
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)
    names = {name for one in found for name in (one.name, *one.same_as)}
    assert "resnet50" not in names
    assert sum("resnet" in name or "resnext" in name for name in names) >= len(names) / 2
    itself, *others = nearest(load_workload("resnet50").graph, 9)
    assert "resnet50" in (itself.name, *itself.same_as)
    assert itself.similarity == pytest.approx(1.0, abs=1e-5)
    assert [one.name for one in others] == [one.name for one in found]
    assert len(nearest("resnet50", 100_000)) == len(known_embeddings().vectors) - 1


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one neighbor"):
        nearest("resnet50", 0)
    with pytest.raises(UnknownNameError, match="resnet50"):
        nearest("resnet5O")
    other = embed(load_workload("resnet18").graph, weights=WEIGHTS, on_disk=False)
    with pytest.raises(ConfigError, match="shipped weights"):
        nearest(other)


def test_a_damaged_table_is_a_clear_error(tmp_path: Path, evaluation) -> None:
    whole = table_path().read_bytes()
    path = tmp_path / "t.npz"
    for content in (b"", whole[:1000], whole[: len(whole) // 2], b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(NotFittedError, match="To fix"):
            read_table(path)
    evaluation.write_table(path, known_embeddings())
    again = read_table(path)
    assert again.names == known_embeddings().names
    np.testing.assert_array_equal(again.vectors, known_embeddings().vectors)
    short = replace(known_embeddings(), names=known_embeddings().names[1:])
    evaluation.write_table(path, short)
    with pytest.raises(NotFittedError, match="incomplete"):
        read_table(path)


def test_relatives_lie_closer_than_strangers(evaluation) -> None:
    table = known_embeddings()
    groups = evaluation.closeness(table)
    assert len(groups) >= 10
    assert all(group.within > group.between + 0.2 for group in groups)
    agreement, chance = evaluation.family_agreement(table)
    assert agreement > 2 * chance
