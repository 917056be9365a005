"""The device that measures: its name in the catalog, what it can compute, its memory and power."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from precision_time.errors import ConfigError, import_failure
from precision_time.units import KIBI
from precision_time_integrations.inventory.local import processor
from precision_time_integrations.inventory.mapping import map_device, plain_name

from .precisions import CPU_UNSUPPORTED, LEAST_CAPABILITY

_QUERY_TIMEOUT_S = 10
_MILLI = 1e-3
_SELF = Path("/proc/self")
_RESET_PEAK = "5"
"""Makes Linux forget the largest resident set of a process (proc(5), clear_refs)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredDevice:
    """What the measurements run on."""

    name: str
    """As the catalog spells it; as the driver does where the catalog does not have it."""
    kind: str
    """cuda or cpu."""
    software: str
    """Versions of what measured, as text."""
    framework_version: str
    l2_bytes: float = 0.0
    capability: tuple[int, int] = (0, 0)

    @property
    def source(self) -> str:
        """`source` column of its rows."""
        return "own-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def refuses(self, precision: str) -> str:
        """Why the device cannot run a precision or type; empty if it can."""
        word = precision.removesuffix("-mixed")
        if self.kind == "cpu":
            return f"no {word} on a CPU" if word in CPU_UNSUPPORTED else ""
        needed = LEAST_CAPABILITY.get(word, (0, 0))
        if self.capability < needed:
            return f"{word} needs compute capability {needed[0]}.{needed[1]}, this device has " + (
                f"{self.capability[0]}.{self.capability[1]}"
            )
        return ""


def import_torch() -> ModuleType:
    """Torch.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise import_failure(
            error,
            name="torch",
            package="torch",
            extra="precision-time-integrations[measure]",
            purpose="measure",
        ) from error


def find_device(*, kind: str = "auto", name: str | None = None) -> MeasuredDevice:
    """The device of this machine that measures.

    Args:
        kind: auto (a GPU where there is one), cuda or cpu.
        name: Name for the rows instead of what the driver says.

    Raises:
        ConfigError: If `kind` is cuda and there is none, or is none of the three.
        MissingExtraError: If torch is not installed.
    """
    torch = import_torch()
    available = bool(torch.cuda.is_available())
    if kind not in ("auto", "cuda", "cpu"):
        raise ConfigError(f"--on {kind!r} is invalid. To fix: use auto, cuda or cpu.")
    if kind == "cuda" and not available:
        raise ConfigError("torch finds no CUDA device here. To fix: check the driver, or use --on cpu.")
    if kind == "cpu" or not available:
        return _cpu(torch, name)
    properties = torch.cuda.get_device_properties(0)
    built = torch.version.hip or torch.version.cuda
    return MeasuredDevice(
        name=catalog_name(name or properties.name),
        kind="cuda",
        software=f"torch {torch.__version__}, CUDA {built}, cuDNN {torch.backends.cudnn.version()}",
        framework_version=str(torch.__version__),
        l2_bytes=float(getattr(properties, "L2_cache_size", 0)),
        capability=(properties.major, properties.minor),
    )


def _cpu(torch: Any, name: str | None) -> MeasuredDevice:
    return MeasuredDevice(
        name=catalog_name(name or f"CPU-{processor()[0]}"),
        kind="cpu",
        software=f"torch {torch.__version__}, {torch.get_num_threads()} threads",
        framework_version=str(torch.__version__),
    )


def catalog_name(spelling: str) -> str:
    """The catalog's name for a driver's spelling; without one, the spelling with hyphens for blanks.

    >>> catalog_name("NVIDIA H200"), catalog_name("CPU-Intel(R) Xeon(R) Platinum 8480+")
    ('H200-SXM-141GB', 'CPU-Xeon-Platinum-8480+')
    """
    prefix = "CPU-" if spelling.startswith("CPU-") else ""
    reported = spelling.removeprefix(prefix)
    known, note = map_device(reported)
    # A processor that hides its model is not the usual one of its family, as a request would have it.
    known = "" if prefix and note else known
    return known or re.sub(r"[\s,;]+", "-", prefix + plain_name(reported)) or spelling


class ResourceMonitor:
    """Peak memory and mean power of one device between `start` and `stop`.

    Power is read from the energy counter of the driver. It numbers all GPUs of a host and a worker only its
    own, so that they are matched by their identifier.
    """

    def __init__(self, kind: str, *, query_tool: bool = False) -> None:
        """Find what counts energy.

        Args:
            kind: cuda or cpu.
            query_tool: Without an energy counter take the average power that nvidia-smi reports at the end.
        """
        self._kind = kind
        self._energy_j = _energy_counter() if kind == "cuda" else _unknown
        self._tool = shutil.which("nvidia-smi") if kind == "cuda" and query_tool else None
        self._peak: Callable[[], float | None] = _unknown
        self._begin_j: float | None = None
        self._begin_s = 0.0

    def start(self) -> Self:
        """Begin an interval."""
        self._peak = _watch_peak(self._kind)
        self._begin_j, self._begin_s = self._energy_j(), time.perf_counter()
        return self

    def power_w(self) -> float | None:
        """Mean power since `start` [W]; None where nothing measures it."""
        end_j, seconds = self._energy_j(), time.perf_counter() - self._begin_s
        if self._begin_j is not None and end_j is not None and seconds > 0:
            return (end_j - self._begin_j) / seconds
        return _reported_power_w(self._tool)

    def peak_bytes(self) -> float | None:
        """Largest memory since `start`: allocated on a GPU, resident set of the process on a CPU."""
        return self._peak()


def _unknown() -> None:
    return None


def _energy_counter() -> Callable[[], float | None]:
    """What reads the energy of this process's GPU so far [J]; None where nothing counts it."""
    torch = import_torch()
    try:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
        identifier = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        handle = library.nvmlDeviceGetHandleByUUID(identifier)
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # noqa: BLE001 - the library raises errors of its own; power is optional
        return _unknown
    return lambda: float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * _MILLI


def _reported_power_w(tool: str | None) -> float | None:
    if tool is None:
        return None
    command = [tool, "--query-gpu=power.draw.average", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True)
        return float(answer.stdout.strip())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _watch_peak(kind: str) -> Callable[[], float | None]:
    """Forget the peak so far. Returns what reads the peak since then [bytes]; None where nothing knows it."""
    if kind == "cuda":
        torch = import_torch()
        torch.cuda.reset_peak_memory_stats()
        return lambda: float(torch.cuda.max_memory_allocated())
    try:
        (_SELF / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return _unknown
    return _peak_resident


def _peak_resident() -> float | None:
    try:
        lines = (_SELF / "status").read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return None if kib is None else float(kib) * KIBI
