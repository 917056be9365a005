"""Records of binary logs: TensorFlow's record files, LevelDB's log, and protocol buffers in them.

Reading them here takes no TensorFlow, TensorBoard or W&B; the tests hold it against what these write.
References: tensorflow/core/lib/io/record_reader.h; github.com/google/leveldb, doc/log_format.md;
protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

_MOST_RECORD_BYTES = 64 * 1024**2
_BLOCK_BYTES = 32768
_HEADER_BYTES = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS = 70


class DamagedRecordError(ValueError):
    """A record is cut or is none."""


def tf_records(file: IO[bytes]) -> Iterator[bytes]:
    """The records of a TFRecord file.

    Raises:
        DamagedRecordError: At a record that is cut, as of a run under way, or that is none.
    """
    while head := file.read(12):
        if len(head) < 12:
            raise DamagedRecordError("the last record is cut")
        (length,) = struct.unpack("<Q", head[:8])
        if length > _MOST_RECORD_BYTES:
            raise DamagedRecordError(f"a record of {length:,} bytes is none")
        body = file.read(length + 4)
        if len(body) < length + 4:
            raise DamagedRecordError("the last record is cut")
        yield body[:length]


def leveldb_records(file: IO[bytes]) -> Iterator[bytes]:
    """The records of a LevelDB log that follow a header of seven bytes, as W&B writes them.

    Raises:
        DamagedRecordError: At a record that is cut, as of a run under way, or that is none.
    """
    at = len(file.read(_HEADER_BYTES))
    parts: list[bytes] = []
    while True:
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEADER_BYTES:
            at += len(file.read(left))
        head = file.read(_HEADER_BYTES)
        if not head:
            if parts:
                raise DamagedRecordError("the last record is cut")
            return
        if len(head) < _HEADER_BYTES:
            raise DamagedRecordError("the last record is cut")
        _, length, kind = struct.unpack("<IHB", head)
        body = file.read(length)
        at += len(head) + len(body)
        if len(body) < length:
            raise DamagedRecordError("the last record is cut")
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or (kind in (_FULL, _FIRST)) != (not parts):
            raise DamagedRecordError("a record is none")
        parts.append(body)
        if sum(map(len, parts)) > _MOST_RECORD_BYTES:
            raise DamagedRecordError("a record is too long")
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []


def message(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a protocol buffer by number: bytes of texts, messages and packed numbers, else integers.

    Raises:
        DamagedRecordError: If it is none.

    >>> message(bytes([0x10, 0x96, 0x01]))
    {2: [150]}
    """
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            value, at = data[at : at + size], at + size
        elif kind == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise DamagedRecordError(f"wire type {kind} is none")
        if at > len(data):
            raise DamagedRecordError("a field is cut")
        found.setdefault(number, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _VARINT_BITS:
            raise DamagedRecordError("a number is cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def whole(value: int | bytes | None) -> int:
    """A signed 64-bit integer of a field; 0 where there is none."""
    if not isinstance(value, int):
        return 0
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def double(value: int | bytes | None) -> float | None:
    """A double of a field."""
    return float(struct.unpack("<d", value)[0]) if isinstance(value, bytes) and len(value) == 8 else None


def text(value: int | bytes | None) -> str:
    """A text of a field; empty where there is none."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else ""


def inner(value: int | bytes | None) -> dict[int, list[int | bytes]]:
    """A message of a field; empty where there is none.

    Raises:
        DamagedRecordError: If it is none.
    """
    return message(value) if isinstance(value, bytes) else {}


def first(fields: dict[int, list[int | bytes]], number: int) -> int | bytes | None:
    """The first value of a field, None where there is none."""
    values = fields.get(number)
    return values[0] if values else None
