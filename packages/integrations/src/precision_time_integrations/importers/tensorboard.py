"""Runs in TensorBoard's event files: the time of a step is that between points of a scalar curve.

Settings are those of the hparams plugin, of Lightning's hparams.yaml, and the arguments that Hugging Face's
trainer writes as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError

from .bounded import is_folder, is_regular, names_in, opened, small_yaml
from .contract import ImportedRun, Importer, unreadable
from .curves import Curve, Point, steps_of_curves
from .parameters import fields_of_parameters
from .wire import DamagedRecordError, double, first, inner, message, text, tf_records, whole

_EVENTS = "events.out.tfevents."
_HPARAMS = "_hparams_/session_start_info"
_TEXTS = ("args/text_summary", "model_config/text_summary", "args", "model_config")
_OF_HPARAMS = re.compile(r"^\d+\.\d+$")
"""Folder that `SummaryWriter.add_hparams` makes beside the run's own files."""
_MOST_POINTS = 4_000_000
_MOST_FILES = 1000

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
"""Fields of tensorflow.Event (tensorflow/core/util/event.proto)."""
_VALUE = 1
_TAG, _METADATA, _TENSOR = 1, 9, 8
"""Of Summary and Summary.Value (summary.proto)."""
_STRING_VALUE = 8
"""Of TensorProto."""
_PLUGIN, _CONTENT, _SESSION_START, _PARAMETERS = 1, 2, 3, 1
"""Of SummaryMetadata (plugin_data, its content) and of the hparams plugin's HParamsPluginData."""


class _Events:
    """What the event files of one run hold."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.settings: dict[str, Any] = {}
        self.notes: list[str] = []
        self.points = 0

    def read(self, path: Path) -> None:
        """Add a file; one that is cut is read as far as it goes."""
        count = 0
        with opened(path) as file:
            try:
                for record in tf_records(file):
                    count += 1
                    self._add(record)
            except (DamagedRecordError, OSError, EOFError) as error:
                if not count:
                    raise unreadable(path, f"is no event file: {error}", "name another") from error
                self.notes.append(f"{path.name[:80]}: {error}; {count} records before it were read")

    def _add(self, record: bytes) -> None:
        event = message(record)
        at_s, step = double(first(event, _WALL_TIME)), whole(first(event, _STEP))
        for summary in event.get(_SUMMARY, ()):
            for value in inner(summary).get(_VALUE, ()):
                fields = inner(value)
                tag = text(first(fields, _TAG))
                if tag == _HPARAMS:
                    self.settings |= _hparams(fields)
                elif tag in _TEXTS:
                    self.settings |= _json_text(fields)
                elif at_s is not None:
                    self.points += 1
                    if self.points > _MOST_POINTS:
                        raise DamagedRecordError(f"more than {_MOST_POINTS:,} points")
                    self.curves.setdefault(tag, Curve()).add(step, at_s)


def _hparams(value: Mapping[int, list[int | bytes]]) -> dict[str, Any]:
    """Settings that `add_hparams` wrote: a map of google.protobuf.Value in the plugin's content."""
    plugin = inner(first(inner(first(dict(value), _METADATA)), _PLUGIN))
    start = inner(first(inner(first(plugin, _CONTENT)), _SESSION_START))
    found: dict[str, Any] = {}
    for entry in start.get(_PARAMETERS, ()):
        pair = inner(entry)
        said = inner(first(pair, 2))
        number, word, flag = double(first(said, 2)), first(said, 3), first(said, 4)
        name = text(first(pair, 1))
        found[name] = bool(flag) if flag is not None else number if number is not None else text(word)
    return found


def _json_text(value: Mapping[int, list[int | bytes]]) -> dict[str, Any]:
    tensor = inner(first(dict(value), _TENSOR))
    try:
        found = json.loads(text(first(tensor, _STRING_VALUE)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _event_files(folder: Path) -> list[Path]:
    """By the time of their start, which their names tell."""
    found = [folder / name for name in names_in(folder) if _EVENTS in name and is_regular(folder / name)]
    if len(found) > _MOST_FILES:
        raise unreadable(folder, f"holds more than {_MOST_FILES:,} event files", "name the folder of one run")
    return sorted(found, key=_started)


def _started(path: Path) -> tuple[float, str]:
    stamp = re.search(r"tfevents\.(\d{9,12})", path.name)
    return float(stamp[1]) if stamp else 0.0, path.name


def _read_folder(folder: Path) -> list[ImportedRun]:
    files = _event_files(folder)
    events = _Events()
    for name in names_in(folder):
        if _OF_HPARAMS.match(name) and is_folder(folder / name):
            for file in _event_files(folder / name):
                of_hparams = _Events()
                of_hparams.read(file)
                events.settings |= of_hparams.settings
    return [_run(files, folder.name, folder.name, events, folder)]


def _read_file(path: Path) -> list[ImportedRun]:
    return [_run([path], path.parent.name or path.name, path.name, _Events(), path.parent)]


def _run(files: list[Path], name: str, origin: str, events: _Events, folder: Path) -> ImportedRun:
    for file in files:
        events.read(file)
    if len(files) > 1:
        events.notes.append(f"{len(files)} event files: as many starts of the run")
    if is_regular(folder / "hparams.yaml"):
        try:
            given = small_yaml(folder / "hparams.yaml")
            events.settings |= given if isinstance(given, dict) else {}
        except CorpusError as error:
            events.notes.append(f"hparams.yaml was left out: {error}"[:300])
    fields, notes = fields_of_parameters(events.settings)
    found = steps_of_curves(events.curves, epochs=fields.get("epochs"))
    return ImportedRun(
        name=name,
        origin=origin,
        importer="tensorboard",
        fields=fields,
        steps=found.steps,
        notes=(*notes, *found.notes, *events.notes[:10]),
        reports_epochs=found.reports_epochs,
    )


def _folders(path: Path, head: bytes) -> bool:
    if head or not path.is_dir():
        return False
    try:
        return bool(_event_files(path))
    except CorpusError:
        return False


def _is_file(path: Path, head: bytes) -> bool:
    return _EVENTS in path.name and not path.is_dir() and len(head) > 12


def scalar_points(path: Path) -> Iterator[tuple[str, Point]]:
    """Every point of an event file with its tag, in order; for tests and other readers.

    Raises:
        CorpusError: If it is no event file.
    """
    events = _Events()
    events.read(path)
    for tag, points in events.curves.items():
        yield from ((tag, point) for point in points)


IMPORTERS = (
    Importer(
        name="tensorboard",
        description="TensorBoard: a folder with event files (events.out.tfevents.*)",
        matches=_folders,
        read=_read_folder,
        folders=True,
    ),
    Importer(
        name="tensorboard-file",
        description="TensorBoard: one event file",
        matches=_is_file,
        read=_read_file,
    ),
)
