"""A campaign from its first point to its last: what is stored is skipped, the rest is measured and stored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ...executor import usable_cores
from ...ray_executor import LOCAL, local_cluster, ray_session
from .capacity import RayNode, check_capacity, nodes_of
from .design import most_informative
from .finished import failed_point, finished_point
from .group import run_group
from .outlook import Outlook
from .plan import Campaign, Point
from .point import FinishedPoint
from .store import CampaignStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a campaign stands."""

    done: int
    """Points settled by this run."""
    total: int
    """Points that this run is to settle."""
    left_s: float
    """Expected seconds until the last of them."""
    point: str
    """What is being measured now; empty while workers are started."""


@dataclass(kw_only=True, slots=True)
class CampaignReport:
    """What became of every point."""

    campaign: str
    store: str
    points: int
    """Of the campaign, repeats included."""
    skipped: int = 0
    """Points that the store already held."""
    measured: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Point -> why it could not be measured."""
    left: int = 0
    """Points for which no time was left."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "campaign": self.campaign,
            "store": self.store,
            "points": self.points,
            "skipped": self.skipped,
            "measured": self.measured,
            "failed": self.failed,
            "left": self.left,
            "seconds": round(self.seconds, 1),
        }


Tell = Callable[[Progress], None]


def run_campaign(
    campaign: Campaign,
    store: str | Path,
    *,
    address: str | None = None,
    budget_s: float | None = None,
    retry_failed: bool = False,
    tell: Tell = lambda _: None,
) -> CampaignReport:
    """Measure the points of a campaign that the store does not hold yet.

    Args:
        campaign: What to measure.
        store: File to which finished points are appended.
        address: Of a Ray cluster; "local" or None: a Ray of its own on this machine.
        budget_s: Wall-clock limit: the most informative points that fit into it, none started that passes it.
        retry_failed: Measure points again that failed before.
        tell: Told where the campaign stands.

    Raises:
        CorpusError: If the store cannot be used; nothing that was measured is lost.
        ConfigError: If the cluster cannot hold a point, or does not answer.
        MissingExtraError: If Ray is not installed.
    """
    with CampaignStore(store) as opened:
        stored = opened.points()
        done = {each.identity for each in stored if each.status == "ok" or not retry_failed}
        wanted = [point for point in campaign.points if point.identity not in done]
        report = CampaignReport(
            campaign=campaign.name,
            store=str(store),
            points=len(campaign.points),
            skipped=len(campaign.points) - len(wanted),
        )
        known = [point for point in campaign.points if point.identity in done]
        teller = _Teller(campaign, opened, report, tell, budget_s)
        try:
            _go_through(campaign, wanted, known, teller, address)
        finally:
            report.seconds = time.monotonic() - teller.begun_s
            report.left = len(wanted) - report.measured - len(report.failed)
    return report


class _Teller:
    """Listens to the groups: stores, counts, and keeps the time."""

    def __init__(
        self,
        campaign: Campaign,
        store: CampaignStore,
        report: CampaignReport,
        tell: Tell,
        budget_s: float | None,
    ) -> None:
        self.begun_s = time.monotonic()
        self.outlook = Outlook()
        self.ahead: list[Point] = []
        """Points to be settled, in order."""
        self.tried: list[Point] = []
        self._campaign, self._store, self._report, self._tell = campaign, store, report, tell
        self._budget_s = math.inf if budget_s is None else budget_s
        self._facts: Sequence[Mapping[str, Any]] = ()
        self._group_start_s: float | None = None
        self._handed_out_s = 0.0

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self._budget_s - (time.monotonic() - self.begun_s)

    def has_time(self) -> bool:
        """Whether a group of workers could still be started."""
        return self.left_s > self.outlook.group_start_s

    def say(self, point: str) -> None:
        """Tell where the campaign stands."""
        self._tell(
            Progress(
                done=len(self.tried),
                total=len(self.tried) + len(self.ahead),
                left_s=self.outlook.total_s(self.ahead),
                point=point,
            )
        )

    def started(self, seconds: float, facts: Sequence[Mapping[str, Any]]) -> None:
        """See Listener."""
        self._group_start_s, self._facts = seconds, facts
        self.outlook.learn_start(seconds)

    def begins(self, point: Point) -> bool:
        """See Listener: no point is begun that is expected to pass the budget."""
        self.say(str(point))
        self._handed_out_s = time.monotonic()
        return self.outlook.seconds(point) <= self.left_s

    def measured(self, point: Point, figures: Sequence[Mapping[str, Any]]) -> None:
        """See Listener."""
        name = self._campaign.name
        self._settle(point, finished_point(name, point, self._facts, self._group_start_s, figures))
        self._report.measured += 1
        self.outlook.learn(point, time.monotonic() - self._handed_out_s)

    def failed(self, point: Point, error: str) -> None:
        """See Listener."""
        self._settle(point, failed_point(self._campaign.name, point, self._facts, error))
        self._report.failed[str(point)] = error

    def _settle(self, point: Point, finished: FinishedPoint) -> None:
        self._store.add(finished)
        self.tried.append(point)
        self.ahead.remove(point)


