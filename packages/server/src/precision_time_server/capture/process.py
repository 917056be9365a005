"""`capture_upload`: an upload becomes an `OpGraph` in a process that can do little else.

What holds the child is in `child.py`; from outside it is killed with its process group when its time is up or
its caller has gone, its answer is read up to a size, and checked before anything believes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import precision_time
import precision_time_server
from precision_time.cache import data
from precision_time.errors import CaptureError, MissingExtraError, printable
from precision_time.workload.graph import OpGraph

from .answer import graph_of

_PACKAGES = tuple(
    str(Path(module.__file__ or "").resolve().parent) for module in (precision_time_server, precision_time)
)
"""Folders of the packages that a child imports."""
_CHILD = Path(__file__).with_name("child.py")
_MOST_ANSWER_BYTES = 2**26
_LONGEST_ERROR = 1500
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1",
}  # fmt: skip
"""All that the child's environment holds, besides its folder and where the system looks for libraries."""
_KEPT = ("LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptureLimits:
    """Of one capture."""

    memory_bytes: int
    """Of address space."""
    time_s: float
    """Elapsed; a little more of processor time."""


async def capture_upload(folder: Path, *, kind: str, name: str, limits: CaptureLimits) -> OpGraph:
    """The operators of an upload.

    Args:
        folder: Holds the upload only, under its name in `kinds.UPLOAD`; the child works there.
        kind: "onnx", "pt2" or "hf-config".
        name: Name of the graph.
        limits: Beyond which the capture is given up.

    Raises:
        CaptureError: If the upload is not what `kind` says, cannot be captured, or needs too much.
        MissingExtraError: If torch, or what reads this kind, is not installed here.
    """
    child = await asyncio.create_subprocess_exec(
        *_command(kind=kind, name=name, limits=limits),
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a process group of its own, which is killed as a whole
    )
    try:
        async with asyncio.timeout(limits.time_s):
            answer = await _read(child)
            status = await child.wait()
    except TimeoutError:
        raise CaptureError(
            f"The capture of the upload was ended after {limits.time_s:g} s. The rule: no longer. To fix: "
            "upload a smaller model, or let the operator raise the limit."
        ) from None
    finally:
        _kill(child)
        await asyncio.shield(child.wait())
    return _understood(answer, status, limits)


def _command(*, kind: str, name: str, limits: CaptureLimits, report: bool = False) -> list[str]:
    given = {
        "packages": _PACKAGES,
        "kind": kind,
        "name": name,
        "memory_bytes": limits.memory_bytes,
        "time_s": math.ceil(limits.time_s) + 1,
        "places": [place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")],
        "report": report,
    }
    return [sys.executable, "-I", "-B", str(_CHILD), json.dumps(given)]


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = dict.fromkeys(("HOME", "TMPDIR", "HF_HOME"), str(folder))
    return {**_ENVIRONMENT, **kept, **own}


async def _read(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    parts, size = [], 0
    while part := await child.stdout.read(2**16):
        size += len(part)
        if size > _MOST_ANSWER_BYTES:
            raise CaptureError(
                f"The graph of the upload takes over {_MOST_ANSWER_BYTES:,} bytes. The rule: no more. To "
                "fix: upload a smaller model."
            )
        parts.append(part)
    return b"".join(parts)


def _kill(child: asyncio.subprocess.Process) -> None:
    """The child and what it may have started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        elif child.returncode is None:
            child.kill()


def _understood(answer: bytes, status: int, limits: CaptureLimits) -> OpGraph:
    if status != 0 or not answer:
        raise CaptureError(
            f"The capture of the upload ended without an answer ({_ending(status)}): the file crashes what "
            f"reads it, or needs more than {limits.memory_bytes / 2**30:.1f} GiB or {limits.time_s:g} s of "
            "processor time. To fix: check the file, upload a smaller model, or let the operator raise the "
            "limits."
        )
    if answer.startswith(b'{"error"'):
        raise _error_of(answer)
    return graph_of(answer)


def _ending(status: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name if status < 0 else f"exit code {status}"
    return f"status {status}"


def _error_of(answer: bytes) -> CaptureError | MissingExtraError:
    try:
        said = json.loads(answer)
        text, is_ours, missing = str(said["error"]), bool(said.get("is_ours")), said.get("missing")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return CaptureError("The capture of the upload gave no answer. To fix: check the file.")
    text = printable(text, longest=_LONGEST_ERROR)
    if missing:
        return MissingExtraError(package=str(missing)[:100], extra="capture", purpose="capture uploads")
    if not is_ours:
        text = f"The upload cannot be captured: {text}. To fix: check the file, or upload it as ONNX."
    return CaptureError(text)


@data
def enforced() -> Mapping[str, bool]:
    """What this platform enforces of the limits of a capture, as a child without an upload found it."""
    command = _command(kind="", name="", limits=CaptureLimits(memory_bytes=2**32, time_s=20.0), report=True)
    done = subprocess.run(
        command, env=_environment(Path("/")), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, timeout=30.0, check=False, cwd="/",
    )  # fmt: skip
    found: Any = json.loads(done.stdout)
    if "error" in found:
        raise CaptureError(f"A capture cannot start here: {found['error']}. To fix: see the service's log.")
    return {**found, "elapsed time": True, "process group": hasattr(os, "killpg")}
