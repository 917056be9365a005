"""Predictions for people: a table side by side, where the time goes, what speaks for it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..units import format_bytes, format_duration, format_si
from .prediction import Evidence, Prediction

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_MAX_BAR_CELLS, _MIN_BAR_CELLS = 16, 5
_NAME_CELLS, _DURATION_CELLS = 20, 16
"""Room that the name of a term and a duration beside its bar need [characters]."""
_EVIDENCE_ALONE, _EVIDENCE_EACH = 5, 2
_TEXT_WIDTH = 120


def to_text(predictions: Sequence[Prediction], *, width: int = _TEXT_WIDTH) -> str:
    """`render` as plain text without colours.

    Args:
        predictions: One or more answers to show side by side.
        width: Columns of the page [characters].
    """
    return plain_text(render(predictions, width=width), width=width)


def plain_text(renderable: RenderableType, *, width: int = _TEXT_WIDTH) -> str:
    """Anything that rich can draw as text without colours and trailing spaces.

    Args:
        renderable: Table, group, text.
        width: Columns of the page [characters].
    """
    from rich.console import Console

    page = io.StringIO()
    Console(file=page, width=width, highlight=False, no_color=True).print(renderable)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")


def render(predictions: Sequence[Prediction], *, width: int = _TEXT_WIDTH) -> Group:
    """One page about `predictions`, which differ in precision or anything else.

    Args:
        predictions: At least one; their order is kept.
        width: Columns of the page: bars are left out where they would not fit.

    Returns:
        A rich renderable: headline, table, terms as bars, evidence, assumptions, warnings.
    """
    from rich.console import Group
    from rich.text import Text

    labels = _labels(predictions)
    parts: list[Any] = [Text(_headline(predictions), style="bold"), ""]
    parts += [_summary_table(predictions, labels), "", _terms_table(predictions, labels, width), ""]
    evidence = _nearest_runs(predictions)
    if evidence:
        parts += [_evidence_table(evidence), ""]
    for title, field, style in (("Assumed", "assumptions", ""), ("Warning", "warnings", "yellow")):
        parts += [Text(f"{title}: {line}", style=style) for line in _shared_lines(predictions, labels, field)]
    return Group(*parts)


def render_explanation(explanation: Mapping[str, Any]) -> Group:
    """One page about what a precision policy changes in a model.

    Args:
        explanation: `Explanation.to_dict()`: figures of the whole step, and `rows` per op class.
    """
    from rich.console import Group
    from rich.text import Text

    title = "{model} at {precision} on one {device}, batch {batch_size:g}".format(**explanation)
    told = ("model", "precision", "device", "batch_size", "rows", "warnings")
    parts: list[Any] = [Text(title, style="bold")]
    parts += [
        Text(f"{_header(name)}: {format_field(name, value)}")
        for name, value in explanation.items()
        if name not in told
    ]
    parts += ["", _rows_table(explanation["rows"])]
    parts += [Text(f"Warning: {line}", style="yellow") for line in explanation["warnings"]]
    return Group(*parts)


def _headline(predictions: Sequence[Prediction]) -> str:
    first = predictions[0]
    nodes = "1 node" if first.num_nodes == 1 else f"{first.num_nodes} nodes"
    return (
        f"{first.model} on {first.num_devices} x {first.device} ({nodes}), {first.stack}, "
        f"batch {first.micro_batch_size:g} per device, {first.global_batch_size:g} per step"
    )


def _labels(predictions: Sequence[Prediction]) -> list[str]:
    """What tells each prediction from the others: its precision, and whatever else differs."""
    fields = ["precision"]
    for field in ("model", "device", "num_devices", "stack", "global_batch_size"):
        if len({getattr(prediction, field) for prediction in predictions}) > 1:
            fields.append(field)
    return [" ".join(_label(getattr(prediction, field)) for field in fields) for prediction in predictions]


def _label(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _summary_table(predictions: Sequence[Prediction], labels: Sequence[str]) -> Table:
    coverages = {prediction.interval.coverage for prediction in predictions}
    interval = f"{coverages.pop():.0%} interval" if len(coverages) == 1 else "interval"
    table = _table("precision", ">step time", f">{interval}", ">throughput", ">MFU", ">memory per device")
    with_epoch = any(prediction.epoch_time_s is not None for prediction in predictions)
    with_total = any(prediction.total_time_s is not None for prediction in predictions)
    for title, wanted in (("epoch", with_epoch), ("run", with_total)):
        if wanted:
            table.add_column(title, justify="right")
    for prediction, label in zip(predictions, labels, strict=True):
        cells = [
            label,
            format_duration(prediction.step_time_s),
            f"{format_duration(prediction.interval.low_s)} - {format_duration(prediction.interval.high_s)}",
            f"{_grouped(prediction.throughput)} {prediction.throughput_unit}",
            "-" if prediction.mfu is None else f"{prediction.mfu:.1%}",
            f"{format_bytes(prediction.memory_bytes_per_device)}{'' if prediction.fits else ' does not fit'}",
        ]
        if with_epoch:
            cells.append(_optional_duration(prediction.epoch_time_s))
        if with_total:
            cells.append(_optional_duration(prediction.total_time_s))
        table.add_row(*cells)
    return table


def _terms_table(predictions: Sequence[Prediction], labels: Sequence[str], width: int) -> Table:
    """Terms as rows, predictions as columns; bars share one scale, the longest step."""
    alone = len(predictions) == 1
    room = (width - _NAME_CELLS) // len(predictions) - _DURATION_CELLS
    cells = min(room, _MAX_BAR_CELLS) if room >= _MIN_BAR_CELLS else 0
    longest_s = max(prediction.step_time_s for prediction in predictions)
    table = _table("where the time goes")
    for label in labels:
        table.add_column("time" if alone else label, justify="right")
        if cells:
            table.add_column("", min_width=cells, no_wrap=True)
    for name in dict.fromkeys(name for prediction in predictions for name in prediction.terms):
        values = [prediction.terms.get(name, 0.0) for prediction in predictions]
        if any(values):
            row = (
                text for value in values for text in _term_texts(value, longest_s, cells=cells, share=alone)
            )
            table.add_row(_words(name.removesuffix("_s")), *row)
    return table


def _term_texts(value_s: float, longest_s: float, *, cells: int, share: bool) -> Iterator[str]:
    """A term's duration and a bar of up to `cells` cells, which ends in its share of the step if wanted."""
    yield format_duration(value_s) if value_s else "-"
    if cells:
        fraction = max(value_s, 0.0) / longest_s if longest_s > 0 else 0.0
        bar = "█" * round(cells * fraction)
        yield f"{bar} {fraction:.0%}" if share else bar


