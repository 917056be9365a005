"""How far predicted waits for communication are from those that were measured, by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from precision_time.corpus.protocols import publisher
from precision_time.learn.metrics import errors_percent
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import FeatureTable, Floats
from precision_time_papers.hierarchical import Hierarchical

FORMULAS, STAGE = "formulas", "communication stage, its publisher held out"


def predicted_waits(table: FeatureTable) -> Mapping[str, Floats]:
    """Seconds of communication that compute does not hide, by predictor; NaN where nobody measured the wait.

    The stages are fitted on all rows but those of a row's publisher.
    """
    jobs, asked = table.measured.jobs, ~np.isnan(table.measured.sync_s)
    publishers = np.array([publisher(item) for item in table.measured.measurements])
    found = np.full(len(publishers), np.nan)
    for name in sorted(set(publishers[asked].tolist())):
        own = publishers == name
        fitted = Hierarchical().fit(table, np.flatnonzero(~own))
        places = np.flatnonzero(own & asked)
        found[places] = fitted.parts(jobs.take(places).select(fitted.names))[1]
    return {FORMULAS: np.where(asked, jobs.exposed_s, np.nan), STAGE: found}


def waits_table(table: FeatureTable, sources: Sequence[str], predicted: Mapping[str, Floats]) -> Table:
    """Errors on the wait alone, of runs on several devices whose wait was measured."""
    waits = table.measured.sync_s
    several = (table.measured.jobs.exposed_s > 0.0) & (np.nan_to_num(waits) > 0.0)
    names = np.array(sources)
    rows: list[tuple[CellValue, ...]] = []
    for title in (*sorted(set(names[several].tolist())), "all"):
        chosen = several if title == "all" else several & (names == title)
        cells: list[CellValue] = []
        for found in predicted.values():
            off = errors_percent(waits[chosen], found[chosen])
            of_step = np.abs(found[chosen] - waits[chosen]) / table.measured_s[chosen] * 100.0
            ratio = np.exp(np.mean(np.log(np.maximum(found[chosen], 1e-9) / waits[chosen])))
            cells += [f"{off.mean():.1f} ({np.median(off):.1f})", float(of_step.mean()), f"{ratio:.2f}"]
        share = float(np.mean(waits[chosen] / table.measured_s[chosen])) * 100.0
        rows.append((title, int(chosen.sum()), share, *cells))
    return Table(
        title="The wait alone: measured against predicted",
        columns=columns_of(
            "source | >n | >wait, share of the step % | "
            + " | ".join(
                f">{name}: mean (median) error % | >{name}: % of the step | >{name}: predicted / measured"
                for name in predicted
            )
        ),
        rows=tuple(rows),
        note="Runs on several devices that recorded how long they waited for the exchange of gradients. "
        "Predicted / measured: geometric mean. The stage is fitted without the row's publisher.",
    )
