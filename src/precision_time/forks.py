"""Locks and cached connections under `fork`: a child has one thread, and what the others held stays held.

All locks of the package are `ForkLock`s, and its cached properties those of this module.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

_T = TypeVar("_T")
_Owner = TypeVar("_Owner")
_LOCKS: WeakSet[ForkLock] = WeakSet()
unforked = RLock()
"""A fork waits until this is free: for what is soon done and has locks of its own, as SQLite. Inside of it no
other lock is taken."""
_RENEWED: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


class ForkLock:
    """A lock, entered by `with`, that a forked child finds free, unless the thread that forked holds it.

    The same thread may enter it again.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = RLock()


class cached_property(functools.cached_property[_T]):  # noqa: N801 - in the place of functools'
    """`functools.cached_property`, without the lock of a whole class that it has before Python 3.12."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        super().__init__(function)
        self.lock: AbstractContextManager[None] = nullcontext()


def in_forked_child(owner: _Owner, renew: Callable[[_Owner], object]) -> None:
    """Call `renew(owner)` in every forked child while there is the owner, as connections are not shared."""
    _RENEWED[owner] = renew


def _in_child() -> None:
    unforked.release()
    for lock in list(_LOCKS):
        lock._renew()  # noqa: SLF001
    for owner, renew in list(_RENEWED.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=unforked.acquire, after_in_parent=unforked.release, after_in_child=_in_child)
