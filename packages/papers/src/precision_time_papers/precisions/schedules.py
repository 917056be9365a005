"""Precision schedules over the layers of a job: their policies, their predicted times, their risks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_time.arrays import Floats, Ints
from precision_time.cost.job import Job
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.forks import cached_property
from precision_time.planning.precisions.risk import NEAREST, Risk
from precision_time.precision.catalog import shown_precision
from precision_time.precision.own import fields_of
from precision_time.precision.policy import NARROW, DType
from precision_time.precision.support import computed_as
from precision_time.predict.api import predict_each
from precision_time.predict.prediction import Prediction
from precision_time.predict.remedies import at_layout
from precision_time.request.request import Request

from .groups import LayerGroup, layer_groups
from .knapsack import Choices
from .layer_risk import group_risks, schedule_fields

_AT_ONCE = 64
_LONGEST = 60
"""Characters of a policy's name."""
_SCHEDULED = (DType.TF32, DType.BF16, DType.FP16, DType.FP8, DType.FP4, DType.INT8)
Picks = tuple[int, ...]
"""For each group the index of its type; 0 is the reference."""
Progress = Callable[[int, int | None, str], None]


@dataclass(kw_only=True)
class Schedules:
    """All schedules of a job that give each group of layers the reference or one of some types.

    Times are those of the predictor, each asked once.
    """

    request: Request
    """With the layout and the batch that are compared."""
    job: Job
    """Of the request at the reference precision."""
    reference: Mapping[str, Any]
    """The reference precision, as a policy file says it."""
    reference_name: str
    """As it was asked."""
    groups: tuple[LayerGroup, ...]
    types: tuple[DType, ...]
    """Beside the reference."""
    risks: tuple[tuple[Risk | None, ...], ...]
    """Of each group in each type; None where no number is known."""
    recipe: str | None = None
    """Of narrow products; None for the usual one of schedules."""
    progress: Progress | None = None
    _known: dict[Picks, Prediction] = field(default_factory=dict, repr=False)

    @property
    def evaluations(self) -> int:
        """Schedules that the predictor was asked for so far."""
        return len(self._known)

    @property
    def kinds(self) -> int:
        """Types of a group, the reference included."""
        return len(self.types) + 1

    def policy(self, picks: Sequence[int]) -> dict[str, Any]:
        """The schedule as a policy file says it; the reference itself where no layer differs."""
        said = dict(self.reference)
        used = dict.fromkeys(self.types[kind - 1] for kind in picks if kind)
        if not used:
            return said
        said["name"] = f"{said['name']} with {' and '.join(dtype.value for dtype in used)} layers"[:_LONGEST]
        for dtype in used:
            said |= schedule_fields(dtype, recipe=self.recipe)
        said["layers"] = said.get("layers", {}) | {
            pattern: self.types[kind - 1].value
            for group, kind in zip(self.groups, picks, strict=True)
            if kind
            for pattern in group.patterns
            if not (self.types[kind - 1] in NARROW and pattern in group.wide)
        }
        return said

    def times_s(self, asked: Iterable[Sequence[int]]) -> Floats:
        """Predicted step times, in the order asked."""
        return np.array([each.step_time_s for each in self.predictions(asked)])

    def analytical_s(self, asked: Iterable[Sequence[int]]) -> Floats:
        """The same by the cost model alone."""
        return np.array([each.analytical_step_time_s for each in self.predictions(asked)])

    def risks_of(self, asked: Iterable[Sequence[int]]) -> Floats:
        """Sums of what the groups are charged."""
        return self.choices.risk_of(_array(asked, len(self.groups)))

    def predictions(self, asked: Iterable[Sequence[int]]) -> list[Prediction]:
        """The predictor's answers, in the order asked.

        Raises:
            PrecisionTimeError: If a schedule has none.
        """
        wanted = [tuple(int(kind) for kind in picks) for picks in asked]
        new = [picks for picks in dict.fromkeys(wanted) if picks not in self._known]
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            requests = [self.request.with_(precision=self.policy(picks)) for picks in some]
            for picks, answer in zip(some, predict_each(requests, remedies=False), strict=True):
                if isinstance(answer, PrecisionTimeError):
                    raise answer
                self._known[picks] = answer
            if self.progress is not None:
                self.progress(start + len(some), len(new), "schedules predicted")
        return [self._known[picks] for picks in wanted]

    @cached_property
    def choices(self) -> Choices:
        """Groups as if their times added up: predicted differences of one group at a time.

        What a type adds once, whatever the groups, is set so that the schedule with all groups in it has its
        predicted time too.
        """
        return self._additive(self.times_s)

    @cached_property
    def analytical_choices(self) -> Choices:
        """The same of the cost model's times, which nearly add up."""
        return self._additive(self.analytical_s)

    def _additive(self, times_s: Callable[[Iterable[Sequence[int]]], Floats]) -> Choices:
        groups, kinds = len(self.groups), self.kinds
        singles = np.zeros((groups, kinds, groups), dtype=np.int64)
        for group in range(groups):
            singles[group, :, group] = np.arange(kinds)
        found = times_s(singles.reshape(-1, groups).tolist()).reshape(groups, kinds)
        seconds = found - found[:, :1]
        together = times_s([[kind] * groups for kind in range(kinds)]) - found[0, 0]
        fixed_s = np.zeros(kinds)
        if groups > 1:
            fixed_s = (seconds.sum(axis=0) - together) / (groups - 1)
        risk = np.zeros((groups, kinds))
        risk[:, 1:] = [[np.inf if each is None else each.counted for each in row] for row in self.risks]
        seconds[:, 1:] -= fixed_s[1:]
        return Choices(seconds=seconds, risk=risk, fixed_s=fixed_s)