def _nearest_runs(predictions: Sequence[Prediction]) -> list[Evidence]:
    """The most similar measured runs, each once however near it is to which prediction."""
    each = _EVIDENCE_ALONE if len(predictions) == 1 else _EVIDENCE_EACH
    runs = [run for prediction in predictions for run in prediction.evidence[:each]]
    return list({replace(run, similarity=0.0): run for run in runs}.values())


def _evidence_table(runs: Sequence[Evidence]) -> Table:
    table = _table(
        "measured runs nearby", "precision", ">batch", "stack", ">measured", ">predicted", "source"
    )
    for run in runs:
        table.add_row(
            f"{run.model}, {run.num_devices} x {run.device}",
            run.precision,
            f"{run.global_batch_size:g}",
            run.stack,
            format_duration(run.measured_step_time_s),
            format_duration(run.predicted_step_time_s),
            run.source,
        )
    return table


def _shared_lines(predictions: Sequence[Prediction], labels: Sequence[str], field: str) -> Iterator[str]:
    """Lines of a field over all predictions, each once, marked where it is not said of all."""
    said_by: dict[str, list[str]] = {}
    for prediction, label in zip(predictions, labels, strict=True):
        for line in getattr(prediction, field):
            said_by.setdefault(line, []).append(label)
    for line, speakers in said_by.items():
        yield line if len(speakers) == len(predictions) else f"{', '.join(speakers)}: {line}"


def _rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name for name in columns if all(isinstance(row.get(name, 0), (int, float)) for row in rows)}
    table = _table(*(f"{'>' if name in numeric else ''}{_header(name)}" for name in columns))
    for row in rows:
        table.add_row(*(format_field(name, row.get(name)) for name in columns))
    return table


def _header(name: str) -> str:
    return _words(name.removesuffix("_s") if name.endswith("time_s") else name)


def format_field(name: str, value: Any) -> str:
    """A value in the unit that its name ends in (`_s`, `_bytes`, `_flops_per_s` ...).

    >>> format_field("memory_bandwidth_bytes_per_s", 3.35e12), format_field("launch_overhead_s", 4.5e-6)
    ('3.35 TB/s', '4.5 us')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for ending, unit in (("bytes_per_s", "B/s"), ("flops_per_s", "FLOP/s"), ("flops", "FLOP"), ("_hz", "Hz")):
        if name.endswith(ending):
            return format_si(value, unit)
    if name.endswith("_s"):
        return format_duration(value)
    if "bytes" in name:
        return format_bytes(value)
    if "share" in name:
        return f"{value:.0%}"
    return str(value) if name.endswith("_year") else _grouped(value)


def _table(*headers: str) -> Table:
    """An empty table; a header that starts with ">" aligns its column to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in headers:
        justify: Any = "right" if header.startswith(">") else "left"
        table.add_column(header.removeprefix(">"), justify=justify, overflow="fold")
    return table


def _grouped(value: float) -> str:
    """Three significant digits below a thousand, thousands separated above."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _optional_duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _words(name: str) -> str:
    return name.replace("_", " ")
