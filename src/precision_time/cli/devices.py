"""`precision-time devices`: the catalog of accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..units import format_bytes, format_si
from .options import JsonOption, complete_device
from .output import write_json, write_rows
from .request_options import request_options

if TYPE_CHECKING:
    from ..hardware.catalog import NodeType
    from ..hardware.device import Device, Fabric

EXAMPLES = """\b
Examples:
  precision-time devices
  precision-time devices H100-SXM5-80GB --json
  precision-time devices --node-types
"""

_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8")


@request_options(only=("custom",))
def devices(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One device in full.", autocompletion=complete_device),
    ] = None,
    *,
    node_types: Annotated[bool, typer.Option("--node-types", help="List the node types instead.")] = False,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """List the devices, or one with all its figures."""
    from ..hardware.catalog import Custom, get_device, known_devices, known_node_types, load_custom

    own = load_custom(fields["custom"]) if fields["custom"] else Custom()
    if node_types:
        _write_node_types([*own.node_types.values(), *known_node_types()], json_output)
    elif name is None:
        _write_devices([*own.devices.values(), *known_devices()], json_output)
    else:
        _write_device(asdict(own.device(name) if own.has_device(name) else get_device(name)), json_output)


def _write_devices(found: Sequence[Device], json_output: bool) -> None:
    if json_output:
        write_json({"devices": [asdict(device) for device in found]})
        return
    table = [
        (
            device.name,
            device.arch,
            format_bytes(device.memory_bytes),
            format_si(device.memory_bandwidth_bytes_per_s, "B/s"),
            *(_peak(device.peak_flops_per_s.get(dtype)) for dtype in _PEAKS),
        )
        for device in found
    ]
    columns = ("device", "architecture", ">memory", ">bandwidth", *(f">{dtype}" for dtype in _PEAKS))
    write_rows("Dense peaks in FLOP/s", columns, table)


def _write_node_types(found: Sequence[NodeType], json_output: bool) -> None:
    if json_output:
        write_json({"node_types": [asdict(node) for node in found]})
        return
    rows = [
        (node.name, str(node.devices), node.device, node.intra_node, node.inter_node, _wiring(node.fabric))
        for node in found
    ]
    write_rows("", ("node type", ">devices", "device", "inside", "between nodes", "wired as"), rows)


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
    from ..rendering import format_field

    sources = fields.pop("sources")
    rows = []
    for figure, value in fields.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            rows.append((f"{figure} {part}".strip(), format_field(figure, number), sources.get(figure, "")))
    write_rows("", ("figure", ">value", "source"), rows)


def _peak(flops_per_s: float | None) -> str:
    return "-" if flops_per_s is None else format_si(flops_per_s, "")
