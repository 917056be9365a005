"""Own measurements out of what users have: a CSV of the corpus, a measurement store, a campaign's export."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...corpus.importer import read_measurements
from ...corpus.measurement import Measurement
from ...corpus.store import MeasurementStore
from ...cost.stacks import get_stack
from ...errors import CorpusError
from ...hardware.catalog import get_device
from ...parallel.layout import Layout

_SQLITE = b"SQLite format 3\x00"
_CAMPAIGN = ("num_workers", "batch_per_worker", "step_time_s", "model", "precision")
"""Columns by which a campaign's export is known."""


def read_own(
    path: str | Path, *, device: str | None = None, stack: str = "pytorch-eager"
) -> list[Measurement]:
    """The measurements of a file.

    Args:
        path: A measurement store, a CSV in the schema of docs/corpus.md, or `campaign export`.
        device: Name of the device in the catalogue, where the file spells it otherwise.
        stack: Software profile of a campaign's points.

    Raises:
        CorpusError: If the file is none of these, or a cell breaks its rule; names line and column.
        UnknownNameError: If device or stack is unknown.
    """
    target = Path(path)
    found = _read(target, stack)
    if not found:
        raise CorpusError(f"{target} holds no measured point. To fix: measure some, or name another file.")
    if device is None:
        return found
    name = get_device(device).name
    return [replace(row, device=name) for row in found]


def _read(path: Path, stack: str) -> list[Measurement]:
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error
    if head == _SQLITE:
        with MeasurementStore(path, read_only=True) as store:
            return [row for row in store.measurements() if row.usable]
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text)
            if set(_CAMPAIGN) <= set(reader.fieldnames or ()):
                return [
                    _of_campaign(row, f"{path.name}:{reader.line_num}", stack)
                    for row in reader
                    if row.get("status", "ok") == "ok" and row["step_time_s"]
                ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} is no CSV: {error}. To fix: name a CSV or a store.") from error
    return [row for row in read_measurements(path) if isinstance(row, Measurement) and row.usable]


def _of_campaign(row: Mapping[str, str], where: str, stack: str) -> Measurement:
    """A finished point as a measurement of a data-parallel job."""
    try:
        workers, batch = int(float(row["num_workers"])), float(row["batch_per_worker"])
        step_time_s = float(row["step_time_s"])
        if workers < 1 or batch <= 0.0 or not 0.0 < step_time_s < float("inf"):
            raise ValueError("workers, batch and step time are above 0")
        sizes = json.loads(row.get("sizes") or "{}")
        return Measurement(
            source="own",
            source_ref=where,
            model=row["model"],
            sizes=sizes,
            device=row.get("device") or "",
            num_devices=workers,
            num_nodes=int(float(row.get("num_hosts") or 1)),
            precision=row["precision"],
            optimizer=row.get("optimizer") or "",
            layout=Layout(dp=workers, micro_batch_size=batch),
            global_batch_size=batch * workers,
            measured_step_time_s=step_time_s,
            stack=get_stack(stack),
            configuration_key=row.get("key") or "",
        )
    except (TypeError, ValueError) as error:
        raise CorpusError(
            f"{where} cannot be read: {error}. To fix: correct or leave out the line."
        ) from error
