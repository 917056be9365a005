"""The page about a whole run: how long, why, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...render.blocks import GAP, Block, Text, Tone, warnings
from ...render.table import Table
from ...units import KILO, format_bytes, format_duration, format_range, grouped, plain_name

if TYPE_CHECKING:
    from .prediction import RunPrediction

_DIGITS = 3
"""Of simulated figures: more is noise."""


def in_one_line(run: RunPrediction) -> str:
    """Model, devices, total with its interval, and whether it fits."""
    fits = "" if run.fits else "does not fit: "
    return (
        f"{fits}{run.model} on {run.gpus} x {run.device}: {format_duration(run.total_s)} ({_interval(run)})"
    )


def blocks_of(run: RunPrediction) -> Iterator[Block]:
    """The answer in sentences, the terms, the phases, what they rest on."""
    yield from (Text(line, Tone.LEAD) for line in answer_lines(run))
    yield from (Text(line, Tone.SOFT) for line in _about(run))
    yield GAP
    for table in (_terms(run), _phases(run), _targets(run)):
        if table.rows:
            yield from (table, GAP)
    # Assumptions about the step are those of `predict`.
    told = (item.text for item in run.diagnostics if item.code in _ABOUT_THE_RUN)
    yield from (Text(text) for text in told if text in run.assumptions)
    yield from warnings(run.warnings)


def notebook_of(run: RunPrediction) -> Iterator[Block]:
    """The answer and the terms."""
    yield Text(" ".join(answer_lines(run)), Tone.LEAD)
    yield _terms(run)
    if (phases := _phases(run)).rows:
        yield from (Text("Phases", Tone.LEAD), phases)


def answer_lines(run: RunPrediction) -> Iterator[str]:
    """How long, how sure, and how much of it is steps."""
    start = "The run takes" if run.fits else "If it fitted in memory, the run would take"
    yield (
        f"{start} {format_duration(run.total_s)} ({_interval(run)}); half of such runs end within "
        f"{_rounded(run.p50_s)}, 9 in 10 within {_rounded(run.p90_s)}."
    )
    interrupted = (
        f"{_count(run.failures)} interruptions expected, one in {format_duration(run.mtbf_s)}"
        if run.mtbf_s is not None
        else "no interruptions counted"
    )
    yield (
        f"Goodput {run.goodput:.1%}: that share is steps. {interrupted[0].upper()}{interrupted[1:]}. "
        f"{grouped(run.device_hours)} device-hours."
    )
    money, energy = run.cost_interval_usd, run.energy_interval_kwh
    spent = [
        *([f"{grouped(run.cost_usd)} USD ({_ends(money)})"] if run.cost_usd is not None and money else []),
        *(
            [f"{grouped(run.energy_kwh)} kWh ({_ends(energy)})"]
            if run.energy_kwh is not None and energy
            else []
        ),
        *([f"{grouped(run.carbon_g / KILO)} kg of CO2"] if run.carbon_g is not None else []),
    ]
    if spent:
        yield f"It costs {', '.join(spent)}.{_each(run)}"


def _ends(ends: tuple[float, float]) -> str:
    return f"{_grouped_3(ends[0])} to {_grouped_3(ends[1])}"


def _grouped_3(value: float) -> str:
    return grouped(float(f"{value:.{_DIGITS}g}"))


_SHOWN_PER = {"token": (1e9, "billion tokens")}
"""Units too small for money, and what is said instead; a million of others."""


def _each(run: RunPrediction) -> str:
    """Money for an epoch or so many units."""
    said = []
    for unit, usd in run.cost_per_usd.items():
        times, words = (1.0, unit) if unit == "epoch" else _SHOWN_PER.get(unit, (1e6, f"million {unit}s"))
        said.append(f"{_grouped_3(usd * times)} USD for {'an' if unit == 'epoch' else 'a'} {words}")
    return f" {', '.join(said)}." if said else ""


def _about(run: RunPrediction) -> Iterator[str]:
    first = run.phases[0].prediction
    precisions = ", ".join(dict.fromkeys(phase.prediction.precision for phase in run.phases))
    steps = sum(phase.steps for phase in run.phases)
    yield (
        f"{run.model} on {run.gpus} x {run.device}, {precisions}, {steps:,} steps of "
        f"{format_duration(run.terms['steps'] / steps)}, stack {first.stack}"
    )
    number = sum(phase.checkpoints for phase in run.phases)
    interval_s = max(run.phases, key=lambda phase: phase.total_s).checkpoint_interval_s
    size = format_bytes(run.checkpoint_bytes)
    yield f"{number:,} checkpoints of {size}, one per {format_duration(interval_s)} of work"


def _terms(run: RunPrediction) -> Table:
    """The terms that are not zero, in order, and their sum."""
    rows = (
        (plain_name(name), format_duration(seconds), f"{seconds / run.total_s:.1%}")
        for name, seconds in run.terms.items()
        if seconds > 0.0
    )
    total = ("total", format_duration(run.total_s), "100%")
    return Table(columns=("where the time goes", ">time", ">share"), rows=(*rows, total))


def _phases(run: RunPrediction) -> Table:
    """Every phase, where there are several."""
    rows = (
        (
            phase.name,
            f"{phase.steps:,}",
            format_duration(phase.prediction.step_time_s),
            phase.prediction.precision,
            f"{phase.prediction.global_batch_size:,g}",
            format_duration(phase.total_s),
            f"{phase.total_s / run.total_s:.1%}",
        )
        for phase in run.phases
        if len(run.phases) > 1
    )
    columns = ("phase", ">steps", ">step", ">precision", ">batch", ">time", ">share")
    return Table(columns=columns, rows=tuple(rows))


def _targets(run: RunPrediction) -> Table:
    """Batches side by side."""
    rows = (
        (
            f"{target.global_batch_size:,g}",
            f"{target.steps:,}",
            f"{target.samples:,.4g}",
            format_duration(target.step_time_s),
            format_duration(target.steps_s),
        )
        for target in run.targets
    )
    return Table(columns=(">batch", ">steps", ">samples", ">step", ">time of steps"), rows=tuple(rows))


_ABOUT_THE_RUN = ("failures", "spot", "evaluation", "data", "spread", "convergence", "price", "energy")
"""Codes of assumptions that are not about its steps."""


def _interval(run: RunPrediction) -> str:
    low, high = (_figure(value) for value in (run.interval.low_s, run.interval.high_s))
    return f"{run.interval.coverage:.0%} interval {format_range(low, high)}"


def _count(number: float) -> str:
    return f"{number:.2g}" if number < 100.0 else f"{float(f'{number:.2g}'):,.0f}"  # noqa: PLR2004


def _rounded(seconds: float) -> str:
    return format_duration(_figure(seconds))


def _figure(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
