"""Choices among alternatives that differ in one thing only: precision, batch, layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from precision_time.io import packaged_toml
from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table

from .alternatives import (
    Alternatives,
    Group,
    Key,
    arch,
    but_batch,
    but_layout,
    but_precision,
    groups_by,
    part_of,
)
from .choosers import BIGGEST_BATCH, BLIND, BLIND_PEAK, FORMULAS, MIXED, OURS, PEAK, by_preference
from .regrets import COLUMNS, Regrets, chooser_rows, regrets_in, verdict

_LEAST_GROUPS = 10
"""Architectures with fewer groups are shown together."""


def precision_groups(found: Alternatives) -> tuple[Group, ...]:
    """Groups that differ in nothing but precision; precisions that nobody plans with are left out."""
    left_out = packaged_toml(__package__, "data/planning.toml")["precisions_left_out"]
    usual = ~np.isin([item.precision for item in found.runs], left_out)
    groups = (part_of(item, lambda places: usual[places]) for item in groups_by(found, but_precision))
    return tuple(item for item in groups if item is not None)


def which_precision(found: Alternatives) -> Section:
    """How often the fastest precision is chosen, by architecture of the device."""
    groups = precision_groups(found)
    rule = {MIXED: by_preference([item.precision for item in found.runs])}
    within = regrets_in(found, groups, further=rule)
    words = sorted({found.runs[place].precision for item in groups for place in item.places})
    compared = (OURS, FORMULAS, BLIND, BLIND_PEAK, PEAK, MIXED)
    return Section(
        key="precision",
        title="Which precision",
        headline=f"{verdict(within)} {_compared(within, (MIXED, PEAK))}",
        tables=(
            Table(
                title="Alternatives that differ in nothing but precision",
                columns=COLUMNS,
                rows=chooser_rows(within),
                note=f"Time per sample. Precisions among them: {', '.join(words)}. Blind scores are equal "
                "for all of a group, up to the repeats behind their medians: blind is random choice here.",
            ),
            Table(
                title="By architecture of the device: within 5 % of the best [%] (mean regret [%])",
                columns=("architecture", ">groups", *(f">{name}" for name in compared)),
                rows=_by_arch(found, within, compared),
            ),
        ),
        plot={name: within.regret_percent(name) for name in within.chosen},
    )


def batch_and_layout(found: Alternatives) -> Section:
    """Groups that differ only in the batch, and only in how it is laid out."""
    by_batch, by_layout = (_regrets_by(found, key) for key in (but_batch, but_layout))
    return Section(
        key="layout",
        title="Which batch, which layout",
        headline=f"Batch: {verdict(by_batch)} {_compared(by_batch, (BIGGEST_BATCH,))} "
        f"Layout: {verdict(by_layout)}",
        tables=(
            Table(
                title="Alternatives that differ in nothing but the batch",
                columns=COLUMNS,
                rows=chooser_rows(by_batch),
                note="Time per sample: what a batch does to convergence is not in it.",
            ),
            Table(
                title="The same global batch on the same devices, laid out otherwise",
                columns=COLUMNS,
                rows=chooser_rows(by_layout),
                note="Degrees, micro batch, sharding or checkpointing differ.",
            ),
        ),
    )


def _regrets_by(found: Alternatives, key: Key) -> Regrets:
    return regrets_in(found, groups_by(found, key))


def _compared(found: Regrets, names: Sequence[str]) -> str:
    """Rules, in words."""
    parts = []
    for name in names:
        item = found.summary(name)
        parts.append(
            f"{name}: within 5 % in {100.0 * item.within:.0f} %, mean regret {100.0 * item.mean:.1f} %"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _by_arch(
    found: Alternatives, within: Regrets, compared: Sequence[str]
) -> tuple[tuple[CellValue, ...], ...]:
    words = np.array([arch(found.runs[item.places[0]].device) for item in within.groups])
    names, counts = np.unique(words, return_counts=True)
    many = [str(name) for name in names[np.argsort(-counts)] if (words == name).sum() >= _LEAST_GROUPS]
    parts = [(name, words == name) for name in many]
    rest = ~np.isin(words, many)
    if rest.any():
        parts.append((f"{len(names) - len(many)} others", rest))
    rows: list[tuple[CellValue, ...]] = []
    for title, mask in parts:
        cells = []
        for name in compared:
            good = np.array([item.within for item in within.chosen[name]])[mask]
            cells.append(f"{100.0 * good.mean():.0f} ({within.regret_percent(name)[mask].mean():.1f})")
        rows.append((title, int(mask.sum()), *cells))
    return tuple(rows)
