"""What goes into a store: names, numbers, times and JSON documents, each within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from precision_time.errors import shown

from .errors import EntryError, EntryTooLargeError
from .tables import LONGEST_NAME

LARGEST_BYTES = {
    "cluster": 4 * 2**20, "measurement": 64 * 2**10, "calibration": 64 * 2**20, "card": 2**20,
    "graph": 256 * 2**20, "facts": 2**20, "report": 2**20,
}  # fmt: skip
"""Of a document as JSON."""
MOST_ROWS = 100_000
"""Measurements that are added in one call."""
LARGEST_NUMBER = 2**63 - 1
"""Of rows, in both databases."""
_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRecord:
    """What is known of a calibration besides its body."""

    id: int
    card: Mapping[str, Any]
    created: datetime
    active: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSummary:
    """What is known of an uploaded model besides its operators."""

    name: str
    label: str
    kind: str
    facts: Mapping[str, Any]
    created: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord(ModelSummary):
    """An uploaded model with its operators."""

    graph: Mapping[str, Any]


def checked_name(kind: str, value: Any, *, may_be_empty: bool = False) -> str:
    """A text that both databases keep as it is.

    Raises:
        EntryError: If it is empty, too long, or has characters that are not printed.
    """
    fits = isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_NAME
    if fits and (value or may_be_empty):
        return str(value)
    raise EntryError(
        f"{shown(value)} is no {kind}. The rule: 1 to {LONGEST_NAME} printable characters. "
        "To fix: choose another."
    )


def to_document(kind: str, value: Any) -> str:
    """JSON of an object, in ASCII.

    Raises:
        EntryError: If JSON cannot say it.
        EntryTooLargeError: If it is longer than its kind may be.
    """
    if not isinstance(value, Mapping):
        raise EntryError(f"A {kind} is to be an object, got {shown(value)}. To fix: store a mapping.")
    try:
        text = json.dumps(dict(value), allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise EntryError(
            f"A {kind} cannot be stored as JSON: {error}. The rule: finite numbers, texts, lists and "
            "objects. To fix: correct the value."
        ) from None
    if len(text) > LARGEST_BYTES[kind]:
        raise EntryTooLargeError(
            f"A {kind} of {len(text):,} bytes is too large. The rule: at most {LARGEST_BYTES[kind]:,} bytes "
            "of JSON. To fix: leave out what is not needed."
        )
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is none of JSON's types")


def from_document(text: str) -> dict[str, Any]:
    """What `to_document` wrote."""
    found: dict[str, Any] = json.loads(text)
    return found


def to_microseconds(at: datetime) -> int:
    """A moment as a number.

    Raises:
        EntryError: If it has no time zone.
    """
    if at.tzinfo is None:
        raise EntryError(f"{at.isoformat()} has no time zone. To fix: use datetime.now(UTC).")
    return (at - _START) // timedelta(microseconds=1)


def from_microseconds(number: int) -> datetime:
    """A moment, in UTC."""
    return _START + timedelta(microseconds=number)
