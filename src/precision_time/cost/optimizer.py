"""Memory traffic and kernels of the optimizer step, by optimizer, implementation and precision.

Reference for the byte counts: the update equations, counted per implementation in
`cost/data/optimizers.toml`; Rajbhandari et al., ZeRO, SC 2020, for what is sharded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from ..arrays import Floats, Number
from ..cache import data
from ..errors import UnknownNameError
from ..hardware.device import Device
from ..parallel.layout import Layout, Offload
from ..precision.policy import DType, PrecisionPolicy
from ..records import dataclass
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
class MatrixWeights:
    """Trained weights of two dimensions in the layers of one device; shape (N,) each."""

    rows: Floats
    """The smaller side."""
    columns: Floats
    count: Floats

    @property
    def params(self) -> float:
        """Elements of all of them."""
        return float((self.rows * self.columns * self.count).sum())

    def scaled(self, share: float) -> MatrixWeights:
        """A share of them."""
        return replace(self, count=self.count * share)


NO_MATRICES = MatrixWeights(rows=np.zeros(0), columns=np.zeros(0), count=np.zeros(0))


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
    product_flops: Number = 0.0
    """Of matrix products that the update is made of, in `product_dtype`."""
    product_dtype: DType = DType.FP32


@data
def known_optimizers() -> tuple[str, ...]:
    """Canonical optimizer names."""
    return tuple(
        sorted(
            name
            for name, value in constants("optimizers").items()
            if isinstance(value, dict) and "states" in value
        )
    )


@data
def _spellings() -> Mapping[str, str]:
    aliases: Mapping[str, str] = constants("optimizers")["aliases"]
    return {_plain(said): name for said, name in [*((n, n) for n in known_optimizers()), *aliases.items()]}


def _plain(name: str) -> str:
    """Without the module it is from, blanks and hyphens as underscores: "torch.optim.AdamW" is "adamw"."""
    return re.sub(r"[\s_-]+", "_", name.strip().lower()).removeprefix("torch.optim.")


def canonical_optimizer(name: str) -> str:
    """The name under which optimizers.toml lists an optimizer.

    Raises:
        UnknownNameError: If neither it nor an alias of it is listed.

    >>> canonical_optimizer("SGD_with_momentum")
    'momentum-sgd'
    """
    found = _spellings().get(_plain(name))
    if found is None:
        raise UnknownNameError(
            kind="optimizer",
            name=name,
            known=(*known_optimizers(), *constants("optimizers")["aliases"]),
            hint=f"Known: {', '.join(known_optimizers())}.",
        )
    return found


def states_per_param(name: str, outside_share: float = 0.0) -> float:
    """State elements that an optimizer keeps per parameter element.

    Raises:
        UnknownNameError: If the optimizer is not known.
    """
    table = constants("optimizers")[canonical_optimizer(name)]
    states = float(table["states"])
    if "matrix" not in table:
        return states
    return states + outside_share * (states_per_param(table["matrix"]["others"]) - states)


def state_bytes(name: str, policy: PrecisionPolicy) -> float:
    """Bytes of a state element: as the precision says, unless the optimizer has a type of its own (8 bits).

    Raises:
        UnknownNameError: If the optimizer is not known.
    """
    table = constants("optimizers")[canonical_optimizer(name)]
    return min(float(table.get("state_bytes", np.inf)), policy.optimizer_state.num_bytes)


def product_flops(name: str, matrices: MatrixWeights) -> float:
    """FLOPs of the matrix products of one update: 0 for an optimizer that works element by element.

    >>> square = MatrixWeights(rows=np.array([100.0]), columns=np.array([100.0]), count=np.array([1.0]))
    >>> product_flops("muon", square) == 5 * 6 * 100.0**3
    True
    """
    matrix = constants("optimizers")[canonical_optimizer(name)].get("matrix")
    if matrix is None:
        return 0.0
    sides = {"m": matrices.rows, "n": matrices.columns}
    once = sum(2.0 * sides[a] * sides[b] * sides[c] for a, b, c in matrix["products"])
    return float(matrix["iterations"] * (once * matrices.count).sum())


def optimizer_work(
    name: str,
    policy: PrecisionPolicy,
    *,
    params: Number,
    tensors: Number,
    form: OptimizerForm = OptimizerForm.FOREACH,
    matrices: MatrixWeights = NO_MATRICES,
) -> OptimizerWork:
    """Traffic, kernels and products of one optimizer step on one device.

    Args:
        name: Optimizer or alias.
        policy: Types of parameters, gradients, master copy and states.
        params: Trainable parameter elements that this device updates.
        tensors: Trainable parameter tensors of that part.
        form: Implementation.
        matrices: Of these parameters the weights of two dimensions in the layers; they matter to
            optimizers with matrix products.

    Returns:
        Bytes, kernels and FLOPs; arrays broadcast.

    Raises:
        UnknownNameError: If the optimizer is not known.

    Assumes: gradients are set to None, not zeroed; no gradient clipping; devices share the matrices of an
        update between them, and a tensor rank updates its own part of a weight.
    Accuracy: bytes are exact for the update as listed; caches are not modeled.
    """
    matrix = constants("optimizers")[canonical_optimizer(name)].get("matrix")
    local = np.asarray(params, dtype=np.float64)
    if matrix is None:
        update_bytes, update_kernels = _update(name, policy, local, tensors, form)
    else:
        inside = np.minimum(matrices.params, local)
        matrix_tensors = np.minimum(matrices.count.sum(), tensors)
        # The products of one matrix follow each other: without a fused kernel, matrix by matrix.
        own_form = form if form is OptimizerForm.FUSED else OptimizerForm.FOR_LOOP
        own = _update(name, policy, inside, matrix_tensors, own_form)
        others = _update(matrix["others"], policy, local - inside, tensors - matrix_tensors, form)
        update_bytes, update_kernels = own[0] + others[0], own[1] + others[1]
    unscale = 2.0 * policy.grad.num_bytes * local if policy.loss_scaling else np.zeros_like(local)
    return OptimizerWork(
        update_bytes=update_bytes,
        update_kernels=update_kernels,
        unscale_bytes=unscale,
        unscale_kernels=_launches(local, tensors, OptimizerForm.FOREACH) if policy.loss_scaling else 0.0,
        host_syncs=1.0 if policy.loss_scaling and not policy.static_scaling else 0.0,
        product_flops=product_flops(name, matrices),
        product_dtype=DType.FP32 if matrix is None else DType(matrix["dtype"]),
    )


def _update(
    name: str, policy: PrecisionPolicy, params: Number, tensors: Number, form: OptimizerForm
) -> tuple[Number, Number]:
    """Bytes and kernels of an update, the copy to the model's parameters included."""
    table = constants("optimizers")[canonical_optimizer(name)]
    entry = table["fused" if form is OptimizerForm.FUSED else "foreach"]
    of_param, of_grad, of_state, of_temporary = entry["accesses"]
    held = policy.master or policy.param
    per_param = (
        of_param * held.num_bytes
        + of_grad * policy.grad.num_bytes
        + of_state * state_bytes(name, policy)
        + of_temporary * constants("optimizers")["temporary_bytes"]
        + (policy.param.num_bytes if policy.master is not None else 0.0)
    )
    copies = 1.0 if policy.master is not None and policy.master is not policy.param else 0.0
    return per_param * params, (entry["kernels"] + copies) * _launches(params, tensors, form)


