"""What feeding a step costs the host: seconds in which its cores prepare the samples of a step.

Figures and their sources: `data/input.toml`, fitted by data/calibrate_host.py.
"""

from __future__ import annotations

import math

from ..arrays import Floats
from ..cache import data
from ..hardware.device import Cluster
from ..hardware.nodes import find_node_type
from ..records import dataclass
from ..workload.workload import Workload
from .constants import constants
from .job import Jobs, of_groups
from .stacks import Stack

SYNTHETIC = "synthetic"
_PHOTO, _THUMBNAIL = "photo", "thumbnail"
_LEAST_PHOTO_PIXELS = 96
"""Side from which images of an unknown dataset are photographs out of files."""
_IMAGE_FAMILIES = ("cnn", "vit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """Who prepares samples, and how fast."""

    loader: str
    kind: str
    """Of sample, as in input.toml; empty where preparing one takes next to nothing (tokens, tables)."""
    cores: float
    """Of all hosts of the job."""
    core_s: float
    """Seconds of one core per sample."""

    @property
    def samples_per_s(self) -> float:
        """What the cores deliver."""
        return self.cores / self.core_s if self.core_s > 0.0 else float("inf")


def feed_of(workload: Workload, cluster: Cluster, stack: Stack) -> Feed:
    """The feed of a job.

    Args:
        workload: For the kind of its samples.
        cluster: For its hosts and their cores.
        stack: For the loader, and the cores of a host where they were given.
    """
    kind = sample_kind(workload)
    table = constants("input")["kind"].get(kind, {"core_ms": {}})
    return Feed(
        loader=stack.loader or SYNTHETIC,
        kind=kind,
        cores=min(_cores(cluster, stack.loader_cores), _workers(cluster, stack)),
        core_s=float(table["core_ms"].get(stack.loader, 0.0)) * 1e-3,
    )


def sample_kind(workload: Workload) -> str:
    """Kind of a workload's samples: by dataset, else photographs or thumbnails for networks on images."""
    known = _kind_of_dataset().get(workload.dataset)
    if known is not None:
        return known
    side = workload.graph.image_size
    if workload.dataset or side is None or workload.family not in _IMAGE_FAMILIES:
        return ""
    return _PHOTO if side >= _LEAST_PHOTO_PIXELS else _THUMBNAIL


@data
def _kind_of_dataset() -> dict[str, str]:
    kinds = constants("input")["kind"]
    return {dataset: kind for kind, table in kinds.items() for dataset in table["datasets"]}


def _cores(cluster: Cluster, cores_per_host: float) -> float:
    """Cores of all hosts: as given, else of the node type, else a usual number per device.

    The nodes of a cluster may be more than one host each (NVL72, pods): `NodeType.devices` are a host's.
    """
    table = constants("input")["cores"]
    node = find_node_type(cluster.node_type) if cluster.node_type else None
    of_host = node.devices if node is not None and node.domain else 0.0
    held = of_host or cluster.devices_per_node
    hosts = max(cluster.num_nodes, cluster.num_devices / held)
    cores = cores_per_host or table.get(cluster.node_type, table["per_device"] * held)
    return float(hosts * cores)


def _workers(cluster: Cluster, stack: Stack) -> float:
    """Workers of all processes, one for each device, as many as the framework starts by itself."""
    each = constants("input")["workers"].get(stack.framework, math.inf)
    return math.inf if stack.loader_cores else float(each * cluster.num_devices)


def input_s(jobs: Jobs) -> Floats:
    """Seconds in which the hosts' cores prepare the samples of one optimizer step, shape (n,).

    Assumes: every core is busy with samples, each host feeds its own devices.
    """
    dp, rate = of_groups(
        jobs, lambda job: (job.layout.dp, feed_of(job.workload, job.cluster, job.stack).samples_per_s)
    )
    seconds: Floats = jobs.micro_batch_size * (jobs.num_microbatches * dp) / rate
    return seconds
