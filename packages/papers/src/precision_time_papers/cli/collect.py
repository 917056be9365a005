"""`precision-time papers predictddl collect`: what a cluster is made of, shown or told to a service."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, write_json, write_rows
from precision_time.client.remote import SERVER_VARIABLE
from precision_time.errors import CatalogError, ConfigError, ServerError, in_one_line
from precision_time.io import read_input
from precision_time.units import GIBI, GIGA, duration_s

if TYPE_CHECKING:
    from precision_time.hardware.device import Cluster
    from precision_time.hardware.inventory import ClusterResources

EXAMPLES = """\b
Examples:
  precision-time papers predictddl collect --inventory lab.yaml
  sinfo -N -o '%N %G %c %m %f %t' | precision-time papers predictddl collect --slurm -
  precision-time papers predictddl collect --ray auto --json
  precision-time papers predictddl collect --server http://localhost:8400 --cluster lab --every 60s
A token of the service is read from PRECISION_TIME_TOKEN.
"""
_LONGEST_WAIT_S = 600.0
"""Between reports to a service that is away, unless they are less often anyway."""
_LEAST_S = 1.0
_AWAY = frozenset({408, 429, 500, 502, 503, 504})
"""Answers of a service, or of a proxy before it, that may be another one later."""


def collect(
    *,
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", dir_okay=False, help="YAML file that describes the cluster."),
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", metavar="FILE|-", help="Output of `scontrol show node` or of sinfo."),
    ] = None,
    ray: Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="A running Ray; auto.")] = None,
    local: Annotated[bool, typer.Option("--local", help="This machine.")] = False,
    custom: Annotated[
        Path | None, typer.Option("--custom", dir_okay=False, help="File with user-defined devices.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="Report this machine to this service (cores, memory, devices, load).",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="With --server: that this machine is a server of."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="With --server: of this machine.  [default: its host name]"),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="With --server: again and again, such as every 60s."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Collect what a cluster, or this machine, is made of.

    The answer includes how the catalog reads it. With --server this machine is reported to a service, whose
    requests to PredictDDL may then name the cluster. A service that is away is asked again, at longer and
    longer intervals; one that refuses the report ends the command.
    """
    of_cluster = cluster or server or name or every
    server = server or (os.environ.get(SERVER_VARIABLE) if of_cluster else None)
    if server is None or cluster is None:
        if of_cluster:
            raise ConfigError(
                "A report to a service takes --server URL and --cluster NAME. To fix: give both, or one of "
                "--inventory, --slurm, --ray and --local alone."
            )
        found = _collected(inventory, slurm, ray, local, "" if custom is None else str(custom))
        _show(found, json_output=json_output)
        return
    if inventory or slurm or ray or local or custom:
        raise ConfigError("A report is of this machine alone. To fix: leave out --server, or the rest.")
    _report(server, cluster, name, every, json_output)


def _report(server: str, cluster: str, name: str | None, every: str | None, json_output: bool) -> None:
    """Tell a service what this machine is made of, once or all the time."""
    every_s = None if every is None else duration_s("--every", every)
    if every_s is not None and every_s < _LEAST_S:
        raise ConfigError(f"--every {every} is too often. The rule: 1s or more. To fix: --every 60s.")
    from precision_time.client.client import Client

    host, _ = local_report()
    of_cluster, own = _path_name("--cluster", cluster), _path_name("--name", name or host)
    path = f"/v1/predictddl/clusters/{of_cluster}/servers/{own}"
    with Client(server, say=message, retries=0 if every_s else 3) as client:

        def report() -> dict[str, Any]:
            return client.run(client.talk.json("PUT", path, local_report()[1]))

        if every_s is None:
            said = report()
            if json_output:
                write_json(said)
            else:
                message(f"{said['server']} of {said['cluster']} reported at {said['at']}")
            return
        keep_reporting(report, every_s=every_s)


def _show(found: ClusterResources, *, json_output: bool) -> None:
    """Write what a cluster is made of, and how the catalog reads it."""
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
    write_rows(found.source, ("node", "device as reported", "in the catalog", ">devices", ">cores"), rows)
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
        from precision_time_integrations.inventory.file import read_inventory

        return read_inventory(inventory)
    if slurm is not None:
        from precision_time_integrations.inventory.slurm import read_slurm

        return read_slurm(_text(slurm), custom=custom)
    if ray is not None:
        from precision_time_integrations.inventory.ray import collect_ray

        return collect_ray(ray, custom=custom)
    from precision_time_integrations.inventory.local import collect_local

    return collect_local(custom=custom)


def _text(path: str) -> str:
    try:
        return typer.get_text_stream("stdin").read() if path == "-" else read_input(path)
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


def keep_reporting(
    report: Callable[[], Any],
    *,
    every_s: float,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = message,
) -> None:
    """Report for ever, less often while the service is away.

    Args:
        report: Sends one.
        every_s: Between reports, give or take a tenth, so that servers do not all come at once.
        sleep: Waits.
        say: Is told when the service goes away and comes back.

    Raises:
        PrecisionTimeError: If the service refuses a report.
    """
    missed = 0
    while True:
        try:
            report()
        except ServerError as error:
            if error.status is not None and error.status not in _AWAY:
                raise
            missed += 1
            if missed == 1:
                say(f"{in_one_line(error)} Asked again until it answers.")
        else:
            if missed:
                say(f"The service answers again; {missed} reports were missed.")
            missed = 0
        longest_s = max(every_s, _LONGEST_WAIT_S)
        sleep(min(every_s * 2.0 ** min(missed, 30), longest_s) * random.uniform(0.9, 1.1))  # noqa: S311


def local_report() -> tuple[str, dict[str, Any]]:
    """This machine's name, and what it is made of in the words of an inventory file."""
    from precision_time_integrations.inventory.local import collect_local, load

    [node] = collect_local().nodes
    stated = {
        "device": node.reported_device,
        "devices": node.num_devices,
        "device_memory_gib": _in(GIBI, node.device_memory_bytes),
        "cores": node.cores,
        "clock_ghz": _in(GIGA, node.clock_hz),
        "memory_gib": _in(GIBI, node.memory_bytes),
        "load": load(),
    }
    return node.name, {key: value for key, value in stated.items() if value is not None}


def _in(unit: float, value: float | None) -> float | None:
    return None if value is None else round(value / unit, 3)


def _path_name(option: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"{option} {name!r} cannot be told to a service. The rule: letters, digits, '.', '_' and '-'. To "
            f"fix: another {option}."
        )
    return name
