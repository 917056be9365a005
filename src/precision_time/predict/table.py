"""Answers as rows of a table: what differs, time, throughput, speed-up, scaling efficiency, memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..precision.catalog import shown_precision
from ..records import dataclass
from ..render.blocks import GAP, Band, BandedLine, Block, Text, Tone, warnings
from ..render.table import Table
from ..units import format_duration, grouped
from .page import doubt, figures_of, interval_title, leading, lengths_of
from .prediction import Prediction, Skipped

if TYPE_CHECKING:
    from .predictions import Predictions

_SCALED = ("gpus", "nodes")
"""Fields in which jobs differ whose scaling is looked at."""
SAID = ("model", "device", "gpus", "nodes", "precision", "stack", "batch_size", "global_batch_size")
"""Fields of a request that an answer repeats as it understood them."""
FIGURES = (
    *("step_time_s", "throughput", "throughput_unit", "mfu", "epoch_time_s", "total_time_s"),
    *("device_hours", "memory_bytes_per_device", "fits"),
)
_DISPENSABLE = (">MFU", ">epoch", ">run")
"""Columns that are left out where the page is too narrow, in this order."""
_ASSUMED = re.compile(r"(?:not given: |\()((?:--|-b |zero_stage=)[^)]*?)(?: assumed|\)|, FSDP)")
"""What a remark on an assumed layout says to type."""
_AXES = ("gpus", "batch_size", "global_batch_size", "seq_len", "image_size", "nodes")
"""Fields that a plot goes along, those that most ask about first; then any other number."""
_AXIS_TITLES = {
    "seq_len": "tokens per sample",
    "image_size": "side of the images [pixels]",
    "gpus": "devices",
    "batch_size": "samples per device",
    "global_batch_size": "samples per step",
}
_MOST_LINES = 20
_NAMED = 3
"""Requests that have no answer, named for each reason."""
_ABOVE = 1.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One request and what is said of it in a table."""

    number: int
    """Its place among those asked, from 1."""
    answer: Prediction | Skipped
    speed_up: float | None = None
    """Throughput over that of the baseline; None without one of the same model."""
    efficiency: float | None = None
    """Throughput of a device over that with the fewest devices of the same job; None without any other."""
    scaling: str = ""
    """weak (the same batch per device), strong (the same global batch), or neither."""


Key = Callable[[Row, Prediction], float | None]
SORTS: Mapping[str, tuple[Key, bool]] = {
    "time": (lambda _, found: found.step_time_s, False),
    "throughput": (lambda _, found: found.throughput, True),
    "epoch": (lambda _, found: found.epoch_time_s, False),
    "run": (lambda _, found: found.total_time_s, False),
    "memory": (lambda _, found: found.memory_bytes_per_device, False),
    "mfu": (lambda _, found: found.mfu, True),
    "speed-up": (lambda row, _: row.speed_up, True),
    "efficiency": (lambda row, _: row.efficiency, True),
}
"""What rows can be sorted by, and whether the largest comes first."""


def rows_of(found: Predictions, *, baseline: Mapping[str, Any] | None = None) -> list[Row]:
    """A row for each request, in the order asked.

    Args:
        found: The answers.
        baseline: Fields of what speed-ups are relative to: of the jobs that are equal but for these, else of
            all. None: the first answer.

    Raises:
        ConfigError: If no answer is the baseline.
    """
    answered = {
        number: answer for number, answer in enumerate(found.answers) if isinstance(answer, Prediction)
    }
    bases = _bases(answered, baseline)
    scaled = _scaled(answered)
    rows = []
    for number, answer in enumerate(found.answers):
        row = Row(number=number + 1, answer=answer)
        if isinstance(answer, Prediction):
            base = bases[number]
            alike = base is not None and (base.model, base.throughput_unit) == (
                answer.model,
                answer.throughput_unit,
            )
            efficiency, scaling = scaled.get(number, (None, ""))
            row = replace(
                row,
                speed_up=answer.throughput / base.throughput if base is not None and alike else None,
                efficiency=efficiency,
                scaling=scaling,
            )
        rows.append(row)
    return rows


