"""The page about one prediction or several: the answer, where the time goes, what it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ..cost.terms import TERMS
from ..diagnostics import (
    LEFT_OPEN,
    OWN_PREDICTOR,
    SAMPLES,
    TF32_BY_DEFAULT,
    UNMEASURED_DEVICE,
    Diagnostic,
    Severity,
)
from ..hardware.clusters import nodes_in_words
from ..precision.catalog import shown_precision
from ..render.blocks import GAP, TEXT_WIDTH, Bars, Block, Text, Tone, warnings
from ..render.table import Table
from ..units import (
    format_bytes,
    format_duration,
    format_range,
    format_si,
    grouped,
    plain_name,
)
from .headline import Headline

if TYPE_CHECKING:
    from .changes import Alternative
    from .prediction import NearestMeasurement, Prediction

_COLORS = {plain_name(term.name): term.color for term in TERMS}
_SHOWN_ALONE, _SHOWN_EACH, _MOST_RUNS = 5, 2, 5
_ALWAYS_TOLD = ("default-layout", "method", SAMPLES, "lengths")
"""Codes of assumptions that say what an answer is the sum of."""
_MOST_ASSUMPTIONS = 3
_SMALL_SHARE = 0.005
"""Terms below this share of every step shown are summed up as `other`."""
_NEAR = 0.25
"""Similarity from which a measured run is near: within about three steps of `learn/data/novelty.toml`."""
_BEFORE = (UNMEASURED_DEVICE, TF32_BY_DEFAULT)
"""Codes of warnings that every figure hangs on: they stand before the first."""
_ABOUT_EVIDENCE = ("extrapolation", "unmeasured-stack", "unpriced-operators")
"""Codes of diagnostics that say what the answer rests on."""
_ABOUT_MEMORY = "memory"
_WORDS = ("step time", "interval", "throughput", "MFU", "memory per device", "stack", "nearest measurements",
          "assumed", "wire")  # fmt: skip
"""Of the glossary, that every page uses."""


def leading(predictions: Sequence[Prediction]) -> Prediction:
    """The one that the page is mostly about: the fastest that fits, borne out by measured runs if any is.

    Where none fits, the fastest.
    """
    fitting = [prediction for prediction in predictions if prediction.fits] or [*predictions]
    return min(fitting, key=lambda prediction: (len(prediction.unmeasured), -prediction.throughput))


class Doubtable(Protocol):
    """An answer."""

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """What no measured run bears out."""


def doubt(best: Doubtable) -> str:
    """What goes before a superlative that no measured run of its kind bears out; empty otherwise."""
    return f" {best.unmeasured[0]}" if best.unmeasured else ""


def blocks_of(
    predictions: Sequence[Prediction],
    *,
    matters: Sequence[Alternative] = (),
    why: bool = False,
    definitions: Mapping[str, str] | None = None,
) -> Iterator[Block]:
    """One page about `predictions`, which differ in precision or anything else."""
    yield from warnings(_shared_lines(predictions, Severity.WARNING, only=_BEFORE))
    yield from (Text(line, Tone.LEAD) for line in answer_lines(predictions))
    yield from (Text(headline(predictions), Tone.SOFT), GAP)
    if len(predictions) > 1:
        yield from (_summary_table(predictions), GAP)
    yield from (bars_of(predictions, every=why), GAP)
    if why:
        if any(prediction.link_seconds for prediction in predictions):
            yield from (_links_table(predictions), GAP)
        yield from (_memory_table(predictions), GAP)
    yield from _assumptions(predictions, matters, why)
    yield from _evidence(predictions, why)
    yield from warnings(
        _shared_lines(predictions, Severity.WARNING, without=(*_ABOUT_EVIDENCE, *_BEFORE, _ABOUT_MEMORY))
    )
    if why and definitions:
        yield from (GAP, _definitions_table(predictions, definitions))


def notebook_of(predictions: Sequence[Prediction]) -> Iterator[Block]:
    """The answer in a sentence, figures, bars of the terms on one scale."""
    first, *more = answer_lines(predictions)
    yield Text(first, Tone.LEAD)
    yield from map(Text, more)
    yield Text(headline(predictions), Tone.SOFT)
    yield bars_of(predictions)


def bars_of(predictions: Sequence[Prediction], *, every: bool = False) -> Bars:
    """Where the time of each goes, with its interval."""
    terms = shown_terms(predictions, every=every)
    labels = labels_of(predictions)
    figures = (
        {"precision": label, **figures_of(each)} for label, each in zip(labels, predictions, strict=True)
    )
    columns = ("precision", "step", "interval", "throughput", "memory")
    rows = tuple(tuple(each[name] for name in columns) for each in figures)
    return Bars(
        title="where the time goes",
        labels=tuple(labels),
        parts={name: tuple(values) for name, values in terms.items()},
        colors=_COLORS,
        ranges=tuple((each.interval.low_s, each.interval.high_s) for each in predictions),
        range_title=f"{predictions[0].interval.coverage:.0%} interval",
        about=headline(predictions),
        figures=Table(columns=columns, rows=rows),
    )


def answer_lines(predictions: Sequence[Prediction]) -> Iterator[str]:
    """The answer in two sentences; before it what does not fit, and what would."""
    yield from _shared_lines(predictions, Severity.WARNING, only=(_ABOUT_MEMORY,))
    best = leading(predictions)
    if len(predictions) == 1:
        yield from Headline.of(best).lines()
        return
    labels = labels_of(predictions)
    run, step = Headline.of(best).lines()
    yield f"Fastest{doubt(best)}: {labels[list(predictions).index(best)]}. {run}"
    yield step
    others = [
        f"{label} {best.throughput / each.throughput:.2f} x" + " (unmeasured)" * bool(each.unmeasured)
        for label, each in zip(labels, predictions, strict=True)
        if each is not best
    ]
    yield f"Time relative to it: {', '.join(others)}."


def headline(predictions: Sequence[Prediction]) -> str:
    """The job in a line, with the parameters of its model where they fit."""
    first = predictions[0]
    nodes = nodes_in_words(first.nodes, (item.text for item in first.diagnostics))
    said = next((item.text for item in first.diagnostics if item.code == OWN_PREDICTOR), "")
    named = "your predictor" if said.startswith("Predictor of ") else f"the {said.partition(':')[0].lower()}"
    predictor = f", by {named}" if said else ""
    precision = f"{first.precision}, " if len(predictions) == 1 else ""
    params = f" ({format_si(first.params, '')} parameters)" if first.params else ""
    job = (
        f" on {first.gpus} x {first.device} ({nodes}), {precision}{first.stack}, "
        f"batch {first.batch_size:.9g} per device, {first.global_batch_size:,.15g} per step{predictor}"
    )
    line = f"{first.model}{params}{job}"
    return line if len(line) <= TEXT_WIDTH else f"{first.model}{job}"


def labels_of(predictions: Sequence[Prediction]) -> list[str]:
    """What tells each prediction from the others: its precision, and whatever else differs."""
    fields = ["precision"]
    for field in ("model", "device", "gpus", "stack", "global_batch_size"):
        if len({getattr(prediction, field) for prediction in predictions}) > 1:
            fields.append(field)
    found = [[getattr(prediction, field) for field in fields] for prediction in predictions]
    labels = [" ".join(value if isinstance(value, str) else f"{value:g}" for value in row) for row in found]
    asked = [shown_precision(prediction.request.get("precision")) for prediction in predictions]
    return [  # fp8 and mxfp8 are variants of one precision
        f"{label} ({said})" if labels.count(label) > 1 and said != prediction.precision else label
        for label, said, prediction in zip(labels, asked, predictions, strict=True)
    ]


def _summary_table(predictions: Sequence[Prediction]) -> Table:
    totals = lengths_of(predictions)
    rows = (
        (label, *figures_of(each).values(), *more)
        for label, each, *more in zip(labels_of(predictions), predictions, *totals.values(), strict=True)
    )
    interval = interval_title(predictions)
    columns = ("precision", ">step time", f">{interval}", ">throughput", ">MFU", ">memory per device")
    return Table(columns=(*columns, *totals), rows=tuple(rows))


def figures_of(prediction: Prediction) -> dict[str, str]:
    """The figures of an answer as they stand in tables."""
    interval, fits = prediction.interval, "" if prediction.fits else " does not fit"
    return {
        "step": format_duration(prediction.step_time_s),
        "interval": format_range(interval.low_s, interval.high_s),
        "throughput": f"{grouped(prediction.throughput)} {prediction.throughput_unit}",
        "MFU": "-" if prediction.mfu is None else f"{prediction.mfu:.1%}",
        "memory": f"{format_bytes(prediction.memory_bytes_per_device)}{fits}",
    }


def interval_title(predictions: Sequence[Prediction]) -> str:
    """What a column of intervals is called."""
    coverages = {prediction.interval.coverage for prediction in predictions}
    return f"{coverages.pop():.0%} interval" if len(coverages) == 1 else "interval"


def lengths_of(predictions: Sequence[Prediction]) -> dict[str, list[str]]:
    """Columns of the epoch and of the run, where any has one."""
    found = {}
    for title, name in ((">epoch", "epoch_time_s"), (">run", "total_time_s")):
        seconds = [getattr(prediction, name) for prediction in predictions]
        if any(each is not None for each in seconds):
            found[title] = ["-" if each is None else format_duration(each) for each in seconds]
    return found


def shown_terms(predictions: Sequence[Prediction], *, every: bool = False) -> dict[str, list[float]]:
    """Terms in words to the seconds of each prediction, the largest first; small ones as `other`, last."""
    names = dict.fromkeys(name for prediction in predictions for name in prediction.terms)
    rows = {name: [prediction.terms.get(name, 0.0) for prediction in predictions] for name in names}
    steps = [prediction.step_time_s for prediction in predictions]
    shares = {
        name: max(abs(value) / step_s for value, step_s in zip(values, steps, strict=True))
        for name, values in rows.items()
    }
    large = [name for name, share in shares.items() if share >= _SMALL_SHARE or (every and share > 0.0)]
    large.sort(key=lambda name: -shares[name])
    shown = {plain_name(name): rows[name] for name in large}
    rest = [values for name, values in rows.items() if name not in large and any(values)]
    if rest:
        shown["other"] = [sum(column) for column in zip(*rest, strict=True)]
    return shown


def _links_table(predictions: Sequence[Prediction]) -> Table:
    """Communication by axis: what the computation does not hide, of what the links take."""

    def cell(each: Prediction, axis: str) -> str:
        if axis not in each.link_seconds:
            return "-"
        exposed = format_duration(each.terms.get(f"{axis}_exposed_s", 0.0))
        return f"{exposed} exposed of {format_duration(each.link_seconds[axis])}"

    axes = dict.fromkeys(axis for prediction in predictions for axis in prediction.link_seconds)
    rows = ((plain_name(axis), *(cell(each, axis) for each in predictions)) for axis in axes)
    return Table(columns=("communication", *_titles(predictions, ">exposed, of all")), rows=tuple(rows))


def _memory_table(predictions: Sequence[Prediction]) -> Table:
    names = dict.fromkeys(name for prediction in predictions for name in prediction.memory_terms)
    each = {name: [prediction.memory_terms.get(name, 0.0) for prediction in predictions] for name in names}
    rows = (
        (plain_name(name), *(format_bytes(value) if value else "-" for value in values))
        for name, values in each.items()
        if any(values)
    )
    return Table(columns=("where the memory goes", *_titles(predictions, ">per device")), rows=tuple(rows))


def _titles(predictions: Sequence[Prediction], alone: str) -> list[str]:
    return [alone] if len(predictions) == 1 else [f">{label}" for label in labels_of(predictions)]


def _assumptions(
    predictions: Sequence[Prediction], matters: Sequence[Alternative], why: bool
) -> Iterator[Block]:
    """What was assumed: what matters most with its alternatives, or all of it."""
    lines = list(_shared_lines(predictions, Severity.ASSUMPTION))
    most = matters if why else _most(matters)
    if most:
        yield from (_alternatives_table(predictions, most), GAP)
    # What the answer is the sum of, and a layout that was chosen, are told whatever else was assumed.
    always = _ALWAYS_TOLD if len(predictions) > 1 else (*_ALWAYS_TOLD, LEFT_OPEN)
    told = list(_shared_lines(predictions, Severity.ASSUMPTION, only=always))
    shown = lines if why else told if most else list(dict.fromkeys([*told, *lines]))[:_MOST_ASSUMPTIONS]
    for line in shown:
        yield Text(f"Assumed: {line}")
    if len(lines) > len(shown):
        yield Text(f"{len(lines)} values were assumed; --why shows all of them.", Tone.SOFT)
    if lines:
        yield GAP


def _most(matters: Sequence[Alternative]) -> list[Alternative]:
    """Those that move the time most, and the one that moves the memory most."""
    shown = [*matters[:_MOST_ASSUMPTIONS]]
    fullest = max(matters, key=lambda each: abs(each.memory_change), default=None)
    return [*shown, fullest] if fullest is not None and fullest.memory and fullest not in shown else shown


def _alternatives_table(predictions: Sequence[Prediction], alternatives: Sequence[Alternative]) -> Table:
    best = leading(predictions)
    unit = best.throughput_unit.removesuffix("/s").removesuffix("s")
    whose = f" ({labels_of(predictions)[list(predictions).index(best)]})" if len(predictions) > 1 else ""
    memory = [">memory"] if any(each.memory for each in alternatives) else []
    columns = ("assumed, most important first", "otherwise", f">time per {unit}{whose}", *memory)
    rows = (
        (each.assumed, f"{each.words} ({each.option})", each.change, each.memory or "-")[: len(columns)]
        for each in alternatives
    )
    return Table(columns=columns, rows=tuple(rows))


def _evidence(predictions: Sequence[Prediction], why: bool) -> Iterator[Block]:
    """The most similar measured runs, and how far they are."""
    runs = _nearest(predictions, every=why)
    near = [run for run in runs if run.similarity >= _NEAR]
    if not near:
        yield Text("No measured run is near this job." + (" The nearest:" if runs else ""))
    if runs:
        shown = runs if why else near or runs[:1]
        yield from (_measurements_table(predictions, shown, why), GAP)
        refs = dict.fromkeys(f"{run.source}: {run.source_ref}" for run in shown if why)
        yield from (Text(ref, Tone.SOFT) for ref in refs)
    # Where runs are near, their table says how they differ.
    told = _ABOUT_EVIDENCE if why or not near else _ABOUT_EVIDENCE[1:]
    lines = _shared_lines(predictions, Severity.WARNING, only=told)
    yield from (Text(line, Tone.WARNING) for line in lines)


def _nearest(predictions: Sequence[Prediction], *, every: bool) -> list[NearestMeasurement]:
    """The most similar measured runs, each once however near it is to which prediction."""
    each = _SHOWN_ALONE if len(predictions) == 1 else _SHOWN_EACH
    runs: dict[NearestMeasurement, float] = {}
    for prediction in predictions:
        for run in prediction.nearest_measurements[:each]:
            alone = replace(run, similarity=0.0)
            runs[alone] = max(runs.get(alone, 0.0), run.similarity)
    ranked = [replace(run, similarity=similarity) for run, similarity in runs.items()]
    ranked.sort(key=lambda run: -run.similarity)
    kinds: dict[tuple[Any, ...], NearestMeasurement] = {}
    for run in ranked:
        kinds.setdefault((run.model, run.device, run.gpus, run.precision, run.stack), run)
    return (ranked if every else list(kinds.values()))[:_MOST_RUNS]


def _measurements_table(
    predictions: Sequence[Prediction], runs: Sequence[NearestMeasurement], why: bool
) -> Table:
    columns = ("nearest measurements", "how it differs", ">measured", ">predicted", "source", ">similarity")
    rows = (
        (
            f"{run.model}, {run.gpus} x {run.device}, {run.precision}"
            + (" (precision inferred)" if run.precision_inferred else ""),
            distance_in_words(run, predictions),
            format_duration(run.measured_step_time_s),
            format_duration(run.predicted_step_time_s),
            run.source,
            f"{run.similarity:.2f}",
        )
        for run in runs
    )
    count = len(columns) - (not why)
    return Table(columns=columns[:count], rows=tuple(row[:count] for row in rows))


def distance_in_words(run: NearestMeasurement, predictions: Sequence[Prediction]) -> str:
    """What of a measured run differs from every prediction; "the same job" where nothing does."""

    def differs(field: str) -> bool:
        return all(getattr(run, field) != getattr(each, field) for each in predictions)

    other = ", ".join(word for field, word in _DIFFERENCES.items() if differs(field))
    found = [f"other {other}"] if other else []
    if differs("global_batch_size"):
        found.append(f"batch {run.global_batch_size:,.15g} per step")
    if differs("stack"):
        found.append(f"on {run.stack}")
    return "; ".join(found) or "the same job"


_DIFFERENCES = {
    "model": "model",
    "device": "device",
    "gpus": "number of devices",
    "precision": "precision",
}
"""Fields of a run that its own cell has, and what they are called."""


def _definitions_table(predictions: Sequence[Prediction], definitions: Mapping[str, str]) -> Table:
    """One line for each word of the page that has a definition."""
    terms = [*shown_terms(predictions, every=True)]
    memory = [
        plain_name(name) for each in predictions for name in each.memory_terms if each.memory_terms[name]
    ]
    rows = (
        (word, _first_sentence(definitions[word]))
        for word in dict.fromkeys([*_WORDS, *terms, *memory])
        if word in definitions
    )
    return Table(columns=("word", "what it means"), rows=tuple(rows))


def _first_sentence(markdown: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(markdown.split()))
    return re.split(r"(?<=\.)\s", re.sub(r"[*`]", "", text), maxsplit=1)[0]


def _shared_lines(
    predictions: Sequence[Prediction],
    severity: Severity,
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Iterator[str]:
    """Texts of diagnostics over all predictions, each once, marked where it does not hold for all."""
    said_by: dict[Diagnostic, list[str]] = {}
    for prediction, label in zip(predictions, labels_of(predictions), strict=True):
        for item in prediction.diagnostics:
            if item.severity is severity and item.code not in without and (not only or item.code in only):
                said_by.setdefault(item, []).append(label)
    for item, speakers in said_by.items():
        yield item.text if len(speakers) == len(predictions) else f"{', '.join(speakers)}: {item.text}"