def schedules_of(
    request: Request,
    *,
    types: Sequence[str] = (),
    recipe: str | None = None,
    evidence: str = NEAREST,
    bands: int = 1,
    progress: Progress | None = None,
) -> Schedules:
    """The schedules of a request, its own precision as the reference.

    Args:
        request: Its precision, or the usual one of the device, is the reference.
        types: Beside it, such as fp8; those that the device multiplies faster than the reference where empty
            and that a risk is known for.
        recipe: Of narrow products: current, delayed, blockwise ...; None for current scaling, or that of
            NVFP4.
        evidence: Which loss gaps count (`risk_of`).
        bands: Ranges that a stack of equal blocks is divided into.
        progress: Called with what is done.

    Raises:
        ConfigError: If there is no type to choose, or one cannot be.
    """
    base = request.resolve()
    if base.layout_chosen:
        request = at_layout(request, base)
    request = request.with_(batch_size=base.layout.micro_batch_size / base.workload.rows_per_sample)
    base = request.resolve(workload=base.workload)
    groups = layer_groups(base.workload.graph, bands=bands)
    chosen = _stated_types(types, base) if types else _faster_types(base)
    of_types = [
        group_risks(base.workload, groups, dtype, recipe=recipe, evidence=evidence) for dtype in chosen
    ]
    known = [place for place, risks in enumerate(of_types) if types or None not in risks]
    if not known:
        raise ConfigError(
            f"{base.cluster.device.name} multiplies no type faster than {base.precision.name} whose risk is "
            "known. To fix: a wider reference (--precision), or types of your own choice (--types)."
        )
    chosen = tuple(chosen[place] for place in known)
    risks = tuple(zip(*(of_types[place] for place in known), strict=True))
    reference = fields_of(base.precision)
    return Schedules(
        request=request.with_(precision=reference),
        job=base,
        reference=reference,
        reference_name=shown_precision(request.precision or base.precision.name),
        groups=groups,
        types=chosen,
        risks=risks,
        recipe=recipe,
        progress=progress,
    )


def _stated_types(types: Sequence[str], base: Job) -> tuple[DType, ...]:
    known = tuple(dtype.value for dtype in _SCHEDULED)
    wrong = [name for name in types if name not in known]
    if wrong:
        raise ConfigError(
            f"types={','.join(types)}: {', '.join(wrong)} cannot be the type of some layers. "
            f"To fix: of {', '.join(known)}."
        )
    found = tuple(dict.fromkeys(DType(name) for name in types))
    device = base.cluster.device
    lacking = [dtype for dtype in found if computed_as(device, dtype) is not dtype]
    if lacking:
        raise ConfigError(
            f"{device.name} has no units for {', '.join(lacking)}. To fix: leave it out of types, or another "
            "device."
        )
    if len(NARROW.intersection(found)) > 1:
        raise ConfigError(
            f"types={','.join(types)}: a policy has one recipe, so one narrow type. To fix: search for each."
        )
    return found


def _faster_types(base: Job) -> tuple[DType, ...]:
    """Types with a larger peak than the reference, fp8 and no other narrow type where there is fp8."""
    device = base.cluster.device
    peaks = device.peak_flops_per_s
    own = peaks.get(computed_as(device, base.precision.matmul).value, 0.0)
    found = [
        dtype
        for dtype in _SCHEDULED
        if peaks.get(dtype.value, 0.0) > own and computed_as(device, dtype) is dtype
    ]
    narrow = [dtype for dtype in found if dtype in NARROW]
    return tuple(dtype for dtype in found if dtype not in narrow[1:])


def _array(asked: Iterable[Sequence[int]], groups: int) -> Ints:
    return np.array([tuple(picks) for picks in asked], dtype=np.int64).reshape(-1, groups)
