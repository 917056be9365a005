"""What the child does with an upload of each kind; run only there, after it has limited itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import CaptureError, PrecisionTimeError
from precision_time.workload.graph import OpGraph, graph_to_json

UPLOAD = {"onnx": "model.onnx", "pt2": "model.pt2", "hf-config": "config.json"}
"""Name of the upload in the working folder, by its kind."""
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnx.shape_inference"),
    "pt2": ("precision_time_server.capture.program",),
    "hf-config": ("transformers",),
}


def document_of(graph: OpGraph) -> dict[str, Any]:
    """A graph as JSON, with the names of its layers, which `graph_to_json` leaves out."""
    return {"graph": graph_to_json(graph), "layers": [node.layer for node in graph.nodes]}


def prepared(kind: str) -> Callable[[str], Mapping[str, Any]]:
    """The capture of a kind, with what it needs imported.

    Raises:
        ModuleNotFoundError: If torch or the library of this kind of file is not installed.
    """
    for package in ("torch", *_NEEDS[kind], "precision_time.capture.sources"):
        importlib.import_module(package)
    if kind == "hf-config":  # these load C libraries, which is over once the upload is opened
        importlib.import_module("precision_time.capture.huggingface").import_transformers()
        importlib.import_module("transformers.modeling_utils")
        importlib.import_module("transformers.models.auto.modeling_auto")
    capture = {"onnx": _onnx, "pt2": _program, "hf-config": _config}[kind]
    return lambda name: _answer(capture, Path(UPLOAD[kind]), name)


def _answer(capture: Callable[[Path, str], OpGraph], file: Path, name: str) -> Mapping[str, Any]:
    try:
        graph = capture(file, name)
        if not graph.nodes:
            raise CaptureError(f"The model {name!r} has no operators. To fix: upload one that computes.")
    except PrecisionTimeError as error:
        return {"error": str(error), "is_ours": True}
    return document_of(graph)


def _onnx(file: Path, name: str) -> OpGraph:
    from precision_time.capture.onnx_graph import capture_onnx

    from .onnx_checks import check_onnx

    check_onnx(file)
    return capture_onnx(file, name=name)


def _program(file: Path, name: str) -> OpGraph:
    from .program import capture_program

    return capture_program(file, name=name)


def _config(file: Path, name: str) -> OpGraph:
    from precision_time.capture.huggingface import capture_config, config_of

    return capture_config(config_of(file), name=name)
