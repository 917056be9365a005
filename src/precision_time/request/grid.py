"""Sweeps of any size: the requests of a file, a mapping or a list, made when they are answered.

A block is what is answered together: always the same requests, however many blocks a chunk of work holds, so
that no digit depends on how the work is cut up.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import ConfigError, PrecisionTimeError, UnknownNameError
from ..io import read_input_bytes
from ..records import dataclass
from ..workload.resolve import check_named_in_data
from .batches import BATCH_FIELDS
from .files import FileJob, iter_jobs
from .request import Request
from .schema import ALIASES, RequestFields
from .sweep import axes_of

BLOCK_ROWS, _BLOCK_REQUESTS = 8192, 256
"""Rows of a block, about, and requests at one or several batches, so that it fits in memory."""
_MOST_BATCHES = 256
"""Batches of one request that are answered together."""
_TABLES = (".csv", ".jsonl")
_INNERMOST = ("nodes", "gpus", *reversed(BATCH_FIELDS))
"""Fields that vary fastest, whatever their order elsewhere: what they share is priced once."""
_NAMES = ("model", "device", "precision", "stack", "node_type", "dataset", "optimizer")
_MOST_CHECKED = 2000
_FILES = ("model", "custom", "calibration", "predictor")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request, or one at several batches."""

    first: int
    """Number of its first row, from 1."""
    fields: Mapping[str, Any]
    """As `Request.of` takes them, the batches aside."""
    axis: str = ""
    """Which of BATCH_FIELDS has several values; empty for one request."""
    batches: tuple[float, ...] = ()
    refused: str = ""
    """Why it cannot even be read."""

    def __len__(self) -> int:
        return len(self.batches) if self.axis else 1

    def at(self, row: int) -> dict[str, Any]:
        """The fields of one of its rows."""
        return {**self.fields, self.axis: self.batches[row]} if self.axis else dict(self.fields)


