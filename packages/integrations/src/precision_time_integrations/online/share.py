"""Runs that may be given to others: their numbers and names of the catalogs, nothing else.

A cell is kept where it is a number, a choice of this program's or a name that a catalog holds. A model that
no catalog has is given as its operators, a device of the user's own by its figures, both under a name made of
their digest. Words that only their owner knows (paths, host and user names, names of modules and of
experiments) have no other place to stand in. A run whose step would cost another time without them is left
out, and said.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from precision_time.cache import data
from precision_time.corpus.own import Beside, OwnStep, header_of, is_of_requests, read_own_steps, write_graphs
from precision_time.cost.job import Job, Jobs
from precision_time.cost.step import price
from precision_time.errors import ConfigError, CorpusError, OutputError, PrecisionTimeError
from precision_time.fields import choices_of
from precision_time.hardware.catalog import get_device
from precision_time.hardware.custom import BESIDE
from precision_time.hardware.custom_schema import CustomDevice, read
from precision_time.hardware.device_table import known_devices
from precision_time.hardware.links import fabric_name, parse_network
from precision_time.hardware.nodes import get_node_type
from precision_time.io import table_cell, write_atomically
from precision_time.precision.catalog import parse_precision
from precision_time.request.request import Request
from precision_time.request.schema import STEP_TIME_S, RequestFields
from precision_time.workload.graph import Node, OpClass, OpGraph, graph_to_json
from precision_time.workload.resolve import canonical_name, is_known_model, samples_of

from ..measure.describe import toml_of
from ..measure.processor import ARCH
from .offer import MEASURED

_SAME = 1e-6
"""Relative difference of two analytical step times that are equal."""
_NOTES = re.compile(r"\d{1,9} steady steps, log spread \d+\.\d{4}")
"""What `offer` writes."""
_SIZE = re.compile(r"[a-z][a-z0-9_]{0,30}")
_LAYERS = re.compile(
    r"q|k|v|o|gate|up|down|all-linear|[a-z]_proj|(gate|up|down)_proj|backbone|embeddings|encoder|layers:\d+"
)
"""What `lora_targets` and `freeze` may name."""
_CHECKED = frozenset({"rank_order", "stage_layers", "recompute"})
"""Texts of which every word is this program's: a request with others does not resolve."""
_OF_THE_MODEL = frozenset(
    {"model", "sizes", "task", "dataset", "image_size", "frames", "audio_seconds", "adapter", "lora_rank",
     "lora_targets", "freeze", "seq_len"}
)  # fmt: skip
"""What the operators of a model say already."""
_UNKNOWN_OP = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What may be given to others."""

    rows: Sequence[Mapping[str, Any]]
    """Column to value; in an order that says nothing of when they ran."""
    graphs: Mapping[str, OpGraph] = field(default_factory=dict)
    """Operators of models that no catalog has."""
    hardware: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Devices that no catalog has, as a file of devices has them."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Why runs are not among them, and how many."""

    def write(self, path: Path) -> list[Path]:
        """Write the table and what its names mean beside it.

        Returns:
            The files.

        Raises:
            ConfigError: If the name does not end in .csv.
            OutputError: If one cannot be written, or is there already.
        """
        if path.suffix.lower() != ".csv":
            raise ConfigError(f"{path} is not a CSV. To fix: {path.with_suffix('.csv')}.")
        models, devices = path.with_suffix(".models.json"), path.with_suffix(BESIDE)
        written = {path: True, models: bool(self.graphs), devices: bool(self.hardware)}
        if there := [file for file in written if file.exists()]:
            raise OutputError(
                f"{there[0]} is there already, and what it holds might be given away with this. To fix: "
                "name another file."
            )
        write_atomically(path, self.text())
        write_graphs(path, self.graphs)
        if self.hardware:
            write_atomically(devices, toml_of({"device": self.hardware}))
        return [file for file, holds in written.items() if holds]

    def text(self) -> str:
        """The rows as CSV."""
        import csv
        import io

        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        stream = io.StringIO()
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: table_cell(_text(value)) for name, value in row.items()} for row in self.rows)
        return stream.getvalue()


