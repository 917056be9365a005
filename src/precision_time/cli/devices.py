"""`precision-time devices`: the catalogue of accelerators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ..units import format_bytes, format_si
from .options import CustomOption, JsonOption, complete_device
from .output import write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time devices
  precision-time devices H100-SXM5-80GB --json
"""

_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8")


def devices(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One device in full.", autocompletion=complete_device),
    ] = None,
    *,
    custom: CustomOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the devices, or one with all its figures."""
    from ..hardware.catalog import get_device, known_devices

    if name is not None:
        fields = asdict(get_device(name))
        if json_output:
            write_json(fields)
        else:
            _write_device(fields)
        return
    found = known_devices()
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


def _write_device(fields: dict[str, Any]) -> None:
    from ..predict.render import format_field

    sources = fields.pop("sources")
    rows = []
    for figure, value in fields.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in parts:
            rows.append((f"{figure} {part}".strip(), format_field(figure, number), sources.get(figure, "")))
    write_rows("", ("figure", ">value", "source"), rows)


def _peak(flops_per_s: float | None) -> str:
    return "-" if flops_per_s is None else format_si(flops_per_s, "")
