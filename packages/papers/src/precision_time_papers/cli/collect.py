"""`precision-time collect`: tell a service what this machine is made of, once or all the time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from precision_time.cli.options import JsonOption
from precision_time.cli.output import message, write_json
from precision_time.errors import ConfigError, ServerError, in_one_line
from precision_time.units import GIBI, GIGA, duration_s

EXAMPLES = """\b
Examples:
  precision-time collect --server http://localhost:8400 --cluster lab
  PRECISION_TIME_TOKEN=secret precision-time collect --server https://ask.example --cluster lab --every 60s
"""
_LONGEST_WAIT_S = 600.0
"""Between reports to a service that is away, unless they are less often anyway."""
_LEAST_S = 1.0
_AWAY = frozenset({408, 429, 500, 502, 503, 504})
"""Answers of a service, or of a proxy before it, that may be another one later."""


def collect(
    *,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="URL",
            envvar="PRECISION_TIME_SERVER",
            help="Of the service.",
            show_default=False,
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NAME", help="That this machine is a server of.", show_default=False
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of this machine.  [default: its host name]", show_default=False),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Report again and again, such as every 60s."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Report this machine (cores, memory, devices, load) to a service.

    Requests to PredictDDL may then name the cluster. A service that is away is asked again, at longer and
    longer intervals; one that refuses the report ends the command. A token is read from PRECISION_TIME_TOKEN.
    """
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
    from precision_time.hardware.inventory_local import collect_local, load

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
