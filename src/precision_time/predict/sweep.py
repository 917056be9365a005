"""Many requests at once as columns, and sweeps of any size of them into a file, over processes or Ray.

No object stands for a row, and one resolved request for many batches: each row says what `predict` says of
its request alone, to the bit (tests/predict/test_answer.py), but for the nearest runs and the remedy. Rows
are appended to `OUT.part` as they are answered, in constant memory, and `OUT.part.log` says which chunks are
whole; when all are, the file takes its name. A sweep that was ended, even by a kill, goes on behind them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..arrays import Floats, Indices
from ..cost.job import Jobs
from ..cost.terms import METHOD_TERMS, TERMS
from ..errors import ConfigError, OutputError, PrecisionTimeError, required_module
from ..executor import open_executor
from ..fields import plain_type
from ..io import check_replaceable, package_hash, put_in_place, table_cell
from ..learn.artifact import PREDICTOR_VARIABLE, TrainedPredictor, chosen_predictor
from ..records import dataclass
from ..request.batches import jobs_at_batches
from ..request.grid import Asked, Block, Grid
from ..request.layout import needed_fields, option_words
from ..request.request import Request
from ..request.schema import ALIASES, RequestFields
from .answer import answered
from .predictions import Predictions
from .remarks import warnings_of
from .table import FIGURES, SAID

FORMATS = (".csv", ".jsonl", ".parquet")
_PARQUET = ".parquet"
_ROW_GROUP = 65_536
_MOST_REASONS = 20

Chunk = tuple[Block, ...]
Progress = Callable[[int, int], None]
"""Told the rows done and all rows."""

_RANGES = ("interval_low_s", "interval_high_s", "total_low_s", "total_high_s")
_WORDS = frozenset(
    {"model", "device", "precision", "stack", "throughput_unit", "layout", "warnings", "error"}
)
_WHOLE = frozenset({"job", "gpus", "nodes"})

TERM_COLUMNS: Mapping[str, type] = {f"terms.{term.name}": float for term in (*TERMS, *METHOD_TERMS)}
"""Further columns for those who want them: seconds of a step by term."""
Table = dict[str, NDArray[Any]]
"""Columns by name: floats with NaN, or objects with None, where there is nothing."""


def column_types(fields: Sequence[str]) -> dict[str, type]:
    """The columns of a table and what they hold: int, float, bool or str."""
    known = RequestFields.model_fields
    names = dict.fromkeys(ALIASES.get(name, name) for name in fields)
    asked = {name: _kind(known[name].annotation) for name in names if name in known and name not in SAID}
    figures = ("layout", *FIGURES, *_RANGES, "warnings", "error")
    kinds: dict[str, type] = {"job": int}
    kinds |= asked
    for name in (*SAID, *figures):
        kinds[name] = str if name in _WORDS else int if name in _WHOLE else bool if name == "fits" else float
    return kinds


def _kind(annotation: Any) -> type:
    kind = plain_type(annotation)
    return kind if kind in (bool, int, float) else str


def answer_table(
    asked: Sequence[Asked], kinds: Mapping[str, type], *, predictor: TrainedPredictor | None = None
) -> Table:
    """The answers, a row for each request in the order asked."""
    filled = _Filled.empty(sum(map(len, asked)), kinds)
    parts: list[_Part] = []
    start = 0
    for each in asked:
        filled.table["job"][start : start + len(each)] = range(each.first, each.first + len(each))
        parts += filled.resolved(each, start)
        start += len(each)
    trained = predictor or chosen_predictor(None)
    for named in (False, True):
        some = [part for part in parts if (part.request.predictor is not None) is named]
        pairs = [(part.request, part.jobs) for part in some]
        for numbers, found in answered(pairs, predictor=None if named else trained):
            if isinstance(found, Predictions):
                filled.answer(np.concatenate([some[number].rows for number in numbers]), found)
                continue
            for part in (some[number] for number in numbers):
                for row, place in zip(part.rows.tolist(), part.places.tolist(), strict=True):
                    filled.refuse(row, part.asked, found, place)
    return filled.table


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Rows of a table that are one request, perhaps at several batches."""

    asked: Asked
    request: Request
    jobs: Jobs
    places: Indices
    """Of each row among the batches of `asked`."""
    rows: Indices
    """Of the table."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A table while it is filled."""

    table: Table
    kinds: Mapping[str, type]

    @classmethod
    def empty(cls, count: int, kinds: Mapping[str, type]) -> _Filled:
        """A table without an answer."""
        return cls(
            {
                name: np.full(count, np.nan) if kind is float else np.full(count, None, dtype=object)
                for name, kind in kinds.items()
            },
            kinds,
        )

    def set(self, rows: Any, values: Mapping[str, Any]) -> None:
        """Values at some rows, of the columns that the table has."""
        for name, value in values.items():
            if name in self.table:
                self.table[name][rows] = value

    def refuse(self, rows: Any, each: Asked, error: PrecisionTimeError, place: int = 0) -> None:
        """Say in their rows why some requests have no answer."""
        said = {ALIASES.get(name, name): value for name, value in each.at(place).items()}
        self.set(rows, {name: _as(self.kinds[name], said[name]) for name in self.kinds if name in said})
        self.set(rows, {"error": str(error)})

    def resolved(self, each: Asked, start: int) -> Iterator[_Part]:
        """The jobs of a request at its batches; what is refused says why in its row."""
        rows = np.arange(start, start + len(each))
        try:
            if each.refused:
                raise ConfigError(each.refused)
            request = Request.of(each.at(0))
            if request.predictor is not None:
                chosen_predictor(request.predictor)  # one that cannot be used is refused here
        except PrecisionTimeError as error:
            self.refuse(rows, each, error)
            if each.axis:
                self.set(rows, {each.axis: each.batches})
            return
        said = {name: value for name, value in request.to_dict().items() if name not in SAID}
        self.set(rows, {name: _as(kind, said[name]) for name, kind in self.kinds.items() if name in said})
        # Measured steps are of the request with some fields changed: of another batch they are others.
        alone = not each.axis or bool(request.anchors)
        for place in range(len(each) if alone else 0):
            try:
                one = Request.of(each.at(place))
                jobs = Jobs.of([one.resolve()])
            except PrecisionTimeError as error:
                self.refuse(rows[place : place + 1], each, error, place)
                continue
            here = np.array([place])
            yield _Part(asked=each, request=one, jobs=jobs, places=here, rows=rows[here])
        if alone:
            return
        jobs, places, refused = jobs_at_batches(request, each.axis, each.batches)
        for place, reason in refused.items():
            self.refuse(rows[place : place + 1], each, reason, place)
        if len(jobs):
            yield _Part(asked=each, request=request, jobs=jobs, places=places, rows=rows[places])

    def answer(self, rows: Indices, found: Predictions) -> None:
        """The columns of answers at their rows."""
        jobs = found.jobs
        for job, its in zip(jobs.shared, jobs.slices(), strict=True):
            said = needed_fields(job.layout, job.workload)
            words = {
                "model": job.workload.name,
                "device": job.cluster.device.name,
                "gpus": job.cluster.num_devices,
                "nodes": job.cluster.num_nodes,
                "precision": job.precision.name,
                "stack": job.stack.profile,
                "throughput_unit": job.workload.throughput_unit,
                "layout": option_words({name: each for name, each in said.items() if name != "batch_size"}),
            }
            self.set(rows[its], words)
        self.set(rows, {**found.figures, "fits": found.figures["fits"] > 0.0, "warnings": warnings_of(found)})


