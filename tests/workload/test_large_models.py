"""What the cost of large models rests on: layers by segment, experts and vocabulary apart, adapters."""

import pytest

from precision_time.errors import ConfigError
from precision_time.precision.catalog import get_policy
from precision_time.precision.lowering import lower
from precision_time.workload.families.tables import model_table
from precision_time.workload.graph import Node, OpClass, OpGraph, graph_from_json, graph_to_json
from precision_time.workload.packing import PACKED_BYTES
from precision_time.workload.resolve import load_workload

DECODERS = [
    name
    for name, entry in model_table().items()
    if entry.builder == "decoder" and entry.sizes.get("positions") != "relative"
]
MOE = {name: entry.sizes for name, entry in model_table().items() if entry.sizes.get("experts")}
ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def layers_of(graph: OpGraph) -> dict[int, int]:
    """Layers of each segment."""
    return {node.segment: node.repeat for node in graph.nodes if node.segment}


def is_expert(node: Node) -> bool:
    return node.op == "_grouped_mm"


@pytest.mark.parametrize("name", DECODERS)
def test_repeats_of_the_segments_are_the_layers(name: str) -> None:
    entry = model_table()[name]
    graph = load_workload(name).graph
    segments = layers_of(graph)
    assert all(node.repeat == segments[node.segment] for node in graph.nodes if node.segment)
    attention = sum(n.repeat for n in graph.nodes if n.op_class is OpClass.ATTENTION)
    assert sum(segments.values()) == entry.sizes.get("layers", attention) == attention


@pytest.mark.parametrize(
    "name", ["nemotron-3-nano", "nemotron-h-8b", "switch-xl-4e", "dit-xl-2", "sd3-medium"]
)
def test_other_families_count_their_layers_too(name: str) -> None:
    sizes = model_table()[name].sizes
    counted = ("mamba_layers", "attention_layers", "mlp_layers", "moe_layers", "encoder_layers")
    more = ("decoder_layers", "plain_layers", "double_layers", "single_layers")
    want = sum(sizes.get(key, 0) for key in (*counted, *more))
    assert sum(layers_of(load_workload(name).graph).values()) == want


@pytest.mark.parametrize("name", MOE)
def test_routed_experts_are_told_from_everything_else(name: str) -> None:
    graph = load_workload(name).graph
    experts = [node for node in graph.nodes if is_expert(node)]
    assert {node.count for node in experts} == {float(MOE[name]["experts"])}
    step = lower(graph, get_policy("bf16"))
    by_expert = step.param_elems[step.expert] @ step.repeat[step.expert]
    assert by_expert == sum(node.param_elems * node.repeat for node in experts)
    assert step.param_elems @ step.repeat == pytest.approx(graph.trainable_params)


@pytest.mark.parametrize(
    ("name", "moe_layers", "matrices"),
    [("mixtral-8x7b", 32, 3), ("deepseek-v3", 58, 3), ("kimi-k2", 60, 3), ("llama4-maverick", 24, 3),
     ("qwen3-235b-a22b", 94, 3), ("nemotron-3-nano", 23, 2)],
)  # fmt: skip
def test_expert_weights_are_those_of_the_formula(name: str, moe_layers: int, matrices: int) -> None:
    sizes = MOE[name]
    want = moe_layers * matrices * sizes["experts"] * sizes["hidden"] * sizes["expert_ffn"]
    graph = load_workload(name).graph
    assert sum(node.param_elems * node.repeat for node in graph.nodes if is_expert(node)) == want


@pytest.mark.parametrize(
    ("name", "width"), [("deepseek-v3", 2048), ("llama4-scout", 8192), ("kimi-k2", 2048)]
)
def test_shared_experts_are_dense(name: str, width: int) -> None:
    nodes = load_workload(name).graph.nodes
    routed = {node.segment for node in nodes if is_expert(node)}
    shared = [n for n in nodes if n.op == "linear" and n.segment in routed and width in (n.n, n.k)]
    assert len(shared) == 3


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "gemma2-9b", "gpt2", "mixtral-8x7b"])
def test_tables_and_head_are_told_from_layers(name: str) -> None:
    graph = load_workload(name).graph
    step = lower(graph, get_policy("bf16"))
    vocabulary = [n for n in graph.nodes if n.op_class is OpClass.EMBEDDING or n.layer == "head"]
    assert all(node.segment == 0 for node in vocabulary)
    assert {float(s) for s in step.segment[step.vocabulary]} == {0.0}
    counted = step.param_elems[step.vocabulary] @ step.repeat[step.vocabulary]
    assert counted == sum(node.param_elems for node in vocabulary) > 0


def test_heads_of_further_tokens_are_vocabulary() -> None:
    graph = load_workload("deepseek-v3", sizes={"mtp_layers": 1}).graph
    assert [node.n for node in graph.nodes if node.layer == "head"] == [129280.0, 129280.0]


