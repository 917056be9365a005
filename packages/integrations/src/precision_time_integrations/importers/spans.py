"""What a device does during a step, out of the spans of a trace: every instant is counted once.

An instant at which several things run is the first of `ORDER` among them, so communication behind
computation is hidden and only the exposed part is left; an instant at which a device does nothing is the
input's where the host waits for the loader, else the host's. The groups are those of the terms of a
prediction (`cost/data/terms.toml`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import memo

from .contract import ImportedRun

Floats = NDArray[np.float64]

UPDATE, KERNELS, EXPOSED, COPIES, INPUT, HOST = "update", "kernels", "exposed", "copies", "input", "host"
ORDER = (UPDATE, KERNELS, EXPOSED, COPIES, INPUT)
"""Of what runs at once, the first is counted. The rest of a step is the host's."""
GROUPS = (*ORDER, HOST)
_MOST_SPANS = 20_000_000
_NEARLY = 0.9

_COMMUNICATION = re.compile(
    r"nccl(dev)?_?|rccl|^(gloo|mpi|c10d|ucc|hccl|oneccl)[:_]|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|"
    r"(cross_device|multimem|one_shot|two_shot)_?(all_?)?reduce",
    re.IGNORECASE,
)
_UPDATE = re.compile(
    r"multi_tensor_apply|multi_tensor_|(fused|apex|distributed)_?(adam|lamb|sgd)|adamw?_?(kernel|cuda|8bit)|"
    r"foreach_|_amp_(foreach|update)|optimizer",
    re.IGNORECASE,
)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"flash|fmha|attention|sdpa|softmax", re.IGNORECASE)),
    (
        "convolutions",
        re.compile(r"conv|implicit_gemm|wgrad|dgrad|fprop|winograd|cudnn.*nchw|im2col|col2im", re.IGNORECASE),
    ),
    (
        "matrix products",
        re.compile(r"gemm|cublas|cutlass|nvjet|Cijk_|matmul|addmm|::b?mm|splitK|::linear", re.IGNORECASE),
    ),
    ("norms", re.compile(r"norm|bn_fw|bn_bw", re.IGNORECASE)),
)
OTHER_KERNELS = "other kernels"


@memo(65536)
def kind_of_kernel(name: str) -> tuple[str, str]:
    """Group and kind of what runs on a device, by its name.

    >>> kind_of_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    ('exposed', 'communication')
    >>> kind_of_kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn")
    ('kernels', 'matrix products')
    """
    if _COMMUNICATION.search(name):
        return EXPOSED, "communication"
    if _UPDATE.search(name):
        return UPDATE, "optimizer"
    kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), OTHER_KERNELS)
    return KERNELS, kind


@dataclass(kw_only=True)
class Spans:
    """Spans by group: starts and ends in seconds on one clock."""

    starts: dict[str, array[float]] = field(default_factory=dict)
    ends: dict[str, array[float]] = field(default_factory=dict)
    kinds: dict[str, float] = field(default_factory=dict)
    """Seconds by kind of kernel, each counted in full."""
    count: int = 0
    most: int = _MOST_SPANS

    def add(self, group: str, start_s: float, end_s: float, kind: str = "") -> None:
        """Add a span; those of no length, and those past the bound, are left out."""
        if not end_s > start_s or self.count >= self.most:
            return
        self.count += 1
        self.starts.setdefault(group, array("d")).append(start_s)
        self.ends.setdefault(group, array("d")).append(end_s)
        if kind:
            self.kinds[kind] = self.kinds.get(kind, 0.0) + end_s - start_s

    def add_kernel(self, name: str, start_s: float, end_s: float) -> None:
        """Add what runs on a device under its own name."""
        group, kind = kind_of_kernel(name)
        self.add(group, start_s, end_s, kind)

    def move(self, source: str, target: str, ranges: Floats) -> None:
        """Count the spans of a group that start inside some ranges, shape (n, 2), under another group."""
        if source not in self.starts or not len(ranges):
            return
        starts, ends = np.array(self.starts[source]), np.array(self.ends[source])
        index = np.searchsorted(ranges[:, 0], starts, side="right") - 1
        inside = (index >= 0) & (starts < ranges[np.maximum(index, 0), 1])
        self.starts[source], self.ends[source] = array("d", starts[~inside]), array("d", ends[~inside])
        for old, moved in ((self.starts, starts), (self.ends, ends)):
            old.setdefault(target, array("d")).extend(moved[inside].tolist())

    def take(self, group: str, other: Spans) -> None:
        """Take the spans that another clock of the same machine has of a group."""
        if group in other.starts:
            self.starts[group], self.ends[group] = other.starts[group], other.ends[group]

    def merged(self, group: str) -> Floats:
        """Intervals of a group that do not overlap, in order, shape (n, 2)."""
        if group not in self.starts:
            return np.zeros((0, 2))
        return merged(np.array(self.starts[group]), np.array(self.ends[group]))

    def shares(self, windows: Sequence[tuple[float, float]]) -> dict[str, float]:
        """Seconds of each group in the windows together; they add up to the length of the windows.

        Args:
            windows: Start and end of each step, which do not overlap [s].
        """
        total = sum(end - start for start, end in windows)
        covered, counted, found = np.zeros((0, 2)), 0.0, {}
        for group in ORDER:
            both = np.concatenate([covered, self.merged(group)])
            covered = merged(both[:, 0], both[:, 1])
            inside = sum(_length_within(covered, start, end) for start, end in windows)
            found[group] = inside - counted
            counted = inside
        found[HOST] = total - counted
        return found