def _as(kind: type, value: Any) -> Any:
    """A field as its column holds it; nothing where it is no such value: the error of the row quotes it."""
    if value is None:
        return np.nan if kind is float else None
    if kind is str:
        return str(value)
    try:
        return kind(value)
    except (TypeError, ValueError):
        return np.nan if kind is float else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What became of the rows of a sweep."""

    rows: int = 0
    refused: int = 0
    """Without an answer; why stands in their column `error`."""
    unfit: int = 0
    """Answered, but the job does not fit in memory."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why rows were refused, the most frequent, and how many each."""

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        reasons = Counter(self.reasons) + Counter(other.reasons)
        return Counts(
            rows=self.rows + other.rows,
            refused=self.refused + other.refused,
            unfit=self.unfit + other.unfit,
            reasons=dict(reasons.most_common(_MOST_REASONS)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A sweep that was written."""

    path: Path
    counts: Counts
    kept: int
    """Rows that were there from a run that was ended."""


def check_sweep_path(path: Path) -> None:
    """Refuse a file that a sweep cannot write, before anything is computed.

    Raises:
        ConfigError: If it is none of FORMATS.
        OutputError: If it is there and no regular file.
        MissingExtraError: If it is .parquet and pyarrow is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{path} is none of {', '.join(FORMATS)}. The rule: the end of its name says how a table is "
            "written. To fix: end its name in one of these."
        )
    if path.suffix.lower() == _PARQUET:
        _arrow()
    check_replaceable(path)


def sweep_tables(
    grid: Grid,
    *,
    ray: str | None = None,
    workers: int | None = 1,
    blocks_per_chunk: int = 1,
    with_terms: bool = False,
) -> Iterator[Table]:
    """The answers as tables, one after another, none of which is kept.

    Args:
        grid: What is asked.
        ray: None, "local", or the address of a Ray cluster.
        workers: Processes; None for one per core.
        blocks_per_chunk: Blocks of some thousand rows in each table.
        with_terms: Add the columns of the terms of a step.
    """
    chosen_predictor(None)  # before processes are forked, which then share it
    kinds = column_types(grid.fields) | (dict(TERM_COLUMNS) if with_terms else {})
    work = _Tables(kinds=kinds, predictor=_named())
    with open_executor(ray, workers) as over:
        yield from over(work, _chunks(grid, blocks_per_chunk))


def write_sweep(
    grid: Grid,
    path: Path,
    *,
    ray: str | None = None,
    workers: int | None = None,
    blocks_per_chunk: int = 1,
    restart: bool = False,
    progress: Progress = lambda done, total: None,
) -> Swept:
    """Answer a grid into a file, in its order.

    Args:
        grid: What is asked.
        path: .csv, .jsonl or .parquet.
        ray: None, "local", or the address of a Ray cluster.
        workers: Processes; None for one per core, at most 8.
        blocks_per_chunk: Blocks of about 8,000 rows that a worker takes at a time, and that are kept or lost
            together when the sweep is ended.
        restart: Drop what a run that was ended has left, and begin again.
        progress: Told where the sweep stands.

    Raises:
        ConfigError: If what was left is of another sweep, or another process writes it now.
        OutputError: If the file cannot be written.
        MissingExtraError: If pyarrow is missing for a .parquet.
    """
    check_sweep_path(path)
    path = Path(os.path.realpath(path))  # of a link, what it points to
    trained = chosen_predictor(None)  # before processes are forked, which then share it
    kinds = column_types(grid.fields)
    head = {
        "grid": grid.digest,
        "package": f"{__version__} {package_hash()}",
        "predictor": zlib.crc32(json.dumps(trained.model_card, sort_keys=True, default=str).encode()),
        "format": path.suffix.lower(),
        "chunk": blocks_per_chunk,
    }
    header = ",".join(kinds).encode() + b"\n" if path.suffix.lower() == ".csv" else b""
    try:
        with _Parts.opened(path, head, header, restart=restart) as parts:
            kept = parts.counts.rows
            progress(kept, grid.rows)
            chunks = islice(_chunks(grid, blocks_per_chunk), parts.chunks, None)
            work = _Encoded(kinds=kinds, predictor=_named(), suffix=path.suffix.lower())
            if kept < grid.rows:
                with open_executor(ray, workers) as over:
                    for content, counts in over(work, chunks):
                        parts.add(content, counts)
                        progress(parts.counts.rows, grid.rows)
            parts.finish(kinds)
            return Swept(path=path, counts=parts.counts, kept=kept)
    except OSError as error:
        if isinstance(error, ConfigError):
            raise
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}. The rule: rows are kept beside it until "
            "all are answered. To fix: check folder, permissions and free space, then run the same again."
        ) from error


