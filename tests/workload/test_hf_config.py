"""Hugging Face configurations read without torch: published sizes, the modules themselves, refusals."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from precision_time.errors import CaptureError, ConfigError, UnknownNameError
from precision_time.workload.graph import OpClass, OpGraph
from precision_time.workload.hf_config import entry_of_config, is_config_source, known_model_types
from precision_time.workload.resolve import load_workload

PUBLISHED = tomllib.loads((Path(__file__).parent / "hf_configs.toml").read_text())
LLAMA = PUBLISHED["meta-llama/Llama-3.2-1B"]["config"]
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers")


def active_params(graph: OpGraph) -> float:
    assert graph.seq_len is not None
    return sum(n.flops for n in graph.nodes if n.op_class is OpClass.GEMM) / (2 * graph.seq_len)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters(name: str) -> None:
    row = PUBLISHED[name]
    graph = load_workload(row["config"]).graph
    assert graph.params == pytest.approx(row["total"], rel=row.get("tolerance", 0.01))
    if "active" in row:
        assert active_params(graph) == pytest.approx(row["active"], rel=0.06)


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("meta-llama/Llama-3.1-405B", "llama3.1-405b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("google/gemma-2-27b", "gemma2-27b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("meta-llama/Llama-4-Maverick-17B-128E", "llama4-maverick"),
        ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"),
        ("facebook/opt-66b", "opt-66b"),
        ("tiiuae/falcon-40b", "falcon-40b"),
        ("bigscience/bloom", "bloom"),
        ("Qwen/Qwen3.5-27B", "qwen3.5-27b"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
    ],
)
def test_a_configuration_and_the_name_give_the_same_operators(config: str, model: str) -> None:
    by_config = load_workload(PUBLISHED[config]["config"], seq_len=2048).graph
    by_name = load_workload(model, seq_len=2048).graph
    assert by_config.nodes == by_name.nodes
    assert by_config.params == by_name.params


def test_layers_of_a_hybrid_follow_the_list() -> None:
    """Where transformers was there, it was captured by a loop over chunks: 2.5 times the time of the name."""
    config = PUBLISHED["Qwen/Qwen3.5-27B"]["config"]
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 16
    listed = {**config, "text_config": {**config["text_config"], "layer_types": kinds}}
    assert load_workload(listed).graph.nodes == load_workload(config).graph.nodes
    assert load_workload(config).family == "transformer-decoder"
    listed["text_config"]["layer_types"] = [*kinds[:-1], "mamba"]
    with pytest.raises(CaptureError, match="a list of 64 of linear_attention, full_attention"):
        load_workload(listed)


def test_a_file_its_folder_and_its_content_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    works = [load_workload(source, seq_len=512) for source in (folder, str(folder / "config.json"), LLAMA)]
    assert [work.graph.params for work in works] == [works[0].graph.params] * 3
    assert [work.name for work in works] == ["llama-h2048-l16"] * 3  # not the folder


def test_no_torch_and_no_transformers_are_imported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    code = (
        "import sys; from precision_time.workload.resolve import load_workload; "
        f"load_workload({str(tmp_path)!r}); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sizes_and_lengths_override_the_configuration() -> None:
    work = load_workload(LLAMA, seq_len=1024, sizes={"layers": 4, "lora_rank": 8})
    assert work.graph.seq_len == 1024
    assert work.graph.trainable_params == 4 * 8 * (2048 + 2048 + 2048 + 512)


def test_a_length_nobody_gave_is_said() -> None:
    work = load_workload(LLAMA)
    assert work.graph.seq_len == 4096
    assert any("seq_len 4096" in line for line in work.assumptions)


def test_further_token_modules_are_built_when_asked_for() -> None:
    """DeepSeek-V3 README_WEIGHTS: 11.5 B parameters of its own in the multi-token module."""
    config = PUBLISHED["deepseek-ai/DeepSeek-V3"]["config"]
    plain, more = (load_workload(config, sizes=sizes).graph for sizes in ({}, {"mtp_layers": 1}))
    assert more.params - plain.params == pytest.approx(11.5e9, rel=0.01)


def test_layers_that_see_a_window_follow_the_list() -> None:
    config = LLAMA | {"model_type": "mistral", "sliding_window": 1024}
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 4
    sizes = entry_of_config(config | {"layer_types": kinds}).sizes
    assert (sizes["window"], sizes["full_attention_every"]) == (1024, 4)
    assert entry_of_config(config | {"layer_types": ["full_attention"] * 16}).sizes["window"] == 0


def test_unused_windows_and_null_values_are_left_out() -> None:
    assert entry_of_config(PUBLISHED["Qwen/Qwen2.5-7B"]["config"]).sizes["window"] == 0
    assert "window" not in entry_of_config(LLAMA | {"sliding_window": None}).sizes


def test_unknown_architectures_say_the_way_out() -> None:
    with pytest.raises(UnknownNameError, match=r"(?s)bert.*install torch and transformers"):
        load_workload({"model_type": "bert", "hidden_size": 768})


DEEP: list[Any] = []
for _ in range(50):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"hidden_size": 64}, "model_type"),
        ({"model_type": "llama", "hidden_size": 64}, "num_hidden_layers, num_attention_heads, vocab_size"),
        (LLAMA | {"layer_types": ["linear_attention"]}, "linear_attention"),
        (PUBLISHED["Qwen/Qwen3-235B-A22B"]["config"] | {"mlp_only_layers": [5]}, r"\[5\]"),
        (LLAMA | {"hidden_size": -4096}, "hidden_size=-4096"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size='4096'"),
        (LLAMA | {"hidden_size": [4096]}, "hidden_size="),
        (LLAMA | {"hidden_size": 10**12}, "hidden_size=1000000000000"),
        (LLAMA | {"num_key_value_heads": 0.5}, "num_key_value_heads=0.5"),
        (LLAMA | {"num_hidden_layers": 10**7}, "num_hidden_layers"),
        (LLAMA | {"num_labels": 10**8}, "num_labels"),
        (LLAMA | {"vocab_size": float("nan")}, "vocab_size=nan"),
        (LLAMA | {"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'"),
        (LLAMA | {"hidden_act": ["silu"]}, "hidden_act"),
        (LLAMA | {"layer_types": 3}, "layer_types=3"),
        (LLAMA | {"mlp_only_layers": "x", "num_experts": 4}, "mlp_only_layers"),
        (LLAMA | {"max_position_embeddings": "many"}, "max_position_embeddings"),
        (LLAMA | {"rope_scaling": {"deep": [[[float("nan")]]]}}, "deep=nan"),
        (LLAMA | {"deep": DEEP}, "nested at most"),
    ],
)
def test_what_cannot_be_read_is_refused(config: dict[str, Any], named: str) -> None:
    with pytest.raises(CaptureError, match=named):
        load_workload(config)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="kv_heads=3"):
        load_workload(LLAMA | {"num_key_value_heads": 3})


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"model_type": ', "[" * 100_000])
def test_files_that_are_no_configuration_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(CaptureError, match="To fix"):
        load_workload(file)
    with pytest.raises(CaptureError, match="cannot be read"):
        load_workload(tmp_path / "missing.json")


def test_names_are_no_configurations() -> None:
    assert not any(is_config_source(name) for name in ("gpt2", "meta-llama/Llama-3.1-8B", "model.onnx"))


@pytest.mark.parametrize(
    "kind",
    [
        *("llama", "qwen2_moe", "gemma3_text", "deepseek_v3", "llama4_text", "gpt_oss", "phimoe", "bloom"),
        *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo3", "ministral3", "seed_oss"),
        *("glm4_moe_lite", "exaone4", "cohere2", "ernie4_5", "ernie4_5_moe", "apertus"),
    ],
)
def test_parameters_are_those_of_the_module(kind: str) -> None:
    import torch

    from precision_time.capture.huggingface import import_transformers

    transformers = import_transformers()
    config = transformers.AutoConfig.for_model(kind)
    for attribute in LAYER_COUNTS:
        if hasattr(config, attribute):
            setattr(config, attribute, 4)
    for listed in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        if getattr(config, listed, None):
            setattr(config, listed, list(getattr(config, listed))[:4])
    with torch.device("meta"):
        module = transformers.AutoModelForCausalLM.from_config(config)
    graph = load_workload(config).graph
    assert graph.params == pytest.approx(sum(p.numel() for p in module.parameters()), rel=1e-4)


def test_every_row_of_the_table_names_its_source() -> None:
    table = tomllib.loads(
        (Path(entry_of_config.__code__.co_filename).parent / "data" / "hf_architectures.toml").read_text()
    )
    assert set(known_model_types()) == set(table["type"])
    assert all(row["source"] and row["arch"] for row in table["type"].values())
