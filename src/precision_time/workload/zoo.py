"""Pre-captured graphs of known models, read from `data/zoo.zip` with the standard library alone.

The archive holds `index.json` (one short entry a name) and one compact graph per model and image size
(`graphs/NAME@SIZE.json`, or `graphs/NAME.json` where no image enters), written by `data/build_zoo.py`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from ..cache import data, memo
from ..errors import CaptureError, ConfigError, UnknownNameError
from ..io import packaged
from ..lazy import LazyTable
from ..records import dataclass
from .graph import OpGraph, graph_from_json
from .rescale import at_image_size

ZOO_SCHEMA_VERSION = 1
_LARGEST_IMAGE = 16384


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooEntry:
    """What the index says about one name, without reading its graph."""

    name: str
    graph: str
    """Name of the stored graph: another than `name` where the name is an alias of it."""
    family: str
    params: float
    """Parameter elements."""
    forward_flops: float
    """Forward FLOPs per sample at `image_size`, one multiply-add = 2."""
    image_size: int | None = None
    """Side length the model is trained at when the caller names none."""
    stored_sizes: tuple[int, ...] = ()
    """Side lengths with an exact graph; other lengths are scaled from the nearest."""
    seq_len: int | None = None
    task: str = ""
    optimizer: str = "sgd"
    sample_unit: str = "sample"
    units_per_sample: float = 1.0
    throughput_unit: str = "samples/s"
    dataset: str = ""
    dataset_samples: int | None = None
    source_library: str = ""


_REMEDY = "To fix: reinstall the package, or rebuild the file with data/build_zoo.py."
_ENTRY_FIELDS = frozenset(item.name for item in fields(ZooEntry))


@data
def zoo_index() -> Mapping[str, ZooEntry]:
    """Every name the zoo knows, aliases included.

    Raises:
        CaptureError: If the shipped archive is missing, truncated or of another schema.
    """
    return read_index(_shipped())


@memo(512)
def load_zoo_graph(name: str, image_size: int | None = None) -> OpGraph:
    """The graph of a known model, at its usual image size or the one given.

    A size without a stored graph is scaled from the nearest stored one, and `OpGraph.notes` says so.

    Raises:
        UnknownNameError: If the zoo has no such name.
        ConfigError: If `image_size` is not a possible side length, or the model takes no images.
        CaptureError: If the archive is damaged.
    """
    entry = zoo_index().get(name)
    if entry is None:
        raise UnknownNameError(
            kind="model", name=name, known=zoo_index(), hint="All names: precision-time list models."
        )
    if image_size is not None and entry.image_size is None:
        raise ConfigError(
            f"image_size {image_size} was given for {name!r}, which takes no images. To fix: leave it out."
        )
    if image_size is not None and not 1 <= image_size <= _LARGEST_IMAGE:
        raise ConfigError(
            f"image_size {image_size} is invalid: a side length is 1 to {_LARGEST_IMAGE} pixels. "
            f"To fix: the usual size of {name!r} is {entry.image_size}."
        )
    size = image_size or entry.image_size
    if size is None or size in entry.stored_sizes:
        return read_graph(_shipped(), entry.graph, size)
    nearest = min(entry.stored_sizes, key=lambda stored: abs(stored - size))
    return at_image_size(read_graph(_shipped(), entry.graph, nearest), size)


def graph_member(name: str, image_size: int | None) -> str:
    """Path of a graph inside the archive."""
    return f"graphs/{name}.json" if image_size is None else f"graphs/{name}@{image_size}.json"


def read_index(archive: zipfile.ZipFile) -> Mapping[str, ZooEntry]:
    """The index of an archive.

    Raises:
        CaptureError: If the archive or its index is not what it claims to be.
    """
    data = _read_member(archive, "index.json")
    if data.get("schema") != ZOO_SCHEMA_VERSION:
        raise CaptureError(
            f"The zoo has schema {data.get('schema')!r}, this version reads {ZOO_SCHEMA_VERSION}. "
            "To fix: rebuild it with data/build_zoo.py or reinstall the package."
        )
    entries, defaults = data.get("entries"), data.get("defaults")
    if not isinstance(entries, dict) or not isinstance(defaults, dict):
        raise CaptureError(f"The index of the zoo is malformed: entries and defaults are objects. {_REMEDY}")
    return LazyTable(entries, lambda name, body: _entry(name, body, defaults))


def read_graph(archive: zipfile.ZipFile, name: str, image_size: int | None) -> OpGraph:
    """One graph of an archive.

    Raises:
        CaptureError: If it is missing, truncated or malformed.
    """
    return graph_from_json(_read_member(archive, graph_member(name, image_size)))


def zoo_path() -> Path:
    """Path of the shipped archive."""
    return packaged("precision_time.workload", "data/zoo.zip")


def open_archive(data: bytes) -> zipfile.ZipFile:
    """An archive held in memory.

    Raises:
        CaptureError: If the bytes are not a zip archive.
    """
    try:
        return zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise CaptureError(f"The zoo is damaged ({error}). {_REMEDY}") from error


@data
def _shipped() -> zipfile.ZipFile:
    try:
        return open_archive(zoo_path().read_bytes())
    except OSError as error:
        raise CaptureError(f"The zoo cannot be read: {error}. {_REMEDY}") from error


def _read_member(archive: zipfile.ZipFile, member: str) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(archive.read(member))
    except KeyError as error:
        raise CaptureError(f"The zoo holds no member {member!r}. {_REMEDY}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise CaptureError(f"The zoo member {member!r} is damaged ({error}). {_REMEDY}") from error
    if not isinstance(data, dict):
        raise CaptureError(f"The zoo member {member!r} is not a JSON object. {_REMEDY}")
    return data


def _entry(name: str, body: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> ZooEntry:
    try:
        values = {**defaults.get(body.get("kind", ""), {}), **body}
        values["stored_sizes"] = tuple(values.get("stored_sizes", ()))
        known = {key: value for key, value in values.items() if key in _ENTRY_FIELDS}
        return ZooEntry(name=name, graph=known.pop("graph", name), **known)
    except (TypeError, AttributeError) as error:
        raise CaptureError(f"The zoo entry {name!r} is malformed ({error!r}). {_REMEDY}") from error
