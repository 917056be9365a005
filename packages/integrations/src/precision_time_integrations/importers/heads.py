"""What the head of a log says of the job: settings by the description of its format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .lines import Found, count, number
from .settings import fields_of_settings, known_device, known_model, with_model_of_sizes

_PRINTED = ("num_layers", "micro_batch_size", "global_batch_size")
"""Some of what a list of Megatron's arguments holds."""
_DEGREES = {"gpus": "world_size", "tp": "tensor_model_parallel_size", "cp": "context_parallel_size",
            "pp": "pipeline_model_parallel_size"}  # fmt: skip
"""What its first line says, by our names."""


def found_in(described: Mapping[str, Any], settings: Mapping[str, str], *, gpus: int | None = None) -> Found:
    """Fields of a request that settings say, as the description of their format has it.

    Args:
        described: The `log` part of a project.
        settings: Name to printed value.
        gpus: Devices, where something else says them.
    """
    found = Found()
    launcher = described.get("launcher")
    if launcher == "megatron":
        found = _of_megatron(dict(settings), described)
    elif launcher is not None:
        found = fields_of_settings(launcher, settings, gpus=gpus)
    fields = found.fields
    for field, names in described.get("fields", {}).items():
        values = (number((settings.get(name) or "").replace(",", "")) for name in names)
        if value := next(filter(None, values), None):
            fields[field] = value
    said = {
        field: ours
        for name, printed, field, ours in described.get("says", ())
        if name in settings and re.fullmatch(printed, settings[name])
    }
    fields |= {field: ours for field, ours in said.items() if launcher != "megatron" or field not in fields}
    if device := known_device(settings.get(described.get("device", ""), "")):
        fields["device"] = device
    sizes = {
        ours: int(value)
        for ours, names in described.get("sizes", {}).items()
        if (value := next(filter(None, (count(settings.get(name)) for name in names)), None))
    }
    if sizes.get("experts", 0) < 2:
        sizes = {name: size for name, size in sizes.items() if name not in ("experts", "top_k")}
    if model := known_model(settings.get(described.get("model", ""), "")):
        fields["model"] = model
    else:
        with_model_of_sizes(fields, found.notes, sizes, described.get("kinds", {}))
    if settings:
        fields |= described.get("always", {})
    return found


def _of_megatron(settings: dict[str, str], described: Mapping[str, Any]) -> Found:
    """What the list of its arguments says; of the first line alone devices and degrees."""
    for flag, printed in described.get("printed", {}).items():
        if settings.get(printed, "None") != "None":
            settings[flag] = settings[printed]
    if settings.get("group_query_attention") not in ("True", "true"):
        settings.pop("num_query_groups", None)
    if settings.get("add_bias_linear") in ("False", "false"):
        settings["disable_bias_linear"] = "True"
    if settings.get("encoder_seq_length") and not count(settings.get("seq_length")):
        settings["seq_length"] = settings["encoder_seq_length"]
    if settings.get("checkpoint_activations") == "True":
        settings |= {"recompute_granularity": "full", "recompute_method": "uniform"}
    devices, nodes = count(settings.get("devices")), count(settings.get("num_nodes"))
    placed = {"gpus": devices * nodes, "nodes": nodes} if devices and nodes else {}
    if not any(name in settings for name in _PRINTED):  # what is not printed may be set all the same
        said = {ours: count(settings.get(name)) for ours, name in _DEGREES.items()}
        return Found(
            fields={ours: size for ours, size in said.items() if size and (size > 1 or ours == "gpus")}
            | placed
        )
    found = fields_of_settings(described["launcher"], settings, gpus=count(settings.get("world_size")))
    fields = found.fields
    if "precision" not in fields and settings.get("bf16") == settings.get("fp16") == "False":
        fields["precision"] = "fp32"
    if settings.get("tokenizer_type", "").startswith("Bert"):
        found.notes.append("its tokenizer is BERT's: the model is an encoder, to be given by --set model=")
        fields.pop("model", None), fields.pop("sizes", None)
    if (stage := settings.get("zero_stage")) in ("1", "2", "3"):
        fields |= {"zero_stage": int(stage), "stack": "deepspeed-megatron"}
    fields |= placed
    return found