def _launches(params: Number, tensors: Number, form: OptimizerForm) -> Number:
    """Kernels that one pass over all parameters takes."""
    if form is OptimizerForm.FOR_LOOP:
        return np.asarray(tensors, dtype=np.float64)
    by_size = np.ceil(np.asarray(params) / constants("optimizers")["multi_tensor_elems"])
    by_count = np.ceil(np.asarray(tensors) / constants("optimizers")["multi_tensor_tensors"])
    return np.asarray(np.maximum(by_size, by_count), dtype=np.float64)


def optimizer_terms(
    work: OptimizerWork, *, memory_bytes_per_s: Number, launch_s: Number, flops_per_s: Number = np.inf
) -> dict[str, Number]:
    """Named seconds of an optimizer step.

    Args:
        work: What is moved and started.
        memory_bytes_per_s: Memory bandwidth of the device.
        launch_s: Shortest time between two kernels.
        flops_per_s: Rate of large matrix products in `work.product_dtype`.

    Returns:
        `optimizer` (update), `unscale` (GradScaler's pass) and `host_sync`, in seconds.

    Assumes: a pass takes the longest of its traffic, its launches and its products.
    Accuracy: see docs/reference/accuracy.md.
    """
    rate = memory_bytes_per_s * constants("optimizers")["streaming_share"]
    return {
        "optimizer": np.maximum(
            np.maximum(work.update_bytes / rate, work.update_kernels * launch_s),
            work.product_flops / flops_per_s,
        ),
        "unscale": np.maximum(work.unscale_bytes / rate, work.unscale_kernels * launch_s),
        "host_sync": np.asarray(work.host_syncs * constants("optimizers")["host_sync_s"]),
    }


def offload_s(
    layout: Layout,
    device: Device,
    policy: PrecisionPolicy,
    *,
    params: float,
    frozen_bytes: float,
    rounds: Number,
) -> Number:
    """Transfers and host update per optimizer step with states or parameters in host memory, all exposed.

    Gradients go down, the host updates, parameters come up; the update streams through the host's memory.
    Weights that stay there, trained and frozen, come up for each pass of each micro batch.

    Args:
        layout: What is offloaded.
        device: For its PCIe bandwidth.
        policy: Types of gradients and parameters.
        params: Elements whose state this device's rank holds.
        frozen_bytes: Weights that nothing updates, of this device's rank.
        rounds: Micro batches of a step.

    Reference: Ren et al., ZeRO-Offload, USENIX ATC 2021.
    """
    host = constants("optimizers")["offload"]
    pcie = device.pcie_bandwidth_bytes_per_s * host["pcie_share"]
    moved: Number = params * (policy.reduce.num_bytes + policy.activation.num_bytes)
    if layout.offload is Offload.PARAMETERS:
        moved = moved + (params * policy.activation.num_bytes + frozen_bytes) * 2.0 * rounds
    seconds: Number = moved / pcie + params * host["update_bytes"] / host["memory_bytes_per_s"]
    return seconds
