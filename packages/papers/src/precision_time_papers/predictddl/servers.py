r"""How many servers meet a deadline: the smallest number of each kind, or the nearest miss.

A number of servers meets the deadline if the upper bound of its training time does. The bound comes from
the 90th percentile e of the regressor's error |p - t| / t on architectures held out, in training:
$t \le p / (1 - e)$, and $t \ge p / (1 + e)$; with e of 1 or more there is no upper bound, and nothing is said
to meet a deadline. Every number up to the limit is priced, as no regressor promises to fall with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from precision_time.errors import ConfigError
from precision_time.hardware.device import Cluster
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.units import duration_s

from .contract import Answer, Refusal
from .requests import PredictDDLRequest, resolve

if TYPE_CHECKING:
    from .controller import PredictDDL

MOST_SERVERS = 1024
"""Of one kind: each number is a request of its own."""
_PLACES = ("cluster", "device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "custom")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCount:
    """The training time on so many servers of one kind."""

    servers: int
    training_time_s: float
    low_s: float
    high_s: float
    """Infinite where the error of the regressor allows no bound."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; no bound is null."""
        return {**asdict(self), "high_s": self.high_s if math.isfinite(self.high_s) else None}


@dataclass(frozen=True, kw_only=True, slots=True)
class KindOfServer:
    """What one kind of server needs to meet the deadline."""

    device: str
    devices_per_server: float
    tried: int
    """Numbers of servers from 1 to this were priced."""
    found: ServerCount | None
    """The smallest number that meets the deadline, else the nearest miss; None if all are refused."""
    meets: bool
    answer: Answer | None
    """Of that number, with all that was assumed."""
    error: str = ""
    """Why no number of servers could be priced."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "device": self.device,
            "devices_per_server": self.devices_per_server,
            "tried": self.tried,
            "meets": self.meets,
            "found": None if self.found is None else self.found.to_dict(),
            "answer": None if self.answer is None else self.answer.to_dict(),
            "error": self.error,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ServersNeeded:
    """The answer to one request with a deadline: every kind of server, those that need fewest first."""

    name: str
    deadline_s: float
    kinds: tuple[KindOfServer, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        kinds = [kind.to_dict() for kind in self.kinds]
        return {"name": self.name, "deadline_s": self.deadline_s, "kinds": kinds}


def servers_needed(service: PredictDDL, request: PredictDDLRequest) -> ServersNeeded:
    """The smallest number of servers of each kind that meets the request's deadline.

    The kinds are those of its cluster: hosts of one device and one number of devices. So many of each are
    priced as the cluster has, or as `max_servers` says. A `batch_size` is of one device and grows the
    global batch with the servers; a `global_batch_size` is divided among them.

    Args:
        service: What answers.
        request: With `deadline`; its cluster is an inventory, a `Cluster`, or named by device and counts.

    Raises:
        ConfigError: If there is no deadline, or more than MOST_SERVERS servers are to be tried.
        UnknownNameError: Model, dataset or precision of the request is unknown.
        NotFittedError: No predictor serves its dataset.
    """
    if request.deadline is None:
        raise ConfigError("The request has no deadline. To fix: deadline='2h', or predict its time.")
    deadline_s = duration_s("deadline", request.deadline)
    kinds = list(_kinds(request))
    asked: list[PredictDDLRequest] = []
    for most, cluster_of in kinds:
        asked += [_on(request, cluster_of(count)) for count in range(1, most + 1)]
    answers = iter(service.predict(asked))
    found = [
        _kind(deadline_s, service, cluster_of(1), [next(answers) for _ in range(most)])
        for most, cluster_of in kinds
    ]
    if all(kind.found is None for kind in found):
        # Nothing could be priced: the first reason is raised as it would be for one request.
        service.predict(asked[0])
    return ServersNeeded(name=request.name, deadline_s=deadline_s, kinds=tuple(sorted(found, key=_order)))


def servers_tried(request: PredictDDLRequest) -> int:
    """How many numbers of servers `servers_needed` prices; its errors are those of that."""
    return sum(most for most, _ in _kinds(request))


def _order(kind: KindOfServer) -> tuple[bool, float, str]:
    """Kinds that meet the deadline first, of those the fewest servers; then the nearest misses."""
    if kind.found is None:
        return True, math.inf, kind.device
    return not kind.meets, kind.found.servers if kind.meets else kind.found.high_s, kind.device


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """Makes a cluster of so many servers of one kind."""

    resources: ClusterResources | None = None
    node: NodeResources | None = None
    cluster: Cluster | None = None

    def __call__(self, count: int) -> Cluster:
        if self.resources is not None and self.node is not None:
            return replace(self.resources, nodes=(self.node,) * count).cluster()
        assert self.cluster is not None
        devices = int(self.cluster.devices_per_node) * count
        return self.cluster.resized(num_nodes=count, num_devices=devices)


def _kinds(request: PredictDDLRequest) -> Iterator[tuple[int, _Kind]]:
    """How many of each kind of server are tried, and what makes a cluster of them."""
    given = request.cluster
    if isinstance(given, ClusterResources):
        given.cluster()  # refuses an inventory without devices, or with one that the catalog lacks
        nodes = {(node.device, node.num_devices): node for node in given.computing}
        counts = Counter((node.device, node.num_devices) for node in given.computing)
        for key, node in nodes.items():
            yield _most(request, counts[key]), _Kind(resources=given, node=node)
        return
    cluster = resolve(request.with_(deadline=None, max_servers=None)).job.cluster
    if cluster.num_devices % cluster.num_nodes:
        raise ConfigError(
            f"{cluster.num_devices} devices on {cluster.num_nodes} servers: the servers are not equal. "
            "To fix: give as many devices for each, or an inventory that lists them."
        )
    yield _most(request, cluster.num_nodes), _Kind(cluster=cluster)


def _most(request: PredictDDLRequest, available: int) -> int:
    most = request.max_servers or available
    if most > MOST_SERVERS:
        raise ConfigError(
            f"{most} servers of one kind are too many to try. To fix: max_servers={MOST_SERVERS} or less."
        )
    return most


def _on(request: PredictDDLRequest, cluster: Cluster) -> PredictDDLRequest:
    """The request on another cluster."""
    own: Mapping[str, Any] = {name: None for name in _PLACES if name in request.given()}
    return request.with_(**{**own, "cluster": cluster, "deadline": None, "max_servers": None})


def _kind(
    deadline_s: float, service: PredictDDL, one: Cluster, answers: list[Answer | Refusal]
) -> KindOfServer:
    """The smallest number that meets the deadline, or the nearest miss."""
    known = {count: item for count, item in enumerate(answers, start=1) if isinstance(item, Answer)}
    counts = {count: _bounded(count, item) for count, item in known.items()}
    timed = {count: item for count, item in counts.items() if item is not None}
    refused = next((item.error for item in answers if isinstance(item, Refusal)), "")
    if not timed:
        refused = refused or (
            "the samples of the dataset are not known, so that there is no training time. To fix: give "
            "samples, or steps."
        )
    meeting = [count for count, item in timed.items() if item.high_s <= deadline_s]
    best = min(meeting) if meeting else _nearest(timed)
    return KindOfServer(
        device=one.device.name,
        devices_per_server=one.devices_per_node,
        tried=len(answers),
        found=None if best is None else timed[best],
        meets=bool(meeting),
        answer=None if best is None else known[best],
        error=refused if best is None else "",
    )


def _nearest(timed: Mapping[int, ServerCount]) -> int | None:
    """The number whose upper bound is least, by the time itself where none has a bound."""
    return min(timed, key=lambda count: (timed[count].high_s, timed[count].training_time_s), default=None)


def _bounded(count: int, answer: Answer) -> ServerCount | None:
    seconds = answer.training_time_s
    if seconds is None:
        return None
    error = answer.p90_error_percent / 100.0
    return ServerCount(
        servers=count,
        training_time_s=seconds,
        low_s=seconds / (1.0 + error),
        high_s=seconds / (1.0 - error) if error < 1.0 else math.inf,
    )
