"""What the head of a log says of the job, as fields of a request: settings by the tables of `launch/data`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_time.cache import data
from precision_time.errors import ConfigError, PrecisionTimeError, in_one_line
from precision_time.hardware.catalog import get_device
from precision_time.launch.emit import facts_of_config, known_launcher
from precision_time.launch.facts import fields_of_facts
from precision_time.workload.families.tables import ModelEntry, find_entry, model_table, normalize
from precision_time.workload.zoo import zoo_index

from .lines import Found, count, flags_of

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "top_k",
          "expert_ffn", "shared_ffn")  # fmt: skip
_TRUE = (True, "true", "True")
_SAME = ("layers", "hidden", "heads", "kv_heads", "ffn", "experts", "top_k")
"""Sizes by which a model of the tables is recognized."""
_KINDS = ("norm", "positions", "gated")
_LIKE = {"moe": "mixtral-8x7b", "gated": "llama2-7b", "plain": "gpt2"}
"""Models of the tables whose sizes are changed where no model has those of the log."""
_NAMES = re.compile(r"[^a-z0-9.]+")


def fields_of_settings(launcher: str, settings: Mapping[str, str], *, gpus: int | None = None) -> Found:
    """Settings that a launcher's program printed, as fields of a request.

    Args:
        launcher: One of `LAUNCHERS`, whose table knows the names.
        settings: Name to printed value.
        gpus: Devices of the job.
    """
    table = known_launcher(launcher)
    text = flags_of(settings, [each.key for each in table.settings if each.key.startswith("--")])
    found = Found()
    if not text:
        return found
    try:
        facts = facts_of_config(launcher, text)
        layout = fields_of_facts(facts, int(facts.get("layers") or 0), gpus)
    except (PrecisionTimeError, ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        found.notes.append(f"the settings of {table.title} could not be read: {in_one_line(error)}")
        return found
    found.fields.update(layout)
    for field, fact in (("batch_size", "micro_batch"), ("seq_len", "seq_len"), ("optimizer", "optimizer"),
                        ("precision", "precision")):  # fmt: skip
        if facts.get(fact) not in (None, "", 0, "none"):
            found.fields[field] = facts[fact]
    if "batch_size" not in found.fields and facts.get("local_batch"):
        found.fields["batch_size"] = facts["local_batch"]
    if facts.get("global_batch") and count(str(facts["global_batch"])):
        found.fields["global_batch_size"] = facts["global_batch"]
        if "batch_size" in found.fields:
            found.fields.pop("num_microbatches", None)  # follows from both batches and the devices
    if gpus:
        found.fields["gpus"] = gpus
    if table.stacks:
        found.fields["stack"] = table.stacks[0]
    _add_model(found, facts)
    return found


def _add_model(found: Found, facts: Mapping[str, Any]) -> None:
    sizes = {name: facts[name] for name in _SIZES if count(str(facts.get(name, "")))}
    kinds = {"norm": facts.get("norm") or "layer", "positions": facts.get("positions") or "learned",
             "gated": facts.get("activation") == "silu" or facts.get("gated") in _TRUE}  # fmt: skip
    with_model_of_sizes(found.fields, found.notes, sizes, kinds)


def with_model_of_sizes(
    fields: dict[str, Any], notes: list[str], sizes: Mapping[str, int], kinds: Mapping[str, Any]
) -> None:
    """Add the decoder-only language model of some sizes, where they are enough to say one."""
    if {"layers", "hidden", "heads"} <= sizes.keys():
        model, own, said = model_of_sizes(sizes, kinds)
        fields |= {"model": model, **({"sizes": own} if own else {})}
        notes += said


def model_of_sizes(
    sizes: Mapping[str, int], kinds: Mapping[str, Any]
) -> tuple[str, dict[str, int], list[str]]:
    """The model of the tables with these sizes, or one like it and the sizes in which they differ.

    Args:
        sizes: layers, hidden, heads and further ones of a decoder-only language model.
        kinds: `norm`, `positions` and `gated`, as the tables have them.

    Returns:
        Name, sizes to state beside it, notes.
    """
    wanted = _by_which(sizes, gated=bool(kinds.get("gated")))
    fitting = [entry for entry in _decoders() if _by_which(entry.sizes, gated=_gated(entry)) == wanted]
    if fitting:
        best = max(fitting, key=lambda entry: _agreement(entry, sizes, kinds))
        vocab = sizes.get("vocab", best.sizes["vocab"])
        other = {"vocab": vocab} if vocab != best.sizes["vocab"] else {}
        return best.name, other, [f"taken for {best.name} by its sizes"]
    like = "moe" if sizes.get("experts") else "gated" if kinds.get("gated") else "plain"
    name = _LIKE[like]
    entry = find_entry(name)
    assert entry is not None
    notes = [f"in no table: priced as {name} with the sizes of the log"]
    for kind, plain in (("norm", "layer"), ("positions", "learned")):
        there, here = kinds.get(kind, plain), entry.sizes.get(kind, plain)
        if there != here:
            notes.append(f"{kind} is {there} in the log and {here} in {name}")
    stated = {**sizes, "kv_heads": sizes.get("kv_heads", sizes["heads"])}
    if like == "moe":
        stated.setdefault("expert_ffn", stated.pop("ffn", 4 * sizes["hidden"]))
        stated.pop("ffn", None)
    else:
        stated.setdefault("ffn", 4 * sizes["hidden"])
    return name, stated, notes


def _gated(entry: ModelEntry) -> bool:
    return bool(entry.sizes.get("gated"))


def _by_which(sizes: Mapping[str, Any], *, gated: bool) -> tuple[Any, ...]:
    whole = dict(sizes)
    whole["kv_heads"] = whole.get("kv_heads") or whole.get("heads")
    if whole.get("experts"):
        whole["ffn"] = whole.get("expert_ffn") or whole.get("ffn")
    whole["ffn"] = whole.get("ffn") or 4 * whole.get("hidden", 0)
    return (*(whole.get(name) or 0 for name in _SAME), gated)


def _agreement(entry: ModelEntry, sizes: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[int, int]:
    plain = {"norm": "layer", "positions": "learned", "gated": False}
    same = sum(entry.sizes.get(kind, plain[kind]) == kinds.get(kind, plain[kind]) for kind in _KINDS)
    return same, int(entry.sizes.get("vocab") == sizes.get("vocab"))


@data
def _decoders() -> tuple[ModelEntry, ...]:
    return tuple(entry for entry in model_table().values() if entry.builder == "decoder")


def known_model(*words: str) -> str | None:
    """A model that is named by words of a log, such as `llama3` and `8B`; None where no table has it."""
    name = _NAMES.sub("-", "-".join(words).lower()).strip("-")
    entry = find_entry(name)
    captured = next((each for each in zoo_index() if normalize(each) == name), None)
    return captured if entry is None else entry.name


def known_device(words: str) -> str | None:
    """The device that a log names, as the catalog calls it; None where it has none."""
    try:
        return get_device(words).name
    except ConfigError:
        return None
