"""The numerical risk of groups of layers, and of parts of a run.

The gap of a whole model is shared among its groups of layers in proportion to what was measured of each
kind of layers alone, or by FLOPs where that was not measured: gaps of groups are taken to add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from precision_time.errors import UnknownNameError
from precision_time.planning.precisions.risk import (
    NEAREST,
    Risk,
    measured_gap,
    risk_facts,
    risk_of,
    workload_kind,
)
from precision_time.precision.policy import DType
from precision_time.workload.workload import Workload

from .groups import LayerGroup

_BY_FLOPS = "shared among the layers by FLOPs"
_AS_MEASURED = "shared among the layers as the measured gaps of each kind of them alone"


def group_risks(
    workload: Workload,
    groups: Sequence[LayerGroup],
    dtype: DType,
    *,
    recipe: str | None = None,
    evidence: str = NEAREST,
) -> tuple[Risk | None, ...]:
    """The risk of each group of layers in a type, all others in the reference; None where no number is known.

    Args:
        workload: Of the model.
        groups: All groups of it.
        dtype: Their type.
        recipe: Of narrow products; None for the usual one of schedules.
        evidence: As of `risk_of`.
    """
    precision = risk_facts()["schedule"][dtype.value]["precision"]
    recipe = schedule_fields(dtype, recipe=recipe).get("fp8_recipe")
    whole = risk_of(workload, precision, recipe=recipe, evidence=evidence)
    if whole is None:
        return (None,) * len(groups)
    shares, how = _measured_shares(workload_kind(workload), groups, precision, recipe), _AS_MEASURED
    if shares is None:
        shares, how = [group.flops_share for group in groups], _BY_FLOPS
    return tuple(
        replace(
            whole,
            loss_gap=whole.loss_gap * share,
            error=None if whole.error is None else whole.error * share,
            source=f"{whole.source}; {how}",
        )
        for share in shares
    )


def _measured_shares(
    kind: str, groups: Sequence[LayerGroup], precision: str, recipe: str | None
) -> list[float] | None:
    """The part of each group of the gap, by what was measured of its kind alone.

    None where one was not measured, or all of them together differ from fp32 by less than twice their
    standard error. A gap below its own standard error counts as that: it is not known to be less.
    """
    found = [measured_gap(kind, group.kind, precision, recipe) for group in groups]
    gaps = [(each.loss_gap, each.error) for each in found if each is not None and each.error is not None]
    together, error = math.fsum(gap for gap, _ in gaps), math.hypot(*(error for _, error in gaps))
    if len(gaps) < len(groups) or not 2.0 * error < together < math.inf:
        return None
    parts = [max(gap, error) * _part_of_kind(group) for (gap, error), group in zip(gaps, groups, strict=True)]
    total = math.fsum(parts)
    return [part / total for part in parts]


def _part_of_kind(group: LayerGroup) -> float:
    """Of the layers of its kind in a measured model: by FLOPs, of a first or last block by blocks."""
    if group.blocks:
        return min(float(risk_facts()["measured_models"]["blocks"]) / group.blocks, 1.0)
    return group.kind_share


def schedule_fields(dtype: DType, *, recipe: str | None = None) -> dict[str, Any]:
    """What a policy file says beside its layers where some of them run in a type."""
    said = {
        name: value for name, value in risk_facts()["schedule"][dtype.value].items() if name != "precision"
    }
    if recipe is not None and "fp8_recipe" in said:
        said["fp8_recipe"] = recipe
    return said


def share_of_gap(over_time: str, start: float, end: float) -> float:
    """The part of a loss gap that training in a narrow type from one share of a run to another leaves, 0..1.

    Raises:
        UnknownNameError: No such curve.
    """
    curves = risk_facts()["over_time"]
    if over_time not in curves:
        raise UnknownNameError(
            kind="curve of risk over time",
            name=over_time,
            known=tuple(curves),
            hint=f"Curves: {', '.join(curves)}.",
        )
    curve = curves[over_time]
    low, high = np.interp([start, end], curve["shares"], curve["weights"])
    return float(high - low)


def curve_words(over_time: str) -> str:
    """What a curve of risk over time says, with its source."""
    curve = risk_facts()["over_time"][over_time]
    return f"{curve['text']} ({curve['source']})"