Block = tuple[Asked, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """What a sweep asks; nothing of it is held but the lists of values."""

    name: str
    """Of its file, or what else to call it."""
    fields: tuple[str, ...]
    """All that any request states."""
    rows: int
    digest: str
    """Of all that is asked, the contents of files that it names included."""
    jobs: Callable[[], Iterable[FileJob]]
    """All jobs from the first, as often as it is called."""
    is_table: bool = False
    block_requests: int = _BLOCK_REQUESTS
    """Most requests of a block, at one or several batches each."""

    def blocks(self) -> Iterator[Block]:
        """Everything that is asked, in order."""
        block: list[Asked] = []
        rows = 0
        for asked in self._asked():
            block.append(asked)
            rows += len(asked)
            if rows >= BLOCK_ROWS or len(block) >= self.block_requests:
                yield tuple(block)
                block, rows = [], 0
        if block:
            yield tuple(block)

    def _asked(self) -> Iterator[Asked]:
        first = 1
        for job in self.jobs():
            try:
                some = _asked_of(_ordered(job.fields), first)
            except ConfigError as error:
                if not self.is_table:
                    raise
                some = iter([Asked(first=first, fields=job.fields, refused=str(error))])
            for asked in some:
                yield asked
                first += len(asked)


def grid_of_file(path: Path) -> Grid:
    """The grid of a file: a job file with lists and ranges, or a table of jobs.

    Raises:
        ConfigError: If the file cannot be read, or a value of a grid breaks its rule.
    """
    is_table = path.suffix.lower() in _TABLES
    found = _grid(path.name, lambda: iter_jobs(path), is_table=is_table, from_data=True)
    if not found.rows:
        raise ConfigError(f"{path} holds no job. To fix: give at least `model: NAME`.")
    return found


def grid_of(given: Mapping[str, Any]) -> Grid:
    """The grid of all combinations of values: field to value or values, as `sweep` takes them.

    Raises:
        ConfigError: If a value breaks its rule.
    """
    return _grid("the sweep", lambda: [FileJob(place="", fields=given)], is_table=False, from_data=False)


def grid_of_requests(requests: Sequence[Request | Mapping[str, Any]]) -> Grid:
    """The grid of requests, one row each; mappings may hold several values."""

    def jobs() -> Iterator[FileJob]:
        for number, each in enumerate(requests, start=1):
            fields = each.given() if isinstance(each, Request) else each
            yield FileJob(place=f"request {number}", fields=fields)

    return _grid("the requests", jobs, is_table=True, from_data=False)


def _grid(name: str, jobs: Callable[[], Iterable[FileJob]], *, is_table: bool, from_data: bool) -> Grid:
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    fields: dict[str, None] = {}
    rows, seen = 0, set[str]()
    for job in jobs():
        digest.update(json.dumps(job.fields, sort_keys=True, default=repr).encode() + b"\n")
        try:
            axes = _ordered(job.fields)
            for model in axes.get("model", []) if from_data else []:
                check_named_in_data(model)
            if not is_table:
                _check(job, axes)
            rows += math.prod(map(len, axes.values()))
        except ConfigError as error:
            if not is_table:
                if isinstance(error, UnknownNameError) or not job.place:
                    raise
                raise ConfigError(f"{name}, {job.place}: {error}") from None
            rows += 1
            axes = {field: [value] for field, value in job.fields.items()}
        fields |= dict.fromkeys(axes)
        own = [value for value in axes.get("precision", []) if isinstance(value, Mapping)]
        digest.update(json.dumps(own).encode() if own else b"")
        for field in _FILES:
            for value in map(str, axes.get(field, [])):
                if value not in seen:
                    seen.add(value)
                    digest.update(_content(Path(value)))
    return Grid(
        name=name, fields=tuple(fields), rows=rows, digest=digest.hexdigest(), jobs=jobs, is_table=is_table
    )


def _content(named: Path) -> bytes:
    """Of a file that a value names, or of the card in the folder of a predictor; else nothing."""
    file = named / "predictor.json" if os.path.isdir(named) else named
    return read_input_bytes(file) if os.path.isfile(file) else b""


def _ordered(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each field, those that vary fastest last."""
    axes = {ALIASES.get(name, name): values for name, values in axes_of(given).items()}
    last = {name: axes.pop(name) for name in _INNERMOST if name in axes}
    return axes | last


def _asked_of(axes: Mapping[str, Sequence[Any]], first: int) -> Iterator[Asked]:
    """All combinations, those of several batches together; none given among them is a job of its own kind."""
    several = (name for name in BATCH_FIELDS if len(axes.get(name, ())) > 1 and None not in axes[name])
    axis = next(several, "")
    batches = tuple(_number(axis, value) for value in axes.get(axis, ()))
    others = {name: values for name, values in axes.items() if name != axis}

    def combinations() -> Iterator[Asked]:
        number = first
        for chosen in product(*others.values()):
            fields = dict(zip(others, chosen, strict=True))
            for start in range(0, len(batches) or 1, _MOST_BATCHES):
                some = batches[start : start + _MOST_BATCHES]
                yield Asked(first=number, fields=fields, axis=axis, batches=some)
                number += len(some) or 1

    return combinations()


def _number(name: str, value: Any) -> float:
    """A batch as its field understands it.

    Raises:
        ConfigError: If it breaks the rule of its field.
    """
    return float(RequestFields.model_fields[name].read(value))


def _check(job: FileJob, axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse values that break the rule of their field, and names that no catalog holds, before work begins.

    Raises:
        ConfigError: Of the first value.
        UnknownNameError: Of the first name.
    """
    first = {name: values[0] for name, values in axes.items()}
    Request.of(first)
    for name, values in axes.items():
        for value in values[1:_MOST_CHECKED]:
            if name in BATCH_FIELDS and value is not None:
                _number(name, value)
            elif name not in ("gpus", "nodes"):
                Request.of({**first, name: value})
    for name in _NAMES:
        for value in axes.get(name, ()):
            if not isinstance(value, str):
                continue
            try:
                Request.of({**first, name: value}).resolve()
            except UnknownNameError:
                raise
            except PrecisionTimeError:  # of a combination: its row says so
                continue
