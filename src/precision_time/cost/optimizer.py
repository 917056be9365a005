"""Memory traffic and kernels of the optimizer step, by optimizer, implementation and precision.

Reference for the byte counts: the update equations, counted per implementation in
`cost/data/optimizers.toml`; Rajbhandari et al., ZeRO, SC 2020, for what is sharded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..errors import UnknownNameError
from ..hardware.device import Device
from ..parallel.layout import Layout, Offload
from ..precision.policy import PrecisionPolicy
from .collectives import Number
from .constants import constants


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


def known_optimizers() -> tuple[str, ...]:
    """Canonical optimizer names."""
    return tuple(
        sorted(
            name
            for name, value in constants("optimizers").items()
            if isinstance(value, dict) and "states" in value
        )
    )


def canonical_optimizer(name: str) -> str:
    """The name under which optimizers.toml lists an optimizer.

    Raises:
        UnknownNameError: If neither it nor an alias of it is listed.

    >>> canonical_optimizer("SGD_with_momentum")
    'momentum-sgd'
    """
    lowered = name.lower()
    found = str(constants("optimizers")["aliases"].get(lowered, lowered))
    if found not in known_optimizers():
        raise UnknownNameError(
            kind="optimizer",
            name=name,
            known=(*known_optimizers(), *constants("optimizers")["aliases"]),
            hint=f"Known: {', '.join(known_optimizers())}.",
        )
    return found


def states_per_param(name: str) -> float:
    """State elements that an optimizer keeps per parameter element.

    Raises:
        UnknownNameError: If the optimizer is not known.
    """
    return float(constants("optimizers")[canonical_optimizer(name)]["states"])


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
    tables = constants("optimizers")
    entry = tables[canonical_optimizer(name)]["fused" if form is OptimizerForm.FUSED else "foreach"]
    of_param, of_grad, of_state, of_temporary = entry["accesses"]
    held = policy.master or policy.param
    per_param = (
        of_param * held.num_bytes
        + of_grad * policy.grad.num_bytes
        + of_state * policy.optimizer_state.num_bytes
        + of_temporary * constants("optimizers")["temporary_bytes"]
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
    by_size = np.ceil(np.asarray(params) / constants("optimizers")["multi_tensor_elems"])
    by_count = np.ceil(np.asarray(tensors) / constants("optimizers")["multi_tensor_tensors"])
    return np.asarray(np.maximum(by_size, by_count), dtype=np.float64)


def optimizer_terms(
    work: OptimizerWork, *, memory_bytes_per_s: Number, launch_s: Number
) -> dict[str, Number]:
    """Named seconds of an optimizer step.

    Args:
        work: What is moved and started.
        memory_bytes_per_s: Memory bandwidth of the device.
        launch_s: Shortest time between two kernels.

    Returns:
        `optimizer` (update), `unscale` (GradScaler's pass) and `host_sync`, in seconds.

    Assumes: a pass takes the longer of its traffic and its launches.
    Accuracy: see docs/accuracy.md.
    """
    rate = memory_bytes_per_s * constants("optimizers")["streaming_share"]
    return {
        "optimizer": np.maximum(work.update_bytes / rate, work.update_kernels * launch_s),
        "unscale": np.maximum(work.unscale_bytes / rate, work.unscale_kernels * launch_s),
        "host_sync": np.asarray(work.host_syncs * constants("optimizers")["host_sync_s"]),
    }


def offload_s(layout: Layout, device: Device, policy: PrecisionPolicy, *, params: float) -> float:
    """Transfers and host update per optimizer step with states or parameters in host memory, all exposed.

    Gradients go down, the host updates, parameters come up; the update streams through the host's memory.

    Args:
        layout: What is offloaded, micro batches.
        device: For its PCIe bandwidth.
        policy: Types of gradients and parameters.
        params: Elements whose state this device's rank holds.

    Reference: Ren et al., ZeRO-Offload, USENIX ATC 2021.
    """
    host = constants("optimizers")["offload"]
    pcie = device.pcie_bandwidth_bytes_per_s * host["pcie_share"]
    moved = params * (policy.reduce.num_bytes + policy.activation.num_bytes)
    if layout.offload is Offload.PARAMETERS:
        moved += params * policy.activation.num_bytes * 2.0 * layout.num_micro_batches
    seconds: float = moved / pcie + params * host["update_bytes"] / host["memory_bytes_per_s"]
    return seconds
