"""The generated description of the corpus (docs/reference/corpus.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from precision_time.corpus.measurement import Measurement, Quality, Rejected
from precision_time.corpus.schema import COLUMNS

_MOST_REASONS = 40


def corpus_summary(measurements: Sequence[Measurement], rejected: Sequence[Rejected]) -> str:
    """Markdown: rows by source, device, precision, scope, stack and quality."""
    usable = [row for row in measurements if row.usable]
    configurations = len({row.configuration_key for row in usable})
    parts = [
        "# The corpus",
        "",
        "Written by `data/build_corpus.py`; do not edit.",
        "",
        f"{len(measurements) + len(rejected)} published rows: {len(usable)} with a step time of a known "
        "batch "
        f"({configurations} configurations), {len(measurements) - len(usable)} kept but unusable, "
        f"{len(rejected)} that name no configuration.",
        "",
        "## Columns of a measurement file",
        "",
        "CSV, UTF-8, comma, one header row. `model`, `device`, `devices`, `precision` and `step_time_s` or "
        "`throughput` must be there; every other column may be missing, and any cell may be empty.",
        "",
        ", ".join(f"`{name}`" for name in COLUMNS),
        "",
        _by_source(measurements, rejected),
        _counts("Device", usable, lambda row: row.device),
        _precisions(usable),
        _counts("What the time includes", usable, lambda row: row.scope.value),
        _counts("Stack", usable, lambda row: row.stack.profile),
        _counts("Devices in the run", usable, lambda row: _size_class(row.num_devices)),
        _reasons(measurements, rejected),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _by_source(measurements: Sequence[Measurement], rejected: Sequence[Rejected]) -> str:
    refused = Counter(row.source for row in rejected)
    tally = Counter((row.source, row.quality) for row in measurements)
    weights: Counter[str] = Counter()
    for row in measurements:
        weights[row.source] += row.weight  # type: ignore[assignment]
    lines = [
        "## Sources",
        "",
        "| source | rows | fine | suspect | unusable | no configuration | weight |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for source in sorted({row.source for row in measurements} | set(refused)):
        numbers = [tally[source, quality] for quality in (Quality.FINE, Quality.SUSPECT, Quality.UNUSABLE)]
        cells = [sum(numbers) + refused[source], *numbers, refused[source]]
        lines.append(f"| {source} | {' | '.join(map(str, cells))} | {weights[source]:.0f} |")
    return "\n".join([*lines, ""])


def _counts(title: str, rows: Sequence[Measurement], key: Callable[[Measurement], str]) -> str:
    counts = Counter(map(key, rows))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"## {title}", "", f"| {title.lower()} | usable rows |", "|---|--:|"]
    return "\n".join([*lines, *(f"| {name or '(not stated)'} | {count} |" for name, count in ordered), ""])


def _precisions(rows: Sequence[Measurement]) -> str:
    """How many rows bear each precision, and of how many its source does not state it."""
    counts = Counter(row.precision for row in rows)
    inferred = Counter(row.precision for row in rows if row.precision_inferred)
    share = inferred.total() / max(1, counts.total())
    lines = [
        "## Precision",
        "",
        f"Of {inferred.total()} usable rows ({share:.1%}) the source does not state the precision: it was "
        "inferred by who collected the row, or filled in by a rule.",
        "",
        "| precision | usable rows | of these inferred |",
        "|---|--:|--:|",
    ]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join([*lines, *(f"| {name} | {count} | {inferred[name]} |" for name, count in ordered), ""])


def _size_class(num_devices: int) -> str:
    for limit, name in ((1, "1"), (4, "2 to 4"), (8, "5 to 8"), (64, "9 to 64"), (512, "65 to 512")):
        if num_devices <= limit:
            return name
    return "more than 512"


def _reasons(measurements: Sequence[Measurement], rejected: Sequence[Rejected]) -> str:
    counts = Counter(
        (row.quality.value, row.quality_reason) for row in measurements if row.quality is not Quality.FINE
    )
    counts.update(("no configuration", row.reason) for row in rejected)
    lines = ["## Why rows are not fine", "", "| verdict | reason | rows |", "|---|---|--:|"]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for (verdict, reason), count in ordered[:_MOST_REASONS]:
        lines.append(f"| {verdict} | {reason.replace('|', '/')} | {count} |")
    rest = sum(count for _, count in ordered[_MOST_REASONS:])
    if rest:
        lines.append(f"| | {len(ordered) - _MOST_REASONS} rarer reasons | {rest} |")
    return "\n".join([*lines, ""])