def _chunks(grid: Grid, blocks: int) -> Iterator[Chunk]:
    rest = grid.blocks()
    while chunk := tuple(islice(rest, max(blocks, 1))):
        yield chunk


def _named() -> str:
    """The predictor of the environment, which the processes of a cluster do not have."""
    return os.environ.get(PREDICTOR_VARIABLE, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tables:
    """Answers a chunk as a table; picklable."""

    kinds: Mapping[str, type]
    predictor: str
    """Folder of the one that answers where a request names none; empty for the one that ships."""

    def __call__(self, chunk: Chunk) -> Table:
        trained = chosen_predictor(self.predictor or None)
        tables = [answer_table(block, self.kinds, predictor=trained) for block in chunk]
        return {name: np.concatenate([table[name] for table in tables]) for name in self.kinds}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Encoded:
    """Answers a chunk as bytes of a file; picklable."""

    kinds: Mapping[str, type]
    predictor: str
    suffix: str

    def __call__(self, chunk: Chunk) -> tuple[bytes, Counts]:
        table = _Tables(kinds=self.kinds, predictor=self.predictor)(chunk)
        refused = [error for error in table["error"].tolist() if error is not None]
        return _ENCODERS[self.suffix](table, self.kinds), Counts(
            rows=len(table["job"]),
            refused=len(refused),
            unfit=table["fits"].tolist().count(False),
            reasons=dict(Counter(refused).most_common(_MOST_REASONS)),
        )


def _columns(table: Table) -> list[list[Any]]:
    """Every column as a list, None where there is nothing."""
    lists = []
    for column in table.values():
        values = column.tolist()
        if column.dtype != object and np.isnan(column).any():
            values = [None if value != value else value for value in values]  # noqa: PLR0124
        lists.append(values)
    return lists


def _csv(table: Table, kinds: Mapping[str, type]) -> bytes:
    columns = [
        _numbers(column) if kind is float else _cells(column.tolist())
        for column, kind in zip(table.values(), kinds.values(), strict=True)
    ]
    return "".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True)).encode()


