"""The least energy per sample, where a source measured power beside time: joules of the devices alone."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.cost.job import Job, Jobs
from precision_time.cost.step import price
from precision_time.cost.utilization import model_flops_utilization
from precision_time.planning.energy.power import device_power_w
from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import Floats

from .alternatives import Alternatives, Group, groups_by, of_some, training
from .choices import Summary, summarized
from .choosers import BIGGEST_BATCH, BLIND, FORMULAS, OURS, OURS_SEEN, PREDICTED, RANDOM, choices, scores

_POWER = re.compile(r"average_power_W=([\d.]+)")
"""Zeus's rows say so in their notes."""
TDP = "ours on unseen models with TDP for the power"
FASTEST = "fastest by ours on unseen models"


def measured_power_w(item: Measurement) -> float | None:
    """Mean power of a run on one device; None where nobody measured it."""
    found = _POWER.search(item.notes)
    return None if found is None or item.num_devices != 1 else float(found[1])


def section(found: Alternatives) -> Section:
    """Choices by predicted energy, over all devices of a training and within one type."""
    power = [measured_power_w(item) for item in found.runs]
    known = np.array([value is not None for value in power])
    kept = of_some(found, known)
    values = kept.per_sample_s * np.array([value for value in power if value is not None])
    scored = _scores(kept)

    def of_one_device(item: Measurement) -> Hashable:
        return training(item), item.device

    tables, told = [], []
    for title, groups in (
        ("Any device and batch", groups_by(kept, training)),
        ("One device, any batch", groups_by(kept, of_one_device)),
    ):
        table, by_name = _table(title, values, groups, scored)
        tables.append(table)
        told.append(
            f"{title} ({len(groups)} groups): ours on unseen models has a mean regret of "
            f"{100.0 * by_name[OURS].mean:.1f} %, the fastest by its times "
            f"{100.0 * by_name[FASTEST].mean:.1f} %, random choice {100.0 * by_name[RANDOM].mean:.1f} %."
        )
    sources = sorted({item.source for item in kept.runs})
    return Section(
        key="energy",
        title="Greenest",
        headline=f"Power was measured by {', '.join(sources)} alone, in {len(kept)} configurations: too few "
        f"for more than an impression. {' '.join(told)}",
        tables=tuple(tables),
    )


def _scores(kept: Alternatives) -> Mapping[str, Floats]:
    """Joules per sample as expected: predicted time times the power that it implies."""
    plain = scores(kept, money=False)
    jobs = [job_of(item) for item in kept.runs]
    terms = [price(Jobs.at(job)).terms for job in jobs]

    def joules(name: str) -> Floats:
        step_s = kept.predicted_s[PREDICTED[name]]
        power_w = [
            _power_w(job, said, seconds) for job, said, seconds in zip(jobs, terms, step_s, strict=True)
        ]
        energy_j: Floats = plain[name] * np.array(power_w)
        return energy_j

    predicted = [name for name in (OURS, OURS_SEEN, BLIND, FORMULAS) if name in plain]
    return {
        **{name: joules(name) for name in predicted},
        TDP: plain[OURS] * np.array([job.cluster.device.tdp_w for job in jobs]),
        FASTEST: plain[OURS],
        BIGGEST_BATCH: plain[BIGGEST_BATCH],
        RANDOM: plain[RANDOM],
    }


def _power_w(job: Job, terms: Mapping[str, Floats], step_s: float) -> float:
    """Of the device during a step of predicted length."""
    found = device_power_w(job.cluster.device, terms, mfu=model_flops_utilization(job, step_s))
    return float(np.ravel(found)[0])


def _table(
    title: str, values: Floats, groups: Sequence[Group], scored: Mapping[str, Floats]
) -> tuple[Table, Mapping[str, Summary]]:
    sources = [item.source for item in groups]
    found = {name: summarized(choices(values, score, groups), sources) for name, score in scored.items()}
    rows: list[tuple[CellValue, ...]] = [
        (
            *(name, item.groups, 100.0 * item.best, 100.0 * item.within),
            *(100.0 * item.mean, 100.0 * item.median, 100.0 * item.p90),
        )
        for name, item in found.items()
    ]
    sizes = ", ".join(str(len(item.places)) for item in groups)
    table = Table(
        title=f"Least joules per sample: {title[0].lower()}{title[1:]}",
        columns=columns_of(
            "chosen by | >groups | >best % | >within 5 % of it % | >mean regret % | >median % | >p90 %"
        ),
        rows=tuple(rows),
        note=f"Groups of {sizes} alternatives. Measured: mean power times time, of the device alone. "
        "Predicted: time times the power of `planning/energy/power.py`, whose numbers were fitted on these "
        "powers among others.",
    )
    return table, found
