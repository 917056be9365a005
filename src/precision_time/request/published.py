"""Published trainings of large models: the batch and the precision of a cluster's job that says neither."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..cost.search import usual_batch
from ..hardware.device import Cluster
from ..precision.catalog import get_policy
from ..precision.support import natural_precision, on_device
from ..records import dataclass
from ..workload.families.tables import normalize
from ..workload.workload import Workload
from .votes import practice_file


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRun:
    """One training, as its source states it."""

    model: str
    params: float
    experts: bool
    devices: int
    precision: str
    tokens: float
    """Of an optimizer step, at the end of the training."""
    source: str


def published_runs() -> Iterator[PublishedRun]:
    """All runs of published.toml."""
    table = practice_file("published")["run"]
    for row in table["rows"]:
        yield PublishedRun(**dict(zip(table["columns"], row, strict=True)))


def like_published(workload: Workload, devices: int) -> PublishedRun | None:
    """The published training that a job is most like; None where none is alike.

    Alike are runs of models with experts, or without, of which neither the size nor the number of devices is
    further off than `most_times` of published.toml; a run of the same model comes first.
    """
    experts = workload.family == "moe"
    most = math.log(float(practice_file("published")["alike"]["most_times"]))

    def distance(run: PublishedRun) -> tuple[bool, float]:
        size = abs(math.log(run.params / max(workload.graph.params, 1.0)))
        number = abs(math.log(run.devices / devices))
        apart = math.inf if run.experts is not experts or max(size, number) > most else size + number
        return normalize(run.model) != normalize(workload.name), apart

    best = min(published_runs(), key=distance, default=None)
    return None if best is None or math.isinf(distance(best)[1]) else best


def usual_global_batch(workload: Workload, gpus: int) -> int:
    """Samples per step where nothing says them: as a published training has them, else a usual number."""
    run = like_published(workload, gpus) if workload.graph.seq_len else None
    return usual_batch(workload, gpus) if run is None else usual_batch(workload, gpus, tokens=run.tokens)


def published_precision(workload: Workload, cluster: Cluster) -> PublishedRun | None:
    """The published training of a model on such a cluster, where the device computes in its precision.

    None where the model was also trained in what is usual on the device: GPT-3 by bf16 and, elsewhere, fp16.
    """
    run, name = like_published(workload, cluster.num_devices), normalize(workload.name)
    if run is None or normalize(run.model) != name:
        return None
    usual = natural_precision(cluster.device)
    if any(each.precision == usual for each in published_runs() if normalize(each.model) == name):
        return None
    policy = get_policy(run.precision)
    native = on_device(policy, cluster.device).matmul is policy.matmul
    return run if native else None
