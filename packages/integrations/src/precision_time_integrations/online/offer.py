"""A finished run offered to the user's own measurements, which `calibrate` and `evaluate` read.

The file is a CSV whose columns are fields of a request and `step_time_s`. Beside it lie the operator graphs
of models that no catalog has (NAME.models.json) and the devices that no catalog has (NAME.hardware.toml).
Nothing leaves this machine: `share` writes what may be given to others.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_time.corpus.own import STEP_FIELDS, header_of, is_of_requests, write_graphs
from precision_time.errors import ConfigError, CorpusError, OutputError, PrecisionTimeError, in_one_line
from precision_time.hardware.custom import BESIDE
from precision_time.hardware.custom_schema import checked, read
from precision_time.io import data_folder, table_cell, write_atomically
from precision_time.predict.anchors import NOT_OF_A_STEP
from precision_time.request.captured import captured
from precision_time.request.request import Request
from precision_time.request.schema import STEP_TIME_S
from precision_time.workload.graph import OpGraph, graph_to_json
from precision_time.workload.hf_config import is_config_source
from precision_time.workload.resolve import check_named_in_data, load_workload

from ..measure.describe import toml_of
from ..measure.store import CsvTable

if TYPE_CHECKING:
    from .record import RunRecord

RUNS = "runs.csv"
"""Of the data folder: the user's own runs."""
MEASURED = frozenset(STEP_FIELDS) - {*NOT_OF_A_STEP, "model", "trust", "inputs", "forward", "loss"}
"""Fields of a request that say something of the time of a step, and are not in the graph of its model."""
_NEEDED = (("device", "node_type", "cluster"), ("precision",))
_BATCHES = ("batch_size", "global_batch_size", "global_batch_tokens")
_WAIT_S, _LOOK_EVERY_S = 5.0, 0.02
_log = logging.getLogger("precision_time")


def own_runs() -> Path:
    """The file of the user's own runs: runs.csv in $PRECISION_TIME_HOME or the data folder."""
    return data_folder() / RUNS


def offer(
    record: RunRecord, *, store: Path | None = None, on_warning: Callable[[str], None] | None = None
) -> Path | None:
    """Add a run to the user's own measurements; for callbacks: no failure reaches the run.

    Args:
        record: Of `RunMonitor.end`.
        store: A CSV; by default `own_runs()`.
        on_warning: Is told why nothing was added; by default the log.

    Returns:
        The file; None where nothing was added, after a warning.
    """
    try:
        return add_run(record, store=store)
    except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
        text = f"The run was not added to your measurements: {in_one_line(error)}"
        with suppress(Exception):
            (on_warning or _log.warning)(text)
        return None


def add_run(record: RunRecord, *, store: Path | None = None) -> Path:
    """`offer`, with its errors.

    Raises:
        ConfigError: If the record does not say what ran, or has no steady step.
        CorpusError: If the file is not one of measured steps, or another process has it for long.
        OutputError: If it cannot be written.
        PrecisionTimeError: If its model cannot be captured.
    """
    path = own_runs() if store is None else Path(store)
    if path.suffix.lower() != ".csv":
        raise ConfigError(f"{path} is not a CSV. The rule: runs are added to a table. To fix: runs.csv.")
    cells, graph, hardware = row_of_run(record)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_writer(path):
            _check_rows(path)
            if graph is not None:
                write_graphs(path, {graph.name: graph})
            _add_hardware(path, hardware)
            _widened(path, cells).add(cells)
    except OSError as error:
        if isinstance(error, PrecisionTimeError):
            raise
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}. To fix: check folder, permissions and "
            "free space, or name another file (store=...)."
        ) from error
    return path


