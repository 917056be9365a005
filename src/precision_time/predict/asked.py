"""What every question names: a model, a cluster and a precision, resolved in one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..hardware.device import Cluster, Device
from ..precision.catalog import get_policy, parse_precision
from ..precision.policy import PrecisionPolicy
from ..precision.support import check_support
from ..workload.workload import Workload
from .question import Said, resolve_cluster, resolve_workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The part of a job that has nothing to do with how it is laid out."""

    workload: Workload
    cluster: Cluster
    precision: PrecisionPolicy


def resolve_asked(
    model: Any,
    said: Said,
    *,
    precision: str,
    device: str | None,
    gpus: int,
    nodes: int | None,
    node_type: str | None,
    custom: str | Path | None,
    seq_len: int | None,
    image_size: int | None,
    sizes: Mapping[str, Any] | None,
    optimizer: str | None,
    coverage: float,
    dataset: str | None = None,
    example_inputs: Any = None,
) -> Asked:
    """Model, cluster and precision of a question; the arguments are those of `predict_time`.

    `said` takes what had to be assumed, and what the device does with the precision.

    Raises:
        UnknownNameError: Model, device or precision that nobody knows.
        ConfigError: A coverage that is no probability, or a precision that the device cannot compute in.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    if not 0.0 < coverage < 1.0:
        raise ConfigError(f"coverage={coverage} is no probability of an interval. To fix: use 0.5 to 0.99.")
    workload = resolve_workload(
        model,
        example_inputs,
        seq_len=seq_len,
        image_size=image_size,
        sizes=sizes,
        dataset=dataset,
        optimizer=optimizer,
    )
    cluster = resolve_cluster(device, gpus, nodes, node_type, custom, said)
    return Asked(
        workload=workload, cluster=cluster, precision=resolve_precision(precision, cluster.device, said)
    )


def resolve_precision(name: str, device: Device, said: Said) -> PrecisionPolicy:
    """The policy of a name in any usual spelling.

    Args:
        name: fp32, bf16-mixed, fp8 ...
        device: What computes.
        said: Takes how an ambiguous name was read, and what the device does with the precision.

    Raises:
        UnknownNameError: If no policy has that name.
        ConfigError: If the device cannot compute in it.
    """
    choice = parse_precision(name)
    if choice.assumption:
        said.assumptions.append(choice.assumption)
    policy = get_policy(choice.name, variant=choice.variant)
    said.warnings.extend(check_support(policy, device))
    return policy
