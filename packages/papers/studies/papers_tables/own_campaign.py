"""The project's own campaign on PredictDDL's datasets, as its store was exported, as a table of jobs.

Every worker is a server of its own. What its devices are is in the hardware file beside the CSV, written by
`precision-time measure --cpu` under the same limits.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.cost.job import Job
from precision_time.errors import PrecisionTimeError
from precision_time.hardware.custom import hardware_beside
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.priced import predict_step_times
from precision_time.learn.table import job_table
from precision_time.precision.catalog import get_policy
from precision_time.request.request import Request
from precision_time_papers.evaluation.pricing import table_of_jobs

from . import STORED
from .one_campaign import Campaign

FILE = STORED / "own-predictddl-cpu.csv"
_DATA_SETS: Mapping[int, str] = {10: "cifar10", 200: "tiny-imagenet"}
"""Classes to the dataset that a trial has the shapes of."""
LINK = "ethernet-1g"
"""Of each server, as the campaign shaped it."""
_COVERAGE = 0.9


def own_campaign(path: Path = FILE) -> Campaign | None:
    """The campaign; None where it was not measured, or the figures of its devices are missing.

    Args:
        path: CSV of `precision-time papers campaign export`; devices are described in the file beside it.
    """
    hardware = hardware_beside(path)
    if not path.is_file() or hardware is None:
        return None
    runs: list[tuple[Measurement, Job]] = []
    left_out: Counter[str] = Counter()
    with path.open(encoding="utf-8", newline="") as file:
        for trial in _timed(csv.DictReader(file)):
            try:
                runs.append(_run(trial, hardware, path.stem))
            except PrecisionTimeError as error:
                left_out[str(error).split(".", maxsplit=1)[0]] += 1
    if not runs:
        return None
    measurements, jobs = tuple(item for item, _ in runs), [job for _, job in runs]
    native = job_table(jobs)
    fp32 = job_table([replace(job, precision=get_policy("fp32")) for job in jobs])
    measured_s = np.array([item.measured_step_time_s for item in measurements], dtype=np.float64)
    measured = MeasuredTable(
        jobs=native,
        measurements=measurements,
        measured_s=measured_s,
        sync_s=np.full(len(runs), np.nan),
        rejected=left_out,
    )
    table = table_of_jobs(measured, fp32, jobs)
    # One predictor per dataset, as the paper has it: its own types would put neighbors together.
    kinds = np.unique([item.dataset for item in measurements], return_inverse=True)[1].reshape(-1)
    views = replace(table.jobs, dataset=kinds.astype(np.intp))
    shipped = predict_step_times(jobs, shipped_predictor(), coverage=_COVERAGE)
    return Campaign(
        key="own",
        title=f"{len({item.model for item in measurements})} torchvision networks, our own campaign on "
        "simulated servers",
        note=_note(measurements, left_out),
        table=replace(table, jobs=views, graphs=()),
        shipped_s=shipped.step_time_s,
    )


def _timed(trials: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Trials that have a step time and a known dataset."""
    for trial in trials:
        if trial.get("status") == "ok" and trial.get("step_time_s"):
            yield trial


def _run(trial: Mapping[str, str], hardware: Path, source: str) -> tuple[Measurement, Job]:
    """One trial and its job."""
    sizes = json.loads(trial["sizes"] or "{}")
    data_set = _DATA_SETS[int(sizes["classes"])]
    model, workers = trial["model"].rpartition("/")[2], int(trial["num_workers"])
    batch = int(trial["batch_per_worker"])
    device = device_name(trial)
    fields: dict[str, Any] = {
        **{"model": model, "dataset": data_set, "image_size": int(sizes["side"]), "custom": hardware},
        **{"device": device, "gpus": workers, "nodes": workers, "batch_size": batch},
        "inter_node": LINK,
        **{"precision": trial["precision"], "optimizer": trial["optimizer"], "stack": "pytorch-eager"},
    }
    job = Request.of(fields).resolve()
    measurement = Measurement(
        source=source,
        source_ref=trial["campaign"],
        model=model,
        device=device,
        num_devices=workers,
        num_nodes=workers,
        precision=job.precision.name,
        dataset=data_set,
        sizes={"image_size": int(sizes["side"])},
        optimizer=trial["optimizer"],
        global_batch_size=float(batch * workers),
        layout=job.layout,
        measured_step_time_s=float(trial["step_time_s"]),
        configuration_key="/".join((model, data_set, device, str(workers), str(batch))),
    )
    return measurement, job


def device_name(trial: Mapping[str, str]) -> str:
    """The device of one worker, as the rows of a campaign name it: processor, instructions, share of a core.

    >>> device_name({"device": "CPU-X-avx512", "cpus_per_worker": "0.22"})
    'CPU-X-avx512-0.22-cores'
    """
    share = f"{float(trial['cpus_per_worker']):g}"
    return f"{trial['device']}-{share}-core{'s' * (share != '1')}"


def _note(measurements: tuple[Measurement, ...], left_out: Counter[str]) -> str:
    data_sets = sorted({item.dataset for item in measurements})
    counts = sorted({item.num_devices for item in measurements})
    missing = "; ".join(f"{count} left out: {why}" for why, count in left_out.items())
    servers = len({item.device for item in measurements})
    return (
        f"Measured by this project on one machine: {len(measurements)} runs in fp32 with the shapes of "
        f"{' and '.join(data_sets)} (one random batch per worker, reused), {servers} types of server made "
        f"of limited shares of a processor, {', '.join(map(str, counts))} workers with links of 1 Gbit/s: "
        f"servers and links are simulated, steps are measured.{missing and f' {missing}.'}"
    )