def merged(starts: Floats, ends: Floats) -> Floats:
    """The union of intervals as intervals that do not overlap, in order, shape (n, 2).

    >>> merged(np.array([0.0, 3.0, 1.0]), np.array([2.0, 4.0, 2.5])).tolist()
    [[0.0, 2.5], [3.0, 4.0]]
    """
    if not len(starts):
        return np.zeros((0, 2))
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    begins = np.concatenate([[True], starts[1:] > reach[:-1]])
    first = np.flatnonzero(begins)
    last = np.concatenate([first[1:], [len(starts)]]) - 1
    return np.column_stack([starts[first], reach[last]])


def _length_within(intervals: Floats, start: float, end: float) -> float:
    low = int(np.searchsorted(intervals[:, 1], start, side="right"))
    high = int(np.searchsorted(intervals[:, 0], end, side="left"))
    inside = intervals[low:high]
    return float((np.minimum(inside[:, 1], end) - np.maximum(inside[:, 0], start)).sum())


def step_windows(found: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Step, start and end of every step, where a step ends when the next one starts [s].

    The last of a row of steps has no next one: its own end counts where the ranges of the others last nearly
    until the next, else it is left out, for work that was started in it goes on behind it.

    Args:
        found: Number, start and end of every range, in order; a number that is missing ends a row.
    """
    windows, last, covered = [], [], []
    for index, (number, start, end) in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        if after is not None and after[0] == number + 1 and after[1] > start:
            windows.append((number, start, after[1]))
            covered.append((end - start) / (after[1] - start))
        elif end > start:
            last.append((number, start, end))
    if not covered or float(np.median(covered)) > _NEARLY:
        windows = sorted([*windows, *last], key=lambda window: window[1])
    return windows


def mean_terms(spans: Spans, windows: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Seconds of a step by group, the mean of the windows; groups with none are left out."""
    if not windows:
        return {}
    return {
        f"{group}_s": seconds / len(windows)
        for group, seconds in spans.shares(windows).items()
        if seconds > 1e-9 * len(windows)
    }


def steady_windows(
    windows: Sequence[tuple[int, float, float]], run: ImportedRun
) -> list[tuple[float, float]]:
    """The windows whose steps the steady step time was taken of, as near as their time tells.

    Args:
        windows: Step, start and end of each [s].
        run: With a report for each of them.
    """
    steady = run.steady()
    if steady is None:
        return []
    low_s, high_s = steady.low_s * (1.0 - 1e-9), steady.high_s * (1.0 + 1e-9)
    kept = [(start, end) for _, start, end in windows if low_s <= end - start <= high_s]
    return kept or [(start, end) for _, start, end in windows]


def shares_by_kind(kinds: Mapping[str, float]) -> str:
    """Kinds of kernels with their share of the seconds of all, most first."""
    total = sum(kinds.values())
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {seconds / total:.0%}" for kind, seconds in ranked if seconds > 0.005 * total)
