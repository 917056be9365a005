"""Predictions as HTML for notebooks: no script, readable on dark and light pages, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..cost.terms import OTHER_COLOR, TERMS
from ..rendering import grouped, in_words
from ..units import format_bytes, format_duration
from .page import answer_lines, headline, labels_of, range_of, shown_terms
from .prediction import Prediction

_COLORS = {in_words(term.name): term.color for term in TERMS}
_PLAIN = "color:inherit;background:none"
_TABLE = f"{_PLAIN};border-collapse:collapse;margin:.5em 0"
_CELL = "text-align:left;padding:2px 12px 2px 0;white-space:nowrap"
_HEADER = f"{_CELL};border-bottom:1px solid rgba(128,128,128,.5)"
_BAR_WIDTH = "20em"


def to_html(predictions: Sequence[Prediction]) -> str:
    """The answer in a sentence, figures in a table, bars of the terms on one scale, what the colors are."""
    labels = labels_of(predictions)
    first, *more = answer_lines(predictions, labels)
    longest_s = max(prediction.interval.high_s for prediction in predictions)
    rows = [
        [*_figures(prediction, label), _bar(prediction, terms, longest_s)]
        for prediction, label, terms in zip(predictions, labels, _terms_of(predictions), strict=True)
    ]
    headers = ("precision", "step", "interval", "throughput", "memory", "")
    parts = [
        _tag("div", _tag("b", escape(first))),
        *(_tag("div", escape(line)) for line in more),
        _tag("div", escape(headline(predictions)), "opacity:.7"),
        _table(headers, rows),
        _legend(predictions),
    ]
    return _tag("div", "".join(parts), _PLAIN)


def rows_to_html(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table below a line of text; all of it is escaped."""
    table = _table(headers, [[escape(cell) for cell in row] for row in rows])
    return _tag("div", _tag("div", _tag("b", escape(caption))) + table, _PLAIN)


def _tag(name: str, inner: str, style: str = "", title: str = "") -> str:
    titled = f' title="{escape(title, quote=True)}"' if title else ""
    styled = f' style="{style}"' if style else ""
    return f"<{name}{titled}{styled}>{inner}</{name}>"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Headers are escaped, cells are HTML."""
    lines = [_tag("tr", "".join(_tag("th", escape(name), _HEADER) for name in headers), _PLAIN)]
    lines += [_tag("tr", "".join(_tag("td", cell, _CELL) for cell in row), _PLAIN) for row in rows]
    return _tag("table", "".join(lines), _TABLE)


def _figures(prediction: Prediction, label: str) -> list[str]:
    memory = format_bytes(prediction.memory_bytes_per_device)
    texts = (
        label,
        format_duration(prediction.step_time_s),
        range_of(prediction.interval.low_s, prediction.interval.high_s),
        f"{grouped(prediction.throughput)} {prediction.throughput_unit}",
        memory if prediction.fits else f"{memory} does not fit",
    )
    return [escape(text) for text in texts]


def _terms_of(predictions: Sequence[Prediction]) -> list[dict[str, float]]:
    shown = shown_terms(predictions)
    return [{name: values[place] for name, values in shown.items()} for place in range(len(predictions))]


def _bar(prediction: Prediction, terms: dict[str, float], longest_s: float) -> str:
    """The terms side by side, and below them a line from the low to the high end of the interval."""
    parts = [
        _tag(
            "span",
            "",
            f"display:inline-block;height:1em;width:{max(seconds, 0.0) / longest_s:.2%};"
            f"background:{_COLORS.get(name, OTHER_COLOR)}",
            title=f"{name}: {format_duration(seconds)}",
        )
        for name, seconds in terms.items()
    ]
    interval = prediction.interval
    left, width = interval.low_s / longest_s, (interval.high_s - interval.low_s) / longest_s
    line = _tag(
        "div",
        "",
        f"margin-left:{left:.2%};width:{width:.2%};height:3px;background:currentColor;opacity:.6",
        title=f"{interval.coverage:.0%} interval",
    )
    bar = _tag("div", "".join(parts), "line-height:1;font-size:1em")
    return _tag("div", bar + line, f"width:{_BAR_WIDTH}")


def _legend(predictions: Sequence[Prediction]) -> str:
    """What each color is; with seconds and share where there is one prediction."""
    items = []
    for name, values in shown_terms(predictions).items():
        share = values[0] / predictions[0].step_time_s
        figures = f" {format_duration(values[0])}, {share:.0%}" if len(predictions) == 1 else ""
        color = _COLORS.get(name, OTHER_COLOR)
        square = _tag("span", "", f"display:inline-block;width:.8em;height:.8em;background:{color}")
        text = f"{square} {escape(name + figures)}"
        items.append(_tag("span", text, "display:inline-block;margin-right:1em;white-space:nowrap"))
    return _tag("div", "".join(items))