def _bases(
    answered: Mapping[int, Prediction], baseline: Mapping[str, Any] | None
) -> dict[int, Prediction | None]:
    """What the speed-up of each answer is relative to."""
    if not answered:
        return {}
    if baseline is None:
        return dict.fromkeys(answered, next(iter(answered.values())))
    named = [answer for answer in answered.values() if _is(answer, baseline)]
    if not named:
        said = ",".join(f"{name}={value}" for name, value in baseline.items())
        raise ConfigError(f"No answer has {said}, the baseline. To fix: name one of the jobs that are asked.")
    by_rest = {_rest(answer, tuple(baseline)): answer for answer in reversed(named)}
    alone = named[0] if len(named) == 1 else None
    return {number: by_rest.get(_rest(answer, tuple(baseline)), alone) for number, answer in answered.items()}


def _is(answer: Prediction, named: Mapping[str, Any]) -> bool:
    """Whether an answer has these values, as they were asked or as they were understood."""
    return all(
        str(value).lower() in (_word(answer.request.get(name)), _word(getattr(answer, name, None)))
        for name, value in named.items()
    )


def _word(value: Any) -> str:
    return (
        f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value).lower()
    )


def _rest(answer: Prediction, without: Sequence[str]) -> str:
    return repr(sorted((name, str(value)) for name, value in answer.request.items() if name not in without))


def _scaled(answered: Mapping[int, Prediction]) -> dict[int, tuple[float, str]]:
    """Efficiency and kind of scaling of answers to jobs that were asked at several numbers of devices."""
    alike: dict[str, list[int]] = {}
    for number, answer in answered.items():
        alike.setdefault(_rest(answer, _SCALED), []).append(number)
    scaled = {}
    for numbers in alike.values():
        if len({answered[number].gpus for number in numbers}) < 2:
            continue
        fewest = min((answered[number] for number in numbers), key=lambda answer: answer.gpus)
        kinds = {_kind(answered[number], fewest) for number in numbers if answered[number].gpus > fewest.gpus}
        kind = kinds.pop() if len(kinds) == 1 else ""
        for number in numbers:
            answer = answered[number]
            per_device = answer.throughput / answer.gpus
            scaled[number] = (per_device / (fewest.throughput / fewest.gpus), kind)
    return scaled


def _kind(answer: Prediction, fewest: Prediction) -> str:
    if answer.global_batch_size == fewest.global_batch_size:
        return "strong"
    alike = answer.global_batch_size * fewest.gpus == fewest.global_batch_size * answer.gpus
    return "weak" if alike else ""


def sorted_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """The rows by a figure or a field, the best first; those that do not fit, and those without it, last.

    By a figure, devices that nobody measured come after those that somebody did: a data sheet promises more
    than runs keep.

    Raises:
        ConfigError: If there is nothing of that name.
    """
    ranks = by in SORTS
    if ranks:
        key, largest_first = SORTS[by]
    elif by in {field.name for field in fields(Prediction)} or any(by in row.answer.request for row in rows):
        key, largest_first = (lambda _, found: found.request.get(by, getattr(found, by, None))), False
    else:
        raise ConfigError(f"--sort {by}: there is nothing of that name. To fix: one of {', '.join(SORTS)}.")

    def place(row: Row) -> tuple[Any, ...]:
        if isinstance(row.answer, Skipped):
            return (4, 0.0)
        value = key(row, row.answer)
        if value is None:
            return (3, 0.0)
        group = 2 if not row.answer.fits else int(ranks and bool(row.answer.unmeasured))
        return (group, -value if largest_first else value)

    return sorted(rows, key=place)


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """One list for each column: request, answer, interval and terms; None where there is none.

    Fields of the request have their own names, as the answer understood them; `error` says why one has none.
    """
    records = [_record(row) for row in rows]
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _record(row: Row) -> dict[str, Any]:
    asked = {name: value for name, value in row.answer.request.items() if not isinstance(value, list | dict)}
    if isinstance(row.answer, Skipped):
        return {"job": row.number, **asked, "error": row.answer.reason}
    found, run = row.answer, row.answer.total_interval
    said = {name: getattr(found, name) for name in SAID}
    figures = {name: getattr(found, name) for name in FIGURES}
    return {
        "job": row.number,
        **{name: value for name, value in asked.items() if name not in said},
        **said,
        **figures,
        "interval_low_s": found.interval.low_s,
        "interval_high_s": found.interval.high_s,
        "total_low_s": run.low_s if run else None,
        "total_high_s": run.high_s if run else None,
        "speed_up": row.speed_up,
        "scaling_efficiency": row.efficiency,
        "scaling": row.scaling or None,
        **{f"terms.{name}": seconds for name, seconds in found.terms.items()},
        "error": None,
    }


