"""Parameters that one device of the fullest pipeline stage holds, before data-parallel sharding."""

from __future__ import annotations

from dataclasses import dataclass

from .compute import ComputeCosts


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldParameters:
    """Trainable elements on one device: its tensor, expert and pipeline share."""

    dense: float
    experts: float
    dense_total: float
    """Of all stages, with the same tensor share."""
    experts_total: float
    tensor_share: float
    """Share of the model's parameter tensors."""


def held_parameters(compute: ComputeCosts) -> HeldParameters:
    """Parameters of the stage that holds most of them, read off the kernels that make their gradients."""
    step, shares = compute.step, compute.shares
    elements = step.param_elems * step.repeat
    dense, experts = elements * ~step.expert, elements * step.expert
    by_stage = shares.kernels @ (dense + experts)
    fullest = int(by_stage.argmax())
    has = (step.param_elems > 0) * step.repeat
    return HeldParameters(
        dense=float(shares.kernels[fullest] @ dense),
        experts=float(shares.kernels[fullest] @ experts),
        dense_total=float(dense.sum()),
        experts_total=float(experts.sum()),
        tensor_share=float(shares.kernels[fullest] @ has) / max(float(has.sum()), 1.0),
    )
