"""Parametric families against the modules of transformers, counted by torch on meta tensors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from precision_time.workload.resolve import load_workload

SEQ_LEN = 128


@dataclass(frozen=True, kw_only=True)
class Case:
    """One module of transformers and the sizes that give the same model here."""

    name: str
    model: str
    config: str
    arguments: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    two_sided: bool = False
    flops: bool = True
    """Grouped expert products run in bfloat16 only and are not counted."""


TWO = {"layers": 2}
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
CASES = [
    Case(name="gpt2", model="GPT2LMHeadModel", config="GPT2Config", arguments={"n_layer": 2}, sizes=TWO),
    Case(
        name="llama3-8b",
        model="LlamaForCausalLM",
        config="LlamaConfig",
        arguments={
            "hidden_size": 4096,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        },
        sizes=TWO,
    ),
    Case(
        name="bert-large",
        model="BertForPreTraining",
        config="BertConfig",
        arguments=LARGE,
        sizes={"predictions": SEQ_LEN} | TWO,
    ),
    Case(
        name="roberta-large",
        model="RobertaForMaskedLM",
        config="RobertaConfig",
        arguments=LARGE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        sizes=TWO,
    ),
    Case(
        name="distilbert-base-uncased",
        model="DistilBertForMaskedLM",
        config="DistilBertConfig",
        arguments={"n_layers": 2},
        sizes=TWO,
    ),
    Case(
        name="albert-large-v2",
        model="AlbertForPreTraining",
        config="AlbertConfig",
        arguments=LARGE,
        sizes={"predictions": SEQ_LEN} | TWO,
    ),
    Case(
        name="deberta-v3-base",
        model="DebertaV2ForMaskedLM",
        config="DebertaV2Config",
        arguments={
            "vocab_size": 128100,
            "hidden_size": 768,
            "num_hidden_layers": 2,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "pad_token_id": None,
        },
        sizes=TWO,
    ),
    Case(
        name="modernbert-base",
        model="ModernBertForMaskedLM",
        config="ModernBertConfig",
        arguments={"num_hidden_layers": 2},
        sizes=TWO,
    ),
    Case(
        name="esm2-150m",
        model="EsmForMaskedLM",
        config="EsmConfig",
        arguments={
            "vocab_size": 33,
            "hidden_size": 640,
            "num_hidden_layers": 2,
            "num_attention_heads": 20,
            "intermediate_size": 2560,
            "position_embedding_type": "rotary",
            "pad_token_id": 1,
            "mask_token_id": 32,
        },
        sizes=TWO,
    ),
    Case(
        name="olmo2-7b",
        model="Olmo2ForCausalLM",
        config="Olmo2Config",
        arguments={"num_hidden_layers": 2, "vocab_size": 100352},
        sizes=TWO,
    ),
    Case(
        name="command-r-35b",
        model="CohereForCausalLM",
        config="CohereConfig",
        arguments={"num_hidden_layers": 2},
        sizes=TWO,
    ),
    Case(
        name="t5-base",
        model="T5ForConditionalGeneration",
        config="T5Config",
        arguments={"d_model": 768, "num_layers": 2, "num_heads": 12, "d_ff": 3072},
        sizes={"target_len": SEQ_LEN} | TWO,
        two_sided=True,
    ),
    Case(
        name="bart-large",
        model="BartForConditionalGeneration",
        config="BartConfig",
        arguments={"encoder_layers": 2, "decoder_layers": 2},
        sizes={"target_len": SEQ_LEN} | TWO,
        two_sided=True,
    ),
    Case(
        name="opt-350m",
        model="OPTForCausalLM",
        config="OPTConfig",
        arguments={
            "hidden_size": 1024,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        },
        sizes=TWO,
    ),
    Case(
        name="gpt-neox-20b",
        model="GPTNeoXForCausalLM",
        config="GPTNeoXConfig",
        arguments={"num_hidden_layers": 2},
        sizes=TWO,
    ),
    Case(
        name="gpt-j-6b",
        model="GPTJForCausalLM",
        config="GPTJConfig",
        arguments={"n_layer": 2},
        sizes=TWO,
    ),
    Case(
        name="bloom-7b1",
        model="BloomForCausalLM",
        config="BloomConfig",
        arguments={"vocab_size": 250880, "hidden_size": 4096, "n_layer": 2, "n_head": 32},
        sizes=TWO,
    ),
    Case(
        name="falcon-7b",
        model="FalconForCausalLM",
        config="FalconConfig",
        arguments={"num_hidden_layers": 2},
        sizes=TWO,
    ),
    Case(
        name="phi-2",
        model="PhiForCausalLM",
        config="PhiConfig",
        arguments={
            "vocab_size": 51200,
            "hidden_size": 2560,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "intermediate_size": 10240,
            "partial_rotary_factor": 0.4,
        },
        sizes=TWO,
    ),
    Case(
        name="gemma-2b",
        model="GemmaForCausalLM",
        config="GemmaConfig",
        arguments={
            "hidden_size": 2048,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 16384,
        },
        sizes=TWO,
    ),
    Case(
        name="qwen3-8b",
        model="Qwen3ForCausalLM",
        config="Qwen3Config",
        arguments={
            "hidden_size": 4096,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 12288,
            "vocab_size": 151936,
            "head_dim": 128,
        },
        sizes=TWO,
    ),
    Case(
        name="mixtral-8x7b",
        model="MixtralForCausalLM",
        config="MixtralConfig",
        arguments={"num_hidden_layers": 2},
        sizes=TWO,
        flops=False,
    ),
    Case(
        name="deepseek-v3",
        model="DeepseekV3ForCausalLM",
        config="DeepseekV3Config",
        arguments={"num_hidden_layers": 4},
        sizes={"layers": 4},
        flops=False,
    ),
    Case(
        name="gpt-oss-20b",
        model="GptOssForCausalLM",
        config="GptOssConfig",
        arguments={"num_hidden_layers": 2, "num_local_experts": 32},
        sizes=TWO,
        flops=False,
    ),
]


@pytest.fixture(scope="module")
def transformers() -> Any:
    from precision_time.capture.huggingface import import_transformers

    return import_transformers()


def build(transformers: Any, case: Case) -> Any:
    config = getattr(transformers, case.config)(**case.arguments)
    config._attn_implementation = "eager"
    with torch.device("meta"):
        return getattr(transformers, case.model)(config).eval()


def counted_flops(model: Callable[..., Any], case: Case) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    ids = torch.zeros(1, SEQ_LEN, dtype=torch.long, device="meta")
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if case.two_sided else {})
    with FlopCounterMode(display=False) as counter:
        model(**inputs)
    return float(counter.get_total_flops())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_parameters_and_flops_as_the_module(transformers: Any, case: Case) -> None:
    graph = load_workload(case.name, seq_len=SEQ_LEN, sizes=case.sizes).graph
    model = build(transformers, case)
    assert graph.params == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.001)
    if case.flops:
        assert graph.forward_flops == pytest.approx(counted_flops(model, case), rel=0.01)
