"""Arrays and texts in one file of the safetensors format, read where they lie: nothing is copied.

Format: length of the header [8 bytes], header in JSON, arrays one after the other, the widest type first.
Source: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
"""Types of the format that numpy has."""
_TEXTS = "__metadata__"


def packed(arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, str]) -> bytes:
    """The content of a file that holds these."""
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    header: dict[str, Any] = {_TEXTS: dict(texts)} if texts else {}
    parts: list[bytes] = []
    end = 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        dtype = array.dtype.newbyteorder("<")
        parts.append(array.astype(dtype, copy=False).tobytes())
        start, end = end, end + len(parts[-1])
        header[name] = {"dtype": codes[dtype.str], "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *parts))


def unpacked(data: bytes | mmap.mmap) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Arrays and texts in the content of such a file; the arrays cannot be written to.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: If it is anything else.
    """
    body = 8 + int.from_bytes(data[:8], "little")
    if not 8 < body <= len(data):
        raise ValueError(f"{len(data)} bytes are shorter than the header says")
    header = json.loads(data[8:body])
    texts: dict[str, str] = header.pop(_TEXTS, {})
    arrays: dict[str, NDArray[Any]] = {}
    size = 0
    for name, entry in header.items():
        dtype, shape, (start, end) = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        count = prod(shape)
        if not 0 <= start <= end <= len(data) - body or end - start != count * dtype.itemsize:
            raise ValueError(f"{name} does not lie where the header says")
        arrays[name] = np.frombuffer(data, dtype, count, body + start).reshape(shape)
        size += end - start
    if size != len(data) - body:
        raise ValueError(f"{len(data) - body} bytes of arrays where the header says {size}")
    return arrays, texts


def mapped(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """`unpacked` of a file that is mapped into memory: only what is used is read, and processes share it.

    Raises:
        OSError: If it cannot be read.
        ValueError, KeyError, TypeError, AttributeError, RecursionError: If it is no such file.
    """
    with path.open("rb") as file:
        return unpacked(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
