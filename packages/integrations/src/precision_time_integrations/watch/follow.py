"""A file that grows, as lines: through rotation, truncation, pipes, and lines that are not complete yet."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from precision_time.errors import CorpusError

from ..importers.lines import CHUNK_BYTES, LineBuffer

STDIN = "-"


class Follower:
    """Gives the lines of a file as they are written.

    Args:
        path: A file, a named pipe, or `-` for standard input.
        clock: Seconds that do not go back.

    Raises:
        CorpusError: If it does not exist or cannot be read.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self.ended = False
        """Whether no more can come: the end of standard input."""
        self.restarted = 0
        """Times the file was replaced or cut."""
        self._clock = clock
        self._stdin = str(path) == STDIN
        self._buffer = LineBuffer()
        self._handle = sys.stdin.fileno() if self._stdin else self._opened()
        mode = os.fstat(self._handle).st_mode
        self._stream = not stat.S_ISREG(mode)
        if stat.S_ISDIR(mode):
            self.close()
            raise CorpusError(f"{path} is a folder. To fix: name the log in it.")
        self.grew_s = clock()
        """When the last bytes came, by the clock."""

    def __enter__(self) -> Follower:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self._stdin:
            with contextlib.suppress(OSError):
                os.close(self._handle)

    @property
    def age_s(self) -> float:
        """Seconds since the file was written to, as the file system says; 0 for streams."""
        if self._stream:
            return 0.0
        try:
            return max(0.0, time.time() - os.fstat(self._handle).st_mtime)
        except OSError:
            return 0.0

    def read(self) -> list[str] | None:
        """The lines of the next piece; None where nothing came since the last call."""
        if self._stream and not select.select([self._handle], [], [], 0.0)[0]:
            return None
        data = self._more()
        if not data:
            if self._stdin and not self.ended:
                self.ended = True
                return [rest] if (rest := self._buffer.rest()) else None
            self._other_file()
            return None
        self.grew_s = self._clock()
        return self._buffer.feed(data)

    def rest(self) -> str:
        """What stands after the last end of a line."""
        return self._buffer.rest()

    def _more(self) -> bytes:
        try:
            return os.read(self._handle, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise CorpusError(
                f"{self.path} cannot be read: {error.strerror or error}. To fix: check it."
            ) from error

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise CorpusError(
                f"{self.path} cannot be read: {error.strerror or error}. To fix: name a log that exists."
            ) from error

    def _other_file(self) -> None:
        """Go on with the file of this name, where it was replaced or cut: from its start."""
        if self._stream:
            return
        try:
            there = os.stat(self.path)
        except OSError:
            return  # moved away: its successor is still to come
        here = os.fstat(self._handle)
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            self.close()
            self._handle = self._opened()
        elif there.st_size < os.lseek(self._handle, 0, os.SEEK_CUR):
            os.lseek(self._handle, 0, os.SEEK_SET)
        else:
            return
        self._buffer = LineBuffer()
        self.restarted += 1
