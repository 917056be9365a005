"""Which sizes a model finally has: its table, what the caller states, what follows, what is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

from ...errors import ConfigError, nearest_names, shown
from .registry import FamilyBuilder
from .tables import ModelEntry, read_toml

LARGEST_SIZE = 100_000_000
"""Beyond any width, length or vocabulary that was ever trained."""
MOST_LAYERS = 10_000
"""Beyond any depth that was ever trained: layers are counted one by one."""
SMALL_HEAD, LARGE_HEAD, SMALL_HIDDEN = 64, 128, 2048
"""Heads of 64 up to a hidden size of 2048, of 128 above: the usual GPT shapes (Brown et al. 2020)."""

GATED_MULTIPLE = 256
"""Gated blocks are 8/3 of hidden wide, rounded to this (Touvron et al. 2023)."""


def choose_sizes(
    entry: ModelEntry,
    builder: FamilyBuilder,
    stated: Mapping[str, Any],
    *,
    rules: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Fields of the configuration of `entry`, and in words what was assumed.

    Raises:
        ConfigError: If a size is larger than any model has, negative, or not a whole number.
    """
    chosen = dict(entry.sizes)
    assumptions: list[str] = []
    named = _stated_fields(builder, stated)
    chosen.update({field: value for field, value in rules.items() if field in builder.field_types})
    _derived_widths(chosen, named)
    chosen.update(named)
    for length in ("seq_len", "image_size"):
        if length in stated and length not in builder.field_types:
            assumptions.append(f"{length}={stated[length]} left out: {entry.name} has none")
    if "seq_len" in chosen and not {"seq_len", "frames"} & named.keys():
        assumptions.append(f"seq_len {chosen.get('seq_len')} (the default of {entry.name})")
    if entry.builder == "decoder":
        _complete_decoder(entry, chosen, named, assumptions)
    _grow_positions(chosen, assumptions)
    for field, value in chosen.items():
        most = MOST_LAYERS if field.endswith("layers") else LARGEST_SIZE
        if isinstance(value, int | float) and not 0 <= value <= most:
            raise ConfigError(
                f"{field}={shown(value)} of {shown(entry.name)} is not possible. The rule: from 0 to "
                f"{most:,}. To fix: check {field}."
            )
    return chosen, assumptions


