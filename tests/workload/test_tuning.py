"""Adapters and frozen parts: what is trained, what runs backward, what is kept, in graphs of every origin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from precision_time.errors import ConfigError
from precision_time.workload.graph import OpGraph
from precision_time.workload.packing import UNPACKING
from precision_time.workload.resolve import load_workload
from precision_time.workload.roles import heads_of, roles_of
from precision_time.workload.tuning import Adapter, target_roles, with_adapter, with_frozen, without_training


def graph_of(model: str) -> OpGraph:
    return load_workload(model).graph


def lora(graph: OpGraph, *targets: str, kind: str = "lora", rank: int = 8) -> OpGraph:
    return with_adapter(graph, Adapter(kind=kind, rank=rank, targets=targets))


@pytest.mark.parametrize(
    ("model", "layers", "parts"),
    [
        (
            "llama3-8b",
            1,
            {"q": 4096, "k": 1024, "v": 1024, "o": 4096, "gate": 14336, "up": 14336, "down": 4096},
        ),
        ("gpt2", 1, {"q": 768, "k": 768, "v": 768, "o": 768, "up": 3072, "down": 768}),
        ("bert-base-uncased", 1, {"q": 768, "k": 768, "v": 768, "o": 768, "up": 3072, "down": 768}),
        ("t5-base", 3, {"q": 768, "k": 768, "v": 768, "o": 768}),
        ("vit_base_patch16_224", 1, {"q": 768, "k": 768, "v": 768, "o": 768, "up": 3072, "down": 768}),
    ],
)
def test_roles_are_read_off_the_edges(model: str, layers: int, parts: dict[str, float]) -> None:
    """Parametric decoders and encoders, written-out attention, fused projections of a captured model."""
    found: dict[str, list[float]] = {}
    for columns in roles_of(graph_of(model)).values():
        for part, width in columns.items():
            found.setdefault(part, []).append(width)
    for part, width in parts.items():
        assert found[part] == [width] * layers


@pytest.mark.parametrize(
    ("model", "rank", "targets", "trained"),
    [
        # PEFT's print_trainable_parameters: 4,194,304 of Llama-2-7B at rank 8 on q_proj and v_proj.
        ("llama2-7b", 8, ("q", "v"), 32 * 2 * 8 * (4096 + 4096)),
        ("llama3-8b", 16, ("q", "v"), 32 * 16 * (4096 + 4096 + 4096 + 1024)),
        # The classifier of an image model is trained beside the factors.
        ("vit_base_patch16_224", 16, ("q", "v"), 12 * 2 * 16 * (768 + 768) + 769_000),
    ],
)
def test_trained_parameters(model: str, rank: int, targets: tuple[str, ...], trained: int) -> None:
    before, after = graph_of(model), lora(graph_of(model), *targets, rank=rank)
    heads = sum(before.nodes[i].param_elems for i in heads_of(before)) if before.seq_len is None else 0.0
    assert after.trainable_params == trained
    assert after.params == before.params + trained - heads


@pytest.mark.parametrize(
    "model", ["llama3-8b", "bert-base-uncased", "swin_tiny_patch4_window7_224", "t5-base"]
)
@pytest.mark.parametrize("kind", ["lora", "qlora", "dora", "qdora"])
def test_frozen_weights_get_no_gradient(model: str, kind: str) -> None:
    before, after = graph_of(model), lora(graph_of(model), "q", "v", kind=kind)
    assert after.trainable_params == sum(n.param_elems * n.repeat for n in after.nodes if n.weight_grad)
    assert all(n.param_elems == 0.0 for n in after.nodes if not n.weight_grad)
    assert after.trainable_params < 0.2 * before.params
    assert before.forward_flops < after.forward_flops
    assert after.training_flops < 0.8 * before.training_flops
    assert after.saved_elems < before.saved_elems * (2.0 if kind.endswith("dora") else 1.2)
    assert (
        after.packed_params > 0.5 * before.params * (model != "swin_tiny_patch4_window7_224")
    ) == kind.startswith("q")


def test_only_what_lies_above_something_trained_runs_backward() -> None:
    """Factors of queries and values below the head: the embedding gets no gradient, the head's input one."""
    after = lora(graph_of("gpt2"), "q", "v")
    embeddings = [node for node in after.nodes if node.op == "embedding"]
    head = next(node for node in after.nodes if node.layer == "head")
    assert not any(node.weight_grad or node.input_grad for node in embeddings)
    assert head.input_grad and not head.weight_grad


def test_dora_adds_the_norm_of_the_merged_weight() -> None:
    """One product of rank-deep factors per target and layer, whatever the batch; one magnitude per output."""
    base = graph_of("llama3-8b")
    plain, normed = lora(base, "q", "v", rank=16), lora(base, "q", "v", rank=16, kind="dora")
    assert normed.trainable_params - plain.trainable_params == 32 * (4096 + 1024)
    merged = [node for node in normed.nodes if node.op == "mm"]
    assert sum(node.flops for node in merged) == 32 * 2 * 16 * 4096 * (4096 + 1024)
    assert not any(node.scales_with_batch or node.input_grad for node in merged)


