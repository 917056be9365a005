"""What the settings of a run (parameters, configuration, hyperparameters) say of its job.

Trackers keep the settings of any trainer under the names that the trainer gives them: those of Hugging Face,
Lightning, DeepSpeed, Accelerate and common scripts are known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from precision_time.cost.optimizer import canonical_optimizer
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import canonical_device
from precision_time.precision.catalog import parse_precision

from .contract import finite
from .settings import model_of_sizes

_COUNTS: Mapping[str, tuple[str, ...]] = {
    "batch_size": (
        "per_device_train_batch_size", "per_gpu_train_batch_size", "train_micro_batch_size_per_gpu",
        "micro_batch_size", "micro_train_batch_size", "local_batch_size", "batch_size_per_gpu",
        "batch_size_per_device", "device_batch_size",
    ),
    "global_batch_size": ("global_batch_size", "total_batch_size", "effective_batch_size"),
    "num_microbatches": ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum", "accum_steps"),
    "steps": ("max_steps", "max_train_steps", "total_steps", "train_iters", "max_iters", "num_train_steps"),
    "epochs": ("num_train_epochs", "max_epochs", "num_epochs", "epochs"),
    "seq_len": (
        "seq_len", "seq_length", "sequence_length", "max_seq_length", "max_seq_len", "sequence_len",
        "block_size", "context_length",
    ),
    "image_size": ("image_size", "img_size", "input_size", "resolution"),
    "gpus": (
        "world_size", "num_processes", "num_gpus", "n_gpu", "_n_gpu", "gpus", "num_devices",
        "gpu_count",
    ),
    "nodes": ("num_nodes", "nnodes", "num_machines"),
    "zero_stage": ("zero_stage", "zero_optimization.stage"),
    "tp": ("tensor_model_parallel_size", "tensor_parallel_size", "tp_size"),
    "pp": ("pipeline_model_parallel_size", "pipeline_parallel_size", "pp_size"),
    "cp": ("context_parallel_size", "cp_size"),
}  # fmt: skip
"""Field of a request to the names of the setting, the surest first; all are whole numbers."""
_AMBIGUOUS_BATCH = ("batch_size", "train_batch_size", "bs")
_MODEL = (
    "model_name_or_path", "model_name", "_name_or_path", "name_or_path", "pretrained_model_name_or_path",
    "base_model", "model", "arch", "architecture", "model_id", "backbone",
)  # fmt: skip
_PRECISION = ("precision", "mixed_precision", "amp_dtype", "training_dtype")
_OPTIMIZER = ("optim", "optimizer", "optimizer_name", "opt")
_DEVICE = ("gpu_type", "gpu_name", "gpu", "device_name", "accelerator_name")
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
_OF_EVALUATION = re.compile(
    r"(^|[/._])(eval|evaluation|val|valid|validation|test|predict|prediction|generation)([/._]|$)",
    re.IGNORECASE,
)
_SIZES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "ffn": ("intermediate_size", "n_inner"),
    "vocab": ("vocab_size",),
}
_RMS: Mapping[str, Any] = {"norm": "rms", "positions": "rotary", "gated": True}
_DECODERS: Mapping[str, Mapping[str, Any]] = {
    "llama": _RMS,
    "mistral": _RMS,
    "qwen2": _RMS,
    "gpt2": {"norm": "layer", "positions": "learned", "gated": False},
}
"""`model_type` of configurations whose sizes say what the model is."""
_NESTED = 6
_MOST_SETTINGS = 20_000
_PATH = re.compile(r"^(/|\.|~|[A-Za-z]:\\|[a-z]+://)|(\.(pt|pth|ckpt|bin|safetensors))$")


def fields_of_parameters(settings: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields of a request that settings say, and what was assumed to read them.

    Args:
        settings: Name to value; values may be texts, and mappings of settings.

    >>> fields_of_parameters({"per_device_train_batch_size": "8", "bf16": "True", "max_steps": -1})
    ({'batch_size': 8, 'precision': 'bf16-mixed'}, ())
    """
    found = _flat(settings)
    fields: dict[str, Any] = {}
    notes: list[str] = []
    for name, words in _COUNTS.items():
        if value := _whole(found, words):
            fields[name] = value
    _add_batch(fields, found, notes)
    if model := _text(found, _MODEL):
        if _PATH.search(model):
            notes.append("the model is named by a path of the machine that it ran on: give model=")
        else:
            fields["model"] = model
    if "model" not in fields:
        _add_model_of_sizes(fields, found, notes)
    if precision := _precision(found, notes):
        fields["precision"] = precision
    if optimizer := _text(found, _OPTIMIZER):
        try:
            fields["optimizer"] = canonical_optimizer(optimizer)
        except PrecisionTimeError:
            notes.append(f"optimizer {optimizer[:40]!r} is not known and was left out")
    if device := device_called(_text(found, _DEVICE)):
        fields["device"] = device
    if any(_true(found.get(name)) for name in _CHECKPOINTING):
        fields["recompute"] = "full"
    return fields, tuple(notes)