def _numbers(column: Floats) -> list[str]:
    """As text in which every bit is kept; empty where there is nothing."""
    if np.isinf(column).any():
        return ["" if value != value else repr(value) for value in column.tolist()]  # noqa: PLR0124
    found = msgspec.json.encode(column.tolist()).decode()[1:-1].split(",")
    return ["" if text == "null" else text for text in found] if np.isnan(column).any() else found


def _cells(values: Sequence[Any]) -> list[str]:
    """As a spreadsheet reads them, each distinct text written once; empty where there is nothing."""
    written: dict[Any, str] = {None: ""}
    for cell in {*values} - {None}:
        written[cell] = str(cell)
        if isinstance(cell, str):
            csv.writer(text := io.StringIO(), lineterminator="\n").writerow((table_cell(cell), ""))
            written[cell] = text.getvalue()[:-2]  # without the comma and the end of the line
    return [written[value] for value in values]


def _jsonl(table: Table, kinds: Mapping[str, type]) -> bytes:
    names = [*kinds]
    rows = zip(*_columns(table), strict=True)
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


def _ipc(table: Table, kinds: Mapping[str, type]) -> bytes:
    """A record batch with its schema, as Arrow streams them."""
    arrow, schema = _arrow(), _schema(kinds)
    arrays = [arrow.array(table[item.name], type=item.type, from_pandas=True) for item in schema]
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(arrow.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


_ENCODERS: Mapping[str, Callable[[Table, Mapping[str, type]], bytes]] = {
    ".csv": _csv,
    ".jsonl": _jsonl,
    _PARQUET: _ipc,
}


def _schema(kinds: Mapping[str, type]) -> Any:
    arrow = _arrow()
    types = {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_(), str: arrow.string()}
    return arrow.schema([(name, types[kind]) for name, kind in kinds.items()])


def _arrow() -> Any:
    return required_module("pyarrow", package="pyarrow", extra="frames", purpose="write .parquet files")


@dataclass(slots=True)
class _Parts:
    """The rows answered so far, and the log of the chunks that are whole."""

    path: Path
    rows: BinaryIO
    log: BinaryIO
    chunks: int = 0
    counts: Counts = field(default_factory=Counts)
    sizes: list[int] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, head: Mapping[str, Any], header: bytes, *, restart: bool) -> Iterator[_Parts]:
        """What a run that was ended has left of the same sweep, or a new beginning.

        Raises:
            ConfigError: If it is of another sweep, or another process writes it now.
        """
        beside = (path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.log"))
        rows, log = (os.fdopen(os.open(each, os.O_RDWR | os.O_CREAT, 0o666), "r+b") for each in beside)
        with rows, log:
            _lock(log, path)
            parts = cls(path=path, rows=rows, log=log)
            if restart:
                log.truncate(0)
            parts._resume(head, header)
            try:
                yield parts
            finally:
                if not parts.chunks and not parts.sizes:
                    for each in beside:
                        each.unlink(missing_ok=True)

    def _resume(self, head: Mapping[str, Any], header: bytes) -> None:
        """Go on behind the last chunk whose bytes are those that were logged."""
        self.log.seek(0)
        lines = self.log.read().split(b"\n")[:-1]  # what follows the last line end is torn
        found = json.loads(lines[0]) if lines else head
        changed = [name for name in head if found.get(name) != head[name]]
        if changed:
            raise _of_another(self.path, changed[0])
        ends = [len(header)]
        valid = lines[:1]
        for line in lines[1:]:
            entry = json.loads(line)
            self.rows.seek(ends[-1])
            if zlib.crc32(self.rows.read(entry["size"])) != entry["crc"]:
                break
            self.counts = self.counts.plus(Counts(**entry["counts"]))
            self.sizes.append(entry["size"])
            ends.append(ends[-1] + entry["size"])
            valid.append(line)
        self.chunks = len(self.sizes)
        self.rows.truncate(ends[-1])
        self.rows.seek(ends[-1])
        self.log.truncate(sum(len(line) + 1 for line in valid))
        self.log.seek(0, os.SEEK_END)
        if not lines:
            self.rows.seek(0)
            self._write(self.rows, header)
            self._write(self.log, json.dumps(dict(head)).encode() + b"\n")

    def add(self, content: bytes, counts: Counts) -> None:
        """Append a chunk; it counts once its line is in the log."""
        self._write(self.rows, content)
        entry = {"size": len(content), "crc": zlib.crc32(content), "counts": asdict(counts)}
        self._write(self.log, json.dumps(entry).encode() + b"\n")
        self.counts = self.counts.plus(counts)
        self.sizes.append(len(content))

    @staticmethod
    def _write(file: BinaryIO, content: bytes) -> None:
        file.write(content)
        file.flush()

    def finish(self, kinds: Mapping[str, type]) -> None:
        """All rows under the name of the file, and nothing else left."""
        part = self.path.with_name(f"{self.path.name}.part")
        if self.path.suffix.lower() == _PARQUET:
            done = self.path.with_name(f"{self.path.name}.part.done")
            with done.open("wb") as file:
                self.rows.seek(0)
                _to_parquet(self.rows, self.sizes, kinds, file)
                os.fsync(file.fileno())
            put_in_place(done, self.path)
            part.unlink()
        else:
            os.fsync(self.rows.fileno())
            put_in_place(part, self.path)
        part.with_name(f"{part.name}.log").unlink()


def _to_parquet(rows: BinaryIO, sizes: Iterable[int], kinds: Mapping[str, type], file: BinaryIO) -> None:
    """The record batches as row groups, some of them at a time."""
    arrow = _arrow()
    parquet = required_module(
        "pyarrow.parquet", package="pyarrow", extra="frames", purpose="write .parquet files"
    )
    held: list[Any] = []
    with parquet.ParquetWriter(file, _schema(kinds)) as writer:

        def flush() -> None:
            if held:
                writer.write_table(arrow.Table.from_batches(held), row_group_size=_ROW_GROUP)
                held.clear()

        for size in sizes:
            held += arrow.ipc.open_stream(rows.read(size))
            if sum(batch.num_rows for batch in held) >= _ROW_GROUP:
                flush()
        flush()


def _of_another(path: Path, changed: str) -> ConfigError:
    what = {
        "grid": "another grid",
        "package": "another version of precision-time",
        "predictor": "another predictor",
        "format": "another format",
        "chunk": "chunks of another size",
    }[changed]
    return ConfigError(
        f"{path.name}.part holds rows of {what}: a sweep into {path.name} that was ended. The rule: only "
        "the same sweep goes on where it ended. To fix: the same as before, another --out, or --restart to "
        "drop those rows."
    )


def _lock(log: BinaryIO, path: Path) -> None:
    """Keep others out while this process lives; neither a kill nor its own workers hold it any longer.

    Raises:
        ConfigError: If another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        return
    try:
        fcntl.lockf(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise ConfigError(
            f"Another process writes {path} now. To fix: wait for it, or another --out."
        ) from None