@pytest.mark.parametrize("model", ["gpt2", "vit_base_patch16_224", "resnet50"])
def test_frozen_backbone_trains_the_head_alone(model: str) -> None:
    before = graph_of(model)
    probe = with_frozen(before, ("backbone",))
    backward = [node for node in probe.nodes if node.input_grad or node.weight_grad]
    assert [node.weight_grad for node in backward if node.flops] == [True]
    head = next(node for node in probe.nodes if node.weight_grad)
    assert probe.trainable_params == pytest.approx(head.n * head.k, rel=2e-3)
    assert probe.params == before.params
    assert probe.training_flops == pytest.approx(before.forward_flops + head.flops)


def test_first_layers_and_what_is_before_them() -> None:
    before = graph_of("bert-base-uncased")
    half = with_frozen(before, ("layers:6",))
    layer = 7_087_872
    embeddings = (30522 + 512 + 2) * 768 + 2 * 768
    # The head shares the frozen table: it is the head's to train.
    assert before.trainable_params - half.trainable_params == 6 * layer + embeddings - 30522 * 768
    assert with_frozen(before, ("layers:12",)).saved_elems < half.saved_elems < before.saved_elems


def test_encoder_of_two_stacks() -> None:
    """Freezing Whisper's encoder leaves the decoder and its projections of what the encoder says."""
    before = graph_of("whisper-small")
    after = with_frozen(before, ("encoder",))
    assert before.trainable_params - after.trainable_params == 87_002_112


def test_nothing_trained_keeps_nothing() -> None:
    forward = without_training(graph_of("llama3-8b"))
    assert forward.saved_elems == 0.0 and forward.trainable_params == 0.0
    assert forward.training_flops == forward.forward_flops


def test_packed_weights_are_unpacked_where_they_are_used() -> None:
    after = with_frozen(lora(graph_of("llama3-8b"), "q", "v", kind="qlora"), ("layers:16",))
    unpacked = {node.input_grad: node.repeat for node in after.nodes if node.op == UNPACKING}
    assert unpacked == {False: 16, True: 16}


@pytest.mark.parametrize(
    ("spelled", "roles"),
    [
        ("q_proj,v_proj", ("q", "v")),
        ("c_attn", ("q", "k", "v")),
        ("all-linear", ("q", "k", "v", "o", "gate", "up", "down", "other")),
        ("model.layers.self_attn.o_proj", ("o",)),
        ("my_projection", ("my_projection",)),
    ],
)
def test_target_spellings(spelled: str, roles: tuple[str, ...]) -> None:
    assert target_roles(spelled.split(",")) == roles


def captured() -> OpGraph:
    """BERT as a capture names it: equal layers stand once, under the name of the first."""
    base = graph_of("bert-base-uncased")
    named = (
        replace(node, layer=f"encoder.layer.0.{'mixer' if node.flops else 'rest'}")
        if node.repeat > 1
        else node
        for node in base.nodes
    )
    return replace(base, nodes=tuple(named))


def test_modules_of_a_captured_model_are_targets() -> None:
    base = captured()
    assert lora(base, "mixer").trainable_params > lora(base, "q", "k", "v", "o").trainable_params


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [
        ("encoder", 12),
        ("encoder.*", 12),
        ("encoder.layer.0", 1),
        ("encoder.layer.1", 1),
        ("encoder.layer.1*", 3),
        ("encoder.layer.[0-5].*", 6),
    ],
)
def test_modules_of_a_captured_model_are_frozen_by_their_number(pattern: str, layers: int) -> None:
    """Layers 1, 10 and 11 for `1*`: blocks are cut where only some of their repeats are named."""
    base = captured()
    frozen = with_frozen(base, (pattern,))
    assert base.trainable_params - frozen.trainable_params == layers * 7_087_872
    assert sum(node.flops for node in frozen.nodes) == sum(node.flops for node in base.nodes)


def test_a_class_head_is_trained_whatever_its_name() -> None:
    """Four classes beside a vocabulary of 1,000: a module called head is not that of a language model."""
    base = graph_of("bert-base-uncased")
    named = tuple(
        replace(
            node,
            layer="head",
            n=4.0,
            out_elems=4.0 * node.m,
            weight_elems=4.0 * node.k,
            param_elems=4.0 * node.k,
        )
        if node.layer == "head"
        else node
        for node in base.nodes
    )
    heads = [node for node in lora(replace(base, nodes=named), "q").nodes if node.layer == "head"]
    assert [node.weight_grad for node in heads] == [True]


@pytest.mark.parametrize(
    ("model", "patterns", "message"),
    [
        ("resnet50", ("layers:3",), "its layers differ"),
        ("gpt2", ("layers:13",), "it has 12 repeated layers"),
        ("gpt2", ("tower",), "names nothing"),
        ("gpt2", ("backbone", "head"), "nothing of gpt2 to train"),
    ],
)
def test_wrong_parts_are_refused(model: str, patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_frozen(graph_of(model), patterns)


def test_models_without_targets_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot carry adapters"):
        lora(graph_of("resnet50"), "q")
