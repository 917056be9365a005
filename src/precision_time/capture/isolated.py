"""`python -m precision_time.capture.isolated FILE NAME OUT`: capture an exported program apart.

Loading a .pt2 file can run code that is stored in it. This process does it under limits and hands back the
operator graph as JSON, so that nothing of the file is ever loaded by the process that predicts.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from ..workload.graph import graph_to_json

_LEAST_MEMORY = 16 * 2**30
"""Of address space; the weights come on top [B]."""
_LONGEST_S = 600
_LARGEST_OUTPUT = 2**30


def _limit(weights: int) -> None:
    """Bound memory, processor time and files written, where the platform can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in (
        (resource.RLIMIT_AS, _LEAST_MEMORY + 4 * weights),
        (resource.RLIMIT_CPU, _LONGEST_S),
        (resource.RLIMIT_FSIZE, _LARGEST_OUTPUT),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
            resource.setrlimit(kind, (most, most))


def main(file: str, name: str, out: str) -> None:
    """Write `{"graph": ..., "layers": [...]}`, or `{"error": ...}`, to `out`."""
    _limit(Path(file).stat().st_size)
    answer: dict[str, Any]
    try:
        import torch

        from .sources import capture_exported

        graph = capture_exported(torch.export.load(file), name=name)
        answer = {"graph": graph_to_json(graph), "layers": [node.layer for node in graph.nodes]}
    except Exception as error:  # noqa: BLE001 - the file's code may raise anything
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
