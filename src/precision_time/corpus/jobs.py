"""A Measurement as a Job: the way every corpus row takes to the cost model and the predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..cost.job import Job
from ..cost.optimizer import canonical_optimizer
from ..errors import ConfigError, CorpusError, PrecisionTimeError, UnknownNameError
from ..hardware.catalog import find_node_type, get_cluster
from ..hardware.device import Cluster
from ..precision.catalog import get_policy
from ..precision.support import check_support
from ..workload.resolve import load_workload
from ..workload.workload import Workload
from .measurement import Measurement

_REPORTED = frozenset({"gmacs", "macts", "train_mem_gb", "model_size_gb"})
"""Sizes that say something of the model without shaping it."""
_LIMITS = frozenset({"max_source_length", "max_target_length", "max_seq_len", "max_len"})
"""Longest samples allowed: they shape the step only where its real length is unknown."""


class UnsupportedRow(CorpusError):  # noqa: N818 - the row is what is unsupported
    """A measurement that cannot be priced. `reason` is short and the same for alike rows."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


def job_of(measurement: Measurement) -> Job:
    """The configuration that `measurement` timed, ready to be priced.

    Raises:
        UnsupportedRow: If the row has no step of a known batch, its model or device is unknown, or
            its device cannot run its precision.
    """
    if measurement.layout is None:
        raise UnsupportedRow("batch of a step not known", measurement.quality_reason)
    workload = _workload(measurement)
    cluster = _cluster(measurement)
    try:
        policy = get_policy(measurement.precision, variant=measurement.precision_variant or None)
        warnings = check_support(policy, cluster.device)
    except ConfigError as error:
        raise UnsupportedRow("precision not supported", str(error)) from error
    if measurement.layout.world_size != cluster.num_devices:
        raise UnsupportedRow("layout does not fill the devices")
    return Job(
        workload=workload,
        cluster=cluster,
        precision=policy,
        layout=measurement.layout,
        stack=measurement.stack,
        scope=measurement.scope,
        assumptions=(
            *measurement.assumptions,
            *workload.assumptions,
            *cluster.assumptions,
            *warnings,
        ),
    )


def load_row_workload(
    *, model: str, seq_len: int | None, sizes: Mapping[str, Any], task: str, dataset: str, optimizer: str
) -> Workload:
    """The workload of a row's fields.

    Raises:
        UnsupportedRow: If the model is not known.
    """
    stated = tuple(sorted(_hashable(sizes, skip=frozenset() if seq_len is None else _LIMITS)))
    name, note = _optimizer(optimizer)
    loaded = _load_workload(model, seq_len, stated, task, dataset, name)
    if isinstance(loaded, UnsupportedRow):
        raise loaded
    return replace(loaded, assumptions=(*loaded.assumptions, note)) if note else loaded


def _workload(measurement: Measurement) -> Workload:
    loaded = load_row_workload(
        model=measurement.model,
        seq_len=measurement.seq_len,
        sizes=measurement.sizes,
        task=measurement.task,
        dataset=measurement.dataset,
        optimizer=measurement.optimizer,
    )
    if measurement.dataset_samples is not None and loaded.dataset_samples is None:
        return replace(loaded, dataset_samples=measurement.dataset_samples)
    return loaded


def _optimizer(stated: str) -> tuple[str, str]:
    """The optimizer to price, empty for the model's usual one, and what was assumed if it is not known."""
    if stated in ("", "none"):
        return "", ""
    try:
        return canonical_optimizer(stated), ""
    except UnknownNameError:
        return "", f"Optimizer {stated!r} has no cost formula: the model's usual one is priced."


def _hashable(sizes: Mapping[str, Any], *, skip: frozenset[str]) -> list[tuple[str, Any]]:
    return [
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sizes.items()
        if name not in _REPORTED
        and name not in skip
        and name != "seq_len"
        and isinstance(value, int | float | str | list)
    ]


@lru_cache(maxsize=8192)
def _load_workload(
    model: str,
    seq_len: int | None,
    sizes: tuple[tuple[str, Any], ...],
    task: str,
    dataset: str,
    optimizer: str,
) -> Workload | UnsupportedRow:
    """The workload, or the refusal, so that neither is worked out twice."""
    stated = {name: list(value) if isinstance(value, tuple) else value for name, value in sizes}
    image_size = stated.pop("image_size", None)
    try:
        return load_workload(
            model,
            seq_len=seq_len,
            image_size=int(image_size) if isinstance(image_size, int | float) else None,
            sizes=stated or None,
            task=task,
            dataset=dataset or None,
            optimizer=optimizer or None,
        )
    except PrecisionTimeError as error:
        return UnsupportedRow("model not known", f"{model}: {error}")


def _cluster(measurement: Measurement) -> Cluster:
    built = _build_cluster(
        measurement.device,
        measurement.num_devices,
        measurement.num_nodes,
        measurement.system,
        measurement.intra_node,
        measurement.inter_node,
    )
    if isinstance(built, UnsupportedRow):
        raise built
    return built


@lru_cache(maxsize=8192)
def _build_cluster(
    device: str, num_devices: int, num_nodes: int, system: str, intra_node: str, inter_node: str
) -> Cluster | UnsupportedRow:
    node = find_node_type(system) if system else None
    for node_type in (node.name, None) if node is not None else (None,):
        try:
            return get_cluster(
                device=device,
                num_devices=num_devices,
                num_nodes=num_nodes,
                node_type=node_type,
                intra_node=intra_node or None,
                inter_node=inter_node or None,
            )
        except UnknownNameError as error:
            return UnsupportedRow("device not known", str(error))
        except PrecisionTimeError as error:
            refusal = UnsupportedRow("cluster cannot be", str(error))
    return refusal