def device_called(name: str | None) -> str | None:
    """The catalog's name of what a driver or a person calls a GPU; None where no catalog has it."""
    if not name or name.lower() in ("cpu", "gpu", "cuda", "auto", "mps", "tpu"):
        return None
    try:
        return canonical_device(name)
    except PrecisionTimeError:
        return None


def _add_batch(fields: dict[str, Any], found: Mapping[str, Any], notes: list[str]) -> None:
    """The batch where only an ambiguous setting names it."""
    if "train_micro_batch_size_per_gpu" in found and (whole := _whole(found, ("train_batch_size",))):
        fields.setdefault("global_batch_size", whole)  # DeepSpeed's word for it
    if "batch_size" in fields and "global_batch_size" in fields:
        del fields["global_batch_size"]  # a request has one; that of a device goes with the count of GPUs
    if not {"batch_size", "global_batch_size"} & fields.keys() and (value := _whole(found, _AMBIGUOUS_BATCH)):
        fields["batch_size"] = value
        notes.append(f"a batch size of {value} is stated, taken as that of each device")


def _add_model_of_sizes(fields: dict[str, Any], found: Mapping[str, Any], notes: list[str]) -> None:
    """A decoder-only language model by the sizes of its Hugging Face configuration."""
    kinds = _DECODERS.get(str(found.get("model_type")))
    sizes = {name: size for name, words in _SIZES.items() if (size := _whole(found, words))}
    if kinds is not None and {"layers", "hidden", "heads"} <= sizes.keys():
        fields["model"], own, said = model_of_sizes(sizes, kinds)
        fields |= {"sizes": own} if own else {}
        notes += said


def _precision(found: Mapping[str, Any], notes: list[str]) -> str | None:
    for flag, precision in (("fp8", "fp8-mixed"), ("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")):
        if _true(found.get(flag)) or _true(found.get(f"{flag}.enabled")):
            return precision
    said = _text(found, _PRECISION)
    if said is None:
        return "tf32" if _true(found.get("tf32")) else None
    if said.lower() in ("no", "none", "auto"):
        return "fp32" if said.lower() == "no" else None
    try:
        choice = parse_precision(said.removeprefix("torch."))
    except PrecisionTimeError:
        notes.append(f"precision {said[:40]!r} is not known and was left out")
        return None
    return f"{choice.name}:{choice.variant}" if choice.variant else str(choice.name)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting by its name, alone and with the one around it; the outer before the inner."""
    found: dict[str, Any] = {}
    level: list[tuple[str, Any]] = [(str(name), value) for name, value in settings.items()]
    for _ in range(_NESTED):
        inner: list[tuple[str, Any]] = []
        for path, given in level[:_MOST_SETTINGS]:
            if _OF_EVALUATION.search(path):
                continue
            value = _unwrapped(given)
            if isinstance(value, Mapping):
                inner += [(f"{path}.{name}", item) for name, item in value.items()]
                continue
            parts = [part.lstrip("-").replace("-", "_") for part in re.split(r"[/.]", path)]
            found.setdefault(parts[-1], value)
            found.setdefault(".".join(parts[-2:]), value)
        level = inner
    return found


def _unwrapped(value: Any) -> Any:
    """The mapping that a text of JSON stands for; W&B's `{"value": ...}` around a setting taken off."""
    if isinstance(value, str) and value.startswith("{") and len(value) < 1_000_000:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}:
        return value["value"]
    return value


def _whole(found: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of some settings that is a whole number above 0."""
    for name in names:
        value = finite(found.get(name))
        if value is not None and value == int(value):
            return int(value)
    return None


def _text(found: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of some settings that is a word; numbers count for a precision (16, 32)."""
    for name in names:
        value = found.get(name)
        if isinstance(value, bool) or value is None or isinstance(value, list | tuple):
            continue
        word = str(value).strip()
        if 0 < len(word) <= 200 and word.isprintable() and word.lower() not in ("none", "null", ""):
            return word
    return None


def _true(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "1.0", "yes")
    return isinstance(value, int | float) and value == 1
