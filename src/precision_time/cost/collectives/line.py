"""Alpha-beta lines: the form in which every collective states its cost."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeAlias

import numpy as np

from ...arrays import Floats, Number
from ...cache import memo
from ...errors import ConfigError
from ...records import dataclass
from ..constants import constants


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Line:
    """Cost of one collective with one algorithm and protocol: nearly affine in the message size.

    Equal only to itself, as a key of caches.
    """

    startup_s: Number
    """Seconds for an empty message."""
    s_per_byte: Number
    """Seconds per byte of the message (its meaning is stated by the collective)."""

    def seconds(self, message_bytes: Number) -> Number:
        r"""Time of a message; arrays broadcast.

        $t = a + bn + \kappa\sqrt{a\,bn}$: a message is cut into chunks that are pipelined through
        the hops, and filling the pipeline costs the geometric mean of start-up and transfer.
        $\kappa = 2$ is the optimum of a chain (van de Geijn, JPDC 22(2), 1994); here it is fitted.
        """
        transfer_s = self.s_per_byte * message_bytes
        knee = float(constants("collectives")["knee"])
        return self.startup_s + transfer_s + knee * np.sqrt(self.startup_s * transfer_s)


Lines: TypeAlias = tuple[Line, ...]


def min_time_s(lines: Lines, message_bytes: Number) -> Number:
    """Time of the best line for each message: concave and never decreasing in its size.

    Args:
        lines: Algorithms and protocols to choose from, at least one.
        message_bytes: Payload [B]; broadcasts with the lines.

    Returns:
        Seconds. An empty message costs nothing: no collective is started for it.

    Raises:
        ConfigError: If a message size is negative.

    Assumes: the library always picks the fastest; NCCL picks by such a model and is mostly right.
    """
    size = np.asarray(message_bytes, dtype=np.float64)
    sent = size > 0.0
    if (some := not sent.all()) and (size < 0.0).any():
        raise ConfigError(f"message_bytes={float(size.min()):g} is negative. To fix: give 0 or more bytes.")
    stacked = _stacked(lines)
    if stacked is None:
        best = reduce(np.minimum, (line.seconds(size) for line in lines))
    else:
        startup_s, s_per_byte, knee_s = stacked
        every = np.multiply.outer(size, s_per_byte) + np.multiply.outer(np.sqrt(size), knee_s) + startup_s
        best = every.min(axis=-1)
    return np.where(sent, best, 0.0) if some else np.asarray(best)


@memo(512)
def _stacked(lines: Lines) -> tuple[Floats, Floats, Floats] | None:
    """Start-up, slope and knee of every line as arrays, None where a line is an array itself."""
    pairs = [(np.asarray(line.startup_s), np.asarray(line.s_per_byte)) for line in lines]
    if any(value.ndim for pair in pairs for value in pair):
        return None
    startup_s, s_per_byte = (np.array(values, dtype=np.float64) for values in zip(*pairs, strict=True))
    return startup_s, s_per_byte, float(constants("collectives")["knee"]) * np.sqrt(startup_s * s_per_byte)


def ranks(num_ranks: Number) -> Floats:
    """A number of participants as floats.

    Raises:
        ConfigError: If there is not even one.
    """
    counted = np.asarray(num_ranks, dtype=np.float64)
    if np.any(counted < 1):
        raise ConfigError(f"num_ranks={float(counted.min()):g} must be at least 1. To fix: count every rank.")
    return counted


def zero_if_single_rank(lines: Iterable[Line], num_ranks: Number) -> Lines:
    """The lines with no cost where only one rank takes part."""
    active = ranks(num_ranks) > 1
    return tuple(
        Line(
            startup_s=np.where(active, line.startup_s, 0.0), s_per_byte=np.where(active, line.s_per_byte, 0.0)
        )
        for line in lines
    )
