"""`precision-time list devices`, `models`, `precisions`, `stacks`: what the package knows by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError
from ..units import format_bytes, format_si
from .options import JsonOption, declared
from .output import message, write_json, write_rows
from .request_options import request_options

if TYPE_CHECKING:
    from ..hardware.device import Fabric


_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8")


@request_options(only=("custom",))
@declared("devices")
def devices(
    name: str | None = None,
    *,
    search: str | None = None,
    node_types: bool = False,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """List the devices, or one with all its figures."""
    from ..hardware.catalog import (
        Custom,
        device_assumption,
        get_device,
        get_node_type,
        known_devices,
        known_node_types,
        load_custom,
    )
    from ..hardware.words import with_cluster_words

    def named(*texts: str) -> bool:
        return all(word in " ".join(texts).lower() for word in (search or "").lower().split())

    own = load_custom(fields["custom"]) if fields.get("custom") else Custom()
    host = None
    if name is not None:
        said = with_cluster_words({"device": name, **fields})
        name, host = said.get("device"), said.get("node_type")
    if node_types or host is not None:
        nodes = [*own.node_types.values(), *known_node_types()]
        if host is not None:
            nodes = [own.find_node_type(host) or get_node_type(host)]
        nodes = [node for node in nodes if named(node.name, node.device)]
        rows: Iterable[tuple[str, ...]] = (
            (
                node.name,
                str(node.devices),
                node.device,
                node.intra_node,
                node.inter_node,
                _wiring(node.fabric),
            )
            for node in nodes
        )
        columns: tuple[str, ...] = ("node type", ">devices", "device", "inside", "between nodes", "wired as")
        write_catalog("node_types", map(asdict, nodes), columns, rows, json_output)
    elif name is None:
        listed = (*own.devices.values(), *known_devices())
        found = [device for device in listed if named(device.name, device.vendor, device.arch)]
        rows = (
            (
                *(device.name, device.arch, format_bytes(device.memory_bytes)),
                format_si(device.memory_bandwidth_bytes_per_s, "B/s"),
                *(_peak(device.peak_flops_per_s.get(dtype)) for dtype in _PEAKS),
            )
            for device in found
        )
        columns = ("device", "architecture", ">memory", ">bandwidth", *(f">{dtype}" for dtype in _PEAKS))
        write_catalog(
            "devices", map(asdict, found), columns, rows, json_output, title="Dense peaks in FLOP/s"
        )
    else:
        found_own = own.find_device(name)
        if found_own is None and (assumption := device_assumption(name)) is not None:
            message(f"Assumed: {assumption}")
        _write_device(asdict(found_own or get_device(name)), json_output)


@declared("models")
def models(
    *,
    family: str | None = None,
    search: str | None = None,
    json_output: JsonOption = False,
) -> None:
    """List the models that answer without torch.

    Names are read as people write them: `meta-llama/Llama-3.1-8B-Instruct` is `llama3.1-8b`.
    Any other model is captured from its code, which needs the extra `capture`.
    """
    from ..workload.resolve import known_models, search_models

    named = known_models() if search is None else search_models(search)
    found = [info for info in named if family is None or info.family == family.lower()]
    rows = (
        (
            *(info.name, info.family, format_si(info.params, "")),
            *(format_si(info.forward_flops, "FLOP"), _shortened(info.aliases), info.source),
        )
        for info in found
    )
    columns = ("model", "family", ">parameters", ">forward per sample", "also called", "source")
    write_catalog("models", map(asdict, found), columns, rows, json_output)
    if not json_output:
        families = sorted({info.family for info in known_models()})
        message(f"{len(found)} models. Families: {', '.join(families)}")


def _shortened(names: Sequence[str], most: int = 3) -> str:
    """The first of several names."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


@declared("precisions")
def precisions(
    name: str | None = None,
    *,
    yaml: bool = False,
    json_output: JsonOption = False,
) -> None:
    """List the precision policies, or say one in full.

    A policy says in which type each part of a training step is held and computed.
    """
    from ..precision.catalog import get_policy, known_precisions, known_variants, parse_precision

    if name is not None:
        from ..precision.own import as_yaml, fields_of

        choice = parse_precision(name)
        said = f"{choice.name}:{choice.variant}" if choice.variant else choice.name
        policy = get_policy(said)
        if json_output:
            write_json(fields_of(policy, name=said))
            return
        typer.echo(as_yaml(policy, name=said), nl=False)
        if not yaml and choice.variant is None and known_variants(choice.name):
            message(
                f"Variants: {', '.join(f'{choice.name}:{each}' for each in known_variants(choice.name))}."
            )
        return
    if yaml:
        raise ConfigError(
            "--yaml says one policy in full. To fix: name it, as in precisions bf16-mixed --yaml."
        )
    policies = [get_policy(name) for name in known_precisions()]
    rows = (
        (
            *(policy.name, policy.matmul.value, policy.activation.value, policy.param.value),
            *(policy.reduce.value, policy.master.value if policy.master else "-"),
            *("yes" if policy.loss_scaling else "-", policy.summary),
        )
        for policy in policies
    )
    columns = ("precision", "matmul", "activations", "parameters", "wire", "master", "scaler", "what it is")
    write_catalog("precisions", map(asdict, policies), columns, rows, json_output)


@declared("stacks")
def stacks(*, json_output: JsonOption = False) -> None:
    """List the software profiles.

    The same mathematics on the same device runs several times apart by software.
    """
    from ..cost.stacks import known_stacks

    found = known_stacks()
    if json_output:
        write_json({"stacks": found})
        return
    write_rows("", ("stack", "what it is"), [(name, entry["summary"]) for name, entry in found.items()])


def write_catalog(
    kind: str,
    entries: Iterable[dict[str, Any]],
    columns: Sequence[str],
    rows: Iterable[tuple[str, ...]],
    json_output: bool,
    *,
    title: str = "",
) -> None:
    """A catalog as a table, or as JSON with every field of its entries."""
    if json_output:
        write_json({kind: list(entries)})
    else:
        write_rows(title, columns, list(rows))


def _wiring(fabric: Fabric) -> str:
    """Topology and nodes of a pod where they are known: "fat-tree, 7:1 past 384"."""
    shape = "x".join(map(str, fabric.torus))
    parts = [f"{fabric.topology} {shape}".strip()]
    if fabric.oversubscription > 1.0:
        parts.append(f"{fabric.oversubscription:g}:1 past {fabric.pod_nodes}")
    elif fabric.pod_nodes:
        parts.append(f"{fabric.pod_nodes} a pod")
    return ", ".join(parts)


def _write_device(fields: dict[str, Any], json_output: bool) -> None:
    if json_output:
        write_json(fields)
        return
    from ..units import format_field

    sources = fields.pop("sources")
    rows = []
    for figure, value in fields.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            rows.append((f"{figure} {part}".strip(), format_field(figure, number), sources.get(figure, "")))
    write_rows("", ("figure", ">value", "source"), rows)


def _peak(flops_per_s: float | None) -> str:
    return "-" if flops_per_s is None else format_si(flops_per_s, "")
