"""Graphs as data that nobody vouches for: what a caller or the store says, checked value by value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from precision_time.errors import CaptureError, printable, validation_problems
from precision_time.workload.graph import OpClass, OpGraph, graph_from_json

_LARGEST = 1e18
"""Elements or FLOPs of one operator: beyond anything that was ever run, and products stay finite."""
_MOST_NODES = 200_000
_MOST_REPEATS = 100_000
_MOST_INPUTS = 4096

_Count = Annotated[float, Field(ge=0.0, le=_LARGEST, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=0, le=10**9)]
_Word = Annotated[str, Field(max_length=200)]
_Text = Annotated[str, Field(max_length=20_000)]
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Body(BaseModel):
    """One operator, as `graph_to_json` writes it."""

    model_config = _STRICT

    op: Annotated[str, Field(min_length=1, max_length=200)]
    op_class: Annotated[OpClass, Field(strict=False)]
    m: _Count = 0.0
    n: _Count = 0.0
    k: _Count = 0.0
    count: _Count = 0.0
    batch_in_count: bool = False
    in_elems: _Count = 0.0
    out_elems: _Count = 0.0
    weight_elems: _Count = 0.0
    param_elems: _Count = 0.0
    param_tensors: _Whole = 0
    scales_with_batch: bool = True
    input_grad: bool = True
    weight_grad: bool = False
    saved_elems: _Count = 0.0
    kernel: _Whole = 1
    stride: _Whole = 1
    causal: bool = False
    sequential_steps: Annotated[int, Field(ge=1, le=10**7)] = 1
    repeat: Annotated[int, Field(ge=1, le=_MOST_REPEATS)] = 1
    segment: _Whole = 0


class _Graph(BaseModel):
    model_config = _STRICT

    schema_version: Annotated[int, Field(alias="schema")]
    name: _Word
    params: _Count
    trainable_params: _Count
    param_tensors: _Whole
    input_bytes_per_sample: _Count
    unpriced: Annotated[dict[_Word, _Whole], Field(max_length=10_000)]
    image_size: Annotated[int, Field(ge=1, le=10**6)] | None
    seq_len: Annotated[int, Field(ge=1, le=10**9)] | None
    notes: _Text
    warnings: _Text
    packed_params: _Count
    bodies: Annotated[list[_Body], Field(min_length=1, max_length=_MOST_NODES)]
    sequence: Annotated[
        list[Annotated[list[Annotated[int, Field(ge=-1, le=_MOST_NODES)]], Field(max_length=_MOST_INPUTS)]],
        Field(min_length=1, max_length=_MOST_NODES),
    ]


class _Document(BaseModel):
    model_config = _STRICT

    graph: _Graph
    layers: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=_MOST_NODES)]


def graph_of(document: Mapping[str, Any] | bytes) -> OpGraph:
    """The graph of `{"graph": ..., "layers": [...]}`, as `Client.upload_model` writes it.

    Args:
        document: As JSON or parsed.

    Raises:
        CaptureError: If anything in it is not what a capture writes.
    """
    try:
        if isinstance(document, bytes):
            found = _Document.model_validate_json(document)
        else:
            found = _Document.model_validate(document)
    except ValidationError as error:
        raise CaptureError(
            f"The graph of the upload is malformed: {validation_problems(error)}. To fix: upload the model "
            "again."
        ) from None
    plain = found.graph.model_dump(by_alias=True, exclude_unset=True)
    if any(not row or not 0 <= row[0] < len(plain["bodies"]) for row in plain["sequence"]):
        raise CaptureError("The graph of the upload names operators that it lacks. To fix: upload it again.")
    if len(found.layers) != len(plain["sequence"]):
        raise CaptureError("The graph of the upload lacks names of layers. To fix: upload the model again.")
    graph = graph_from_json(plain)
    if any(source < -1 for node in graph.nodes for source in node.inputs):
        raise CaptureError("The graph of the upload reads what precedes it. To fix: upload the model again.")
    layered = zip(graph.nodes, found.layers, strict=True)
    return replace(
        graph,
        name=printable(graph.name),
        notes=printable(graph.notes),
        warnings=printable(graph.warnings),
        nodes=tuple(replace(node, layer=printable(layer)) for node, layer in layered),
    )
