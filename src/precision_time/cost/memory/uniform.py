"""Bytes that a training step needs on one device, as named terms.

References: Rajbhandari et al., ZeRO, SC 2020, section 3 (what 16 bytes per parameter are, and what each
stage shards); Korthikanti et al., MLSys 2023, section 4 (activations under tensor and sequence
parallelism, checkpointing).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...parallel.layout import Checkpointing, Layout
from ...precision.policy import PrecisionPolicy
from ...units import GIBI, MEBI
from ..collectives import Number
from ..optimizer import states_per_param

CONTEXT_BYTES = 0.6 * GIBI
"""CUDA context and loaded kernels of a framework process. Assumed, of the order nvidia-smi shows."""
COMMUNICATOR_BYTES = 0.4 * GIBI
"""Buffers of the collective library. Assumed."""
WORKSPACE_BYTES = 64 * MEBI
"""Workspaces of the matrix libraries: PyTorch gives cuBLAS 32 MiB and cuBLASLt as much on Hopper."""
FRAGMENTATION = 0.05
"""Share of the activations that the caching allocator cannot hand out again. Assumed."""
REPLICATED_SHARE = 10.0 / 34.0
"""Part of a transformer layer's activations that tensor parallelism alone does not split
(10 of 34 s·b·h bytes, Korthikanti et al., eq. 2)."""


def memory_terms(
    layout: Layout,
    policy: PrecisionPolicy,
    *,
    params: float,
    trainable_params: float,
    saved_elems: float,
    optimizer: str,
    num_layers: float = 1.0,
    boundary_elems: float = 0.0,
    attention_saved_elems: float = 0.0,
    micro_batch_size: Number | None = None,
) -> dict[str, Number]:
    """Named bytes on the fullest device.

    Args:
        layout: Degrees, micro batch, sharding, checkpointing.
        policy: Types of parameters, gradients, master copy, states and activations.
        params: Parameter elements of the whole model.
        trainable_params: Those with gradients.
        saved_elems: Activation elements kept for the backward pass, per sample, whole model.
        optimizer: Name in optimizers.toml.
        num_layers: Layers that checkpointing works on; 1 where the model has no repeated layer.
        boundary_elems: Elements between two layers per sample, what full checkpointing keeps.
        attention_saved_elems: Part of `saved_elems` that selective checkpointing recomputes.
        micro_batch_size: Instead of the layout's, for an array of batches.

    Returns:
        `parameters`, `cast_weights`, `gradients`, `gradient_buckets`, `master_weights`,
        `optimizer_states`, `activations`, `workspace`, `framework`, in bytes.

    Raises:
        UnknownNameError: If the optimizer is not known.

    Assumes: layers spread evenly over the stages; the first stage keeps pp micro batches alive.
    Accuracy: docs/accuracy.md.
    """
    share = 1.0 / (layout.tp * layout.pp)
    ranks = layout.dp * layout.cp
    by_stage = [ranks if layout.zero_stage >= stage else 1 for stage in (1, 2, 3)]
    trained = trainable_params * share
    batch = layout.micro_batch_size if micro_batch_size is None else micro_batch_size
    activations = _activation_elems(
        layout, saved_elems, num_layers, boundary_elems, attention_saved_elems
    ) * np.asarray(batch, dtype=np.float64) * policy.activation.num_bytes  # fmt: skip
    buckets = ranks > 1 and layout.zero_stage == 0 and layout.data_parallel_engine == "ddp"
    gathered = share * params * policy.param.num_bytes / max(num_layers / layout.pp, 1.0) * 2.0
    return {
        "parameters": params * share * policy.param.num_bytes / by_stage[2],
        "cast_weights": params * share * policy.matmul.num_bytes / by_stage[2] if _casts(policy) else 0.0,
        "gradients": trained * policy.grad.num_bytes / by_stage[1],
        "gradient_buckets": trained * policy.reduce.num_bytes if buckets else 0.0,
        "master_weights": trained * policy.master.num_bytes / by_stage[0] if policy.master else 0.0,
        "optimizer_states": trained
        * states_per_param(optimizer)
        * policy.optimizer_state.num_bytes
        / by_stage[0],
        "activations": activations,
        "workspace": WORKSPACE_BYTES
        + FRAGMENTATION * activations
        + (gathered if layout.zero_stage == 3 and ranks > 1 else 0.0),
        "framework": CONTEXT_BYTES + (COMMUNICATOR_BYTES if layout.world_size > 1 else 0.0),
    }


def _casts(policy: PrecisionPolicy) -> bool:
    """Autocast keeps a narrow copy of every weight until the backward pass has used it."""
    return policy.autocast and policy.matmul.num_bytes < policy.param.num_bytes


def _activation_elems(
    layout: Layout, saved_elems: float, num_layers: float, boundary_elems: float, attention_saved_elems: float
) -> float:
    """Elements alive at the peak on the first stage, per sample of the micro batch."""
    layers = max(num_layers / layout.pp, 1.0)
    split = 1.0 / layout.tp if layout.sequence_parallel else (
        REPLICATED_SHARE + (1.0 - REPLICATED_SHARE) / layout.tp
    )  # fmt: skip
    kept = saved_elems / layout.pp * split
    in_flight = min(layout.pp, layout.num_micro_batches)
    if layout.checkpointing is Checkpointing.SELECTIVE:
        kept = max(saved_elems - attention_saved_elems, 0.0) / layout.pp * split
    if layout.checkpointing is Checkpointing.FULL and num_layers > 1:
        boundary = boundary_elems / (layout.tp if layout.sequence_parallel else 1)
        return min(layers * boundary * in_flight + kept / layers, kept * in_flight) / layout.cp
    return kept * in_flight / layout.cp


def total_bytes(terms: Mapping[str, Number]) -> Number:
    """Sum of the named bytes."""
    return sum((np.asarray(value, dtype=np.float64) for value in terms.values()), np.zeros(()))


def fits(terms: Mapping[str, Number], device_memory_bytes: Number) -> NDArray[np.bool_]:
    """Whether the sum is at most what the device has."""
    return np.asarray(total_bytes(terms) <= np.asarray(device_memory_bytes), dtype=np.bool_)
