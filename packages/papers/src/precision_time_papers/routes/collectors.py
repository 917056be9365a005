"""What servers report of themselves, and the cluster that those make whose report is fresh."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from precision_time.errors import ConfigError, PrecisionTimeError, in_one_line, shown, validation_problems
from precision_time.units import GIBI, GIGA
from precision_time_server.routing import NotFoundError, TooLargeError

if TYPE_CHECKING:
    from precision_time.hardware.inventory import ClusterResources
    from precision_time_server.routing import Store

MAX_AGE_S = 300.0
"""A report older than this is left out, unless a call says otherwise: five of the agent's usual minutes."""
MOST_SERVERS = 2048
"""Of one cluster."""
_BUSY = 0.5
"""Load for each core above which an answer says that it is for idle servers."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class ServerReport(BaseModel):
    """One server, in the words of an inventory file; what it does not know it leaves out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: Annotated[str, Field(max_length=200)] = ""
    """As its driver spells it, or the processor where it has no other device."""
    devices: Annotated[int, Field(ge=0, le=1024)] = 1
    device_memory_gib: Positive | None = None
    """Of one device."""
    cores: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Processor threads."""
    clock_ghz: Positive | None = None
    memory_gib: Positive | None = None
    """Of the host."""
    load: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """Processes that ran or waited in the last minute, for each core: 1 is a busy host."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ServerReport:
        """The report that a call sends.

        Raises:
            ConfigError: If a field breaks its rule.
        """
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            raise ConfigError(
                f"The report breaks its rules: {validation_problems(error)}. To fix: correct these fields; "
                '{"device": "NVIDIA A100-SXM4-80GB", "devices": 8, "cores": 128} is one.'
            ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """A server's last report."""

    server: str
    report: ServerReport
    at: datetime
    age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedCluster:
    """Servers that reported."""

    name: str
    max_age_s: float
    fresh: tuple[Reported, ...]
    stale: tuple[Reported, ...]
    """Older than that: no answer counts them."""
    intra_node: str = ""
    inter_node: str = ""
    """Links that the stored cluster of this name states; empty for the usual ones of the device."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an answer for this cluster must say: servers left out, and busy ones."""
        said = []
        if self.stale:
            ages = ", ".join(f"{each.server} ({each.age_s:.0f} s)" for each in self.stale[:5])
            more = f" and {len(self.stale) - 5} more" if len(self.stale) > 5 else ""
            said.append(
                f"{len(self.stale)} of {len(self.stale) + len(self.fresh)} servers of {self.name!r} are left "
                f"out, as their reports are older than {self.max_age_s:g} s: {ages}{more}"
            )
        busy = [each.server for each in self.fresh if (each.report.load or 0.0) > _BUSY]
        if busy:
            said.append(
                f"{len(busy)} of {len(self.fresh)} servers of {self.name!r} were busy when they reported "
                f"({', '.join(busy[:5])}{', ...' if len(busy) > 5 else ''}): the time is that of idle ones"
            )
        return tuple(said)

    def resources(self) -> ClusterResources:
        """What an inventory of the fresh servers would be.

        Raises:
            ConfigError: If all reports are stale.
        """
        from precision_time.hardware.inventory import NodeResources
        from precision_time_integrations.inventory.mapping import resources

        if not self.fresh:
            raise ConfigError(
                f"No server of the cluster {self.name!r} has reported for {self.max_age_s:g} s; "
                f"{self.remarks[0]}. To fix: keep `precision-time papers predictddl collect --every 60s` "
                "running on them, or "
                "describe the cluster as an object."
            )
        return resources(
            (
                NodeResources(
                    name=each.server,
                    reported_device=each.report.device,
                    num_devices=each.report.devices,
                    device_memory_bytes=_times(each.report.device_memory_gib, GIBI),
                    cores=each.report.cores,
                    clock_hz=_times(each.report.clock_ghz, GIGA),
                    memory_bytes=_times(each.report.memory_gib, GIBI),
                )
                for each in self.fresh
            ),
            source=f"reports of the cluster {self.name!r}",
            intra_node=self.intra_node,
            inter_node=self.inter_node,
        )

    def features(self) -> dict[str, Any]:
        """The paper's numbers of a cluster, over the fresh servers that state them; null where none does."""
        reports = [each.report for each in self.fresh]
        with_devices = [report for report in reports if report.devices]
        return {
            "servers": len(reports),
            "devices": sum(report.devices for report in reports),
            "devices_per_server": _mean(report.devices for report in reports),
            "device_memory_gib": _mean(report.device_memory_gib for report in with_devices),
            "device_types": sorted({report.device for report in with_devices}),
            "cores": _sum(report.cores for report in reports),
            "cores_per_server": _mean(report.cores for report in reports),
            "clock_ghz": _mean(report.clock_ghz for report in reports),
            "memory_gib": _sum(report.memory_gib for report in reports),
            "load": _mean(report.load for report in reports),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary: features, what predictors read of them, and the age of every report."""
        from ..predictddl.columns import cluster_facts

        inputs, problem, notes = None, None, list(self.remarks)
        try:
            found = self.resources()
            cluster = found.cluster()
            inputs = {"device": cluster.device.name, **cluster_facts(cluster)}
            notes += [*found.notes, *cluster.assumptions]
        except PrecisionTimeError as error:
            problem = in_one_line(error)
        return {
            "name": self.name,
            "max_age_s": self.max_age_s,
            "features": self.features(),
            "inputs": inputs,
            "problem": problem,
            "notes": notes,
            "servers": [_row(each, is_fresh=True) for each in self.fresh],
            "left_out": [_row(each, is_fresh=False) for each in self.stale],
        }


def checked_name(kind: str, name: str) -> str:
    """A name that may stand in a path of the service.

    Raises:
        ConfigError: If it may not.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{shown(name)} is no name of a {kind}. The rule: letters, digits, '.', '_' and '-', at most 100 "
            "of them, the first a letter or digit. To fix: choose another."
        )
    return name


def keep_report(store: Store, cluster: str, server: str, report: ServerReport) -> datetime:
    """Store what a server says of itself now, in the place of what it said before.

    Raises:
        TooLargeError: If the cluster has MOST_SERVERS others.
    """
    known = {each[0] for each in store.servers(cluster)}
    if server not in known and len(known) >= MOST_SERVERS:
        raise TooLargeError(
            f"The cluster {cluster!r} has {len(known)} servers. The rule: at most {MOST_SERVERS}. To fix: "
            "report to another one."
        )
    at = datetime.now(UTC)
    store.put_server(cluster, server, report.model_dump(exclude_none=True), at=at)
    return at


def collected_cluster(store: Store, name: str, *, max_age_s: float = MAX_AGE_S) -> CollectedCluster:
    """The servers of a cluster by their last reports.

    Raises:
        NotFoundError: If none ever reported.
    """
    now = datetime.now(UTC)
    rows = store.servers(checked_name("cluster", name))
    if not rows:
        raise NotFoundError(
            f"No server reports for a cluster {name!r}. To fix: run `precision-time papers predictddl "
            "collect --server URL "
            f"--cluster {name}` on each, or describe the cluster as an object."
        )
    reported = [
        Reported(
            server=server,
            report=ServerReport.of(report),
            at=at,
            # Clocks of two service machines may differ.
            age_s=max((now - at).total_seconds(), 0.0),
        )
        for server, report, at in sorted(rows, key=lambda row: row[0])
    ]
    fields = (store.cluster(name) or {}).get("fields") or {}
    return CollectedCluster(
        name=name,
        max_age_s=max_age_s,
        fresh=tuple(each for each in reported if each.age_s <= max_age_s),
        stale=tuple(each for each in reported if each.age_s > max_age_s),
        intra_node=str(fields.get("intra_node") or ""),
        inter_node=str(fields.get("inter_node") or fields.get("network") or ""),
    )


def _row(each: Reported, *, is_fresh: bool) -> dict[str, Any]:
    return {
        "server": each.server,
        "at": each.at.isoformat(timespec="seconds"),
        "age_s": round(each.age_s, 1),
        "stale": not is_fresh,
        **each.report.model_dump(exclude_none=True),
    }


def _times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _stated(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[float | None]) -> float | None:
    stated = _stated(values)
    return math.fsum(stated) if stated else None


def _mean(values: Iterable[float | None]) -> float | None:
    stated = _stated(values)
    return math.fsum(stated) / len(stated) if stated else None
