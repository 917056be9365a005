"""How trainers spread a model, in layout options."""

from __future__ import annotations

import pytest

from precision_time_integrations.online.sharding import deepspeed_fields, fsdp_fields


def test_deepspeed_says_stage_offload_and_precision() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": True},
        "fp16": {"enabled": "auto"},
    }
    found = deepspeed_fields(config, devices=8)
    assert (found["zero_stage"], found["offload"], found["precision"]) == (3, "optimizer", "bf16-mixed")
    assert "num_microbatches" not in found
    assert deepspeed_fields({}, devices=8).get("zero_stage") is None


def test_strategies_of_fsdp_are_stages() -> None:
    assert fsdp_fields("full_shard", devices=8, nodes=1) == {"zero_stage": 3}
    hybrid = fsdp_fields("HYBRID_SHARD", devices=16, nodes=2, offload=True, recompute=True)
    assert hybrid == {"zero_stage": 3, "dp_shard": 8, "offload": "parameters", "recompute": "full"}
    with pytest.raises(KeyError):
        fsdp_fields("half_shard", devices=8, nodes=1)


def test_configuration_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="zero_stage"):
        deepspeed_fields({"zero_optimization": {"stage": 9}}, devices=8)
