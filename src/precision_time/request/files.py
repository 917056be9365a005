"""Requests in files: a job as YAML, TOML or JSON, many jobs as a list, as JSON lines or as a table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..io import open_input_text, read_input, unique
from ..plugins import is_predictor
from ..precision.catalog import is_policy_file
from ..records import dataclass
from ..workload.resolve import check_named_in_data
from .recipes import MOST_BYTES, Recipe, kind_of, parsed, project_of, recipe_of
from .request import Request
from .schema import ALIASES, over
from .sweep import PHASES, combinations_of

_DOCUMENTS = (".yaml", ".yml", ".toml", ".json")
_TABLES = (".csv", ".jsonl")
_JOBS = "jobs"
VERSION_FIELD = "version"
VERSION = 1
"""Of job files; a file may state it."""
_PATHS = ("custom", "calibration", "predictor")
_PRECISION = "precision"


def is_request_file(source: str) -> bool:
    """Whether a word names requests: a file of them, or a recipe or command of another project.

    A .json without a `model` is a model's own configuration.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix == ".json" and os.path.isfile(path):
        try:
            document = json.loads(read_input(path, encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError):
            return False
        return (
            isinstance(document, list)
            or (isinstance(document, dict) and ("model" in document or _JOBS in document))
            or bool(project_of(document))
        )
    return suffix in (*_DOCUMENTS[:3], *_TABLES) or bool(kind_of(source))


@dataclass(frozen=True, kw_only=True, slots=True)
class FileJob:
    """One job of a file: the fields as they stand there, unchecked."""

    place: str
    """Line or number."""
    fields: Mapping[str, Any]
    recipe: Recipe | None = None
    """What another project's recipe says, where the fields are of one."""

    def requests(self, **options: Any) -> list[Request]:
        """What the job asks: one request, or one for each combination where a field has several values.

        Raises:
            ConfigError: If a field breaks its rule.
        """
        fields = over(self.fields, options) if self.recipe is None else self.recipe.merged(options)
        found = combinations_of(fields)
        for model in {id(request.model): request.model for request in found}.values():
            if not isinstance(model, Mapping):
                check_named_in_data(model)
        return found


def read_jobs(path: str | Path) -> list[FileJob]:
    """The jobs of a file, in its order; at least one. A recipe or a command of another project is one job.

    A document is one job (a mapping with `model`), a list of jobs, or `jobs:` with a list, next to fields
    that all of them share. Beside the fields of a request a job may state `version: 1`, its `phases`, and
    under `run` what the whole run costs beside its steps. Tables have one job per line, with the fields as
    columns or keys. A list for a field that holds one value asks for each of them. Paths are relative to the
    file.

    Raises:
        ConfigError: If the file is none of these.
    """
    if (recipe := recipe_of(str(path))) is not None:
        return [FileJob(place="recipe", fields=recipe.fields, recipe=recipe)]
    file = Path(path)
    with _readable(file):
        if file.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{file} is larger than {MOST_BYTES // 2**20} MiB. To fix: split it.")
        jobs = list(_jobs(file, read_input(file, encoding="utf-8-sig")))
    if not jobs:
        raise ConfigError(f"{file} holds no job. To fix: give at least `model: NAME`.")
    return [
        _file_job(file, place or f"job {number}", fields) for number, (place, fields) in enumerate(jobs, 1)
    ]


def iter_jobs(path: str | Path) -> Iterator[FileJob]:
    """`read_jobs` one by one: of a table of any length line by line, without holding it.

    Raises:
        ConfigError: If the file is none of these, once that line is reached.
    """
    file = Path(path)
    if file.suffix.lower() not in _TABLES:
        yield from read_jobs(file)
        return
    with _readable(file), open_input_text(file, encoding="utf-8-sig", newline="", most_bytes=None) as lines:
        for place, fields in _table_jobs(file, lines):
            yield _file_job(file, place, fields)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """What reading a file raises, as errors of ours.

    Raises:
        ConfigError: If it cannot be read, or is no valid file of its kind.
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}. To fix: check path and encoding.") from error
    except ConfigError:
        raise
    except (ValueError, csv.Error, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{file} is not a valid {file.suffix} file: {reason}. To fix: correct it."
        ) from error


def _file_job(file: Path, place: str, fields: Mapping[str, Any]) -> FileJob:
    version = fields.get(VERSION_FIELD, VERSION)
    if str(version) != str(VERSION):
        raise ConfigError(
            f"{file}, {place}: the job is of version {version}, and version {VERSION} is read here. To fix: "
            f"update precision-time, or check the fields and write `version: {VERSION}`."
        )
    return FileJob(
        place=place,
        fields={
            ALIASES.get(name, name): _beside(file, value)
            if name in _PATHS and not (name == "predictor" and is_predictor(value))
            else value
            for name, value in fields.items()
            if name != VERSION_FIELD
        }
        | {name: _policies_beside(file, value) for name, value in fields.items() if name == _PRECISION}
        | {name: _phases_beside(file, value) for name, value in fields.items() if name == PHASES},
    )


def _phases_beside(file: Path, phases: Any) -> Any:
    """Phases, with the policy files of their precisions found from the file that names them."""
    if not isinstance(phases, list):
        return phases
    return [
        {**phase, _PRECISION: _policies_beside(file, phase[_PRECISION])}
        if isinstance(phase, Mapping) and _PRECISION in phase
        else phase
        for phase in phases
    ]


def _beside(file: Path, value: Any) -> Any:
    return str(file.parent / value) if isinstance(value, str) else value


def _policies_beside(file: Path, value: Any) -> Any:
    """Precisions, with the policy files among them found from the file that names them."""
    if isinstance(value, list):
        return [_policies_beside(file, item) for item in value]
    if isinstance(value, str) and "," in value:
        return [_policies_beside(file, item.strip()) for item in value.split(",") if item.strip()]
    return _beside(file, value) if is_policy_file(value) else value


def read_requests(path: str | Path) -> list[Request]:
    """The requests of a file, those of all combinations where a job gives several values.

    Raises:
        ConfigError: As `read_jobs`, or if a field breaks its rule; names file, job and field.
    """
    found = []
    for job in read_jobs(path):
        try:
            found += job.requests()
        except ConfigError as error:
            raise ConfigError(f"{path}, {job.place}: {error}") from None
    return found


def _jobs(file: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each job is, and its fields."""
    suffix = file.suffix.lower()
    if suffix in _TABLES:
        yield from _table_jobs(file, io.StringIO(text, newline=""))
        return
    document = parsed(suffix, text, once=True)
    jobs = document if isinstance(document, list) else [document]
    shared: Mapping[str, Any] = {}
    if isinstance(document, Mapping) and _JOBS in document:
        shared = {name: value for name, value in document.items() if name != _JOBS}
        jobs = document[_JOBS] if isinstance(document[_JOBS], list) else [document[_JOBS]]
    for number, job in enumerate(jobs, start=1):
        place = f"job {number}" if len(jobs) > 1 else ""
        yield place, over(shared, _mapping(job, file, place))


def _table_jobs(file: Path, lines: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each job of a table is, and its fields."""
    if file.suffix.lower() == ".csv":
        reader = csv.DictReader(lines, strict=True)
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        unique((name, None) for name in reader.fieldnames if name)
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(
                    f"{file}, line {reader.line_num}: the number of cells is not that of the header. To fix: "
                    "complete the row, or quote cells that contain commas."
                )
            yield f"line {reader.line_num}", {name: _cell(cell) for name, cell in row.items() if cell.strip()}
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found = json.loads(line, object_pairs_hook=unique)
            yield f"line {number}", _mapping(found, file, f"line {number}")


def _cell(text: str) -> Any:
    """A cell; objects and lists as JSON. What only begins like one is text, which a field may refuse."""
    if text.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text.strip()


def _mapping(value: Any, file: Path, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{file}{place and ', '}{place}: a job is a mapping of fields to values, got "
            f"{type(value).__name__}. To fix: write it like `model: resnet50`."
        )
    return {str(name): item for name, item in value.items()}