def blocks_of(rows: Sequence[Row], *, varied: Sequence[str]) -> Iterator[Block]:
    """The rows as a table, the fastest in a sentence before it, and what is said of the answers after it."""
    yield from (Text(line, Tone.LEAD) for line in _best(rows))
    table = table_of(rows, varied=varied)
    if table.rows:
        yield from (Text(_headline(rows, varied), Tone.SOFT), GAP, table, GAP)
    yield from map(Text, (*_meanings(rows), *_left_out(rows, varied)))
    yield from warnings(_warnings(rows))


def notebook_of(found: Predictions) -> Iterator[Block]:
    """The table alone."""
    yield Text(f"{len(found)} predictions", Tone.LEAD)
    yield table_of(rows_of(found), varied=found.varied)


def table_of(rows: Sequence[Row], *, varied: Sequence[str]) -> Table:
    """What was answered, by the fields that differ and the figures."""
    answered = [(row, row.answer) for row in rows if isinstance(row.answer, Prediction)]
    found, figures = [answer for _, answer in answered], [figures_of(answer) for _, answer in answered]
    shown = [name for name in varied if name != "nodes" or "gpus" not in varied]
    if "batch_size" not in shown and len({answer.batch_size for answer in found}) > 1:
        shown.append("batch_size")
    columns: dict[str, list[str]] = {}
    if [*range(1, len(rows) + 1)] != [row.number for row in rows] or _warnings(rows):
        columns[">row"] = [str(row.number) for row, _ in answered]
    for name in shown:
        title = f"{'>' if _is_number(rows, name) else ''}{name.replace('_', ' ')}"
        columns[title] = [_asked(row, name) + _mark(row, name) for row, _ in answered]
    columns[">step time"] = [each["step"] for each in figures]
    columns[f">{interval_title(found)}"] = [each["interval"] for each in figures]
    if len(units := {answer.throughput_unit for answer in found}) == 1:
        columns[f">{units.pop()}"] = [grouped(answer.throughput) for answer in found]
    else:
        columns[">throughput"] = [each["throughput"] for each in figures]
    if sum(row.speed_up is not None for row in rows) > 1:
        columns[">speed-up"] = ["-" if row.speed_up is None else grouped(row.speed_up) for row, _ in answered]
    if any(row.efficiency is not None for row in rows):
        columns[">scaling"] = [
            "-" if row.efficiency is None else f"{row.efficiency:.0%}" for row, _ in answered
        ]
    if any(answer.mfu is not None for answer in found):
        columns[">MFU"] = [each["MFU"] for each in figures]
    lengths = lengths_of(found)
    if all(answer.total_time_s == answer.epoch_time_s for answer in found):
        lengths.pop(">run", None)
    columns |= lengths
    layouts = [_assumed_layout(answer) for _, answer in answered]
    if len(set(layouts)) > 1:
        columns["layout assumed"] = layouts
    columns[">memory"] = [each["memory"] for each in figures]
    cells = zip(*columns.values(), strict=True)
    return Table(columns=tuple(columns), rows=tuple(cells), narrow=True, dispensable=_DISPENSABLE)


def _assumed_layout(answer: Prediction) -> str:
    """What of the layout was assumed for this row, as it is typed; rows that differ in it say so."""
    said = (item.text for item in answer.diagnostics if item.code in ("default-layout", "default-sharding"))
    return ", ".join(found[1] for text in said if (found := _ASSUMED.search(text))) or "-"


