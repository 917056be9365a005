"""Arrays in the safetensors format: written and read with the standard library and numpy.

The format is eight bytes with the length of a JSON header, the header (type, shape and place of each array),
and the raw bytes: https://github.com/huggingface/safetensors. Nothing in such a file can run.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, NotFittedError
from ...io import write_atomically

Arrays = Mapping[str, NDArray[Any]]

_TYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8
_METADATA = "__metadata__"
_WAY_OUT = "To fix: train it again with `precision-time train-ghn`, or reinstall the package."


def write_safetensors(path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None) -> None:
    """Write `arrays` whole or not at all.

    Args:
        path: The file; an existing one is replaced in one step.
        arrays: Names and arrays, of float, int or bool types.
        metadata: Text that is stored beside them.

    Raises:
        ConfigError: If an array has a type that the format does not know.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    parts: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        if little.dtype not in _NAMES:
            raise ConfigError(
                f"Array {name!r} has type {array.dtype}, which {path.name} cannot hold. The rule: "
                f"{', '.join(_TYPES)}. To fix: convert it first."
            )
        raw = little.tobytes()
        header[name] = {
            "dtype": _NAMES[little.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, b"".join([_LENGTH.pack(len(text)), text, *parts]))


def read_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays and metadata of a file.

    Raises:
        NotFittedError: If the file is missing, truncated or not of this format.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFittedError(f"{path} cannot be read: {error.strerror}. {_WAY_OUT}") from error
    try:
        return _parsed(data)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise NotFittedError(f"{path} is damaged or no safetensors file ({error}). {_WAY_OUT}") from error


def _parsed(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    if start > len(data):
        raise ValueError(f"the header should have {length} bytes, the file has {len(data)}")
    header = json.loads(data[_LENGTH.size : start])
    metadata = {str(key): str(value) for key, value in header.pop(_METADATA, {}).items()}
    arrays = {str(name): _array(name, entry, data[start:]) for name, entry in header.items()}
    held = sum(array.nbytes for array in arrays.values())
    if held != len(data) - start:
        raise ValueError(f"its arrays take {held} bytes, {len(data) - start} are there")
    return arrays, metadata


def _array(name: str, entry: Mapping[str, Any], body: bytes) -> NDArray[Any]:
    dtype, shape = _TYPES[entry["dtype"]], tuple(int(side) for side in entry["shape"])
    first, last = entry["data_offsets"]
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if min(shape, default=0) < 0 or not 0 <= first <= last <= len(body) or last - first != size:
        raise ValueError(f"array {name!r} of shape {shape} does not lie in bytes {first} to {last}")
    return np.frombuffer(body[first:last], dtype=dtype).reshape(shape)
