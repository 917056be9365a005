"""`precision-time predictddl collect`: what a cluster is made of."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .options import JsonOption
from .output import message, write_json, write_rows
from .predictddl_options import InventoryOption

if TYPE_CHECKING:
    from ..hardware.device import Cluster
    from ..hardware.inventory import ClusterResources

EXAMPLES = """\b
Examples:
  precision-time predictddl collect --inventory lab.yaml
  sinfo -N -o '%N %G %c %m %f %t' | precision-time predictddl collect --slurm -
  precision-time predictddl collect --ray auto --json
  precision-time predictddl collect --local
"""


def collect(
    *,
    inventory: InventoryOption = None,
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", metavar="FILE|-", help="Output of `scontrol show node` or of sinfo."),
    ] = None,
    ray: Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="A running Ray; auto.")] = None,
    local: Annotated[bool, typer.Option("--local", help="This machine.")] = False,
    custom: Annotated[
        Path | None, typer.Option("--custom", dir_okay=False, help="File with your own devices.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Collect what a cluster is made of.

    Says how the catalogue reads it, too.
    """
    found = _collected(inventory, slurm, ray, local, "" if custom is None else str(custom))
    try:
        cluster, problem = found.cluster(), None
    except ConfigError as error:
        cluster, problem = None, error
    if json_output:
        write_json(_resources_json(found, cluster, "" if problem is None else str(problem)))
    else:
        _write_resources(found, cluster)
    if problem is not None:
        raise typer.Exit(1) if json_output else problem


def _write_resources(found: ClusterResources, cluster: Cluster | None) -> None:
    rows = [
        (node.name, node.reported_device, node.device or "-", str(node.num_devices), str(node.cores or ""))
        for node in found.nodes
    ]
    write_rows(found.source, ("node", "device as reported", "in the catalogue", ">devices", ">cores"), rows)
    for note in found.notes:
        message(f"Note: {note}")
    if cluster is not None:
        message(f"{cluster.num_nodes} nodes, {cluster.num_devices} devices {cluster.device.name}")
        message(f"Links: {cluster.intra_node.name} inside a node, {cluster.inter_node.name} between nodes")
        for note in cluster.assumptions:
            message(f"Note: {note}")


def _collected(
    inventory: Path | None, slurm: str | None, ray: str | None, local: bool, custom: str
) -> ClusterResources:
    given = [inventory is not None, slurm is not None, ray is not None, local]
    if sum(given) != 1:
        raise typer.BadParameter("Give one of --inventory, --slurm, --ray and --local.")
    if inventory is not None:
        from ..hardware.inventory_file import read_inventory

        return read_inventory(inventory)
    if slurm is not None:
        from ..hardware.inventory_slurm import read_slurm

        return read_slurm(_text(slurm), custom=custom)
    if ray is not None:
        from ..hardware.inventory_ray import collect_ray

        return collect_ray(ray, custom=custom)
    from ..hardware.inventory_local import collect_local

    return collect_local(custom=custom)


def _text(path: str) -> str:
    from ..errors import CatalogError

    try:
        return (
            typer.get_text_stream("stdin").read() if path == "-" else Path(path).read_text(encoding="utf-8")
        )
    except (OSError, ValueError) as error:
        raise CatalogError(
            f"{path!r} cannot be read ({error}). To fix: give an existing text file."
        ) from error


def _resources_json(found: ClusterResources, cluster: Cluster | None, problem: str) -> dict[str, Any]:
    """What was collected; where no cluster can be made of it, `cluster` is null and `problem` says why."""
    made = None
    if cluster is not None:
        made = {
            "num_nodes": cluster.num_nodes,
            "num_devices": cluster.num_devices,
            "devices_per_node": cluster.devices_per_node,
            "device": cluster.device.name,
            "intra_node": asdict(cluster.intra_node),
            "inter_node": asdict(cluster.inter_node),
            "assumptions": list(cluster.assumptions),
        }
    return {
        "source": found.source,
        "nodes": [asdict(node) for node in found.nodes],
        "notes": list(found.notes),
        "unmapped": list(found.unmapped),
        "cluster": made,
        "problem": problem,
    }
