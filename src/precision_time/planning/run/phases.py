"""Phases of a run: parts with lengths of their own, in which fields of the request differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...errors import ConfigError
from ...records import dataclass
from ...request.request import Request
from ...request.schema import ALIASES, GLOBAL_BATCHES, RUN_LENGTHS, RequestFields
from ...request.sweep import values_of
from .schema import PhaseLength

_LENGTHS = ("steps", "epochs", "tokens", "samples")
_WHOLE = frozenset({"steps", "tokens", "samples"})
_FIXED = (
    *("model", "device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "cluster"),
    *("custom", "calibration", "predictor", "anchors", "coverage", "trust", "forward", "loss"),
    *("inputs", "example_inputs"),
)
"""Fields that hold for the whole run."""
_SAME_PROGRAM = frozenset({*RUN_LENGTHS, *GLOBAL_BATCHES, "samples", "num_microbatches"})
"""Fields that may change without compiling the step again."""
_ROUNDING = 1e-3
"""Relative difference by which phases may miss the total that stands beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One part of a run; an ordinary request."""

    name: str
    request: Request
    compiles: bool
    """Whether its step is another program than that of the phase before."""


def phases_of(request: Request, given: Sequence[Mapping[str, Any]] | None) -> tuple[Phase, ...]:
    """The phases of a run, those with several values of a field cut into plateaus.

    Args:
        request: What all of them share; its length is the total.
        given: A mapping for each: fields that differ, `name`, and its length as steps, epochs, tokens,
            samples or share of the total. One without a length takes what is left.

    Raises:
        ConfigError: If a phase is no mapping, changes what may not change, or lengths contradict each other.
    """
    if given is None:
        _check_length(request)
        return (Phase(name="", request=request, compiles=True),)
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence) or not given:
        raise ConfigError(
            "phases must be a list of at least one phase. To fix: write each like `- {seq_len: 128, "
            "steps: 9000}`."
        )
    parts = [_part(each, f"phase {number}") for number, each in enumerate(given, start=1)]
    unit, amounts = _amounts(request, [length for _, _, length in parts])
    shared = {name: value for name, value in request.given().items() if name not in RUN_LENGTHS}
    if "samples" in unit:
        shared.pop("samples", None)
    found: list[Phase] = []
    for (name, changes, _), kind, amount in zip(parts, unit, amounts, strict=True):
        for said, plateau, length in _plateaus(name, changes, kind, amount):
            own = {"samples": length, "epochs": 1} if kind == "samples" else {kind: length}
            try:
                asked = Request.of(_merged(shared, {**plateau, **own}))
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
            found.append(Phase(name=said, request=asked, compiles=True))
    return tuple(
        Phase(
            name=phase.name,
            request=phase.request,
            compiles=number == 0 or _program(phase.request) != _program(found[number - 1].request),
        )
        for number, phase in enumerate(found)
    )


def _check_length(request: Request) -> None:
    """A run needs a length: one epoch is nobody's whole training.

    Raises:
        ConfigError: If there is none.
    """
    if all(getattr(request, name) is None for name in RUN_LENGTHS):
        raise ConfigError(
            "How long is the run? Its length is not given. To fix: give steps=, epochs= or tokens= (--steps, "
            "--epochs, --tokens), or phases in a job file."
        )


def _part(given: Any, place: str) -> tuple[str, dict[str, Any], PhaseLength]:
    """Name, fields that differ, and length of one phase as it is written."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{place}: a phase is a mapping of fields to values, got {type(given).__name__}. To fix: write "
            "it like `{seq_len: 128, steps: 9000}`."
        )
    flat = {ALIASES.get(str(name), str(name)): value for name, value in given.items() if value is not None}
    layout = flat.pop("layout", None)
    flat |= dict(layout) if isinstance(layout, Mapping) else {}
    name = str(flat.pop("name", "")) or place
    for fixed in _FIXED:
        if fixed in flat:
            raise ConfigError(
                f"{name}: {fixed} may not change in the middle of a run. To fix: leave out {fixed}, or "
                "predict the parts as runs of their own and add them up."
            )
    stated = {unit: flat.pop(unit) for unit in (*_LENGTHS, "share") if unit in flat}
    if len(stated) > 1:
        said = " and ".join(f"{unit}={value}" for unit, value in stated.items())
        raise ConfigError(f"{name}: {said} both say how long it is. To fix: give only one of them.")
    try:
        length = PhaseLength.of(stated)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return name, flat, length