def _asked(row: Row, name: str) -> str:
    """A field as the answer understood it, else as it was asked."""
    asked = row.answer.request.get(name)
    value = getattr(row.answer, name, asked) if name in SAID else asked
    if value is None:
        return "-"
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _mark(row: Row, name: str) -> str:
    codes = () if isinstance(row.answer, Skipped) else (item.code for item in row.answer.remarks)
    return " (unmeasured)" if f"unmeasured-{name}" in codes else ""


def _is_number(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row.answer.request.get(name, 0), int | float) for row in rows)


def _best(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if isinstance(row.answer, Prediction)]
    fitting = [row for row in found if isinstance(row.answer, Prediction) and row.answer.fits]
    if not found:
        return ["Nothing could be answered."]
    units = {row.answer.throughput_unit for row in found if isinstance(row.answer, Prediction)}
    if not fitting or len(units) > 1:
        return ["None of them fits in the memory of its devices."] if not fitting else []
    answers = [row.answer for row in fitting if isinstance(row.answer, Prediction)]
    best, most = leading(answers), max(answers, key=lambda answer: answer.throughput)
    fit = " of those that fit" * (len(fitting) < len(found))
    lines = [f"Most throughput{fit}{doubt(best)}: {best.in_one_line()}"]
    if most.unmeasured and most is not best:
        lines.append(
            f"More{doubt(most)}: {most.gpus} x {most.device}, {most.precision}, "
            f"{format_duration(most.step_time_s)} per step, "
            f"{grouped(most.throughput)} {most.throughput_unit}."
        )
    return lines


def _headline(rows: Sequence[Row], varied: Sequence[str]) -> str:
    """What all answers share."""
    found = [row.answer for row in rows if isinstance(row.answer, Prediction)]
    over = f" over {', '.join(name.replace('_', ' ') for name in varied)}" if varied else ""
    count = f"{len(rows)} job{'s' * (len(rows) != 1)}{over}"
    words = []
    for name in ("model", "device", "gpus", "precision", "stack", "batch_size"):
        values = {getattr(answer, name) for answer in found}
        if len(values) == 1:
            [value] = values
            devices = "1 device" if value == 1 else "{:g} devices"
            form = {"gpus": devices, "batch_size": "batch {:g} per device"}.get(name, "{}")
            words.append(form.format(value))
    return ", ".join([*words, count])


def _meanings(rows: Sequence[Row]) -> list[str]:
    """What speed-up and scaling are relative to."""
    lines = []
    bases = {row.number for row in rows if row.speed_up == 1.0}
    if bases and sum(row.speed_up is not None for row in rows) > 1:
        which = f"row {min(bases)}" if len(bases) == 1 else "the baseline of each"
        lines.append(f"Speed-up: throughput relative to {which}.")
    kinds = sorted({row.scaling for row in rows if row.efficiency is not None})
    said = {
        "weak": "weak scaling, at the same batch per device",
        "strong": "strong scaling, at the same global batch",
        "": "neither at the same batch per device nor at the same global batch",
    }
    if kinds:
        which = "; ".join(said[kind] for kind in kinds)
        lines.append(f"Scaling: throughput per device relative to the fewest devices of the job ({which}).")
    if any((row.efficiency or 0.0) > _ABOVE for row in rows):
        lines.append(
            "Above 100%: a run measured on so many devices, or memory and work that more devices share, make "
            "a device faster than is predicted for few."
        )
    return lines


def _left_out(rows: Sequence[Row], varied: Sequence[str]) -> list[str]:
    """The reasons why requests have no answer, each once."""
    by_reason: dict[str, list[Row]] = {}
    for row in rows:
        if isinstance(row.answer, Skipped):
            by_reason.setdefault(row.answer.reason, []).append(row)
    lines = []
    for reason, some in by_reason.items():
        names = [skipped_words(row.answer.request, varied) for row in some[:_NAMED]]
        more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
        lines.append(f"Left out {'; '.join(names)}{more}: {reason}")
    return lines


def skipped_words(request: Mapping[str, Any], varied: Sequence[str]) -> str:
    """A request by the fields in which it differs from the others."""
    return ", ".join(shown_precision(request[name]) if name == "precision" else f"{name}={request[name]}"
                     for name in varied if name in request) or str(request.get("model", ""))  # fmt: skip


