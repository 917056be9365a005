"""The numerical risk of a precision: loss gaps that were measured or published, and what else is known.

A risk is a relative gap of the loss at the end of training, (loss - loss of the reference) / loss of the
reference: 0.0025 is a quarter of a percent. Measured gaps are of small trainings with emulated rounding
(`data/measured_risk.csv`), published ones of large models (`data/risks.toml`). Of the two the one counts
whose model is nearer in size to the one asked. Where neither has a number there is none: `None`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from ...cache import data
from ...errors import ConfigError, UnknownNameError, shown
from ...io import packaged, packaged_toml
from ...precision.policy import DType
from ...records import dataclass
from ...workload.workload import Workload

WHOLE = "all"
"""The group of the table of measured risks that is the whole model."""
DEFAULT_BUDGET = 0.0025
"""What DeepSeek-V3 states for its fp8 training, within the spread of seeds: arXiv 2412.19437, section 3.3."""
NEAREST = "nearest"
EVIDENCE = (NEAREST, "measured", "published")
"""Which number counts where several are known."""
RESOLUTION = 0.005
"""Largest standard error of a measured gap of a whole model that is taken."""
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
    params: float = 1.0
    """Parameters of the model that it was found with."""
    error: float | None = None
    """Standard error of a measured gap over its seeds; None where it is not known."""
    other_recipe: str | None = None
    """Scaling that it was found with, where it is not the one that was asked about."""

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


@data
def number_type(dtype: DType) -> NumberType:
    """What is known of a number format."""
    return NumberType(name=dtype.value, **risk_facts()["type"][dtype.value])


def standing(precision: str) -> str:
    """reference, established, with care or research; "unknown" of a precision that nothing is noted of."""
    return str(risk_facts()["precision"].get(precision, {}).get("standing", "unknown"))


def facts_of(precision: str) -> tuple[Fact, ...]:
    """What is known of training in a precision, each with its source."""
    return tuple(Fact(**fact) for fact in risk_facts()["precision"].get(precision, {}).get("fact", ()))


def workload_kind(workload: Workload) -> str:
    """The kind of a workload in the table of measured risks; its family where there is none."""
    return str(risk_facts()["workload"].get(workload.family, workload.family))


def needs_loss_scaling(precision: str) -> bool:
    """Whether gradients become zero in a precision without loss scaling, whether its policy has it or not."""
    return bool(risk_facts()["precision"].get(precision, {}).get("loss_scaling", False))


def risk_of(
    workload: Workload, precision: str, *, recipe: str | None = None, evidence: str = NEAREST
) -> Risk | None:
    """The risk of a whole model in a precision; None where no number is known.

    Args:
        workload: Of the model.
        precision: Name of the policy.
        recipe: Of its narrow products; None for the usual one of the policy.
        evidence: measured, published, or nearest: of the two the one whose model is nearer in size.
    """
    if evidence not in EVIDENCE:
        raise UnknownNameError(
            kind="evidence", name=evidence, known=EVIDENCE, hint=f"Evidence: {', '.join(EVIDENCE)}."
        )
    if standing(precision) == "reference":
        return Risk(loss_gap=0.0, basis=Basis.REFERENCE, source="what others are compared with")
    measured = measured_risk(workload, precision, recipe=recipe)
    if measured is not None and (measured.error is None or measured.error > RESOLUTION):
        measured = None
    found = {Basis.MEASURED: measured, Basis.PUBLISHED: _published(precision, recipe)}
    if evidence != NEAREST:
        return found[Basis(evidence)]
    size = math.log(max(workload.graph.params, 1.0))
    known = [risk for risk in found.values() if risk is not None]
    return min(known, key=lambda risk: abs(math.log(risk.params) - size), default=None)


def measured_risk(workload: Workload, precision: str, *, recipe: str | None = None) -> Risk | None:
    """What was measured of a kind of workload, however uncertain; None where nothing was."""
    return measured_gap(workload_kind(workload), WHOLE, precision, recipe)


def _published(precision: str, recipe: str | None) -> Risk | None:
    gap = risk_facts()["precision"].get(precision, {}).get("gap")
    if gap is None:
        return None
    bound = "at most " if gap.get("bound") else ""
    its = gap.get("recipe", recipe)
    differs = recipe not in (None, its)
    other = f"; found with {its} scaling, not with {recipe}" if differs else ""
    return Risk(
        loss_gap=float(gap["loss_gap"]),
        basis=Basis.PUBLISHED,
        params=float(gap["params"]),
        source=f"{bound}{gap['loss_gap']:.2%}: {gap['text']} ({gap['source']}){other}",
        other_recipe=its if differs else None,
    )


def measured_gap(kind: str, group: str, precision: str, recipe: str | None) -> Risk | None:
    """What was measured of a group of layers of a kind of workload; None where nothing was."""
    named = risk_facts()["measured"].get(precision)
    if named is None:
        return None
    usual = named["recipe"] if recipe is None else named.get("of", {}).get(recipe)
    return _table().get((kind, group, precision, usual))


@data
def _table() -> Mapping[tuple[str, str, str, str], Risk]:
    """The measured gaps by kind of workload, group, precision and recipe; several models are averaged."""
    path = packaged(__package__, f"data/{_TABLE}")
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
    # The spread of the gap over seeds; of one seed, what another seed does to fp32, which is larger.
    spreads = [float(row["gap_spread"] or row["fp32_spread"] or "nan") for row in rows]
    seeds = [max(int(row["seeds"]), 1) for row in rows]
    errors = [spread / math.sqrt(count) for spread, count in zip(spreads, seeds, strict=True)]
    error = math.sqrt(math.fsum(each**2 for each in errors)) / len(rows)
    first = rows[0]
    models = ", ".join(f"{row['model']} ({float(row['params']):,.0f} parameters)" for row in rows)
    return Risk(
        loss_gap=math.fsum(gaps) / len(gaps),
        basis=Basis.MEASURED,
        params=math.exp(math.fsum(math.log(float(row["params"])) for row in rows) / len(rows)),
        source=(
            f"small training, {models}, {first['precision']} {first['recipe']}, {first['seeds']} seeds, "
            f"{first['source']}"
        ),
        error=None if math.isnan(error) else error,
    )


def risk_facts() -> Mapping[str, Any]:
    """What is known of precisions: `data/risks.toml`."""
    return packaged_toml(__package__, "data/risks.toml")


def risk_share(name: str, given: float | str) -> float:
    """A risk as a relative gap of the loss: 0.0025, "0.0025" or "0.25%".

    Raises:
        ConfigError: If it is no number from 0 to 1.

    >>> risk_share("risk_budget", "0.25%")
    0.0025
    """
    text = str(given).strip()
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"{name}={shown(given)}. The rule: a relative gap of the loss from 0 to 1. To fix: such as "
            "0.0025 or 0.25%."
        )
    return value
