"""What no uploaded ONNX file may hold, looked for before its shapes are inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import CaptureError, shown

_EXTERNAL = 1
"""TensorProto.EXTERNAL: the values lie in another file, at a path that the model names."""
_MOST_NODES = 200_000


def check_onnx(file: Path) -> None:
    """Refuse values in other files, functions that call themselves, absurdly many operators.

    Raises:
        CaptureError: Says which.
    """
    import onnx

    try:
        model = onnx.load(str(file), load_external_data=False)
    except Exception as error:  # protobuf raises types of its own
        raise CaptureError(
            f"The upload is not a readable ONNX model ({type(error).__name__}: {shown(str(error))}). To fix: "
            "export it again and check it with onnx.checker."
        ) from error
    bodies = [model.graph, *model.functions]
    nodes = 0
    for part in _parts(bodies):
        nodes += len(part.node)
        if nodes > _MOST_NODES:
            raise CaptureError(
                f"The upload holds more than {_MOST_NODES:,} operators. The rule: no more. To fix: upload "
                "one training step of one model."
            )
        for tensor in _tensors(part):
            if tensor.data_location == _EXTERNAL or len(tensor.external_data):
                places = [entry.value for entry in tensor.external_data if entry.key == "location"]
                raise CaptureError(
                    f"The values of {shown(tensor.name)} lie in another file ({shown(''.join(places))}). The "
                    "rule: an upload is one file, and no path that it names is read. To fix: save it with "
                    "save_as_external_data=False, or upload the Hugging Face configuration or a .pt2 file."
                )
    _check_calls({(each.domain, each.name): each for each in model.functions})


def _parts(bodies: list[Any]) -> Iterator[Any]:
    """Graphs and functions with the graphs inside their operators (of If, Loop and Scan)."""
    waiting = list(bodies)
    while waiting:
        part = waiting.pop()
        yield part
        for node in part.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def _tensors(part: Any) -> Iterator[Any]:
    yield from getattr(part, "initializer", ())
    for sparse in getattr(part, "sparse_initializer", ()):
        yield sparse.values
        yield sparse.indices
    for node in part.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
            yield from attribute.tensors


def _check_calls(functions: Mapping[tuple[str, str], Any]) -> None:
    """Refuse functions that end in themselves: inlining them never ends."""
    calls = {
        key: {
            called
            for part in _parts([function])
            for node in part.node
            if (called := (node.domain, node.op_type)) in functions
        }
        for key, function in functions.items()
    }
    while calls:
        done = {key for key, called in calls.items() if not called & calls.keys()}
        if not done:
            raise CaptureError(
                f"The function {shown(min(calls)[1])} of the ONNX model ends in a call of itself. The rule: "
                "functions call others only. To fix: export the model again."
            )
        calls = {key: called for key, called in calls.items() if key not in done}
