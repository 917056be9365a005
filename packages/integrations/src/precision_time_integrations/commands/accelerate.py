"""What `accelerate launch` is told, by its flags and its YAML, in the words of `launch.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_time.launch.emit import facts_of_config

from .configs import parsed_config
from .expand import is_known, told
from .launchers import Files, Launch

_SHARDING = {
    "full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "hybrid_shard": 3, "hybrid_shard_zero2": 2,
    "1": 3, "2": 2, "3": 0, "4": 3, "5": 2,
}  # fmt: skip
"""FSDP 1 by name or number, as a ZeRO stage."""
_SECTIONS = ("deepspeed_config", "fsdp_config", "megatron_lm_config", "parallelism_config")
_FLAGS: Mapping[str, str] = {
    "--num-machines": "num_machines", "--num-processes": "num_processes",
    "--mixed-precision": "mixed_precision", "--zero-stage": "deepspeed_config.zero_stage",
    "--offload-optimizer-device": "deepspeed_config.offload_optimizer_device",
    "--offload-param-device": "deepspeed_config.offload_param_device",
    "--deepspeed-config-file": "deepspeed_config.deepspeed_config_file",
    "--gradient-accumulation-steps": "deepspeed_config.gradient_accumulation_steps",
    "--fsdp-sharding-strategy": "fsdp_config.fsdp_sharding_strategy",
    "--fsdp-offload-params": "fsdp_config.fsdp_offload_params",
    "--fsdp-activation-checkpointing": "fsdp_config.fsdp_activation_checkpointing",
    "--fsdp-reshard-after-forward": "fsdp_config.fsdp_reshard_after_forward",
}  # fmt: skip
"""Flags that stand for keys of the file, and win over it."""
_KINDS = {"--use-deepspeed": "DEEPSPEED", "--use-fsdp": "FSDP", "--multi-gpu": "MULTI_GPU",
          "--use-megatron-lm": "MEGATRON_LM"}  # fmt: skip


def accelerate_facts(launch: Launch, files: Files, unread: list[str]) -> dict[str, Any]:
    """Facts of an `accelerate launch`.

    Args:
        launch: Its flags and the name of its file.
        files: Reads the file.
        unread: Gets what cannot be read.

    Raises:
        ConfigError: If what they say together is no configuration.
    """
    import yaml

    tree: dict[str, Any] = {}
    for _, path in launch.configs:
        text = files(path)
        found = None if text is None else parsed_config(path if path.endswith(".json") else "x.yaml", text)
        if text is None and (stage := zero_by_name(path)) is not None:
            unread.append(
                f"the configuration {told(path)} of accelerate is not there: ZeRO {stage} by its name"
            )
            found = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage}}
        if found is None:
            why = "is not there to be read" if text is None else "is no YAML mapping"
            unread.append(f"the configuration {told(path)} of accelerate {why}")
        tree |= dict(found or {})
    if not launch.configs and "--num-processes" not in launch.options:
        unread.append("accelerate launch takes the default configuration of its machine, which is not read")
    for section in _SECTIONS:
        if isinstance(tree.get(section), Mapping):
            tree[section] = dict(tree[section])
    for flag, kind in _KINDS.items():
        if flag in launch.options:
            tree["distributed_type"] = kind
    for flag, key in _FLAGS.items():
        if (value := launch.options.get(flag)) is None:
            continue
        if not is_known(value):
            unread.append(f"{flag} {told(value)}: known only when it runs")
            continue
        *sections, last = key.split(".")
        inner = tree
        for name in sections:
            inner = inner.setdefault(name, {})
        inner[last] = yaml.safe_load(value) if value else True
    facts = facts_of_config("accelerate", str(yaml.safe_dump(tree)))
    return {**facts, **_sharding(tree), **_deepspeed_file(tree, files, unread)}


def zero_by_name(path: str) -> int | None:
    """The ZeRO stage that the name of a configuration tells, such as 3 of `ds_z3_config.json`."""
    name = path.lower()
    return next((stage for stage in (3, 2, 1, 0) if f"zero{stage}" in name or f"z{stage}" in name), None)


def _sharding(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The sharding strategy of FSDP 1."""
    config = tree.get("fsdp_config")
    strategy = str(config.get("fsdp_sharding_strategy", "")).lower() if isinstance(config, Mapping) else ""
    return {"zero_stage": _SHARDING[strategy]} if strategy in _SHARDING else {}


def _deepspeed_file(tree: Mapping[str, Any], files: Files, unread: list[str]) -> dict[str, Any]:
    config = tree.get("deepspeed_config")
    path = config.get("deepspeed_config_file") if isinstance(config, Mapping) else None
    if not isinstance(path, str):
        return {}
    text = files(path)
    if text is None:
        unread.append(f"the DeepSpeed configuration {path} is not there to be read")
        return {}
    return facts_of_config("deepspeed", text)
