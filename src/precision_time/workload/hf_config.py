"""Decoders from a Hugging Face config.json alone: neither torch nor transformers is needed.

The keys of every known `model_type` are data (`data/hf_architectures.toml`); the sizes they give are those
of the parametric decoder, so that a configuration and a model's name lead to one and the same graph.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

from ..cache import data
from ..errors import CaptureError, UnknownNameError, shown
from ..io import read_input
from .families.registry import family_builder
from .families.sizes import LARGEST_SIZE, MOST_LAYERS
from .families.tables import ModelEntry, normalize, preset, read_toml

_CONFIG_FILE = "config.json"
_TYPES_IN_WORDS = {"int": "whole number", "float": "number", "bool": "truth value", "str": "word"}
_DEEPEST = 20
_LARGEST: tuple[tuple[re.Pattern[str], int, int], ...] = (
    (re.compile(r"^(num|n)_(\w+_)?(layers?|heads?|blocks|stages)$|_layers$|^depths?$"), 0, MOST_LAYERS),
    (re.compile(r"(^|_)labels$|_experts$"), 0, 1_000_000),
    (re.compile(r"^(hidden|intermediate|vocab)_size$|^d_(model|ff)$|^n_(embd|inner)$"), 0, LARGEST_SIZE),
    (re.compile(r"^(num|n|d|max)_|_(size|dim|rank|len|length|positions|width)$"), -1, LARGEST_SIZE),
)
"""Keys of a configuration, and the smallest and largest number; the first that fits rules. -1 stands for none
in some architectures. Checked against the defaults of all configuration classes of transformers 5.23."""


def known_model_types() -> tuple[str, ...]:
    """Every `model_type` that is read without transformers."""
    return tuple(_table()["type"])


def is_config_source(source: Any) -> bool:
    """Whether `source` is a configuration: a mapping or an object with one, a config.json or its folder."""
    if isinstance(source, Mapping):
        return True
    if isinstance(source, str | Path):
        # os.path: a name too long for a file is none, where Path raises; every row of a table is asked.
        path = os.fspath(source).rstrip("/")
        return os.path.splitext(path)[1] == ".json" or os.path.isfile(os.path.join(source, _CONFIG_FILE))
    return hasattr(source, "model_type") and callable(getattr(source, "to_dict", None))


def is_absent_hub_id(name: str) -> bool:
    """Whether a name is an id of the Hugging Face hub (`owner/name`) of which nothing is on this machine.

    The built-in table and the local cache are looked at; the hub is not asked, and torch is not loaded.
    """
    if "/" not in name or name in read_toml("hf_models.toml")["models"]:
        return False
    try:
        cached = importlib.import_module("huggingface_hub").try_to_load_from_cache
        folders = {None, os.environ.get("TRANSFORMERS_CACHE")}  # the latter of transformers 4
        return not any(isinstance(cached(name, _CONFIG_FILE, cache_dir=folder), str) for folder in folders)
    except (ImportError, ValueError):  # not installed; no id at all
        return True


def read_config(source: Any) -> Mapping[str, Any]:
    """The keys and values of a configuration.

    Args:
        source: A mapping, a configuration object of transformers, a config.json or the folder it lies in.

    Raises:
        CaptureError: If it is not a Hugging Face configuration.
    """
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    config = source if isinstance(source, Mapping) else source.to_dict()
    return _checked(config, "The mapping")


def entry_of_config(source: Any) -> ModelEntry:
    """The row of a model table that a configuration stands for.

    Args:
        source: As for `read_config`.

    Raises:
        UnknownNameError: If its `model_type` is not in the table.
        CaptureError: If it is not a configuration, or one with parts that the decoder family does not have.
    """
    config = read_config(source)
    kind = str(config["model_type"])
    row = _table()["type"].get(kind)
    if row is None:
        raise UnknownNameError(
            kind="model_type",
            name=kind,
            known=known_model_types(),
            hint="This architecture is not read from its config.json alone. To fix: install torch and "
            "transformers (the capture extra), which build what they know, or pass sizes (hidden, layers, "
            "heads, kv_heads, ffn, vocab) under another name.",
        )
    base = preset(row["arch"])
    if base is None:
        raise CaptureError(f"No preset {row['arch']!r} in the model tables. To fix: reinstall the package.")
    inner = _language_part(config)
    sizes = _sizes(inner, row, kind)
    if base.builder == "hybrid":
        sizes = _hybrid_sizes(inner, sizes, row, kind)
    usual = min(_longest(inner, kind), _table()["longest_default"])
    return replace(
        base,
        name=normalize(config_label(config, source)),
        sizes={**base.sizes, "seq_len": usual, **sizes},
        facts={**base.facts, **{key: row[key] for key in ("family",) if key in row}},
        source=f"config.json of model_type {kind}",
    )


def _sizes(config: Mapping[str, Any], row: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Fields of the decoder, from the keys that are there."""
    keys = {**_table()["fields"], **row.get("fields", {})}
    types = {**family_builder("hybrid").field_types, **family_builder("decoder").field_types}
    found = dict(row.get("defaults", {}))
    for field, names in keys.items():
        name, value = _first(config, names)
        if value is not None:
            found[field] = _typed(name, value, types[field], kind)
    for field, factors in row.get("products", {}).items():
        values = [_typed(factor, _first(config, [factor])[1] or 0, "int", kind) for factor in factors]
        found[field] = values[0] * values[1]
    found.update(row.get("sizes", {}))
    for field, key in row.get("unless", {}).items():
        if not config.get(key):
            found[field] = 0
    if "activation" in found:
        found["activation"] = _table()["activations"].get(found["activation"], found["activation"])
    if found.get("max_positions"):
        found["max_positions"] += row.get("more_positions", 0)
    found.update(_attention_pattern(config, found, row, kind))
    found.update(_dense_pattern(config, found, kind))
    found.update(_one_key_head(config))
    if not found.get("experts"):
        found.pop("shared_ffn", None)
    missing = [field for field in ("hidden", "layers", "heads", "vocab") if not found.get(field)]
    if missing:
        asked = ", ".join(keys[field][0] for field in missing)
        raise CaptureError(
            f"The configuration of {kind!r} lacks {asked}. To fix: take the complete config.json that lies "
            "next to the model's weights."
        )
    return found