def shared_runs(path: Path) -> Shared:
    """What of a file of own runs may be given to others.

    Raises:
        CorpusError: If the file cannot be read, or is not a table of runs.
    """
    if not path.is_file():
        raise CorpusError(
            f"{path} is not there: no run was added yet. To fix: train with share_with_corpus=True, or name "
            "the file of your runs."
        )
    if not is_of_requests(header_of(path)):
        raise CorpusError(
            f"{path} is not a table of runs. The rule: its columns are fields of a request and step_time_s. "
            "To fix: name the file that callbacks with share_with_corpus=True write."
        )
    return anonymised(read_own_steps(path), Beside.of(path))


def anonymised(steps: Sequence[OwnStep], beside: Beside) -> Shared:
    """Runs without what tells whose they are.

    Args:
        steps: Rows of a table of requests.
        beside: What their names mean, where the catalogs lack them.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    graphs: dict[str, OpGraph] = {}
    hardware: dict[str, Mapping[str, Any]] = {}
    left_out: Counter[str] = Counter()
    for step in steps:
        if step.job is None or not step.measured_s:
            left_out["it does not resolve, or has no step time"] += 1
            continue
        try:
            cells, graph, device = _public(step, step.job, beside)
        except _PrivateError as reason:
            left_out[str(reason)] += 1
            continue
        digest = _digest(json.dumps(cells, sort_keys=True))
        rows[digest] = {**cells, "source": "shared", "run_id": digest, "notes": _notes(step)}
        graphs |= {graph.name: graph} if graph is not None else {}
        hardware |= device
    return Shared(
        rows=[rows[digest] for digest in sorted(rows)], graphs=graphs, hardware=hardware, left_out=left_out
    )


class _PrivateError(Exception):
    """Why a run cannot be said without words of its owner's."""


def _public(
    step: OwnStep, job: Job, beside: Beside
) -> tuple[dict[str, Any], OpGraph | None, dict[str, Mapping[str, Any]]]:
    """The cells of a run, the operators of its model and the figures of its device where no catalog has them.

    Raises:
        _PrivateError: If it would cost another time.
    """
    stated = {name: step.row.value(name) for name, text in step.row.cells.items() if text}
    given = Request.of(
        {name: value for name, value in stated.items() if name in MEASURED} | {"model": job.workload.graph}
    ).given()
    cells = {name: kept for name, value in given.items() if (kept := _kept(name, value, job)) is not None}
    model, graph = stated["model"], None
    if isinstance(model, str) and model not in beside.graphs and is_known_model(model):
        cells["model"] = canonical_name(model)
    else:
        graph = _without_names(job.workload.graph)
        cells = {name: value for name, value in cells.items() if name not in _OF_THE_MODEL}
        cells |= {"model": graph.name, "optimizer": job.workload.optimizer, "stack": job.stack.profile}
    device, tables = _device(job, beside)
    cells |= {"device": device, "gpus": job.cluster.num_devices, "nodes": job.cluster.num_nodes}
    if not _costs_the_same(job, cells, graph, tables):
        raise _PrivateError("its step costs another time without names that no catalog has")
    order = ("model", "device", "gpus", "nodes", "batch_size", "precision")
    cells = {name: cells[name] for name in (*order, *sorted(cells.keys() - set(order))) if name in cells}
    return {**cells, STEP_TIME_S: float(f"{step.measured_s:.6g}")}, graph, tables


