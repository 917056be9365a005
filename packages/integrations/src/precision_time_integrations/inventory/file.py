"""A cluster from an inventory file (YAML or JSON), checked field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from precision_time.errors import CatalogError, validation_problems
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.io import read_input, read_yaml
from precision_time.units import GIBI, GIGA

from .mapping import MOST_NODES, resources
from .slurm import expand_hostlist

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Sheet(BaseModel):
    model_config = ConfigDict(extra="forbid")


class InventoryNode(_Sheet):
    """One host, or several identical ones."""

    name: str = ""
    count: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    device: str = ""
    devices: Annotated[int, Field(ge=0, le=65536)] = 1
    device_memory_gib: Positive | None = None
    cores: Annotated[int, Field(ge=1)] | None = None
    clock_ghz: Positive | None = None
    memory_gib: Positive | None = None


class Inventory(_Sheet):
    """A whole file."""

    nodes: list[InventoryNode]
    intra_node: str = ""
    inter_node: str = ""
    custom: str = ""


def read_inventory(path: str | Path) -> ClusterResources:
    """The cluster that an inventory file describes.

    ::

        nodes:
          - name: gpu[01-04]            # Slurm's way of naming many; or leave it out and say count: 4
            device: A100-SXM4-80GB      # a name of `precision-time list devices`, in any usual spelling
            devices: 8                  # on each node
            device_memory_gib: 80       # optional, distinguishes variants of one name
            cores: 128                  # optional
            clock_ghz: 2.45             # optional
            memory_gib: 1024            # optional
        intra_node: nvlink3+nvswitch    # optional: by default the usual link of the device
        inter_node: ib-hdr-200g x8      # optional
        custom: my-devices.toml         # optional: user-defined devices and links, relative to this file

    Raises:
        CatalogError: If the file cannot be read, or a field breaks a rule; every such field is named.
    """
    file = Path(path)
    try:
        content = read_yaml(read_input(file), once=True)
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CatalogError(
            f"The inventory {str(path)!r} is not readable as YAML: {reason}. To fix: correct the file."
        ) from error
    try:
        inventory = Inventory.model_validate(content)
    except ValidationError as error:
        raise CatalogError(
            f"The inventory {str(path)!r} breaks its rules: {validation_problems(error)}. To fix: correct "
            "these fields; a file has `nodes`, each with `device` and `devices`."
        ) from error
    return resources(
        (node for number, row in enumerate(inventory.nodes, start=1) for node in _nodes(row, number)),
        source=f"inventory {file.name}",
        intra_node=inventory.intra_node,
        inter_node=inventory.inter_node,
        custom=str(file.parent / inventory.custom) if inventory.custom else "",
    )


def _nodes(row: InventoryNode, number: int) -> list[NodeResources]:
    names = expand_hostlist(row.name) if row.name else [f"entry {number}"]
    if row.count > 1:
        if len(names) > 1:
            raise CatalogError(
                f"Entry {number} of the inventory names {len(names)} nodes ({row.name}) and says "
                f"count: {row.count}. To fix: give one of the two."
            )
        names = [f"{names[0]} {place}" for place in range(1, row.count + 1)]
    return [NodeResources(name=name, **_facts(row)) for name in names]


def _facts(row: InventoryNode) -> dict[str, Any]:
    return {
        "reported_device": row.device,
        "num_devices": row.devices,
        "device_memory_bytes": None if row.device_memory_gib is None else row.device_memory_gib * GIBI,
        "cores": row.cores,
        "clock_hz": None if row.clock_ghz is None else row.clock_ghz * GIGA,
        "memory_bytes": None if row.memory_gib is None else row.memory_gib * GIBI,
    }