def _hybrid_sizes(
    config: Mapping[str, Any], found: Mapping[str, Any], row: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    """The fields of a hybrid: its mixers counted by kind, a feed-forward block behind each.

    Where `layer_types` is left out, one layer in `every` sees all keys.
    """
    layers = found["layers"]
    dense = min(found.get("dense_layers", 0), layers)
    every = int(_typed(row["every"], config.get(row["every"]) or 0, "int", kind))
    last = {"attention_layers": layers // every if every else 0}
    listed = _listed(config, "layer_types", str, kind)
    counts = {field: listed.count(name) for field, name in row["mixers"].items()} if listed else last
    rest = layers - sum(counts.values())
    if listed and rest:
        raise _refused(
            kind, "layer_types", listed, f"a list of {layers} of {', '.join(row['mixers'].values())}"
        )
    counts = {**dict.fromkeys(row["mixers"], rest), **counts}
    fed = {"mlp_layers": layers}
    if found.get("experts"):
        fed = {"mlp_layers": dense, "moe_layers": layers - dense}
    types = family_builder("hybrid").field_types
    return {**{field: value for field, value in found.items() if field in types}, **counts, **fed}


def _attention_pattern(
    config: Mapping[str, Any], found: Mapping[str, Any], row: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    """Which layers see all keys, where the configuration lists them."""
    listed = _listed(config, "layer_types", str, kind)
    if row.get("mixers"):  # counted by `_hybrid_sizes`
        return {}
    unknown = sorted(set(listed) - {*_table()["windowed"], *_table()["full"]})
    if unknown:
        raise CaptureError(
            f"The configuration of {kind!r} has layers of the type {unknown[0]!r}, for which the decoder "
            "family has no operators. To fix: install torch and transformers (the capture extra), which "
            "build the model itself, or pass the module."
        )
    if not listed or not found.get("window"):
        return {}
    full = sum(layer in _table()["full"] for layer in listed)
    if full == len(listed):
        return {"window": 0}
    return {"full_attention_every": round(len(listed) / full) if full else 0}


def _dense_pattern(config: Mapping[str, Any], found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Leading dense layers, where the configuration lists the layers without experts."""
    listed = sorted(_listed(config, "mlp_only_layers", int, kind))
    if not listed or not found.get("experts"):
        return {}
    if listed != list(range(len(listed))):
        raise CaptureError(
            f"The configuration of {kind!r} has dense layers {listed}, the decoder family only leading ones. "
            "To fix: install torch and transformers (the capture extra), which build the model itself."
        )
    return {"dense_layers": len(listed)}


def _one_key_head(config: Mapping[str, Any]) -> dict[str, Any]:
    """Falcon before its new architecture: one key and value head for all, and one norm for both halves."""
    if "new_decoder_architecture" not in config and "multi_query" not in config:
        return {}
    if config.get("new_decoder_architecture"):
        return {"shared_norm": False}
    kept = {"kv_heads": 1} if config.get("multi_query", True) else {"kv_heads": 0}
    alibi = {"positions": "alibi"} if config.get("alibi") else {}
    return {**kept, **alibi, "shared_norm": bool(config.get("parallel_attn", True))}


def _language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model of a multimodal configuration, else the configuration."""
    for key in _table()["nested"]:
        part = config.get(key)
        if isinstance(part, Mapping) and part:
            tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
            return {**tied, **part}
    return config


def _longest(config: Mapping[str, Any], kind: str) -> int:
    name, value = _first(config, _table()["longest"]["keys"])
    return int(_typed(name, value, "int", kind)) if value else int(_table()["longest_default"])


def _first(config: Mapping[str, Any], names: list[str]) -> tuple[str, Any]:
    """The first key that holds something, and what it holds; `a.b` looks into `a`."""
    for name in names:
        value: Any = config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return name, value
    return names[0], None


def _typed(key: str, value: Any, wanted: str, kind: str) -> Any:
    """A value as its field holds it: "int", "float", "bool" or "str".

    Raises:
        CaptureError: If it is of another type.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "int" and is_number and 0 <= value <= LARGEST_SIZE and value == int(value):
        return int(value)
    if (wanted == "float" and is_number) or type(value).__name__ == wanted != "int":
        return value
    raise _refused(kind, key, value, f"a {_TYPES_IN_WORDS[wanted]}")


def _listed(config: Mapping[str, Any], key: str, wanted: type, kind: str) -> list[Any]:
    """A list whose items are of one type; empty where there is none."""
    value = config.get(key) or []
    if not isinstance(value, list | tuple) or not all(type(item) is wanted for item in value):
        raise _refused(kind, key, value, f"a list of {_TYPES_IN_WORDS[wanted.__name__]}s")
    return list(value)


def _refused(kind: str, key: str, value: Any, rule: str) -> CaptureError:
    return CaptureError(
        f"The configuration of {shown(kind)} says {key}={shown(value)}. The rule: {key} is {rule}. To fix: "
        "take the config.json that lies next to the model's weights."
    )


def check_values(config: Mapping[str, Any]) -> None:
    """Refuse numbers that no model has, wherever they stand in a configuration, before anything is built.

    Raises:
        CaptureError: If a number is NaN, a size negative or absurdly large, or the configuration nested too
            deeply.
    """
    kind = str(config.get("model_type"))
    parts: list[tuple[str, Any, int]] = [("", config, 0)]
    while parts:
        key, value, depth = parts.pop()
        if depth > _DEEPEST:
            raise _refused(kind, key, value, f"nested at most {_DEEPEST} deep")
        if isinstance(value, Mapping):
            parts += [(str(name), item, depth + 1) for name, item in value.items()]
        elif isinstance(value, list | tuple):
            parts += [(key, item, depth + 1) for item in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if isinstance(value, float) and isnan(value):
                raise _refused(kind, key, value, "a number")
            for pattern, least, most in _LARGEST:
                if pattern.search(key):
                    if not least <= value <= most:
                        raise _refused(kind, key, value, f"a number from {least} to {most:,}")
                    break


def config_label(config: Mapping[str, Any], source: Any = None) -> str:
    """What the model of a configuration is called.

    The name that it was loaded by, without the folders of a machine; else that of its file, where this is
    not config.json; else its type, width and layers. The folder it lies in says nothing.
    """
    named = str(config.get("_name_or_path") or "")
    if named:
        local = named.startswith((".", "/", "~")) or Path(named).is_absolute()
        return Path(named).name if local else named
    path = Path(source) if isinstance(source, str | Path) else Path(_CONFIG_FILE)
    if path.suffix == ".json" and path.name != _CONFIG_FILE:
        return path.stem
    inner = _language_part(config)
    keys = _table()["fields"]
    sizes = ((letter, _first(inner, keys[field])[1]) for letter, field in (("h", "hidden"), ("l", "layers")))
    return "-".join((str(config["model_type"]), *(f"{letter}{size}" for letter, size in sizes if size)))


def _read_file(path: Path) -> Mapping[str, Any]:
    file = path if path.suffix == ".json" else path / _CONFIG_FILE
    try:
        data = json.loads(read_input(file))
    except OSError as error:
        raise CaptureError(f"{file} cannot be read: {error}. To fix: check the path.") from error
    except (ValueError, RecursionError) as error:
        raise CaptureError(
            f"{file} is not JSON ({error}). To fix: take the config.json that lies next to the weights."
        ) from error
    return _checked(data, str(file))


def _checked(config: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(config, Mapping) or not config.get("model_type"):
        raise CaptureError(
            f"{label} is not a Hugging Face configuration: an object with a model_type is expected. To fix: "
            "take the config.json that lies next to the model's weights."
        )
    check_values(config)
    return config


@data
def _table() -> Mapping[str, Any]:
    return read_toml("hf_architectures.toml")
