"""The page of precision advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...render.blocks import GAP, Block, Text, Tone
from ...render.table import Table
from ...units import format_bytes, format_duration
from .risk import Basis, Risk

if TYPE_CHECKING:
    from .advice import AdvisedPrecision, PrecisionAdvice

_MARK = "*"


def blocks_of(advice: PrecisionAdvice) -> Iterator[Block]:
    """One page: times side by side, risks side by side, what is known of the one to take."""
    columns = ("precision", "loss scaling", "exponent, mantissa", ">largest", "recipe", "standing",
               ">loss gap", "from")  # fmt: skip
    risks = Table(columns=columns, rows=tuple(map(_risk_cells, advice.rows)))
    yield from (Text(_headline(advice), Tone.LEAD), GAP, _times(advice), GAP, risks, GAP)
    best = advice[advice.recommended]
    yield from (Text(f"What would change this: {line}") for line in advice.changes)
    yield from (Text(f"{best.precision}, {fact.kind}: {fact.text} ({fact.source})") for fact in best.facts)
    yield from (Text(line, Tone.SOFT) for line in _notes(advice))


def notebook_of(advice: PrecisionAdvice) -> Iterator[Block]:
    """What to take, and the times."""
    yield from (Text(_headline(advice), Tone.LEAD), _times(advice))


def _headline(advice: PrecisionAdvice) -> str:
    if not advice[advice.recommended].fits:
        return advice.reason
    return f"Take {advice.recommended} for {advice.model} on {advice.gpus} x {advice.device}. {advice.reason}"


def _times(advice: PrecisionAdvice) -> Table:
    of_run = any(row.run_time_s is not None for row in advice.rows)
    columns = ("precision", ">step time", ">relative", ">90% interval", ">memory", "fits")
    best_s = advice[advice.recommended].prediction.step_time_s
    return Table(
        columns=(*columns, *((">run", ">cost", ">energy") if of_run else ())),
        rows=tuple(
            _time_cells(row, best_s, of_run, row.precision == advice.recommended) for row in advice.rows
        ),
    )


def _time_cells(row: AdvisedPrecision, own_s: float, of_run: bool, taken: bool) -> tuple[str, ...]:
    found = row.prediction
    cells = [
        f"{row.precision} {_MARK}" if taken else row.precision,
        format_duration(found.step_time_s),
        f"{found.step_time_s / own_s:.2f} x",
        f"{format_duration(found.interval.low_s)} - {format_duration(found.interval.high_s)}",
        format_bytes(found.memory_bytes_per_device),
        "yes" if row.fits else "no",
    ]
    if of_run:
        cells += [
            "-" if row.run_time_s is None else format_duration(row.run_time_s),
            "-" if row.cost_usd is None else f"{row.cost_usd:,.0f} USD",
            "-" if row.energy_kwh is None else f"{row.energy_kwh:,.4g} kWh",
        ]
    return tuple(cells)


def _risk_cells(row: AdvisedPrecision) -> tuple[str, ...]:
    kind, risk = row.number_type, row.risk
    return (
        row.precision,
        _scaling(row),
        f"{kind.exponent_bits}, {kind.mantissa_bits} bits",
        f"{kind.largest:.3g}",
        row.recipe or "-",
        row.standing,
        "not known" if risk is None else "-" if risk.basis is Basis.REFERENCE else _gap(risk),
        "-" if risk is None else ", ".join(filter(None, (risk.basis.value, risk.other_recipe))),
    )


def _gap(risk: Risk | None) -> str:
    """With the standard error of a measured one."""
    if risk is None:
        return "-"
    return f"{risk.loss_gap:+.2%}" + ("" if risk.error is None else f" ± {risk.error:.2%}")


def _scaling(row: AdvisedPrecision) -> str:
    if not row.needs_loss_scaling:
        return "-"
    return "needed" if row.loss_scaling else "needed, not done"


def _notes(advice: PrecisionAdvice) -> Iterator[str]:
    for row in advice.rows:
        if row.risk is not None and row.risk.basis is not Basis.REFERENCE:
            yield f"Loss gap of {row.precision}: {row.risk.source}."
    beside = [row for row in advice.rows if row.measured is not None and row.measured != row.risk]
    if beside:
        gaps = ", ".join(f"{row.precision} {_gap(row.measured)}" for row in beside)
        yield f"Also measured in small trainings, and farther in size or too uncertain: {gaps}."
    for name, reason in advice.skipped.items():
        yield f"Left out: {name}: {reason}"
    yield from advice.notes