def _amounts(request: Request, lengths: Sequence[PhaseLength]) -> tuple[list[str], list[float]]:
    """Unit and amount of every phase, shares and what is left among them taken from the total.

    Raises:
        ConfigError: If they contradict the total, or need one that is not given.
    """
    total_unit = next((name for name in RUN_LENGTHS if getattr(request, name) is not None), None)
    total = None if total_unit is None else float(getattr(request, total_unit))
    stated = [_stated(length) for length in lengths]
    open_ends = [number for number, one in enumerate(stated, start=1) if one is None]
    if total is None or total_unit is None:
        for number, one in enumerate(stated, start=1):
            if one is None or one[0] == "share":
                raise ConfigError(
                    f"phase {number} has {'no length' if one is None else 'a share of the total'}, and no "
                    "total is given. To fix: give steps, epochs, tokens or samples in the phase, or beside "
                    "the phases as the total."
                )
        return [one[0] for one in stated if one], [one[1] for one in stated if one]
    for number, one in enumerate(stated, start=1):
        if one is not None and one[0] not in ("share", total_unit):
            raise ConfigError(
                f"phase {number} is given in {one[0]}, the total in {total_unit}. To fix: leave out the "
                f"total, or give every phase in {total_unit} or as a share."
            )
    if len(open_ends) > 1:
        raise ConfigError(
            f"phases {' and '.join(map(str, open_ends))} have no length. To fix: at most one takes what is "
            "left of the total."
        )
    amounts = [math.nan if one is None else one[1] * (total if one[0] == "share" else 1.0) for one in stated]
    known = math.fsum(amount for amount in amounts if not math.isnan(amount))
    left = total - known
    if left < -_ROUNDING * total or (abs(left) > _ROUNDING * total) != bool(open_ends):
        raise ConfigError(
            f"The phases make up {known:,.10g} {total_unit}, the total is {total:,.10g}. To fix: leave out "
            "the total, or let the phases add up to it."
        )
    amounts = [left if math.isnan(amount) else amount for amount in amounts]
    return [total_unit] * len(amounts), _whole(amounts) if total_unit in _WHOLE else amounts


def _stated(length: PhaseLength) -> tuple[str, float] | None:
    return next(
        (
            (name, float(value))
            for name in (*_LENGTHS, "share")
            if (value := getattr(length, name)) is not None
        ),
        None,
    )


def _whole(amounts: Sequence[float]) -> list[float]:
    """Whole numbers with the same sum."""
    ends = [round(math.fsum(amounts[:number])) for number in range(len(amounts) + 1)]
    return [float(high - low) for low, high in pairwise(ends)]


def _plateaus(
    name: str, changes: Mapping[str, Any], unit: str, amount: float
) -> list[tuple[str, dict[str, Any], float]]:
    """A phase, or its plateaus of equal length where a field has several values (`256..1024`).

    Raises:
        ConfigError: If several fields have several values, or there is less than a step for each.
    """
    fields = RequestFields.model_fields
    ramps = {
        field: values
        for field, given in changes.items()
        if field in fields and len(values := values_of(field, fields[field], given)) > 1
    }
    if len(ramps) > 1:
        raise ConfigError(
            f"{name}: {' and '.join(ramps)} both have several values. To fix: ramp one field in a phase, and "
            "write the plateaus as phases otherwise."
        )
    if not ramps:
        return [(name, dict(changes), int(amount) if unit in _WHOLE else amount)]
    [(field, values)] = ramps.items()
    parts = [amount / len(values)] * len(values)
    parts = _whole(parts) if unit in _WHOLE else parts
    if min(parts) <= 0.0:
        raise ConfigError(
            f"{name}: {amount:g} {unit} are too few for {len(values)} plateaus. To fix: name fewer values."
        )
    return [
        (
            f"{name}, {field.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}",
            {**changes, field: value},
            int(part) if unit in _WHOLE else part,
        )
        for value, part in zip(values, parts, strict=True)
    ]


def _merged(shared: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes in the place of what they change; a global batch takes the place of one in other words."""
    kept = dict(shared)
    if any(name in changes for name in GLOBAL_BATCHES):
        kept = {name: value for name, value in kept.items() if name not in GLOBAL_BATCHES}
    sizes = (
        {**kept.get("sizes", {}), **changes["sizes"]} if isinstance(changes.get("sizes"), Mapping) else None
    )
    return {**kept, **changes} | ({} if sizes is None else {"sizes": sizes})


def _program(request: Request) -> dict[str, Any]:
    return {name: value for name, value in request.given().items() if name not in _SAME_PROGRAM}
