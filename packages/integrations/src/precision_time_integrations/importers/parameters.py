"""What the settings of a run (parameters, configuration, hyperparameters) say of its job.

Trackers keep the settings of any trainer under the names that the trainer gives them:
`projects/data/trackers.toml` lists those that are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from precision_time.cost.optimizer import canonical_optimizer
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.catalog import canonical_device
from precision_time.precision.catalog import parse_precision

from ..projects import parts
from .contract import finite
from .settings import with_model_of_sizes

_OF_EVALUATION = re.compile(
    r"(^|[/._])(eval|evaluation|val|valid|validation|test|predict|prediction|generation)([/._]|$)",
    re.IGNORECASE,
)
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
    found, known = _flat(settings), parts("settings")["trackers"]
    fields: dict[str, Any] = {}
    notes: list[str] = []
    for name, words in known["counts"].items():
        if value := _whole(found, words):
            fields[name] = value
    _add_batch(fields, found, known["ambiguous_batch"], notes)
    if model := _text(found, known["model"]):
        if _PATH.search(model):
            notes.append("the model is named by a path of the machine that it ran on: give model=")
        else:
            fields["model"] = model
    if "model" not in fields:
        kinds = known["kinds"].get(str(found.get("model_type")))
        sizes = {name: size for name, words in known["sizes"].items() if (size := _whole(found, words))}
        with_model_of_sizes(fields, notes, sizes if kinds else {}, kinds or {})
    if precision := _precision(found, known, notes):
        fields["precision"] = precision
    if optimizer := _text(found, known["optimizer"]):
        try:
            fields["optimizer"] = canonical_optimizer(optimizer)
        except PrecisionTimeError:
            notes.append(f"optimizer {optimizer[:40]!r} is not known and was left out")
    if device := device_called(_text(found, known["device"])):
        fields["device"] = device
    if any(_true(found.get(name)) for name in known["recompute"]):
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


def _add_batch(
    fields: dict[str, Any], found: Mapping[str, Any], ambiguous: Sequence[str], notes: list[str]
) -> None:
    """The batch where only an ambiguous setting names it."""
    if "train_micro_batch_size_per_gpu" in found and (whole := _whole(found, ("train_batch_size",))):
        fields.setdefault("global_batch_size", whole)  # DeepSpeed's word for it
    if "batch_size" in fields and "global_batch_size" in fields:
        del fields["global_batch_size"]  # a request has one; that of a device goes with the count of GPUs
    if not {"batch_size", "global_batch_size"} & fields.keys() and (value := _whole(found, ambiguous)):
        fields["batch_size"] = value
        notes.append(f"a batch size of {value} is stated, taken as that of each device")


def _precision(found: Mapping[str, Any], known: Mapping[str, Any], notes: list[str]) -> str | None:
    for flag, precision in known["switches"].items():
        if _true(found.get(flag)) or _true(found.get(f"{flag}.enabled")):
            return str(precision)
    said = _text(found, known["precision"])
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


def _whole(found: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """The first of some settings that is a whole number above 0."""
    for name in names:
        value = finite(found.get(name))
        if value is not None and value == int(value):
            return int(value)
    return None


def _text(found: Mapping[str, Any], names: Sequence[str]) -> str | None:
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
