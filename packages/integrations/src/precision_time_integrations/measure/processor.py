"""What this processor reaches as this process is limited: a micro-benchmark that makes it a device.

Threads, affinity, the quota of its control groups and the vector instructions that the environment allows
are part of what is measured, and of the name: `<processor>-<instructions>-<share of cores>`.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_time import __version__
from precision_time.hardware.catalog import known_devices
from precision_time.hardware.device import Device
from precision_time.units import GIBI, GIGA, MEBI, MEGA, TERA
from precision_time_integrations.inventory.local import memory_bytes, processor

from .device import catalog_name, import_torch
from .rows import share_name

TYPES = ("fp32", "bf16", "fp16", "fp64", "int8")
_SIDES = (128, 256, 512)
"""Of the square products, of which the fastest gives a peak: short enough to run uninterrupted."""
_TOO_SLOW_S = 0.05
"""A product that would take longer than this is left out: what is emulated takes up to a hundred times."""
_STREAMED, _CHUNK = 2**28, 2**23
"""Bytes that the copies pass through, well beyond the last cache, and of one copy."""
_OPERATORS = 500
_SECONDS = 0.4
"""Of calls for each figure, about."""
_CALLS = 200
_PERIODS = 5
"""Of a quota that a timed call spans at least, where there is one: it stops a process within each."""
_CGROUPS = Path("/sys/fs/cgroup")
_V2, _V1 = "cpu.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
_LEVEL_3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_ISA = "ONEDNN_MAX_CPU_ISA"
ARCH = "cpu-measured"
"""Of a processor whose peaks are rates that its products reached, not products of a data sheet."""

Told = Callable[[int, int, str], object]
"""Called before each figure with its number, how many there are, and what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessorFigures:
    """One processor as this process may use it."""

    name: str
    instructions: str
    threads: int
    cores: float
    """Share of the machine: threads, or less where affinity or a quota allows less."""
    flops_per_s: Mapping[str, float]
    """Of matrix products by type, at best; a type that cannot be multiplied here is missing."""
    memory_bytes_per_s: float
    """Of copies beyond the last cache: read and written."""
    operator_s: float
    """Of an eager operator on a handful of numbers."""
    memory_bytes: float
    cache_bytes: float
    clock_hz: float | None
    software: str

    @property
    def emulated(self) -> Mapping[str, float]:
        """Narrow types that run slower than fp32, and at which share of its rate: they have no units."""
        single = self.flops_per_s["fp32"]
        return {
            word: rate / single
            for word, rate in self.flops_per_s.items()
            if word not in ("fp32", "fp64") and rate < single
        }

    def entry(self) -> dict[str, Any]:
        """As an entry of a file of devices (`--custom`); the rest is as of the device most like it."""
        base = most_like("cpu", self.flops_per_s["fp32"], self.memory_bytes_per_s, _vendor())
        given = {
            "base": base.name,
            "arch": ARCH,
            "memory_gib": round(self.memory_bytes / GIBI, 2),
            "memory_gb_per_s": round(self.memory_bytes_per_s / GIGA, 2),
            "tflops": {word: float(f"{rate / TERA:.4g}") for word, rate in self.flops_per_s.items()},
            "sm_count": self.cores,
            "l2_mib": round(self.cache_bytes / MEBI, 2),
            "link_gb_per_s": 0,
            "launch_overhead_us": round(self.operator_s * 1e6, 2),
            "source": f"{self.source}; the rest by the operating system or as {base.name}",
        }
        return {**given, "boost_mhz": round(self.clock_hz / MEGA)} if self.clock_hz else given

    @property
    def source(self) -> str:
        """Where the figures come from."""
        slow = ", ".join(f"{word} emulated at {share:.3g} of fp32" for word, share in self.emulated.items())
        return (
            f"precision-time {__version__} measure --cpu ({self.software}): products of up to {_SIDES[-1]} "
            f"rows, copies through {_STREAMED // MEBI:.0f} MiB{'; ' + slow if slow else ''}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, SI units."""
        return {
            "name": self.name,
            "instructions": self.instructions,
            "threads": self.threads,
            "cores": self.cores,
            "flops_per_s": dict(self.flops_per_s),
            "emulated": dict(self.emulated),
            "memory_bytes_per_s": self.memory_bytes_per_s,
            "operator_s": self.operator_s,
            "memory_bytes": self.memory_bytes,
            "cache_bytes": self.cache_bytes,
            "clock_hz": self.clock_hz,
            "software": self.software,
        }


def measure_processor(
    *,
    name: str = "",
    cores: float | None = None,
    told: Told = lambda *_: None,
    seconds: float = _SECONDS,
) -> ProcessorFigures:
    """Time products, copies and operators on this processor.

    Args:
        name: For the device instead of the one derived from what was found.
        cores: Share of the machine that the name states; found out where this is None.
        told: Called before each figure.
        seconds: Of calls for each figure, about [s].

    Raises:
        MissingExtraError: If torch is not installed.
    """
    torch = import_torch()
    threads = torch.get_num_threads()
    quota = cpu_quota()
    share = min(threads, _affinity(), *((quota,) if quota else ()))
    span_s = _PERIODS * _period_s() if quota and quota < threads else 0.0
    steps = [*(f"{word} products" for word in TYPES), "memory", "operators"]
    rates: dict[str, float] = {}
    for index, word in enumerate(TYPES):
        told(index, len(steps), steps[index])
        rate = _product_flops_per_s(torch, word, span_s, rates.get("fp32", 0.0), seconds)
        if rate:
            rates[word] = rate
    told(len(TYPES), len(steps), steps[-2])
    bandwidth = _copied_bytes_per_s(torch, span_s, seconds)
    told(len(TYPES) + 1, len(steps), steps[-1])
    operator_s = _operator_s(torch, span_s, seconds)
    return ProcessorFigures(
        name=name or share_name(processor_name(), instructions(), cores or share),
        instructions=instructions(),
        threads=threads,
        cores=share,
        flops_per_s=rates,
        memory_bytes_per_s=bandwidth,
        operator_s=operator_s,
        memory_bytes=available_bytes(),
        cache_bytes=_cache_bytes(),
        clock_hz=processor()[1],
        software=f"torch {torch.__version__}, {threads} thread{'s' * (threads != 1)}, {instructions()}",
    )


def processor_name() -> str:
    """This processor as the catalog spells it, or as it names itself."""
    return catalog_name(f"CPU-{processor()[0]}")


def instructions() -> str:
    """Vector instructions of PyTorch's own kernels, and of oneDNN's where the environment limits them."""
    own = str(import_torch().backends.cpu.get_cpu_capability()).lower()
    limit = re.sub(r"[^a-z0-9]+", "-", os.environ.get(_ISA, "").lower())
    return own if limit in ("", "all", "default", own) else f"{own}-{limit}"


def cpu_quota(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores that the control groups of this process allow, the least of them; None without a limit."""
    limits = [quota / period for quota, period in _quotas(root, own)]
    return min(limits, default=None)


def _period_s() -> float:
    return max((period for _, period in _quotas(_CGROUPS, Path("/proc/self/cgroup"))), default=0.0) * 1e-6


def _quotas(root: Path, own: Path) -> Iterator[tuple[float, float]]:
    """Quota and period [us] of every control group of this process that has one (cgroups, 1 and 2)."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        mounted = [root / "cpu", root / "cpu,cpuacct"] if "cpu" in controllers.split(",") else []
        for mount in [root, root / "unified"] if not controllers else mounted:
            group = mount / path.strip("/")
            for folder in (group, *group.parents):
                if not folder.is_relative_to(mount):
                    break
                words = _text(folder / _V2).split() or [_text(folder / file).strip() for file in _V1]
                quota, period = words if len(words) == 2 else ("", "")  # noqa: PLR2004
                if quota.isdecimal() and period.isdecimal():
                    yield float(quota), float(period)


def available_bytes(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> float:
    """Memory that this process may use: the host's, or less where a control group allows less."""
    limits = [memory_bytes() or 0.0]
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        for folder in (root / path.strip("/"), root / "memory" / path.strip("/")):
            for file in ("memory.max", "memory.limit_in_bytes"):
                text = _text(folder / file).strip()
                limits += [float(text)] if text.isdecimal() else []
    return min(limit for limit in limits if limit or limits == [0.0])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _best_s(call: Callable[[], object], span_s: float, seconds: float) -> float:
    """Seconds of a call at best: other work on the machine only adds to it.

    Under a quota calls are timed together over whole periods, because within one a call may run unhindered.
    """
    call()
    start_s, best_s, calls = time.perf_counter(), float("inf"), 0
    while calls < 2 or (calls < _CALLS and time.perf_counter() - start_s < seconds):  # noqa: PLR2004
        begin_s, count = time.perf_counter(), 0
        while not count or time.perf_counter() - begin_s < span_s:
            call()
            count += 1
        best_s = min(best_s, (time.perf_counter() - begin_s) / count)
        calls += 1
    return best_s


def _product_flops_per_s(torch: Any, word: str, span_s: float, single: float, seconds: float) -> float:
    """Of a linear layer's product; 0 where PyTorch has no such kernel here.

    The best of the sizes; of a type that none of them runs as fast as fp32 the largest, because small ones
    hide what emulation costs.
    """
    rates: list[float] = []
    for side in _SIDES:
        if rates and 2.0 * side**3 / rates[-1] > _TOO_SLOW_S:
            break
        try:
            rates.append(2.0 * side**3 / _best_s(_product(torch, word, side), span_s, seconds))
        except (RuntimeError, NotImplementedError, AttributeError):
            return 0.0
    return max(rates) if max(rates) >= single or word == "fp64" else rates[-1]


def _product(torch: Any, word: str, side: int) -> Callable[[], object]:
    if word == "int8":
        left, right = (torch.randint(-9, 9, (side, side), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right)  # noqa: SLF001 - PyTorch has no public one
    dtype = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}[word]
    rows, weight = (torch.randn(side, side).to(getattr(torch, dtype)) for _ in range(2))
    return lambda: torch.nn.functional.linear(rows, weight)


def _copied_bytes_per_s(torch: Any, span_s: float, seconds: float) -> float:
    """Bytes read and written per second by copies of chunks, none of which the caches hold.

    The lower quartile of the chunks' times: the best one may have been fetched before.
    """
    source, target = torch.ones(_STREAMED, dtype=torch.uint8), torch.ones(_STREAMED, dtype=torch.uint8)
    chunks = list(zip(source.split(_CHUNK), target.split(_CHUNK), strict=True))
    if span_s:
        whole_s = _best_s(lambda: [to.copy_(part) for part, to in chunks], span_s, seconds)
        return 2.0 * _STREAMED / whole_s
    samples: list[float] = []
    start_s = time.perf_counter()
    while not samples or time.perf_counter() - start_s < seconds:
        for part, to in chunks:
            begin_s = time.perf_counter()
            to.copy_(part)
            samples.append(time.perf_counter() - begin_s)
    return 2.0 * _CHUNK / statistics.quantiles(samples, n=4)[0]


def _operator_s(torch: Any, span_s: float, seconds: float) -> float:
    """Of one of a chain of eager operators that do next to nothing."""
    numbers = torch.ones(8)

    def chain() -> None:
        result = numbers
        for _ in range(_OPERATORS):
            result = result + 1.0

    return _best_s(chain, span_s, seconds) / _OPERATORS


def most_like(kind: str, fp32: float, bandwidth: float, vendor: str) -> Device:
    """The catalog's device of the same kind, and maker where that is known, with the nearest figures."""

    def distance(other: Device) -> float:
        figures = ((fp32, other.peak_flops_per_s["fp32"]), (bandwidth, other.memory_bandwidth_bytes_per_s))
        return sum(abs(math.log2(mine / theirs)) for mine, theirs in figures) + (other.vendor != vendor)

    return min((d for d in known_devices() if d.arch.startswith("cpu") == (kind == "cpu")), key=distance)


def _vendor() -> str:
    text = _text(Path("/proc/cpuinfo"))
    return next((maker for word, maker in _VENDORS.items() if word in text), "")


def _cache_bytes() -> float:
    """The last level of the cache; 0 where the system does not say."""
    size = _text(_LEVEL_3).strip().removesuffix("K")
    return float(size) * 1024 if size.isdecimal() else 0.0
