"""The answer to a request, and the page that shows one or several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, Severity, texts_of
from ..rendering import TEXT_WIDTH, format_field, grouped, in_words, new_table, plain_text
from ..units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_MAX_BAR_CELLS, _MIN_BAR_CELLS = 16, 5
_NAME_CELLS, _DURATION_CELLS = 20, 16
"""Space that the name of a term and a duration beside its bar need [characters]."""
_SHOWN_ALONE, _SHOWN_EACH = 5, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Where the true step time lies with probability `coverage`."""

    low_s: float
    high_s: float
    coverage: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearestMeasurement:
    """One measured run that resembles the job."""

    model: str
    device: str
    num_devices: int
    precision: str
    global_batch_size: float
    stack: str
    measured_step_time_s: float
    predicted_step_time_s: float
    """What the shipped predictor says of this run."""
    similarity: float
    """1 for the same configuration, toward 0 with distance."""
    source: str
    source_ref: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The answer to one request, in SI units."""

    model: str
    device: str
    num_devices: int
    num_nodes: int
    precision: str
    stack: str
    micro_batch_size: float
    """Samples per device and forward pass (`batch_size` of the call)."""
    global_batch_size: float
    """Samples per optimizer step over all devices."""
    step_time_s: float
    terms: Mapping[str, float]
    """Named seconds that add up to `step_time_s` exactly."""
    interval: Interval
    steps_per_epoch: int | None
    epoch_time_s: float | None
    total_steps: int | None
    total_time_s: float | None
    throughput: float
    """Whole job, in `throughput_unit`."""
    throughput_unit: str
    mfu: float | None
    """Useful model FLOPs over the dense peak of the compute type, 0..1."""
    memory_bytes_per_device: float
    memory_terms: Mapping[str, float]
    fits: bool
    link_seconds: Mapping[str, float]
    """Communication on the wire by parallel axis, hidden or not, by the cost model alone; `terms` have the
    exposed part after the learned correction."""
    analytical_step_time_s: float
    """What the cost model says before the learned correction."""
    total_interval: Interval | None = None
    """Of the run: in seconds of `total_time_s`."""
    device_hours: float | None = None
    """Of the run over all devices (GPU-hours)."""
    total_time_missing: str = ""
    """Why there is no `total_time_s`, and what to give."""
    nearest_measurements: tuple[NearestMeasurement, ...] = ()
    """Most similar first."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was filled in because the request does not say it, and what to act on."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return texts_of(self.diagnostics, Severity.ASSUMPTION)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to act on, in words."""
        return texts_of(self.diagnostics, Severity.WARNING)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        return asdict(self)

    def __str__(self) -> str:
        """The page that `precision-time predict` prints."""
        return to_text([self])


def to_text(predictions: Sequence[Prediction], *, width: int = TEXT_WIDTH) -> str:
    """`render` as plain text without colors.

    Args:
        predictions: One or more answers to show side by side.
        width: Columns of the page [characters].
    """
    return plain_text(render(predictions, width=width), width=width)


def render(predictions: Sequence[Prediction], *, width: int = TEXT_WIDTH) -> Group:
    """One page about `predictions`, which differ in precision or anything else.

    Args:
        predictions: At least one; their order is kept.
        width: Columns of the page: bars are left out where they would not fit.

    Returns:
        A rich renderable: headline, table, terms as bars, nearest measurements, assumptions, warnings.
    """
    from rich.console import Group
    from rich.text import Text

    labels = _labels(predictions)
    parts: list[Any] = [Text(_headline(predictions), style="bold"), ""]
    parts += [_summary_table(predictions, labels), "", _terms_table(predictions, labels, width), ""]
    if any(prediction.link_seconds for prediction in predictions):
        parts += [_links_table(predictions, labels), ""]
    measurements = _nearest(predictions)
    if measurements:
        parts += [_measurements_table(measurements), ""]
    for title, field, style in (("Assumed", "assumptions", ""), ("Warning", "warnings", "yellow")):
        parts += [Text(f"{title}: {line}", style=style) for line in _shared_lines(predictions, labels, field)]
    parts.append(Text("Terms: precision-time glossary", style="dim"))
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
    table = new_table("precision", ">step time", f">{interval}", ">throughput", ">MFU", ">memory per device")
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
            f"{grouped(prediction.throughput)} {prediction.throughput_unit}",
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
    space = (width - _NAME_CELLS) // len(predictions) - _DURATION_CELLS
    cells = min(space, _MAX_BAR_CELLS) if space >= _MIN_BAR_CELLS else 0
    longest_s = max(prediction.step_time_s for prediction in predictions)
    table = new_table("where the time goes")
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
            table.add_row(in_words(name), *row)
    return table


def _links_table(predictions: Sequence[Prediction], labels: Sequence[str]) -> Table:
    """Communication by axis: what the computation does not hide, of what the links take."""
    headers = [">exposed, of all"] if len(predictions) == 1 else [f">{label}" for label in labels]
    table = new_table("communication", *headers)
    for axis in dict.fromkeys(axis for prediction in predictions for axis in prediction.link_seconds):
        cells = [
            f"{format_duration(prediction.terms.get(f'{axis}_exposed_s', 0.0))} exposed of "
            f"{format_duration(prediction.link_seconds[axis])}"
            if axis in prediction.link_seconds
            else "-"
            for prediction in predictions
        ]
        table.add_row(in_words(axis), *cells)
    return table


def _term_texts(value_s: float, longest_s: float, *, cells: int, share: bool) -> Iterator[str]:
    """A term's duration and a bar of up to `cells` cells, which ends in its share of the step if wanted."""
    yield format_duration(value_s) if value_s else "-"
    if cells:
        fraction = max(value_s, 0.0) / longest_s if longest_s > 0 else 0.0
        bar = "█" * round(cells * fraction)
        yield f"{bar} {fraction:.0%}" if share else bar


def _nearest(predictions: Sequence[Prediction]) -> list[NearestMeasurement]:
    """The most similar measured runs, each once however near it is to which prediction."""
    each = _SHOWN_ALONE if len(predictions) == 1 else _SHOWN_EACH
    runs = [run for prediction in predictions for run in prediction.nearest_measurements[:each]]
    return list({replace(run, similarity=0.0): run for run in runs}.values())


def _measurements_table(runs: Sequence[NearestMeasurement]) -> Table:
    table = new_table(
        "nearest measurements", "precision", ">batch", "stack", ">measured", ">predicted", "source"
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
    """Lines of a field over all predictions, each once, marked where it does not hold for all."""
    said_by: dict[str, list[str]] = {}
    for prediction, label in zip(predictions, labels, strict=True):
        for line in getattr(prediction, field):
            said_by.setdefault(line, []).append(label)
    for line, speakers in said_by.items():
        yield line if len(speakers) == len(predictions) else f"{', '.join(speakers)}: {line}"


def _rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {name for name in columns if all(isinstance(row.get(name, 0), (int, float)) for row in rows)}
    table = new_table(*(f"{'>' if name in numeric else ''}{_header(name)}" for name in columns))
    for row in rows:
        table.add_row(*(format_field(name, row.get(name)) for name in columns))
    return table


def _header(name: str) -> str:
    return in_words(name) if name.endswith("time_s") else name.replace("_", " ")


def _optional_duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
