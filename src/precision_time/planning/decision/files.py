"""A plan as files: one interactive page that needs nothing else, a plot of money over time, a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import Ints
from ...io import packaged, write_atomically
from ...render.blocks import Drawing
from ...render.html import page_of_blocks
from ...render.table import write_columns
from ...units import grouped
from .candidate import Candidate, carbon, chance, duration, money
from .choose import AIMS, Judged
from .picture import PICTURES, write_plot
from .result import Plan, body, head

KINDS = {"html": (".html",), "plot": PICTURES, "out": (".csv", ".jsonl")}
_MOST_POINTS = 1500


def to_html(plan: Plan) -> str:
    """The page."""
    found = plan.judged
    assert found is not None
    numbers = _points(found)
    candidates = found.candidates(numbers)
    title = f"{plan.model}, {plan.length}"
    widget = Drawing(_widget(plan, len(numbers), len(found.outcomes)))
    data = json.dumps(_data(plan, candidates, title), allow_nan=False).replace("<", "\\u003c")
    script = (
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>\n{_packaged('page.js')}</script>\n"
    )
    blocks = (*head(plan), widget, *body(plan, plan.front, why=True))
    return page_of_blocks(title, blocks, style=_packaged("page.css"), script=script)


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


def _widget(plan: Plan, shown: int, all_of_them: int) -> str:
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
        f'<div class="bar">{axes}'
        f'<label>deadline [h] <input type="number" id="hours" min="0" step="any" value="{hours}"></label>'
        f'<label>budget [USD] <input type="number" id="usd" min="0" step="any" value="{usd}"></label>'
        '<span class="soft" id="count"></span></div><div class="bar" id="devices"></div>'
        '<div class="both"><div><svg id="plot" viewBox="0 0 900 480" role="img"></svg></div>'
        '<div><table><tbody id="told"></tbody></table></div></div>'
        '<p class="soft">Rings: the Pareto front. Faint: breaks a limit; the deadline counts with '
        f"a probability of {plan.limits.confidence:.0%}. Both axes are logarithmic.{some}</p>"
    )


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
        "front": [places[_key(each)] for each in plan.front],
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
        "energy": f"{grouped(each.energy_kwh)} kWh",
        "carbon": carbon(each.carbon_g),
        "MFU": "" if each.mfu is None else f"{each.mfu:.0%}",
    }
    return {name: text for name, text in rows.items() if text}


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