# ---- adapters ------------------------------------------------------------------------------------


def test_rank_16_on_every_projection_trains_the_published_number() -> None:
    """Llama 3 8B: 41 943 040 trainable parameters, as the fine-tuning libraries print."""
    sizes = {"lora_rank": 16, "lora_targets": ALL_LINEAR}
    assert load_workload("llama3-8b", sizes=sizes).graph.trainable_params == 41_943_040


@pytest.mark.parametrize("name", ["llama3-70b-lora", "meta-llama/Llama-3.1-8B-LoRA", "mixtral-8x7b-lora"])
def test_a_name_can_say_that_adapters_are_trained(name: str) -> None:
    work = load_workload(name)
    assert work.task == "finetune-lora"
    assert 0 < work.graph.trainable_params < 0.001 * work.graph.params
    assert any("rank 8" in line for line in work.assumptions)


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "mixtral-8x7b"])
def test_frozen_weights_have_no_gradient_but_pass_one_on(name: str) -> None:
    graph = load_workload(name, sizes={"lora_rank": 16}).graph
    products = [n for n in graph.nodes if n.op_class is OpClass.GEMM and n.segment]
    base = [n for n in products if n.m != 16 and 16 not in (n.n, n.k)]
    assert base
    assert all(n.input_grad and not n.weight_grad for n in base)
    assert sum(n.param_elems * n.repeat for n in products if n not in base) == graph.trainable_params
    step = lower(graph, get_policy("bf16"))
    full = lower(load_workload(name).graph, get_policy("bf16"))
    work, whole = ((s.flops * s.repeat)[s.phase == 1].sum() for s in (step, full))
    assert work < 0.6 * whole


def test_latent_attention_carries_adapters() -> None:
    sizes = {"lora_rank": 8, "lora_targets": ["q", "k", "v", "o"]}
    per_layer = (1536 + 128 * 192) + 2 * (512 + 128 * 128) + (128 * 128 + 7168)
    assert load_workload("deepseek-v3", sizes=sizes).graph.trainable_params == 61 * 8 * per_layer


def test_targets_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="'router' is not a projection"):
        load_workload("llama3-8b", sizes={"lora_rank": 8, "lora_targets": ["q", "router"]})


def test_a_packed_base_is_unpacked_in_both_passes() -> None:
    lora, packed = (load_workload(f"llama2-7b-{kind}").graph for kind in ("lora", "qlora"))
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert packed.packed_params == weights
    assert packed.params == lora.params
    assert packed.trainable_params == lora.trainable_params
    assert packed.forward_flops == lora.forward_flops
    steps = [lower(graph, get_policy("bf16")) for graph in (lora, packed)]
    for phase in (0, 1):
        plain, more = ((s.bytes_fixed * s.repeat)[s.phase == phase].sum() for s in steps)
        assert more - plain == pytest.approx(weights * (PACKED_BYTES + 2.0))


def test_a_packed_base_is_unpacked_to_the_type_of_the_products() -> None:
    graph = load_workload("llama2-7b-qlora").graph
    unpacked = {}
    for name in ("bf16", "bf16-mixed"):
        step = lower(graph, get_policy(name))
        elementwise = (step.phase == 0) & ~step.is_cast & (step.bytes_per_sample == 0) & (step.flops == 0)
        unpacked[name] = (step.bytes_fixed * step.repeat)[elementwise].sum()
    assert unpacked["bf16-mixed"] == pytest.approx(unpacked["bf16"], rel=0.01)


def test_four_bits_take_a_quarter_of_sixteen() -> None:
    """Dettmers et al. 2023, section 3: 0.127 bits of scales per parameter."""
    assert pytest.approx(4.127, abs=1e-3) == 8 * PACKED_BYTES


def test_packed_weights_survive_json() -> None:
    graph = load_workload("llama2-7b-qlora").graph
    assert graph_from_json(graph_to_json(graph)).packed_params == graph.packed_params


# ---- lengths and windows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "share"), [("gemma3-27b", 10 / 62), ("gemma2-27b", 0.5), ("gpt-oss-20b", 0.5)]
)
def test_layers_that_see_all_keys(name: str, share: float) -> None:
    graph = load_workload(name, seq_len=32768).graph
    attention = [n for n in graph.nodes if n.op_class is OpClass.ATTENTION]
    full = sum(n.repeat for n in attention if n.n == 32768)
    assert full / sum(n.repeat for n in attention) == pytest.approx(share, abs=0.01)


def test_attention_grows_with_the_square_of_the_length() -> None:
    short, long = (load_workload("llama3-8b", seq_len=length).graph for length in (8192, 131072))
    work = [sum(n.flops for n in g.nodes if n.op_class is OpClass.ATTENTION) for g in (short, long)]
    assert work[1] == 16**2 * work[0]
    assert long.params == short.params