def _kept(name: str, value: Any, job: Job) -> Any:
    """What may stand in a cell for a value; None for nothing."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if name in _CHECKED or name in _choices():
        return value
    rule = _TEXTS.get(name)
    try:
        return None if rule is None or value in (None, "") else rule(value, job)
    except PrecisionTimeError:  # no catalog has it
        return None


@data
def _choices() -> frozenset[str]:
    """Fields that are one of a few words."""
    fields = RequestFields.model_fields.items()
    return frozenset(name for name, info in fields if choices_of(info.annotation))


def _precision(value: Any, _: Job) -> Any:
    if isinstance(value, str):
        parse_precision(value)
        return value
    return {name: item for name, item in value.items() if name not in ("name", "summary", "source")}


def _words(value: Any, _: Job) -> str | None:
    words = value.split(",") if isinstance(value, str) else value
    return ",".join(word for word in words if _LAYERS.fullmatch(word)) or None


def _task(value: str, _: Job) -> str | None:
    from precision_time.workload.families.tables import read_toml

    known = dict.fromkeys(rule["word"] for rules in read_toml("tasks.toml").values() for rule in rules)
    return "-".join(word for word in known if word in value.lower()) or None


def _network(value: str, _: Job) -> str | None:
    found = parse_network(value)
    return found.name if found.known else None


_TEXTS: Mapping[str, Callable[[Any, Job], Any]] = {
    "precision": _precision,
    "sizes": lambda value, _: {
        name: item
        for name, item in value.items()
        if _SIZE.fullmatch(name) and isinstance(item, bool | int | float)
    },
    "lora_targets": _words,
    "freeze": _words,
    "task": _task,
    "reference": lambda value, _: canonical_name(value) if is_known_model(value) else None,
    "teacher": lambda value, _: canonical_name(value) if is_known_model(value) else None,
    "dataset": lambda value, _: value if samples_of(value, None) is not None else None,
    "node_type": lambda value, _: get_node_type(value).name,
    "inter_node": _network,
    "network": _network,
    "intra_node": lambda value, job: fabric_name(value, job.cluster.device),
    "optimizer": lambda _, job: job.workload.optimizer,
    "stack": lambda _, job: job.stack.profile,
    "framework": lambda _, job: job.stack.framework,
}
"""What is kept of a field of free text; of one that is not here, nothing."""


def _without_names(graph: OpGraph) -> OpGraph:
    """The operators of a model without the names of its modules, under a name made of what they are."""
    nodes = tuple(replace(node, layer="", op=_op(node)) for node in graph.nodes)
    unpriced = {_UNKNOWN_OP: sum(graph.unpriced.values())} if graph.unpriced else {}
    bare = replace(graph, name="", nodes=nodes, unpriced=unpriced, notes="", warnings="")
    return replace(bare, name=f"model-{_digest(json.dumps(graph_to_json(bare)))}")


def _op(node: Node) -> str:
    """The name of an operator of PyTorch; of one that no formula knows, none."""
    return _UNKNOWN_OP if node.op_class is OpClass.UNKNOWN else node.op


def _device(job: Job, beside: Beside) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The name of a device, and its figures where no catalog has it as it is."""
    device = job.cluster.device
    try:
        if get_device(device.name) == device:
            return device.name, {}
    except PrecisionTimeError:
        pass
    entries = read(beside.hardware).device if isinstance(beside.hardware, Path) else {}
    entry = next((item for name, item in entries.items() if name == device.name), None)
    if entry is None:
        raise _PrivateError("its device is in no catalog, and its figures are not beside the file")
    figures = _figures(entry)
    name = f"device-{_digest(json.dumps(figures, sort_keys=True))}"
    return name, {name: figures}


def _figures(entry: CustomDevice) -> dict[str, Any]:
    """The numbers of a device, and the device of the catalog that it is based on or like."""
    given = entry.model_dump(mode="json", exclude_none=True, exclude={"source"})
    words = {"vendor": {each.vendor for each in known_devices()},
             "arch": {ARCH, *(each.arch for each in known_devices())}}  # fmt: skip
    for name, known in words.items():
        if given.get(name) not in known:
            given.pop(name, None)
    base = given.pop("base", None)
    return {**({} if base is None else {"base": get_device(base).name}), **given}


def _costs_the_same(
    job: Job, cells: Mapping[str, Any], graph: OpGraph | None, tables: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether the analytical step time of a run without its names is that of the run."""
    try:
        asked = {**cells, "model": graph or cells["model"], "custom": {"device": tables} if tables else None}
        again = Request.of(asked).resolve(named_only=True)
    except PrecisionTimeError:
        return False
    first, second = (float(price(Jobs.at(each)).step_time_s[0]) for each in (job, again))
    return abs(second / first - 1.0) < _SAME


def _notes(step: OwnStep) -> str:
    """Steps and spread, as `offer` writes them."""
    found = _NOTES.search(step.row.text("notes"))
    return "" if found is None else found.group()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else str(value)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
