"""Memory traffic and kernels of the optimizer step, by optimizer, implementation and precision.

Reference for the byte counts: the update equations, counted per implementation in
`cost/data/optimizers.toml`; Rajbhandari et al., ZeRO, SC 2020, for what is sharded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..errors import UnknownNameError
from ..precision.policy import PrecisionPolicy
from .collectives import Number

_TEMPORARY_BYTES = 4.0


class OptimizerForm(StrEnum):
    """How the update is implemented."""

    FUSED = "fused"
    """One multi-tensor kernel (torch fused=True, apex, DeepSpeed)."""
    FOREACH = "foreach"
    """Multi-tensor kernels, one per elementary operation (PyTorch's default on GPUs since 1.12)."""
    FOR_LOOP = "for-loop"
    """Elementary operations tensor by tensor (PyTorch before 1.12)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerWork:
    """What one optimizer step moves and starts on one device."""

    update_bytes: Number
    """Read and written by the update, the copy to the model's parameters included."""
    update_kernels: Number
    unscale_bytes: Number
    """Read and written by GradScaler's unscale pass; 0 without loss scaling."""
    unscale_kernels: Number
    host_syncs: float
    """Times that the host waits for the device: 1 with loss scaling."""


@cache
def _tables() -> Mapping[str, Any]:
    """The tables of `cost/data/optimizers.toml`."""
    text = files("precision_time.cost").joinpath("data/optimizers.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def known_optimizers() -> tuple[str, ...]:
    """Canonical optimizer names."""
    return tuple(
        sorted(name for name, value in _tables().items() if isinstance(value, dict) and "states" in value)
    )


def canonical_optimizer(name: str) -> str:
    """The name under which optimizers.toml lists an optimizer.

    Raises:
        UnknownNameError: If neither it nor an alias of it is listed.

    >>> canonical_optimizer("SGD_with_momentum")
    'momentum-sgd'
    """
    lowered = name.lower()
    found = str(_tables()["aliases"].get(lowered, lowered))
    if found not in known_optimizers():
        raise UnknownNameError(
            kind="optimizer",
            name=name,
            known=(*known_optimizers(), *_tables()["aliases"]),
            hint=f"Known: {', '.join(known_optimizers())}.",
        )
    return found


def states_per_param(name: str) -> float:
    """State elements that an optimizer keeps per parameter element.

    Raises:
        UnknownNameError: If the optimizer is not known.
    """
    return float(_tables()[canonical_optimizer(name)]["states"])


def optimizer_work(
    name: str,
    policy: PrecisionPolicy,
    *,
    params: Number,
    tensors: Number,
    form: OptimizerForm = OptimizerForm.FOREACH,
    shards: Number = 1.0,
) -> OptimizerWork:
    """Traffic and kernels of one optimizer step on one device.

    Args:
        name: Optimizer or alias.
        policy: Types of parameters, gradients, master copy and states.
        params: Trainable parameter elements that this device's model part holds.
        tensors: Trainable parameter tensors of that part.
        form: Implementation.
        shards: Devices that share the update (data-parallel degree under ZeRO 1 to 3, else 1).

    Returns:
        Bytes and kernels; arrays broadcast.

    Raises:
        UnknownNameError: If the optimizer is not known.

    Assumes: gradients are set to None, not zeroed; no gradient clipping.
    Accuracy: bytes are exact for the update as listed; caches are not modelled.
    """
    tables = _tables()
    entry = tables[canonical_optimizer(name)]["fused" if form is OptimizerForm.FUSED else "foreach"]
    of_param, of_grad, of_state, of_temporary = entry["accesses"]
    held = policy.master or policy.param
    per_param = (
        of_param * held.num_bytes
        + of_grad * policy.grad.num_bytes
        + of_state * policy.optimizer_state.num_bytes
        + of_temporary * _TEMPORARY_BYTES
        + (policy.param.num_bytes if policy.master is not None else 0.0)
    )
    local = np.asarray(params, dtype=np.float64) / shards
    unscale = 2.0 * policy.grad.num_bytes * local if policy.loss_scaling else np.zeros_like(local)
    copies = 1.0 if policy.master is not None and policy.master is not policy.param else 0.0
    launches = _launches(local, tensors, form)
    return OptimizerWork(
        update_bytes=per_param * local,
        update_kernels=(entry["kernels"] + copies) * launches,
        unscale_bytes=unscale,
        unscale_kernels=_launches(local, tensors, OptimizerForm.FOREACH) if policy.loss_scaling else 0.0,
        host_syncs=1.0 if policy.loss_scaling else 0.0,
    )


def _launches(params: Number, tensors: Number, form: OptimizerForm) -> Number:
    """Kernels that one pass over all parameters takes."""
    if form is OptimizerForm.FOR_LOOP:
        return np.asarray(tensors, dtype=np.float64)
    by_size = np.ceil(np.asarray(params) / _tables()["multi_tensor_elems"])
    by_count = np.ceil(np.asarray(tensors) / _tables()["multi_tensor_tensors"])
    return np.asarray(np.maximum(by_size, by_count), dtype=np.float64)


def optimizer_terms(
    work: OptimizerWork, *, memory_bytes_per_s: Number, launch_s: Number, reached: Number = 0.8
) -> dict[str, Number]:
    """Named seconds of an optimizer step.

    Args:
        work: What is moved and started.
        memory_bytes_per_s: Memory bandwidth of the device.
        launch_s: Shortest time between two kernels.
        reached: Share of the bandwidth that streaming kernels reach; 0.8 is usual for large ones.

    Returns:
        `optimizer` (update), `unscale` (GradScaler's pass) and `host_sync`, in seconds.

    Assumes: a pass takes the longer of its traffic and its launches.
    Accuracy: see docs/reference/accuracy.md.
    """
    rate = memory_bytes_per_s * reached
    return {
        "optimizer": np.maximum(work.update_bytes / rate, work.update_kernels * launch_s),
        "unscale": np.maximum(work.unscale_bytes / rate, work.unscale_kernels * launch_s),
        "host_sync": np.asarray(work.host_syncs * _tables()["host_sync_s"]),
    }
