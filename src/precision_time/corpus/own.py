"""Steps that a user measured, as jobs: tables of requests, rows of the corpus, stores of measurements.

A table whose columns are fields of a request (and `step_time_s` or `samples_per_s`) is read as those
requests: what it leaves open is filled in as for `predict`. Any other table is read by the importer of the
corpus. Beside a file may lie what its names mean: `NAME.hardware.toml` describes its devices,
`NAME.models.json` holds the operator graphs of models that no catalog has, `NAME.steps.csv` the steps of a
campaign's store.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..cost.job import Job
from ..errors import ConfigError, CorpusError, PrecisionTimeError, in_one_line
from ..hardware.catalog import get_device
from ..hardware.custom import BESIDE, hardware_beside
from ..hardware.device_table import catalog_name
from ..io import open_input, open_input_text, read_input, write_atomically
from ..records import dataclass
from ..request.request import Request
from ..request.schema import ALIASES, ANCHOR_TIMES, MOVED, RequestFields
from ..workload.graph import OpGraph, graph_from_json, graph_to_json
from ..workload.resolve import check_named_in_data
from .importer import measurement_of
from .jobs import UnsupportedRow, job_of, unsupported
from .measurement import Measurement, Rejected
from .schema import Row, check_required, in_corpus_columns, read_raw_rows
from .store import MeasurementStore

MODELS, STEPS = ".models.json", ".steps.csv"
_SQLITE = b"SQLite format 3\x00"
_APPLICATION, _MEASUREMENTS = slice(68, 72), b"PTME"
"""Where SQLite keeps the application of a file (fileformat2, 1.3), and that of a measurement store."""
STEP_FIELDS = {*RequestFields.model_fields, *ALIASES, *MOVED} - {
    "cluster", "anchors", "calibration", "custom", "example_inputs", "coverage", "trust",
    "predictor",
}  # fmt: skip
"""Fields of a request that a table of measured steps may state, under all of their names."""
BESIDES = frozenset({"source", "source_ref", "run_id", "notes", "quality", "sync_time_s", "dataset"})
"""Columns that a table of requests may have, and that are not part of one."""
_SHORTEST_S, _LONGEST_S = 1e-9, 1e9
"""Of a step: a cycle of a processor, and thirty years. Beyond, errors of predictions are no numbers."""
_MOST_REMEMBERED = 1000
"""Jobs of rows."""
_MOST_UNREAD, _UNREAD = 20, "a cell of another line breaks its rule"
"""Lines with a broken cell that are named, and what is said of all others."""
_OF_A_CAMPAIGN = frozenset({"num_workers", "batch_per_worker"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What the names in a file of measurements mean, where the catalogs lack them."""

    hardware: Path | Mapping[str, Any] | None = None
    """File of the devices, or its tables."""
    graphs: Mapping[str, OpGraph] = field(default_factory=dict)
    jobs: dict[Any, Job] = field(default_factory=dict, compare=False, repr=False)
    """Those of the last rows by the cells that say them: repeats of a configuration are looked up once."""

    @classmethod
    def of(cls, path: Path) -> Beside:
        """The files that belong to a file of measured steps.

        Raises:
            CorpusError: If the graphs cannot be read.
        """
        return cls(hardware=hardware_beside(path), graphs=read_graphs(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnStep:
    """One row, its job and measured step time, or why it has none."""

    row: Row
    job: Job | None = None
    measured_s: float | None = None
    reason: str = ""
    remedy: str = ""
    """What to do about it, where that is known."""
    detail: str = ""
    """The reason at length, as an error would have it."""
    key: str = ""
    """Equal for repeats of one configuration."""
    unread: bool = False
    """Whether a cell breaks its rule: `reason` says line and rule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnresolvedStep:
    """One row whose job is not looked up yet: that may be done in another process."""

    row: Row
    resolved: Callable[[], OwnStep]

    def read(self) -> OwnStep:
        """As `resolved`, but of a row with a cell that breaks its rule why it is unread."""
        try:
            found = self.resolved()
            measured_s = found.measured_s
            if measured_s is None or _SHORTEST_S <= measured_s <= _LONGEST_S:
                return found
            error: PrecisionTimeError = CorpusError(
                f"{measured_s:g} s are no time of a step. The rule: {_SHORTEST_S:g} to {_LONGEST_S:g} s. "
                "To fix: check the time or the rate; they are in seconds and in samples per second."
            )
        except PrecisionTimeError as raised:
            error = raised
        said = in_one_line(error).removeprefix(f"{self.row.path}, line {self.row.number}: ")
        return OwnStep(row=self.row, reason=f"line {self.row.number}: {said}", unread=True)


def read_own_steps(path: str | Path, *, device: str | None = None) -> list[OwnStep]:
    """Every row of a file of measured steps, in order; arguments and errors as `unresolved_steps`.

    Raises:
        CorpusError: If a cell of every row breaks its rule.
    """
    found = [step.read() for step in unresolved_steps(path, device=device)]
    check_some_read(found, str(path))
    return found


def check_some_read(rows: Sequence[Any], origin: str) -> None:
    """Refuse a table of which no row can be read.

    Raises:
        CorpusError: Says why the first one cannot.
    """
    if rows and all(row.unread for row in rows):
        raise CorpusError(f"{origin}, {rows[0].reason}")


def reasons_of(rows: Iterable[Any]) -> Counter[str]:
    """Why rows are left out, and how many each: of those that are unread the first by their line."""
    found: Counter[str] = Counter()
    unread = 0
    for row in rows:
        unread += row.unread
        found[_UNREAD if row.unread and unread > _MOST_UNREAD else row.reason] += 1
    return found


def unresolved_steps(path: str | Path, *, device: str | None = None) -> list[UnresolvedStep]:
    """Every row of a file of measured steps, in order, before names are looked up.

    Args:
        path: A CSV, a measurement store, or the store of a campaign.
        device: What the rows ran on, where the file spells it otherwise.

    Raises:
        CorpusError: If the file is none of these, or a cell breaks its rule; names line and column.
        UnknownNameError: If the device is unknown.
    """
    file = Path(path)
    name = None if device is None else get_device(device).name
    if is_database(file, of_measurements=True):
        beside = Beside.of(file)
        with MeasurementStore(file, read_only=True) as store:
            found = store.measurements()
        rows = [_row_of(item, file, number) for number, item in enumerate(found)]
        return [_later(_of_measurement, *pair, name, beside) for pair in zip(rows, found, strict=True)]
    if is_database(file):
        steps = file.with_suffix(STEPS)
        if not steps.is_file():
            raise CorpusError(
                f"{file} is the store of a campaign, and {steps.name} with its steps is not beside it. "
                f"To fix: precision-time papers campaign export {file} --corpus --out {steps}."
            )
        file = steps
    return steps_of_rows(list(read_raw_rows(file)), str(file), device=name, beside=Beside.of(file))


def steps_of_rows(
    rows: Sequence[Row], origin: str, *, device: str | None = None, beside: Beside
) -> list[UnresolvedStep]:
    """The rows of one table of measured steps, in order, before names are looked up.

    Args:
        rows: Under the names of their own header, which is that of the first.
        origin: What the table is called in errors.
        device: What the rows ran on, where they spell it otherwise; a name of the catalog.
        beside: What their names mean, where the catalogs lack them.

    Raises:
        CorpusError: If the table is not one of measured steps, or a cell breaks its rule.
    """
    header = list(rows[0].cells) if rows else []
    if set(header) >= _OF_A_CAMPAIGN:
        raise CorpusError(
            f"{origin} is the table of a campaign's trials. To fix: precision-time papers campaign "
            "export STORE --corpus --out FILE, and name that file; or name the store."
        )
    if is_of_requests(header):
        return [_later(_of_request, row, device, beside) for row in rows]
    canonical = [in_corpus_columns(row) for row in rows]
    if canonical:
        check_required(origin, header, [*canonical[0].cells])
    return [_later(_of_corpus, *pair, device, beside) for pair in zip(rows, canonical, strict=True)]


def row_of_fields(fields: Mapping[str, Any], number: int, origin: str) -> Row:
    """A row out of typed values, as JSON has them; None stands for an empty cell."""
    return Row(
        number=number,
        path=origin,
        cells={
            name: "" if value is None else value if isinstance(value, str) else json.dumps(value)
            for name, value in fields.items()
        },
    )


def _later(read: Callable[..., OwnStep], row: Row, *more: Any) -> UnresolvedStep:
    return UnresolvedStep(row=row, resolved=partial(read, row, *more))


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedStep:
    """A measured step with its job."""

    row: Row
    job: Job
    measured_s: float
    key: str


def read_priced_steps(
    path: str | Path, *, device: str | None = None, origin: str = ""
) -> tuple[list[PricedStep], Counter[str]]:
    """The measured steps of a file that can be priced, at least one, and why others cannot.

    Args:
        path: As for `read_own_steps`.
        device: What the rows ran on, where the file spells it otherwise.
        origin: What the file is called, if not by its name.

    Raises:
        CorpusError: If the file is none of measured steps, or holds none.
        ConfigError: If no step of it can be priced.
    """
    return priced_steps(read_own_steps(path, device=device), origin or Path(path).name)


def priced_steps(steps: Sequence[OwnStep], origin: str) -> tuple[list[PricedStep], Counter[str]]:
    """The steps that can be priced, at least one, and why others cannot; errors as `read_priced_steps`."""
    rejected = reasons_of(step for step in steps if step.job is None)
    priced = [
        PricedStep(row=step.row, job=step.job, measured_s=step.measured_s, key=step.key)
        for step in steps
        if step.job and step.measured_s
    ]
    reasons = "; ".join(f"{reason} ({count})" for reason, count in rejected.most_common(3))
    if not any(step.measured_s for step in steps):
        raise CorpusError(
            f"{origin} holds no measured step{reasons and ': ' + reasons}. To fix: "
            "measure some, or name another file; its columns are model, device, gpus, batch_size, precision "
            "..., and step_time_s."
        )
    if not priced:
        remedies = dict.fromkeys(step.remedy for step in steps if step.remedy)
        raise ConfigError(
            f"None of {len(steps)} measured rows can be priced: {reasons}. To fix: "
            + (
                " ".join(remedies)
                or "state model, device and batch in words that `list models` and `list devices` know."
            )
        )
    return priced, rejected


def own_measurements(steps: Sequence[PricedStep], origin: str, *, first_id: int = 1) -> list[Measurement]:
    """The steps as rows to learn from; their ids are negative, which those of the corpus are not."""
    return [
        Measurement(
            source=origin,
            source_ref=f"{origin}, line {step.row.number}",
            model=step.job.workload.name,
            device=catalog_name(step.job.cluster.device) or step.job.cluster.device.name,
            num_devices=step.job.cluster.num_devices,
            num_nodes=step.job.cluster.num_nodes,
            precision=step.job.precision.name,
            layout=step.job.layout,
            global_batch_size=step.job.layout.global_batch_size / step.job.workload.rows_per_sample,
            measured_step_time_s=step.measured_s,
            stack=step.job.stack,
            configuration_key=hashlib.blake2b(step.key.encode(), digest_size=16).hexdigest(),
            row_id=-(first_id + index),
        )
        for index, step in enumerate(steps)
    ]


def is_measured_file(path: Path) -> bool:
    """Whether a file holds measured steps, as opposed to a calibration, which is JSON."""
    return path.suffix.lower() == ".csv" or (os.path.isfile(path) and is_database(path))


def is_database(path: Path, *, of_measurements: bool = False) -> bool:
    """Whether a file is an SQLite database, or one of measurements.

    Raises:
        CorpusError: If it cannot be read.
    """
    try:
        with open_input(path, most_bytes=None) as file:
            head = file.read(_APPLICATION.stop)
            kind = head[_APPLICATION] == _MEASUREMENTS or not of_measurements
            return head.startswith(_SQLITE) and kind
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error


def header_of(path: Path) -> list[str]:
    """The first line of a CSV.

    Raises:
        CorpusError: If it is none.
    """
    try:
        with open_input_text(path, encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} is not a CSV file: {error}. To fix: name a CSV or a store.") from error


def read_graphs(path: Path) -> dict[str, OpGraph]:
    """The operator graphs that lie beside a file of measurements, by model.

    Raises:
        CorpusError: If they cannot be read.
    """
    file = path.with_suffix(MODELS)
    if not file.is_file():
        return {}
    try:
        stated = json.loads(read_input(file))
        return {str(name): graph_from_json(graph) for name, graph in stated.items()}
    except (OSError, ValueError, AttributeError, PrecisionTimeError) as error:
        raise CorpusError(f"{file} cannot be read: {error}. To fix: measure again, or remove it.") from error


def write_graphs(path: Path, graphs: Mapping[str, OpGraph]) -> None:
    """Add operator graphs to those beside a file of measurements."""
    if graphs:
        together = {**read_graphs(path), **graphs}
        content = {name: graph_to_json(graph) for name, graph in together.items()}
        write_atomically(path.with_suffix(MODELS), json.dumps(content, separators=(",", ":")) + "\n")


def is_of_requests(header: Iterable[str]) -> bool:
    """Whether all columns of a table are fields of a request, one of them the time of a step."""
    names = {name for name in header if name}
    return (
        "model" in names
        and any(name in names for name in ANCHOR_TIMES)
        and names <= (STEP_FIELDS | BESIDES | {*ANCHOR_TIMES})
    )


def _of_request(row: Row, device: str | None, beside: Beside) -> OwnStep:
    """A row whose columns are the fields of a request."""
    stated = {name: row.value(name) for name, text in row.cells.items() if text and name in STEP_FIELDS}
    measured_s = row.positive_or_none(ANCHOR_TIMES[0])
    rate = row.positive_or_none(ANCHOR_TIMES[1])
    if row.text("quality").startswith("unusable"):
        return OwnStep(row=row, reason=row.text("quality"))
    if device is not None:
        stated["device"] = device
    if "model" not in stated:
        return OwnStep(row=row, measured_s=measured_s, reason="model not stated")
    model = row.text("model")
    try:
        if isinstance(stated["model"], str):
            if model not in beside.graphs and (":" in model or model.endswith(".py")):
                return _unpriced(row, measured_s, UnsupportedRow("model not known"), "", model)
            if model not in beside.graphs:
                check_named_in_data(model)
            stated["model"] = beside.graphs.get(model, model)
        said = (device, *(item for item in row.cells.items() if item[1] and item[0] in STEP_FIELDS))
        job = beside.jobs.get(said)
        request = Request.of({**stated, "custom": beside.hardware}) if job is None else None
    except ConfigError as error:
        raise CorpusError(f"{row.path}, line {row.number}: {error}") from None
    if measured_s is None and rate is None:
        return OwnStep(row=row, reason="no step time")
    if job is None:
        assert request is not None
        try:
            job = request.resolve(named_only=True)
        except PrecisionTimeError as error:
            return _unpriced(row, measured_s, unsupported(request, error), str(stated.get("device")), model)
        if len(beside.jobs) >= _MOST_REMEMBERED:
            beside.jobs.clear()
        beside.jobs[said] = job
    if measured_s is None:
        samples = job.layout.global_batch_size / job.workload.rows_per_sample
        measured_s = float(samples / rate) if rate else None
    key = json.dumps({name: str(value) for name, value in sorted({**stated, "model": model}.items())})
    return OwnStep(row=row, job=job, measured_s=measured_s, key=key)


def _of_corpus(raw: Row, row: Row, device: str | None, beside: Beside) -> OwnStep:
    """A row under the names of its own header and of the corpus."""
    return _of_measurement(raw, measurement_of(row), device, beside)


def _of_measurement(row: Row, found: Measurement | Rejected, device: str | None, beside: Beside) -> OwnStep:
    """A row of the corpus."""
    if isinstance(found, Rejected):
        return OwnStep(row=row, reason=found.reason)
    measured_s = found.measured_step_time_s
    if not found.usable:
        return OwnStep(row=row, measured_s=measured_s, reason=found.quality_reason or "no step time")
    if device is not None:
        found = replace(found, device=device)
    try:
        job = job_of(found, hardware=beside.hardware, graph=beside.graphs.get(found.model))
    except PrecisionTimeError as error:
        return _unpriced(row, measured_s, error, found.device, found.model)
    return OwnStep(row=row, job=job, measured_s=measured_s, key=found.configuration_key)


def _unpriced(
    row: Row, measured_s: float | None, error: PrecisionTimeError, device: str, model: str
) -> OwnStep:
    """A row without a job, and the remedy where a name of it is unknown."""
    reason, remedy = error.reason if isinstance(error, UnsupportedRow) else str(error), ""
    if reason == "device not known":
        remedy = (
            f"{device} is in no catalog: name one that is (--device), or keep beside the file the "
            f"NAME{BESIDE} that precision-time measure writes."
        )
    elif reason == "model not known" and (":" in model or model.endswith(".py")):
        remedy = (
            f"{model} is in no catalog: keep beside the file the NAME{MODELS} that precision-time measure "
            "writes."
        )
    return OwnStep(row=row, measured_s=measured_s, reason=reason, remedy=remedy, detail=str(error))


def _row_of(found: Measurement, path: Path, number: int) -> Row:
    """The cells of a stored measurement that a table shows."""
    cells: Iterator[tuple[str, Any]] = iter(
        {
            "model": found.model,
            "device": found.device,
            "gpus": found.num_devices,
            "precision": found.precision,
            "source": found.source,
        }.items()
    )
    return Row(number=number, path=str(path), cells={name: str(value) for name, value in cells})