def row_of_run(record: RunRecord) -> tuple[dict[str, Any], OpGraph | None, Mapping[str, Any]]:
    """A run as a row of a table of requests, the graph of a model without a name, devices without one.

    Raises:
        ConfigError: If the record does not say what ran, or has no steady step.
        PrecisionTimeError: If the model cannot be captured.
    """
    if not record.request:
        raise ConfigError(
            "Nothing is known of what ran. To fix: state what could not be read (model=, device=, "
            "batch_size=, precision=) where the run is watched."
        )
    given = {name: value for name, value in record.request.items() if value is not None}
    request = Request.of(given)
    given = request.given()
    for names in (("model",), *_NEEDED, _BATCHES):
        if not any(given.get(name) is not None for name in names):
            raise ConfigError(
                f"The run does not say {' or '.join(names)}, and what is measured is not assumed. To fix: "
                f"state it ({names[0]}=...) in the request of the monitor."
            )
    step_time_s = record.step_time_s
    if step_time_s is None or not (math.isfinite(step_time_s) and step_time_s > 0.0):
        raise ConfigError(
            f"The run has no steady step (step_time_s={step_time_s}). To fix: let it run some more steps."
        )
    model, graph = _model(request)
    fields = {name: given[name] for name in sorted(MEASURED) if given.get(name) is not None}
    if given.get("cluster") is not None:
        cluster = request.resolve().cluster
        fields |= {
            "device": cluster.device.name, "gpus": cluster.num_devices, "nodes": cluster.num_nodes
        }  # fmt: skip
    about = {
        STEP_TIME_S: step_time_s,
        "source": "online",
        "run_id": secrets.token_hex(8),
        "notes": f"{record.steady_steps} steady steps, log spread {record.log_spread:.4f}",
    }
    cells = {name: _cell(value) for name, value in {"model": model, **fields, **about}.items()}
    return cells, graph, _tables(given.get("custom"))


def _model(request: Request) -> tuple[Any, OpGraph | None]:
    """What a table calls the model: a name of the catalogs, a configuration, else the name of a graph."""
    model = request.model
    if is_config_source(model) and hasattr(model, "to_dict"):
        model = model.to_dict()
    if isinstance(model, Mapping):
        model = json.loads(json.dumps(model, default=str))
    if isinstance(model, str | Mapping):
        with suppress(PrecisionTimeError):  # where no catalog has it, its operators are kept
            check_named_in_data(model)
            load_workload(model, sizes=request.sizes, seq_len=request.seq_len, image_size=request.image_size)
            return model, None
    graph = model if isinstance(model, OpGraph) else captured(request.model, request)
    digest = hashlib.blake2b(json.dumps(graph_to_json(graph)).encode(), digest_size=4).hexdigest()
    name = graph.name if graph.name.endswith(digest) else f"{graph.name}-{digest}"
    return name, replace(graph, name=name)


def _tables(custom: Any) -> dict[str, Any]:
    """The tables of user-defined hardware, from a file or as they are."""
    if custom is None:
        return {}
    file = checked(custom, "custom hardware") if isinstance(custom, Mapping) else read(Path(custom))
    return file.model_dump(mode="json", exclude_unset=True)


def _add_hardware(path: Path, tables: Mapping[str, Any]) -> None:
    """Add devices, node types and links to those beside the file; what is there already stays."""
    if not tables:
        return
    beside = path.with_suffix(BESIDE)
    known = _tables(beside) if beside.is_file() else {}
    merged = {kind: {**tables.get(kind, {}), **known.get(kind, {})} for kind in {**known, **tables}}
    if merged != known:
        write_atomically(beside, toml_of(merged))


def _check_rows(path: Path) -> None:
    """Refuse a file that is there and is not a table of measured requests; it is left as it is."""
    if path.is_file() and path.stat().st_size and not is_of_requests(header_of(path)):
        raise CorpusError(
            f"{path} is not a table of measured steps, and is left as it is. To fix: move it away, or name "
            "another file (store=...)."
        )


def _widened(path: Path, cells: Mapping[str, Any]) -> CsvTable:
    """The table with all columns that a row needs; rows that are there have empty cells in new ones."""
    header = header_of(path) if path.is_file() else []
    columns = [*header, *(name for name in cells if name not in header)]
    if header and columns != header:
        rows = list(CsvTable(path, header).rows())
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: table_cell(cell) for name, cell in row.items()} for row in rows)
        write_atomically(path, text.getvalue())
    return CsvTable(path, columns)


def _cell(value: Any) -> Any:
    """A value as a cell that is read as the same."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    return str(value).lower() if isinstance(value, bool) else value


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Inside the block no other process adds to the file; waits a few seconds for one that does.

    Raises:
        CorpusError: If another process has it for longer.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with path.with_name(f".{path.name}.lock").open("wb") as file:
        end_s = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise CorpusError(
                        f"Another process has had {path} for {_WAIT_S:g} s. To fix: name another file "
                        "(store=...), or end that process."
                    ) from None
                time.sleep(_LOOK_EVERY_S)
            except OSError:  # a file system without locks
                break
        yield
