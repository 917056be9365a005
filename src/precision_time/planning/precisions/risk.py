"""The numerical risk of a precision: loss gaps that were measured or published, and what is known beside them.

A risk is a relative gap of the loss at the end of training, (loss - loss of the reference) / loss of the
reference: 0.0025 is a quarter of a percent. Measured gaps (`data/measured_risk.csv`, of small trainings,
emulated) come before published ones (`data/risks.toml`) where their standard error over the seeds is small
enough to say something. Where neither has a number there is none: `None`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ...errors import UnknownNameError
from ...io import packaged_toml
from ...precision.policy import DType
from ...workload.workload import Workload
from .groups import LayerGroup

WHOLE = "all"
"""The group of the table of measured risks that is the whole model."""
RESOLUTION = 0.0025
"""Largest standard error of a measured gap that is taken: the size of the gaps that are published."""
_TABLE = "measured_risk.csv"


class Basis(StrEnum):
    """Where a number of a risk comes from."""

    MEASURED = "measured"
    PUBLISHED = "published"
    REFERENCE = "reference"


@dataclass(frozen=True, kw_only=True, slots=True)
class Risk:
    """The loss gap of some layers, or of a whole model, in a type."""

    loss_gap: float
    """Relative, as found; below zero where the loss was lower than that of the reference."""
    basis: Basis
    source: str
    error: float | None = None
    """Standard error of a measured gap over its seeds; None where it is not known."""

    @property
    def counted(self) -> float:
        """What a budget is charged: the gap, but never less than nothing."""
        return max(self.loss_gap, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return asdict(self) | {"counted": self.counted}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something known of training in a precision."""

    kind: str
    """need, failure or evidence."""
    text: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberType:
    """Range and mantissa of a number format."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    largest: float
    smallest_normal: float
    source: str


@cache
def number_type(dtype: DType) -> NumberType:
    """What is known of a number format."""
    return NumberType(name=dtype.value, **_facts()["type"][dtype.value])


def standing(precision: str) -> str:
    """reference, established, with care or research; "unknown" of a precision that nothing is noted of."""
    return str(_facts()["precision"].get(precision, {}).get("standing", "unknown"))


def facts_of(precision: str) -> tuple[Fact, ...]:
    """What is known of training in a precision, each with its source."""
    return tuple(Fact(**fact) for fact in _facts()["precision"].get(precision, {}).get("fact", ()))


def workload_kind(workload: Workload) -> str:
    """The kind of a workload in the table of measured risks; its family where there is none."""
    return str(_facts()["workload"].get(workload.family, workload.family))


def risk_of(workload: Workload, precision: str, *, recipe: str | None = None) -> Risk | None:
    """The risk of a whole model in a precision; None where no number is known.

    Args:
        workload: Of the model.
        precision: Name of the policy.
        recipe: Of its narrow products; None for the usual one of the policy.
    """
    if standing(precision) == "reference":
        return Risk(loss_gap=0.0, basis=Basis.REFERENCE, source="what others are compared with")
    measured = _measured(workload_kind(workload), WHOLE, precision, recipe)
    return measured if _informative(measured) else _published(precision)


def measured_risk(workload: Workload, precision: str, *, recipe: str | None = None) -> Risk | None:
    """What was measured of a kind of workload, however uncertain; None where nothing was."""
    return _measured(workload_kind(workload), WHOLE, precision, recipe)


def group_risk(
    workload: Workload, group: LayerGroup, dtype: DType, *, recipe: str | None = None
) -> Risk | None:
    """The risk of a group of layers in a type, all others in the reference; None where no number is known.

    A gap that was measured of all layers of the group's kind is shared by FLOPs among the groups of that
    kind; a gap of a whole model, measured or published, among all groups.

    Args:
        workload: Of the model.
        group: The layers.
        dtype: Their type.
        recipe: Of narrow products; None for the usual one of schedules.
    """
    precision = _facts()["schedule"][dtype.value]["precision"]
    recipe = schedule_fields(dtype, recipe=recipe).get("fp8_recipe")
    kind = workload_kind(workload)
    own_share = group.kind_share
    if group.blocks:
        own_share = min(_facts()["measured_models"]["blocks"] / group.blocks, 1.0)
    for found, share in (
        (_measured(kind, group.kind, precision, recipe), own_share),
        (_measured(kind, WHOLE, precision, recipe), group.flops_share),
        (_published(precision), group.flops_share),
    ):
        if found is not None and _informative(found):
            error = None if found.error is None else found.error * share
            return replace(found, loss_gap=found.loss_gap * share, error=error)
    return None


def schedule_fields(dtype: DType, *, recipe: str | None = None) -> dict[str, Any]:
    """What a policy file says beside its layers where some of them run in a type."""
    said = {name: value for name, value in _facts()["schedule"][dtype.value].items() if name != "precision"}
    if recipe is not None and "fp8_recipe" in said:
        said["fp8_recipe"] = recipe
    return said


def share_of_gap(over_time: str, start: float, end: float) -> float:
    """The part of a loss gap that training in a narrow type from one share of a run to another leaves, 0..1.

    Raises:
        UnknownNameError: No such curve.
    """
    curves = _facts()["over_time"]
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
    curve = _facts()["over_time"][over_time]
    return f"{curve['text']} ({curve['source']})"


def _published(precision: str) -> Risk | None:
    gap = _facts()["precision"].get(precision, {}).get("gap")
    if gap is None:
        return None
    bound = "at most " if gap.get("bound") else ""
    return Risk(
        loss_gap=float(gap["loss_gap"]),
        basis=Basis.PUBLISHED,
        source=f"{bound}{gap['loss_gap']:.2%}: {gap['text']} ({gap['source']})",
    )


def _informative(risk: Risk | None) -> bool:
    """Whether a measured gap is known well enough to be held against a budget."""
    if risk is None or risk.basis is not Basis.MEASURED:
        return risk is not None
    return math.isinf(risk.loss_gap) or (risk.error is not None and risk.error <= RESOLUTION)


def _measured(kind: str, group: str, precision: str, recipe: str | None) -> Risk | None:
    named = _facts()["measured"].get(precision)
    if named is None:
        return None
    usual = named["recipe"] if recipe is None else named.get("of", {}).get(recipe)
    return _table().get((kind, group, precision, usual))


@cache
def _table() -> Mapping[tuple[str, str, str, str], Risk]:
    """The measured gaps by kind of workload, group, precision and recipe; several models are averaged."""
    path = files(__package__) / "data" / _TABLE
    if not path.is_file():
        return {}
    rows: dict[tuple[str, str, str, str], list[Mapping[str, str]]] = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        key = (row["kind"], row["layer_group"], row["precision"], row["recipe"])
        rows.setdefault(key, []).append(row)
    return {key: _mean(some) for key, some in rows.items()}


def _mean(rows: list[Mapping[str, str]]) -> Risk:
    """The mean over models; a precision in which training diverged has an infinite gap."""
    gaps = [math.inf if float(row["diverged"] or 0.0) > 0.0 else float(row["loss_gap"]) for row in rows]
    errors = [float(row["gap_spread"] or "nan") / math.sqrt(max(int(row["seeds"]), 1)) for row in rows]
    error = math.sqrt(math.fsum(each**2 for each in errors)) / len(rows)
    first = rows[0]
    models = ", ".join(f"{row['model']} ({float(row['params']):,.0f} parameters)" for row in rows)
    return Risk(
        loss_gap=math.fsum(gaps) / len(gaps),
        basis=Basis.MEASURED,
        source=f"{models}, {first['precision']} {first['recipe']}, {first['seeds']} seeds, {first['source']}",
        error=None if math.isnan(error) else error,
    )


def _facts() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/risks.toml")