def check_size_names(
    model: str, sizes: Mapping[str, Any], known: Mapping[str, str], way_out: str = ""
) -> None:
    """Refuse sizes that would change nothing: a name that the model has no size of, or not a number.

    Raises:
        ConfigError: If a name is not known, or its value is of a type that the field does not hold.
    """
    for name, value in sizes.items():
        if name not in known:
            near = nearest_names(str(name), known)
            names = ", ".join([*near, *sorted(set(known) - set(near))])
            rule = f"its sizes are {names}" if names else "it has none that can be set"
            raise ConfigError(
                f"{shown(model)} has no size {shown(name)}. The rule: {rule}. To fix: leave {shown(name)} out"
                + (", or use one of these" if names else "")
                + (f", {way_out}." if way_out else ".")
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        holds = {
            "int": is_number,
            "float": is_number,
            "bool": isinstance(value, bool) or value == 1,
            "word": isinstance(value, int | float | str),
        }.get(known[name], isinstance(value, list | tuple))
        if not holds:
            raise ConfigError(
                f"{name}={shown(value)} is not possible for {shown(model)}. The rule: {name} is of the type "
                f"{known[name]}. To fix: correct {name} or leave it out."
            )


def _grow_positions(chosen: dict[str, Any], assumptions: list[str]) -> None:
    """A learned position table must hold every position that is asked for."""
    limit = chosen.get("max_positions", 0)
    if not limit or chosen.get("positions", "learned") != "learned":
        return
    longest = chosen["target_len"] if chosen.get("audio") else chosen["seq_len"]
    if longest > limit:
        chosen["max_positions"] = longest
        assumptions.append(f"position table grown from {limit} to {longest} rows")


def _stated_fields(builder: FamilyBuilder, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Caller's sizes as configuration fields; what the family has no field for is left out."""
    named: dict[str, Any] = {}
    for size, value in stated.items():
        field = builder.field_of(size)
        if field is None or not isinstance(value, int | float):
            continue
        named.setdefault(field, _checked(size, value))
    if "layers" in stated and "encoder_layers" in builder.field_types:
        named.setdefault("encoder_layers", int(stated["layers"]))
        named.setdefault("decoder_layers", int(stated["layers"]))
    return named


def _checked(size: str, value: Any) -> Any:
    """A size as its field holds it; only seconds of audio may have a fraction."""
    if isinstance(value, float) and not value.is_integer() and not size.endswith("seconds"):
        raise ConfigError(
            f"{size}={value} is not possible. The rule: sizes are whole numbers. To fix: give a whole {size}."
        )
    if value > LARGEST_SIZE:
        raise ConfigError(
            f"{size}={shown(value)} is not possible. The rule: no size of a model exceeds {LARGEST_SIZE}. "
            f"To fix: check the unit of {size}."
        )
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _derived_widths(chosen: dict[str, Any], named: Mapping[str, Any]) -> None:
    """A new hidden size takes the inner width along in proportion and drops a fixed head size."""
    hidden, before = named.get("hidden"), chosen.get("hidden")
    if not hidden or not before or hidden == before:
        return
    if chosen.get("ffn"):
        chosen["ffn"] = round(chosen["ffn"] * hidden / before)
    if chosen.get("head_dim") and "heads" in named and "head_dim" not in named:
        chosen["head_dim"] = 0


def _complete_decoder(
    entry: ModelEntry, chosen: dict[str, Any], named: Mapping[str, Any], assumptions: list[str]
) -> None:
    params = entry.facts.get("target_params")
    if params and not {"hidden", "layers"} <= named.keys():
        shape = shape_for(
            params, vocab=chosen["vocab"], seq_len=chosen["seq_len"], hidden=chosen.get("hidden")
        )
        for field, value in shape.items():
            chosen.setdefault(field, value)
        assumptions.append(
            f"shape hidden={chosen['hidden']}, layers={chosen['layers']}, heads={chosen['heads']} chosen by "
            f"the {params:.3g} parameters"
        )
    if "hidden" in chosen and "heads" not in chosen:
        size = SMALL_HEAD if chosen["hidden"] <= SMALL_HIDDEN else LARGE_HEAD
        chosen["heads"] = max(1, chosen["hidden"] // size)
        assumptions.append(f"heads {chosen['heads']} (head size {size})")
    if chosen.get("gated") and "hidden" in chosen and not (chosen.get("ffn") or chosen.get("expert_ffn")):
        chosen["ffn"] = round(8 * chosen["hidden"] / 3 / GATED_MULTIPLE) * GATED_MULTIPLE
        assumptions.append(f"ffn {chosen['ffn']} (8/3 of hidden)")


def shape_for(params: float, *, vocab: int, seq_len: int, hidden: int | None = None) -> dict[str, int]:
    """Hidden, layers and heads of a GPT with about `params` parameters.

    The published shape nearest in size gives width and heads, or a stated `hidden` heads of 128;
    the number of layers is fitted: params = 12·layers·hidden^2 + (vocab + seq_len)·hidden.
    """
    if hidden is None:
        hidden, _, heads = min(
            read_toml("gpt_shapes.toml")["shapes"],
            key=lambda s: abs(log(12 * s[1] * s[0] ** 2 + vocab * s[0]) - log(params)),
        )
    else:
        heads = max(1, hidden // LARGE_HEAD)
    layers = max(1, round((params - (vocab + seq_len) * hidden) / (12 * hidden**2)))
    return {"hidden": hidden, "layers": layers, "heads": heads}