def _go_through(
    campaign: Campaign, wanted: Sequence[Point], known: Sequence[Point], teller: _Teller, address: str | None
) -> None:
    """Settle all that is wanted, or as much of it as the budget allows."""
    left = list(wanted)
    for _, points in _by_session(sorted(left, key=lambda point: point.setting.num_nodes), address):
        if address in (None, LOCAL):
            check_capacity(points, _local_nodes(campaign, points))
    while left:
        teller.ahead = _chosen(left, [*known, *teller.tried], teller)
        before = len(teller.tried)
        for num_nodes, points in _by_session(list(teller.ahead), address):
            with _session(campaign, points, num_nodes, address) as ray:
                check_capacity(points, nodes_of(ray))
                for setting, group in groupby(points, key=lambda point: point.setting):
                    if teller.has_time():
                        teller.say("")
                        run_group(ray, setting, list(group), teller)
        if len(teller.tried) == before:
            return
        tried = {point.identity for point in teller.tried}
        left = [point for point in left if point.identity not in tried]


def _chosen(left: Sequence[Point], known: Sequence[Point], teller: _Teller) -> list[Point]:
    """The points to measure next, those of a setting together, settings in the order of their first point."""
    points = list(left)
    if math.isfinite(teller.left_s):
        points = most_informative(
            left,
            teller.left_s,
            seconds=teller.outlook.seconds,
            group_start_s=teller.outlook.group_start_s,
            known=known,
        )
    settings = list(dict.fromkeys(point.setting for point in points))
    return sorted(points, key=lambda point: (point.setting.num_nodes, settings.index(point.setting)))


def _by_session(points: Sequence[Point], address: str | None) -> Iterator[tuple[int, list[Point]]]:
    """Points that one connection serves: all on a cluster; on this machine those of as many nodes."""
    if address not in (None, LOCAL):
        if points:
            yield 1, list(points)
        return
    for num_nodes, group in groupby(points, key=lambda point: point.setting.num_nodes):
        yield num_nodes, list(group)


@contextmanager
def _session(
    campaign: Campaign, points: Sequence[Point], num_nodes: int, address: str | None
) -> Iterator[Any]:
    """Ray for some of the points."""
    if num_nodes == 1:
        cpus = int(_local_nodes(campaign, points)[0].cpus)
        with ray_session(address, num_cpus=cpus) as ray:
            yield ray
        return
    cpus = max(int(node.cpus) for node in _local_nodes(campaign, points))
    with local_cluster(num_nodes, cpus) as ray:
        yield ray


def _local_nodes(campaign: Campaign, points: Sequence[Point]) -> list[RayNode]:
    """What this machine offers as one node; as several, where points are spread over several."""
    cores, gpus = usable_cores(), _local_gpus()
    num_nodes = max((point.setting.num_nodes for point in points), default=1)
    needed = max((math.ceil(p.setting.num_workers * p.setting.cpus_per_worker) for p in points), default=1)
    if campaign.oversubscribe:
        cores = max(cores, needed)
    if num_nodes == 1:
        return [RayNode(cpus=cores, gpus=gpus)]
    share = cores // num_nodes
    return [RayNode(cpus=share, gpus=gpus / num_nodes)] * num_nodes


def _local_gpus() -> int:
    """GPUs that torch sees here."""
    from ..device import import_torch

    torch = import_torch()
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