def _warnings(rows: Sequence[Row]) -> list[str]:
    """What to act on, each once, and for which rows; what does not fit is a column."""
    said: dict[str, list[int]] = {}
    for row in rows:
        if isinstance(row.answer, Prediction):
            for item in row.answer.diagnostics:
                if item.severity.value == "warning" and item.code != "memory":
                    said.setdefault(item.text, []).append(row.number)
    answered = sum(isinstance(row.answer, Prediction) for row in rows)
    return [
        text if len(numbers) == answered else f"row{'s' * (len(numbers) > 1)} {_ranges(numbers)}: {text}"
        for text, numbers in said.items()
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as people write them.

    >>> _ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][-1:] = [number] if len(parts[-1]) > 1 else [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def write_plot(found: Predictions, path: Path) -> None:
    """Draw time and throughput over the field swept: a line for each job, a point for each value.

    Raises:
        ConfigError: If no field with numbers was swept, or there are too many lines.
        MissingExtraError: If matplotlib is not installed.
    """
    from ..render.picture import check_picture, draw_curves, save

    check_picture(path)
    axis = _axis_of(found)
    lines = _lines(found, axis)
    if len(lines) > _MOST_LINES:
        raise ConfigError(
            f"--out {path}: {len(lines)} lines are too many to tell apart. To fix: name fewer values; at "
            f"most {_MOST_LINES} lines are drawn."
        )
    curves = [
        BandedLine(label=label, x=[_value(answer, axis) for answer in line], panels=_panels(line),
              hollow=[not answer.fits for answer in line])
        for label, line in lines.items()
    ]  # fmt: skip
    units = " or ".join(sorted({answer.throughput_unit for answer in found.predictions}))
    note = f"bands: {found[0].interval.coverage:.0%} interval"
    if any(each for curve in curves for each in curve.hollow):
        note += "; hollow: does not fit in memory"
    x_title = _AXIS_TITLES.get(axis, axis.replace("_", " "))
    titles = ("step time [s]", f"throughput [{units}]")
    save(
        lambda figure: draw_curves(figure, curves, x_title=x_title, titles=titles, note=note),
        path,
        width=9.5,
        height=4.2,
    )


def _panels(line: Sequence[Prediction]) -> tuple[Band, Band]:
    """Seconds and throughput of the answers of a line."""
    seconds = [answer.step_time_s for answer in line]
    low, high = ([getattr(answer.interval, end) for answer in line] for end in ("low_s", "high_s"))
    units = [answer.throughput * answer.step_time_s for answer in line]
    rates = [[count / s for count, s in zip(units, some, strict=True)] for some in (seconds, high, low)]
    return (seconds, low, high), (rates[0], rates[1], rates[2])


def _axis_of(found: Predictions) -> str:
    """The field with numbers that was swept.

    Raises:
        ConfigError: If there is none.
    """
    numbers = [
        name
        for name in found.varied
        if len({_value(answer, name) for answer in found.predictions}) > 1
        and all(isinstance(_value(answer, name), int | float) for answer in found.predictions)
    ]
    if not numbers:
        raise ConfigError(
            "A picture needs a field with numbers that was swept. To fix: such as --gpus 8..64 or "
            "--batch-size 16..256."
        )
    return min(numbers, key=lambda name: _AXES.index(name) if name in _AXES else len(_AXES))


def _value(answer: Prediction, name: str) -> Any:
    return getattr(answer, name, answer.request.get(name))


def _lines(found: Predictions, axis: str) -> dict[str, list[Prediction]]:
    """The answers that differ in the swept field alone, by what tells them from the others."""
    fields = [name for name in found.varied if name not in (axis, "nodes" if axis == "gpus" else "")]
    lines: dict[str, list[Prediction]] = {}
    for answer in found.predictions:
        words = []
        for name in fields:
            value = _value(answer, name)
            said = (
                f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
            )
            words.append(said if isinstance(value, str) else f"{name.replace('_', ' ')} {said}")
        lines.setdefault(", ".join(words) or answer.model, []).append(answer)
    return {label: sorted(line, key=lambda answer: _value(answer, axis)) for label, line in lines.items()}
