"""How a trainer spreads its model, in the layout options of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, shown
from precision_time.io import read_input
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
_AUTOCAST = {"bfloat16": "bf16-mixed", "bf16": "bf16-mixed", "float16": "fp16-mixed", "fp16": "fp16-mixed"}
"""Types of `torch_autocast`."""


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

    What is "auto", which the Trainer of transformers fills in, is left out.

    Raises:
        ConfigError: If it is none, or says what no layout can.
    """
    stated = _without_auto(config)
    fields = layout_of_config("deepspeed", json.dumps(stated, default=str), gpus=devices)
    fields.pop("num_microbatches", None)  # the trainer's own says it
    for key, word in (("bf16", "bf16-mixed"), ("fp16", "fp16-mixed"), ("torch_autocast", "")):
        part = stated.get(key)
        if "precision" not in fields and isinstance(part, Mapping) and part.get("enabled") is True:
            said = word or _AUTOCAST.get(str(part.get("dtype", "bfloat16")).removeprefix("torch."))
            fields |= {} if said is None else {"precision": said}
    zero: Any = stated.get("zero_optimization")
    for name in ("optimizer", "param") if isinstance(zero, Mapping) else ():
        part = zero.get(f"offload_{name}")
        if isinstance(part, Mapping) and part.get("device") in ("cpu", "nvme"):
            fields["offload"] = "parameters" if name == "param" else "optimizer"
    return fields


def _without_auto(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_auto(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if value != "auto"
    }


def config_fields(config: Mapping[str, Any] | str | Path, *, devices: int) -> dict[str, Any]:
    """What a DeepSpeed configuration says of a job, in fields of a request.

    Args:
        config: The mapping, or the JSON file.
        devices: Processes in all.

    Returns:
        Layout, precision, batch and optimizer, as far as it says them; values that are "auto" are left out.

    Raises:
        ConfigError: If it is not one, or its batches do not multiply.
    """
    try:
        stated = config if isinstance(config, Mapping) else json.loads(read_input(config))
        fields = deepspeed_fields(stated, devices=devices)
    except (OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"DeepSpeed's configuration is not one: {error}. To fix: one JSON object."
        ) from error
    if isinstance(kind := (stated.get("optimizer") or {}).get("type"), str):
        fields["optimizer"] = kind
    replicas = devices // max(int(fields.get("tp", 1) * fields.get("cp", 1)), 1)
    return fields | _batch_fields(_without_auto(stated), replicas)


def _batch_fields(config: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    """Micro batch and accumulation; of total, micro batch and accumulation any two say the third.

    Raises:
        ConfigError: If they are not positive whole numbers, or do not multiply.
    """
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    given: list[Any] = [config.get(key) for key in keys]
    total, micro, accum = given
    for key, value in zip(keys, given, strict=True):
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigError(f"{key}={shown(value)} must be a whole number above 0. To fix: correct it.")
    if total is not None and micro is None:
        micro = total // (replicas * (accum or 1))
    elif total is not None and accum is None:
        accum = total // (replicas * micro)
    if total is not None and total != micro * (accum or 1) * replicas:
        raise ConfigError(
            f"train_batch_size={total} is not train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
            f"{replicas} replicas. To fix: correct one of them."
        )
    return {
        name: value
        for name, value in (("batch_size", micro), ("num_microbatches", accum))
        if value is not None
    }
