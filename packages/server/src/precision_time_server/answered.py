"""Answers that were given, by what was asked: a scheduler asks the same again."""

from __future__ import annotations

from collections import OrderedDict

_MOST_BYTES = 16 * 2**20


class Answered:
    """The answers asked for last, up to a number of bytes; for one thread."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def get(self, asked: str) -> bytes | None:
        """The answer, if it is remembered."""
        if asked in self._answers:
            self._answers.move_to_end(asked)
        return self._answers.get(asked)

    def keep(self, asked: str, answer: bytes) -> None:
        """Remember an answer; those asked for longest ago go."""
        if asked in self._answers:
            return
        self._answers[asked] = answer
        self._bytes += len(asked) + len(answer)
        while self._bytes > self._most_bytes:
            oldest, given = self._answers.popitem(last=False)
            self._bytes -= len(oldest) + len(given)
