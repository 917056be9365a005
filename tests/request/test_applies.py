"""Nothing that is stated is dropped without a word."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from precision_time.diagnostics import Severity
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.predict.api import predict, predict_time
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request
from precision_time.request.schema import RequestFields

JOBS: dict[str, dict[str, Any]] = {
    "images": {"model": "resnet50", "device": "A100-SXM4-80GB", "batch_size": 32},
    "text": {"model": "gpt2", "device": "A100-SXM4-80GB", "gpus": 8, "batch_size": 4, "zero_stage": 3},
    "experts": {
        **{
            "model": "qwen3-30b-a3b",
            "device": "H100-SXM5-80GB",
            "gpus": 16,
            "batch_size": 1,
            "zero_stage": 3,
        },
        **{"seq_len": 2048},
    },
    "pipeline": {
        **{"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 32, "batch_size": 1, "zero_stage": 1},
        **{"tp": 2, "pp": 4, "num_microbatches": 8, "seq_len": 8192},
    },
}
OTHER: dict[str, Any] = {
    "model": "resnet18", "device": "A100-SXM4-40GB", "gpus": 2, "nodes": 2, "node_type": "HGX-H20",
    "intra_node": "pcie4", "inter_node": "ethernet-10g", "precision": "fp32", "batch_size": 2,
    "global_batch_size": 64, "global_batch_tokens": 262144, "seq_len": 512, "image_size": 160,
    "adapter": "lora", "lora_rank": 64, "lora_targets": "all-linear", "freeze": "backbone", "method": "dpo",
    "reference": "gpt2", "teacher": "gpt2", "generate_tokens": 64, "group_size": 4, "mean_seq_len": 100,
    "answer_tokens": 32, "answer_spread": 0.3, "prompts": 16, "updates": 2, "engine": "sglang",
    "generate_gpus": 1, "generate_tp": 2, "off_policy": 1,
    "packing": True, "padding_share": 0.3, "frames": 16, "audio_seconds": 3.0,
    "sizes": {"layers": 4}, "task": "squad-finetune", "dataset": "mydata", "samples": 12345, "epochs": 3,
    "steps": 77, "tokens": 10**9, "optimizer": "adafactor", "framework": "mxnet", "stack": "ngc-pytorch",
    "software": 2019.5, "compiler": "cudagraphs", "channels_last": True, "fused_optimizer": True,
    "attention": "math", "unpadded_sequences": True, "chunked_loss": True,
    "real_input": True, "loader": "pil", "cpus": 1,
    "scope": "with-input", "input_rate": 10.0, "coverage": 0.5, "trust": True,
    "anchors": [{"step_time_s": 5.0}], "calibration": "missing.json", "custom": "missing.toml",
    "predictor": "missing",
    "example_inputs": 1, "cluster": 1, "stragglers": False,
    "tp": 4, "pp": 2, "cp": 2, "ep": 4, "etp": 2, "expert_capacity_factor": 1.25, "expert_nodes": 1,
    "expert_overlap": True, "rank_order": "dp-tp-cp-pp", "zero_stage": 2, "dp_shard": 2, "dp_replicate": 2,
    "reshard_after_forward": False, "prefetch": 2, "offload": "optimizer",
    "data_parallel_engine": "parameter-server", "num_microbatches": 2, "recompute": "full",
    "recompute_layers": 4, "recompute_modules": "core_attn",
    "sequence_parallel": True, "cp_comm_type": "ulysses", "schedule": "gpipe", "vpp": 2,
    "stage_layers": "7,9,9,7", "uneven": True,
    "inputs": ["x:float32[2,3]"], "forward": "f", "loss": "f", "network": "100g-tcp",
}  # fmt: skip
PERMISSIONS = {"uneven"}
"""What only allows: `test_axis_rules` has what it allows."""
ELSEWHERE: dict[tuple[str, str], Any] = {
    **{(job, "fused_optimizer"): False for job in ("text", "experts", "pipeline")},
    ("experts", "nodes"): 4,
    ("pipeline", "global_batch_tokens"): 2**19,
    ("pipeline", "rank_order"): "pp-dp-tp-cp",
    ("pipeline", "sequence_parallel"): False,
}
"""Where the job says the value of `OTHER` already."""
ALLOWED_FOR: dict[str, set[str]] = {"stragglers": {"images"}}
"""One device has no slowest of many."""


@cache
def answer(job: str) -> Prediction:
    return predict_time(**JOBS[job])


def warnings(found: Prediction) -> set[str]:
    return {each.text for each in found.diagnostics if each.severity is Severity.WARNING}


def test_every_field_is_asked_here() -> None:
    assert OTHER.keys() == {name for name in RequestFields.model_fields}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("field", sorted(OTHER.keys() - PERMISSIONS))
@pytest.mark.parametrize("job", JOBS)
def test_a_stated_field_changes_the_answer_or_is_told_or_refused(job: str, field: str) -> None:
    if job in ALLOWED_FOR.get(field, ()):
        return
    value = ELSEWHERE.get((job, field), OTHER[field])
    try:
        changed = predict_time(**{**JOBS[job], field: value})
    except PrecisionTimeError as error:
        assert "To fix: " in str(error) or field in ("custom", "calibration", "predictor")
        return
    before, after = answer(job).to_dict(), changed.to_dict()
    for found in (before, after):
        del found["diagnostics"]
    assert after != before or warnings(changed) - warnings(answer(job)), f"{field}={value} was dropped"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"model": "resnet50", "seq_len": 128}, "seq_len=128 does not apply: resnet50 .*image_size= would"),
        ({"model": "gpt2", "image_size": 224}, "image_size=224 does not apply: gpt2 .*seq_len= would"),
        ({"model": "dit-s-2", "seq_len": 300}, "seq_len=300 does not apply"),
        ({"model": "gpt2", "schedule": "gpipe"}, "schedule=gpipe does not apply: no pipeline"),
        ({"model": "gpt2", "cp_comm_type": "ulysses"}, "cp_comm_type=ulysses does not apply"),
        ({"model": "resnet50", "input_rate": 9.0, "loader": "dali"}, "loader=dali does not apply"),
        ({"model": "resnet50", "tokens": 10**9}, "tokens=1000000000: resnet50 takes no tokens"),
        ({"model": "resnet50", "global_batch_tokens": 10**6}, "resnet50 takes no tokens"),
        ({"model": "gpt2", "steps": 9, "epochs": 2}, "steps=9 and epochs=2 both say how long the run is"),
    ],
)
def test_what_does_not_apply_is_refused_with_what_would(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"{says}.*To fix: "):
        Request.of(asked).resolve()


def test_sequence_parallelism_of_one_rank_is_told_and_changes_nothing() -> None:
    """Megatron-LM's own example of Mixtral has --sequence-parallel beside a tensor degree of 1."""
    asked = {"model": "gpt2", "gpus": 2, "batch_size": 4}
    plain, switched = (predict(Request.of(each)) for each in (asked, {**asked, "sequence_parallel": True}))
    assert switched.analytical_step_time_s == plain.analytical_step_time_s
    (told,) = warnings(switched) - warnings(plain)
    assert "sequence_parallel changes nothing: no tensor parallelism" in told


def test_a_length_that_shows_elsewhere_in_the_graph_applies() -> None:
    graph = Request.of({"model": "llava-1-5-7b", "seq_len": 512, "batch_size": 1}).resolve().workload.graph
    assert graph.seq_len != 512
