"""A barrier for services: in it nothing that a request names is imported, read from a file or captured.

The routes refuse such requests in their own words; this holds where one of them forgets a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .errors import ConfigError, shown

_data_only: ContextVar[bool] = ContextVar("data_only", default=False)


@contextmanager
def data_only() -> Iterator[None]:
    """In this block requests are data: models are of the catalogs, inline configurations or graphs."""
    token = _data_only.set(True)
    try:
        yield
    finally:
        _data_only.reset(token)


def is_data_only() -> bool:
    """Whether a block of `data_only` is entered."""
    return _data_only.get()


def check_may_read(path: Any) -> None:
    """Refuse a file that a request names.

    Raises:
        ConfigError: In a block of `data_only`.
    """
    if is_data_only():
        raise ConfigError(
            f"{shown(str(path))} is a file. The rule: what a service is asked names no files. To fix: send "
            "what the file holds."
        )
