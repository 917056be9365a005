"""The device that measures: its name in the catalogue, what it can compute, its memory and power."""

from __future__ import annotations

import importlib
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigError, MissingExtraError, UnknownNameError
from ..hardware.catalog import get_device

_NOISE = re.compile(
    r"\((?:R|TM|C)\)|@.*$|\b(?:CPU|Intel|OAM|Processor|with .*)\b|\b\d+-Core\b|\s/\s.*$", re.IGNORECASE
)
"""What drivers add to names and catalogues leave out."""
_TF32_FROM, _FP8_FROM, _BF16_FROM = (8, 0), (8, 9), (8, 0)
_QUERY_TIMEOUT_S = 10
_MILLI = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredDevice:
    """What the measurements run on."""

    name: str
    """As the catalogue spells it; as the driver does where the catalogue has none such."""
    kind: str
    """cuda or cpu."""
    software: str
    """Versions behind the figures, in words."""
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
            return f"no {word} on a CPU" if word in ("tf32", "fp8") else ""
        needed = {"tf32": _TF32_FROM, "fp8": _FP8_FROM, "bf16": _BF16_FROM}.get(word, (0, 0))
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
        raise MissingExtraError(package="torch", extra="torch", purpose="measure") from error


def find_device(*, kind: str = "auto", name: str | None = None) -> MeasuredDevice:
    """The device of this machine that measures.

    Args:
        kind: auto (a GPU where there is one), cuda or cpu.
        name: Name for the rows instead of what the driver says.

    Raises:
        ConfigError: If `kind` is cuda and there is none, or is no such word.
        MissingExtraError: If torch is not installed.
    """
    torch = import_torch()
    there = bool(torch.cuda.is_available())
    if kind not in ("auto", "cuda", "cpu"):
        raise ConfigError(f"--on {kind!r} cannot be. To fix: use auto, cuda or cpu.")
    if kind == "cuda" and not there:
        raise ConfigError("torch finds no CUDA device here. To fix: check the driver, or use --on cpu.")
    if kind == "cpu" or not there:
        return _cpu(torch, name)
    properties = torch.cuda.get_device_properties(0)
    built = torch.version.hip or torch.version.cuda
    return MeasuredDevice(
        name=catalogue_name(name or properties.name),
        kind="cuda",
        software=f"torch {torch.__version__}, CUDA {built}, cuDNN {torch.backends.cudnn.version()}",
        framework_version=str(torch.__version__),
        l2_bytes=float(getattr(properties, "L2_cache_size", 0)),
        capability=(properties.major, properties.minor),
    )


def _cpu(torch: Any, name: str | None) -> MeasuredDevice:
    return MeasuredDevice(
        name=catalogue_name(name or f"CPU-{_processor()}"),
        kind="cpu",
        software=f"torch {torch.__version__}, {torch.get_num_threads()} threads",
        framework_version=str(torch.__version__),
    )


def _processor() -> str:
    """The processor as the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def catalogue_name(spelling: str) -> str:
    """The catalogue's name for a driver's spelling; without one, the spelling with hyphens for blanks.

    >>> catalogue_name("NVIDIA H200"), catalogue_name("CPU-Intel(R) Xeon(R) Platinum 8480+")
    ('H200-SXM-141GB', 'CPU-Xeon-Platinum-8480+')
    """
    prefix = "CPU-" if spelling.startswith("CPU-") else ""
    plain = prefix + " ".join(_NOISE.sub(" ", spelling.removeprefix(prefix)).split())
    for guess in (spelling, plain, plain.replace("CPU-", "CPU-2x", 1)):
        try:
            return get_device(guess).name
        except UnknownNameError:
            continue
    return re.sub(r"[\s,;]+", "-", plain) or spelling


class PowerMeter:
    """Mean power of the GPU between `start` and `stop`; silent where nothing measures it."""

    def __init__(self, kind: str) -> None:
        """Find what measures: the driver's energy counter, or else nvidia-smi."""
        self._library: Any = None
        self._handle: Any = None
        self._start_j: float | None = None
        self._tool = shutil.which("nvidia-smi") if kind == "cuda" else None
        if kind == "cuda":
            self._open_library()

    def _open_library(self) -> None:
        try:
            library = importlib.import_module("pynvml")
            library.nvmlInit()
            handle = library.nvmlDeviceGetHandleByIndex(0)
            library.nvmlDeviceGetTotalEnergyConsumption(handle)
        except Exception:  # noqa: BLE001 - the library raises errors of its own; power is an extra
            return
        self._library, self._handle = library, handle

    def _energy_j(self) -> float | None:
        if self._library is None:
            return None
        try:
            return float(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * _MILLI
        except Exception:  # noqa: BLE001 - as above
            return None

    def start(self) -> None:
        """Begin an interval."""
        self._start_j = self._energy_j()

    def stop(self, seconds: float) -> float | None:
        """Mean power [W] since `start`, `seconds` ago; None where nothing measures it."""
        end_j = self._energy_j()
        if self._start_j is not None and end_j is not None and seconds > 0:
            return (end_j - self._start_j) / seconds
        return self._read_tool()

    def _read_tool(self) -> float | None:
        if self._tool is None:
            return None
        command = [self._tool, "--query-gpu=power.draw.average", "--format=csv,noheader,nounits", "-i", "0"]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
            )
            return float(answer.stdout.strip())
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
