"""`advise_precisions`: every precision of a device side by side, and the one to take.

The rule: of the precisions that fit in memory, that published trainings rest on, and whose known loss gap is
within the budget, the fastest; of those within a few percent of it, the one that is the least trouble: the
better established one, then the one with the smaller loss gap. A precision whose loss gap nobody measured or
published with its scaling recipe, or whose standing is research, is shown and not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from ...errors import ConfigError
from ...precision.catalog import get_policy
from ...predict.compare import answer_all
from ...predict.prediction import Prediction
from ...records import dataclass
from ...render.blocks import TEXT_WIDTH, Block
from ...render.result import Tabular
from ...request.request import Request
from ...request.schema import RUN_LENGTHS
from ...request.signature import as_request, takes_request_fields
from ...request.sweep import ALL, combinations_of
from ...units import format_bytes
from ..run.api import run_of
from ..run.schema import RunOptions
from .risk import (
    DEFAULT_BUDGET,
    NEAREST,
    Fact,
    NumberType,
    Risk,
    facts_of,
    measured_risk,
    needs_loss_scaling,
    number_type,
    risk_of,
    risk_share,
    standing,
)

_NEAR = 0.05
"""Times that differ by less are taken as equal: the median error of the predictor is larger."""
_TWICE, _EQUAL = 2.0, 0.005
_TROUBLE = ("reference", "established", "with care", "research", "unknown")
_TAKEN = _TROUBLE[:3]
"""Standings of what may be recommended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvisedPrecision:
    """What one precision means for a job."""

    precision: str
    prediction: Prediction
    run_time_s: float | None
    """Expected, of the whole run; None where no length is given."""
    cost_usd: float | None
    """Of the run; None where no length is given or no price is known."""
    energy_kwh: float | None
    """Of the run, hosts and cooling included; None where no length is given."""
    needs_loss_scaling: bool
    """Whether gradients become zero in it without."""
    loss_scaling: bool
    """Whether the policy scales the loss."""
    number_type: NumberType
    """Of its products."""
    recipe: str | None
    """Of narrow products: how their scales are found."""
    standing: str
    risk: Risk | None
    """None where no loss gap is known."""
    measured: Risk | None
    """What was measured of this kind of model, also where it is too uncertain to be the risk."""
    facts: tuple[Fact, ...]

    @property
    def fits(self) -> bool:
        """Whether the job fits in memory."""
        return self.prediction.fits

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        found = {
            name: getattr(self, name)
            for name in (
                "precision",
                "run_time_s",
                "cost_usd",
                "energy_kwh",
                "loss_scaling",
                "recipe",
                "standing",
            )
        }
        return found | {
            "fits": self.fits,
            "step_time_s": self.prediction.step_time_s,
            "memory_bytes_per_device": self.prediction.memory_bytes_per_device,
            "number_type": asdict(self.number_type),
            "risk": None if self.risk is None else self.risk.to_dict(),
            "measured": None if self.measured is None else self.measured.to_dict(),
            "facts": [asdict(fact) for fact in self.facts],
            "prediction": self.prediction.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class PrecisionAdvice(Tabular):
    """The precisions of a device side by side, fastest first, and one of them."""

    model: str
    device: str
    gpus: int
    risk_budget: float
    recommended: str
    reason: str
    changes: tuple[str, ...]
    """What would change the advice."""
    notes: tuple[str, ...] = ()
    rows: tuple[AdvisedPrecision, ...]
    skipped: Mapping[str, str]
    """Precisions that the device cannot run, and why."""
    request: Request | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, precision: str) -> AdvisedPrecision:
        """The row of a precision."""
        return next(row for row in self.rows if row.precision == precision)

    def columns(self) -> dict[str, list[Any]]:
        """One list for each figure, a row for each precision."""
        flat = [
            {name: value for name, value in row.to_dict().items() if not isinstance(value, dict | list)}
            | {
                "loss_gap": None if row.risk is None else row.risk.loss_gap,
                "risk_basis": None if row.risk is None else row.risk.basis.value,
                "recommended": row.precision == self.recommended,
            }
            for row in self.rows
        ]
        names = dict.fromkeys(name for row in flat for name in row)
        return {name: [row.get(name) for row in flat] for name in names}

    def in_one_line(self) -> str:
        """The one to take."""
        return f"{self.recommended} for {self.model} on {self.gpus} x {self.device}"

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time precisions advise` prints."""
        from .page import blocks_of

        del width, why
        return blocks_of(self)

    def notebook(self) -> Iterator[Block]:
        """What to take, and the times."""
        from .page import notebook_of

        return notebook_of(self)


@takes_request_fields(without=("precision",))
def advise_precisions(
    model: Any,
    *,
    precisions: str | Sequence[str] = ALL,
    risk_budget: float | str = DEFAULT_BUDGET,
    evidence: str = NEAREST,
    **options: Any,
) -> PrecisionAdvice:
    """Every precision of a device side by side: time, cost, energy, memory and risk; and which to take.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        precisions: Names in any usual spelling; all that the device can run by default.
        risk_budget: Largest relative gap of the loss that is accepted, such as 0.0025 or "0.25%".
        evidence: Which loss gaps count: measured (small trainings), published, or nearest: of the two the
            one whose model is nearer in size.
        options: Fields of `Request`, all optional. With a length (tokens, epochs, steps) the whole run is
            predicted, with its cost and energy.

    Raises:
        ConfigError: If none can be run; as `predict_time` otherwise.
    """
    budget = risk_share("risk_budget", risk_budget)
    asked = as_request(model, options)
    named = precisions if isinstance(precisions, str) else [*precisions]
    answers = answer_all(combinations_of({**asked.given(), "precision": named}))
    if not answers.predictions:
        reasons = "; ".join(each.reason for each in answers.skipped)
        raise ConfigError(f"No precision can be advised: {reasons}")
    unsaid = "No length is given, so no cost and no energy: --tokens, --epochs or --steps."
    notes = [] if _has_length(asked) else [unsaid]
    rows = sorted(
        (_row(answer, asked, evidence, notes) for answer in answers.predictions),
        key=lambda row: row.prediction.step_time_s,
    )
    best, reason = _recommended(rows, budget)
    first = answers[0]
    return PrecisionAdvice(
        model=first.model,
        device=first.device,
        gpus=first.gpus,
        rows=tuple(rows),
        skipped={str(each.request.get("precision")): each.reason for each in answers.skipped},
        risk_budget=budget,
        recommended=best.precision,
        reason=reason,
        changes=tuple(_changes(rows, best, budget)),
        notes=tuple(dict.fromkeys(notes)),
        request=asked,
    )


def _has_length(asked: Request) -> bool:
    return any(getattr(asked, name) is not None for name in RUN_LENGTHS)


def _row(answer: Prediction, asked: Request, evidence: str, notes: list[str]) -> AdvisedPrecision:
    request = Request.of(dict(answer.request))
    job = request.resolve()
    run = run_of(request, RunOptions()) if _has_length(asked) else None
    if run is not None:
        notes += [item.text for item in run.diagnostics if item.code in ("price", "energy")]
    policy = get_policy(answer.precision)
    runs = job.runs
    return AdvisedPrecision(
        precision=answer.precision,
        prediction=answer,
        run_time_s=None if run is None else run.total_s,
        cost_usd=None if run is None else run.cost_usd,
        energy_kwh=None if run is None else run.energy_kwh,
        needs_loss_scaling=needs_loss_scaling(answer.precision),
        loss_scaling=policy.loss_scaling,
        number_type=number_type(runs.matmul),
        recipe=job.precision.fp8_recipe,
        standing=standing(answer.precision),
        risk=risk_of(job.workload, answer.precision, recipe=job.precision.fp8_recipe, evidence=evidence),
        measured=measured_risk(job.workload, answer.precision, recipe=job.precision.fp8_recipe),
        facts=facts_of(answer.precision),
    )


def _recommended(rows: Sequence[AdvisedPrecision], budget: float) -> tuple[AdvisedPrecision, str]:
    """The row to take and why."""
    fitting = [row for row in rows if row.fits]
    if not fitting:
        least = min(rows, key=lambda row: row.prediction.memory_bytes_per_device)
        needs = format_bytes(least.prediction.memory_bytes_per_device)
        return least, (
            f"Nothing fits; {least.precision} needs the least memory, {needs} of "
            f"{format_bytes(least.prediction.device_memory_bytes)}. Its layout or batch has to change first: "
            "`precision-time predict` with the same options says what fits."
        )
    known = [row for row in fitting if _allowed(row, budget)]
    allowed = known or fitting
    fastest = min(allowed, key=_step_s)
    near = [row for row in allowed if _step_s(row) <= _step_s(fastest) * (1.0 + _NEAR)]
    best = min(near, key=lambda row: (_TROUBLE.index(row.standing), _gap(row), _step_s(row)))
    if not known:
        return best, f"No loss gap within {budget:.2%} is known of any that fits; this is the least trouble."
    words = f"the fastest whose known loss gap is within {budget:.2%}"
    if best is not fastest:
        words = (
            f"{best.standing}, and within {_NEAR:.0%} of {fastest.precision}, the fastest whose known loss "
            f"gap is within {budget:.2%}"
        )
    if best.recipe is not None:
        words += f", with {best.recipe} scaling"
    others = [row for row in allowed if row is not best]
    if others and best is fastest:
        second = min(others, key=_step_s)
        words += f"; {_faster(_step_s(second) / _step_s(best))} {second.precision}"
    return best, f"It is {words}."


def _changes(rows: Sequence[AdvisedPrecision], best: AdvisedPrecision, budget: float) -> Iterator[str]:
    """What would make another precision the one to take."""
    own = _step_s(best)
    if not best.fits:
        return
    allowed = [row for row in rows if row.fits and _allowed(row, budget)]
    if best.risk is not None and best.risk.counted > 0.0:
        below = [row for row in allowed if _gap(row) < best.risk.counted]
        if below:
            other = min(below, key=_step_s)
            yield (
                f"A risk budget below {best.risk.counted:.3%}: {other.precision}, "
                f"{_step_s(other) / own - 1.0:.0%} slower."
            )
    if best.prediction.interval.high_s > own:
        near = [
            row.precision
            for row in allowed
            if row is not best and row.prediction.interval.low_s < best.prediction.interval.high_s
        ]
        if near:
            yield (
                f"Measured steps (--anchor): the intervals of {', '.join(near)} overlap with that of "
                f"{best.precision}."
            )
    for row in rows:
        gain = own / _step_s(row) - 1.0
        if row is best or gain <= _NEAR:
            continue
        if not row.fits:
            needs = format_bytes(row.prediction.memory_bytes_per_device)
            yield f"Memory: {row.precision} is {gain:.0%} faster but needs {needs}."
        elif row.risk is None:
            yield f"A known loss gap of {row.precision}: {gain:.0%} faster; none was measured or published."
        elif row.risk.other_recipe is not None:
            yield (
                f"A loss gap of {row.precision} with {row.recipe} scaling: {gain:.0%} faster; the known one, "
                f"{row.risk.loss_gap:.2%}, was found with {row.risk.other_recipe} scaling."
            )
        elif row.risk.counted > budget:
            faster = f"{gain:.0%} faster{_unproved(row)}"
            yield f"A risk budget of {row.risk.counted:.3%}: {row.precision}, {faster}."
        else:
            yield f"Trainings of this size in {row.precision}: {gain:.0%} faster{_unproved(row)}."


def _allowed(row: AdvisedPrecision, budget: float) -> bool:
    """Whether it may be taken where it fits."""
    risk = row.risk
    if risk is None or risk.other_recipe is not None:
        return False
    return risk.counted <= budget and row.standing in _TAKEN


def _unproved(row: AdvisedPrecision) -> str:
    return "" if row.standing in _TAKEN else f", its standing is {row.standing}"


def _faster(ratio: float) -> str:
    """As "39% faster than", or "3.1 times as fast as"."""
    if ratio < 1.0 + _EQUAL:
        return "as fast as"
    return f"{ratio - 1.0:.0%} faster than" if ratio < _TWICE else f"{ratio:.1f} times as fast as"


def _step_s(row: AdvisedPrecision) -> float:
    return row.prediction.step_time_s


def _gap(row: AdvisedPrecision) -> float:
    return float("inf") if row.risk is None else row.risk.counted
