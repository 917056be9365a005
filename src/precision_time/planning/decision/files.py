"""A plan as files: one interactive page that needs nothing else, a plot of money over time, a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import Ints
from ...io import check_suffix, packaged, write_atomically
from ...predict.page import doubt
from ...render.html import page
from ...render.picture import check_picture
from ...render.table import write_columns
from .candidate import Candidate, carbon, chance, duration, money
from .choose import AIMS, Judged
from .picture import PICTURES, write_plot
from .result import Plan, beside, front_table

KINDS = {"html": (".html",), "plot": PICTURES, "out": (".csv", ".jsonl")}
_MOST_POINTS = 1500


def to_html(plan: Plan) -> str:
    """The page."""
    found = plan.judged
    assert found is not None
    numbers = _points(found)
    candidates = found.candidates(numbers)
    title = f"{plan.model}, {plan.length}"
    body = [
        f'<p class="soft">{escape(", ".join(plan.limits.words) or "No limits.")}</p>',
        _heads(plan),
        _plot(plan, len(numbers), len(found.outcomes)),
        "<h2>Pareto front</h2>",
        _front(plan, candidates),
        *(
            f"<h2>{title}</h2>{_table(rows)}"
            for title, rows in (
                ("What if", [(each.question, each.answer) for each in plan.what_ifs]),
                ("Break-even points", [("", each.words) for each in plan.break_evens]),
                ("What moves the answer", [("", str(move)) for move in plan.moves]),
                ("Assumed", [("", line) for line in (*plan.assumptions, *plan.warnings)]),
                ("Prices", [("", line) for line in plan.prices]),
            )
            if rows
        ),
    ]
    data = json.dumps(_data(plan, candidates, title), allow_nan=False).replace("<", "\\u003c")
    script = (
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>\n{_packaged('page.js')}</script>\n"
    )
    return page(title, "\n".join(body), style=_packaged("page.css"), script=script)


def _packaged(name: str) -> str:
    return packaged(__package__, f"data/{name}").read_text(encoding="utf-8")


def _points(found: Judged) -> Ints:
    """The candidates that are drawn: all, or the front and the best by each aim of each device and number."""
    every = np.flatnonzero(np.isfinite(found.outcomes.time_s))
    if len(every) <= _MOST_POINTS:
        return every
    device, gpus = found.rows.table["device"][found.outcomes.row], found.outcomes.gpus
    keep = found.front.copy()
    for aim in AIMS:
        order = found.order(aim)
        keys = np.char.add(device[order].astype(str), np.char.add("/", gpus[order].astype(str)))
        keep[order[np.unique(keys, return_index=True)[1]]] = True
        keep[order[: _MOST_POINTS // 4]] = True
    return np.flatnonzero(keep & np.isfinite(found.outcomes.time_s))


def _heads(plan: Plan) -> str:
    if plan.miss is not None:
        lines = [f"{plan.miss.by}.", *plan.miss.remedies]
        return (
            '<div class="choice"><b>Nothing keeps the limits; the nearest miss'
            f"{doubt(plan.miss.candidate)}</b>"
            f'<p class="figures">{escape(plan.miss.candidate.label)}</p>'
            f"{''.join(f'<p>{escape(line)}</p>' for line in lines)}</div>"
        )
    parts = []
    for choice in plan.choices:
        best = choice.candidate
        figures = [duration(best.time_s), money(best.usd), carbon(best.carbon_g)]
        promised = "" if choice.unmeasured is None else f"<p>{escape(beside(choice, choice.unmeasured))}</p>"
        in_time = "" if best.probability is None else f"In time with {chance(best.probability)}. "
        parts.append(
            f'<div class="choice"><b>{choice.aim}{doubt(best)}</b><p class="figures">{escape(best.label)}</p>'
            f"<p>{escape(' · '.join(figures))}</p><p>{escape(best.place)}</p>"
            f'<p class="soft">{escape(in_time + choice.reason)}</p>{promised}</div>'
        )
    return f'<div class="choices">{"".join(parts)}</div>'


def _plot(plan: Plan, shown: int, all_of_them: int) -> str:
    hours = "" if plan.limits.deadline_s is None else f"{plan.limits.deadline_s / 3600.0:.6g}"
    usd = "" if plan.limits.budget_usd is None else f"{plan.limits.budget_usd:.6g}"
    axes = "".join(
        f"<label>{axis} <select id={axis}>"
        + "".join(
            f"<option{' selected' if name == usual else ''}>{name}</option>"
            for name in ("time", "money", "carbon")
        )
        + "</select></label>"
        for axis, usual in (("x", "time"), ("y", "money"))
    )
    some = "" if shown == all_of_them else f" {shown:,} of {all_of_them:,} candidates are drawn."
    return (
        f'<h2>Candidates</h2><div class="bar">{axes}'
        f'<label>deadline [h] <input type="number" id="hours" min="0" step="any" value="{hours}"></label>'
        f'<label>budget [USD] <input type="number" id="usd" min="0" step="any" value="{usd}"></label>'
        '<span class="soft" id="count"></span></div><div class="bar" id="devices"></div>'
        '<div class="both"><div><svg id="plot" viewBox="0 0 900 480" role="img"></svg></div>'
        '<div><table><tbody id="told"></tbody></table></div></div>'
        '<p class="soft">Rings: the Pareto front. Faint: breaks a limit; the deadline counts with '
        f"a probability of {plan.limits.confidence:.0%}. Both axes are logarithmic.{some}</p>"
    )


def _front(plan: Plan, candidates: Sequence[Candidate]) -> str:
    places = {_key(each): place for place, each in enumerate(candidates)}
    table = front_table(plan, plan.front)
    headers = "".join(f"<th>{escape(name)}</th>" for name in table.names[1:])
    rows = []
    for each, (_, *cells) in zip(plan.front, table.rows, strict=True):
        filled = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        rows.append(f'<tr data-row="{places[_key(each)]}">{filled}</tr>')
    body = f"<thead><tr>{headers}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{body}</table></div>'


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr>{f'<th>{escape(name)}</th>' if name else ''}<td>{escape(text)}</td></tr>" for name, text in rows
    )
    return f"<table><tbody>{lines}</tbody></table>"


def _key(each: Candidate) -> tuple[Any, ...]:
    return (
        *(each.device, each.gpus, each.precision, each.layout, each.batch_size, each.global_batch_size),
        *(each.cloud, each.instance_type, each.region, each.market),
    )


def _data(plan: Plan, candidates: Sequence[Candidate], title: str) -> Mapping[str, Any]:
    places = {_key(each): place for place, each in enumerate(candidates)}
    return {
        "title": title,
        "labels": [f"{each.label}: {duration(each.time_s)}, {money(each.usd)}" for each in candidates],
        "choices": [{"aim": choice.aim, "row": places[_key(choice.candidate)]} for choice in plan.choices],
        "rows": [
            {
                "device": each.device,
                "time_s": each.time_s,
                "sure_s": min(each.sure_s, 1e300),
                "usd": each.usd,
                "carbon_g": each.carbon_g,
                "feasible": each.feasible,
                "on_front": each.on_front,
                "said": _said(each),
            }
            for each in candidates
        ],
    }


def _said(each: Candidate) -> dict[str, str]:
    rows = {
        "devices": f"{each.gpus} x {each.device}",
        "precision": each.precision,
        "rented": each.place,
        "batch per device": f"{each.batch_size:g} of {each.global_batch_size:g} per step",
        "layout": each.layout or "data parallel",
        "step": duration(each.step_time_s),
        "run, expected": duration(each.time_s),
        "run, with the probability asked": duration(each.sure_s),
        "in time with": "" if each.probability is None else chance(each.probability),
        "money": money(each.usd),
        "an hour": "" if each.usd_per_hour is None else money(each.usd_per_hour),
        "energy": f"{each.energy_kwh:,.4g} kWh",
        "carbon": carbon(each.carbon_g),
        "MFU": "" if each.mfu is None else f"{each.mfu:.0%}",
    }
    return {name: text for name, text in rows.items() if text}


def check_paths(*, html: Path | None, plot: Path | None, out: Path | None) -> None:
    """Refuse files that would not be written, before anything is computed.

    Raises:
        ConfigError: If a name ends in none of what its option writes.
        MissingExtraError: If matplotlib is needed and not installed.
    """
    for kind, path in (("html", html), ("out", out)):
        if path is not None:
            check_suffix("--out", path, KINDS[kind])
    if plot is not None:
        check_picture(plot, kinds=PICTURES)


def write_files(plan: Plan, *, html: Path | None, plot: Path | None, out: Path | None) -> Iterator[Path]:
    """Write what is asked for; the names of what was written."""
    if html is not None:
        write_atomically(html, to_html(plan))
        yield html
    if plot is not None:
        write_plot(plan, plot)
        yield plot
    if out is not None:
        write_columns(plan.columns(), out)
        yield out
