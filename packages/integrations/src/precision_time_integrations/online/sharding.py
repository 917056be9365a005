"""How a trainer spreads its model, in the layout options of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from precision_time.launch.emit import layout_of_config

_FSDP: Mapping[str, Mapping[str, Any]] = {
    "FULL_SHARD": {"zero_stage": 3},
    "SHARD_GRAD_OP": {"zero_stage": 2},
    "NO_SHARD": {"zero_stage": 0},
    "HYBRID_SHARD": {"zero_stage": 3, "dp_shard": "host"},
    "_HYBRID_SHARD_ZERO2": {"zero_stage": 2, "dp_shard": "host"},
    "HYBRID_SHARD_ZERO2": {"zero_stage": 2, "dp_shard": "host"},
}
"""Names of `torch.distributed.fsdp.ShardingStrategy`."""


def fsdp_fields(
    sharding: str, *, devices: int, nodes: int | None, offload: bool = False, recompute: bool = False
) -> dict[str, Any]:
    """Of FullyShardedDataParallel.

    Args:
        sharding: Name of its sharding strategy, in any case.
        devices: In all.
        nodes: Hosts, where known: hybrid strategies shard within one.
        offload: Parameters live in host memory.
        recompute: Activations are recomputed.

    Raises:
        KeyError: If there is no such strategy.
    """
    fields = dict(_FSDP[sharding.upper()])
    if fields.get("dp_shard") == "host":
        fields["dp_shard"] = devices // (nodes or 1)
    if offload:
        fields["offload"] = "parameters"
    if recompute:
        fields["recompute"] = "full"
    return fields


def deepspeed_fields(config: Mapping[str, Any], *, devices: int) -> dict[str, Any]:
    """Of DeepSpeed's configuration: the layout without the batch, and the precision.

    Raises:
        ValueError: If it is none, or says what no layout can.
    """
    options = layout_of_config("deepspeed", json.dumps(config, default=str), gpus=devices)
    fields = options.given(without_defaults=True)
    fields.pop("num_microbatches", None)  # the trainer's own says it
    for key, word in (("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")):
        part = config.get(key)
        if isinstance(part, Mapping) and part.get("enabled") is True:
            fields["precision"] = word
    return fields
